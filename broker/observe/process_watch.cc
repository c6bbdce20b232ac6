#include "broker/observe/process_watch.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <optional>
#include <sstream>
#include <string>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace vrambroker::observe {
namespace {

constexpr ProcessWatch::WatchId kWakeId = 0;

absl::Status WatchError(absl::string_view what, int error) {
  const std::string message = absl::StrCat(what, ": ", std::strerror(error));
  if (error == EMFILE || error == ENFILE || error == ENOMEM || error == ENOSPC) {
    return absl::ResourceExhaustedError(message);
  }
  if (error == ENOSYS) return absl::UnimplementedError(absl::StrCat(message, "; needs Linux 5.3"));
  if (error == ESRCH) return absl::NotFoundError(message);
  return absl::FailedPreconditionError(message);
}

// All of a small file of /proc; none where it cannot be read (the process may go meanwhile).
std::optional<std::string> ReadProc(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  if (!file || text.str().empty()) return std::nullopt;
  return text.str();
}

}  // namespace

absl::StatusOr<uint64_t> ProcessStartTime(int32_t pid) {
  const std::string path = absl::StrCat("/proc/", pid, "/stat");
  const std::optional<std::string> stat = ReadProc(path);
  if (!stat.has_value()) {
    return absl::NotFoundError(absl::StrCat("no process ", pid, ": cannot read ", path));
  }
  // The second field, a name in parentheses, may contain anything: the third follows the last ')'.
  const size_t name_end = stat->rfind(')');
  if (name_end == std::string::npos) {
    return absl::InternalError(absl::StrCat(path, " has no name in parentheses"));
  }
  const std::vector<std::string> fields =
      absl::StrSplit(absl::string_view(*stat).substr(name_end + 1), ' ', absl::SkipEmpty());
  constexpr size_t kStartTime = 22 - 3;
  uint64_t ticks = 0;
  if (fields.size() <= kStartTime || !absl::SimpleAtoi(fields[kStartTime], &ticks) || ticks == 0) {
    return absl::InternalError(absl::StrCat(path, " has no start time in field 22"));
  }
  return ticks;
}

absl::StatusOr<UniqueFd> OpenPidfd(int32_t pid) {
  if (pid < 1) {
    return absl::InvalidArgumentError(absl::StrCat("pid is ", pid, ", must be above 0"));
  }
  UniqueFd pidfd(static_cast<int>(syscall(SYS_pidfd_open, pid, 0u)));
  if (!pidfd.valid()) return WatchError(absl::StrCat("pidfd_open of process ", pid), errno);
  return pidfd;
}

absl::StatusOr<int32_t> PidOfPidfd(int pidfd) {
  const std::optional<std::string> info = ReadProc(absl::StrCat("/proc/self/fdinfo/", pidfd));
  for (absl::string_view line : absl::StrSplit(info.value_or(""), '\n')) {
    int32_t pid = 0;
    if (absl::ConsumePrefix(&line, "Pid:") && absl::SimpleAtoi(line, &pid)) return pid;
  }
  return absl::InvalidArgumentError(absl::StrCat("descriptor ", pidfd, " is no pidfd"));
}

absl::StatusOr<uint64_t> UniqueIdOfPidfd(int pidfd) {
  struct stat its = {}, own = {};
  if (fstat(pidfd, &its) != 0) {
    return absl::InvalidArgumentError(absl::StrCat("no descriptor ", pidfd));
  }
  const UniqueFd parent(static_cast<int>(syscall(SYS_pidfd_open, getpid(), 0u)));
  if (!parent.valid() || fstat(parent.get(), &own) != 0) return WatchError("pidfd_open", errno);
  const bool same = its.st_ino == own.st_ino && its.st_dev == own.st_dev;
  const absl::StatusOr<int32_t> pid = PidOfPidfd(pidfd);
  if (its.st_ino <= 1 || (same && (!pid.ok() || *pid != getpid()))) {
    return absl::NotFoundError("this kernel's pidfds share one inode; needs Linux 6.9");
  }
  return its.st_ino;
}

bool IsProcessHere(int32_t pid, uint64_t start_ticks) {
  if (pid < 1 || start_ticks == 0) return false;
  const absl::StatusOr<uint64_t> ticks = ProcessStartTime(pid);
  return ticks.ok() && *ticks == start_ticks;
}

bool HasDied(int pidfd) {
  pollfd query{pidfd, POLLIN, 0};
  int ready;
  do {
    ready = poll(&query, 1, 0);
  } while (ready < 0 && errno == EINTR);
  return ready == 1 && (query.revents & (POLLIN | POLLHUP)) != 0;
}

absl::StatusOr<std::unique_ptr<ProcessWatch>> ProcessWatch::Start(size_t max_watches) {
  if (max_watches < 1 || max_watches > kMaxWatches) {
    return absl::InvalidArgumentError(
        absl::StrCat("max_watches is ", max_watches, ", allowed are 1 to ", kMaxWatches));
  }
  UniqueFd epoll(epoll_create1(EPOLL_CLOEXEC));
  if (!epoll.valid()) return WatchError("epoll_create1", errno);
  UniqueFd wake(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wake.valid()) return WatchError("eventfd", errno);
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.u64 = kWakeId;
  if (epoll_ctl(epoll.get(), EPOLL_CTL_ADD, wake.get(), &event) != 0) {
    return WatchError("epoll_ctl", errno);
  }
  return std::unique_ptr<ProcessWatch>(
      new ProcessWatch(std::move(epoll), std::move(wake), max_watches));
}

ProcessWatch::ProcessWatch(UniqueFd epoll, UniqueFd wake, size_t max_watches)
    : epoll_(std::move(epoll)), wake_(std::move(wake)), max_watches_(max_watches) {
  thread_ = std::thread([this] { Run(); });
}

ProcessWatch::~ProcessWatch() {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    stopping_ = true;
  }
  eventfd_write(wake_.get(), 1);
  thread_.join();
}

absl::StatusOr<ProcessWatch::WatchId> ProcessWatch::Watch(int32_t pid, uint64_t start_ticks,
                                                          Callback on_death) {
  absl::StatusOr<UniqueFd> pidfd = OpenPidfd(pid);
  if (absl::IsNotFound(pidfd.status())) return Add(UniqueFd(), std::move(on_death));
  if (!pidfd.ok()) return pidfd.status();
  if (start_ticks != 0) {
    // Read after the descriptor was opened: while that process lives, the pid is its own.
    const absl::StatusOr<uint64_t> ticks = ProcessStartTime(pid);
    const bool died = HasDied(pidfd->get());
    if (!died && !ticks.ok()) {
      return absl::FailedPreconditionError(absl::StrCat(
          "process ", pid, " lives, but its start time cannot be read: ", ticks.status().message(),
          "; is /proc mounted, and not with hidepid?"));
    }
    if (died || *ticks != start_ticks) return Add(UniqueFd(), std::move(on_death));
  }
  return Add(*std::move(pidfd), std::move(on_death));
}

absl::StatusOr<ProcessWatch::WatchId> ProcessWatch::WatchPidfd(UniqueFd pidfd, Callback on_death) {
  const absl::StatusOr<int32_t> pid = PidOfPidfd(pidfd.get());
  if (!pid.ok()) return pid.status();
  return Add(std::move(pidfd), std::move(on_death));
}

absl::StatusOr<ProcessWatch::WatchId> ProcessWatch::Add(UniqueFd pidfd, Callback on_death) {
  if (on_death == nullptr) return absl::InvalidArgumentError("no callback for a process's death");
  std::lock_guard<std::mutex> lock(mutex_);
  if (entries_.size() >= max_watches_) {
    return absl::ResourceExhaustedError(
        absl::StrCat(entries_.size(), " processes are watched, at most ", max_watches_));
  }
  const WatchId id = next_id_;
  if (pidfd.valid()) {
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.u64 = id;
    if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, pidfd.get(), &event) != 0) {
      return WatchError("epoll_ctl", errno);
    }
  } else {
    dead_on_arrival_.push_back(id);
    eventfd_write(wake_.get(), 1);
  }
  ++next_id_;
  entries_.emplace(id, Entry{std::move(pidfd), std::move(on_death)});
  return id;
}

bool ProcessWatch::Cancel(WatchId id) {
  Entry entry;
  std::lock_guard<std::mutex> lock(mutex_);
  const auto found = entries_.find(id);
  if (found == entries_.end()) return false;
  entry = Take(found);
  return true;
}

size_t ProcessWatch::Size() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return entries_.size();
}

ProcessWatch::Entry ProcessWatch::Take(std::unordered_map<WatchId, Entry>::iterator entry) {
  Entry taken = std::move(entry->second);
  entries_.erase(entry);
  // A descriptor that was copied elsewhere would stay in the set if it were only closed.
  if (taken.pidfd.valid()) epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, taken.pidfd.get(), nullptr);
  return taken;
}

void ProcessWatch::CallBack(WatchId id) {
  Entry entry;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    const auto found = entries_.find(id);
    if (stopping_ || found == entries_.end()) return;
    entry = Take(found);
  }
  entry.on_death();
}

void ProcessWatch::Run() {
  std::array<epoll_event, 64> events;
  while (true) {
    const int count = epoll_wait(epoll_.get(), events.data(), events.size(), -1);
    std::vector<WatchId> dead;
    {
      std::lock_guard<std::mutex> lock(mutex_);
      if (stopping_) return;
      dead.swap(dead_on_arrival_);
    }
    for (int i = 0; i < count; ++i) {
      if (events[i].data.u64 != kWakeId) {
        dead.push_back(events[i].data.u64);
        continue;
      }
      eventfd_t wakes;
      eventfd_read(wake_.get(), &wakes);
    }
    for (WatchId id : dead) CallBack(id);
  }
}

}  // namespace vrambroker::observe
