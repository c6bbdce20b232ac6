#include "stage_workers/pipeline/cleanup.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <mutex>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "stage_workers/card/emulated_card.h"
#include "stage_workers/worker/signals.h"

namespace vrambroker::pipeline {
namespace {

constexpr char kCardPrefix[] = "pipeline-";
constexpr char kSegmentPrefix[] = "vram-card-";
constexpr char kFolderPrefix[] = "vram-";
constexpr char kOwnerFile[] = "/.owner";

struct Registry {
  std::mutex mutex;
  std::set<pid_t> children;
  std::set<std::string> cards;
  std::set<std::string> folders;
};

// Never destroyed: the thread that waits for signals may use it while the process ends.
Registry& GetRegistry() {
  static auto* const registry = new Registry;
  return *registry;
}

void RemoveAll(Registry& registry) {
  for (pid_t pid : registry.children) kill(pid, SIGKILL);
  for (pid_t pid : registry.children) {
    while (waitpid(pid, nullptr, 0) < 0 && errno == EINTR) {
    }
  }
  for (const std::string& name : registry.cards) (void)card::EmulatedCard::Remove(name);
  for (const std::string& path : registry.folders) {
    std::error_code ignored;
    std::filesystem::remove_all(path, ignored);
  }
}

// Cards are named PREFIX PID "-" NUMBER: those whose process is gone serve nobody.
void RemoveAbandonedCards() {
  const std::string prefix = absl::StrCat(kSegmentPrefix, kCardPrefix);
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/dev/shm", error)) {
    const std::string file = entry.path().filename().string();
    if (file.rfind(prefix, 0) != 0) continue;
    int pid = 0;
    const std::string rest = file.substr(prefix.size());
    if (!absl::SimpleAtoi(rest.substr(0, rest.find('-')), &pid) || pid <= 0) continue;
    if (kill(pid, 0) == 0 || errno != ESRCH) continue;
    (void)card::EmulatedCard::Remove(file.substr(std::strlen(kSegmentPrefix)));
  }
}

// Folders whose owner's lock is free: it has died without a chance to remove them. One without an
// owner's file is somebody else's, or about to get it.
void RemoveAbandonedFolders(const std::string& parent) {
  std::error_code error;
  std::vector<std::filesystem::path> abandoned;
  for (const auto& entry : std::filesystem::directory_iterator(parent, error)) {
    if (entry.path().filename().string().rfind(kFolderPrefix, 0) != 0) continue;
    const int owner = open((entry.path().string() + kOwnerFile).c_str(), O_RDWR | O_CLOEXEC);
    if (owner < 0) continue;
    if (flock(owner, LOCK_EX | LOCK_NB) == 0) abandoned.push_back(entry.path());
    close(owner);
  }
  for (const std::filesystem::path& folder : abandoned) {
    std::filesystem::remove_all(folder, error);
  }
}

// Locked before it has its name, so that nobody finds it free. Below 0: it could not be made.
int LockOwnerFile(const std::string& path) {
  const std::string unnamed = path + ".new";
  const int owner = open(unnamed.c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0600);
  if (owner < 0) return owner;
  if (flock(owner, LOCK_EX | LOCK_NB) == 0 && rename(unnamed.c_str(), path.c_str()) == 0) {
    return owner;
  }
  close(owner);
  return -1;
}

std::string NextCardName() {
  static std::atomic<int> serial{0};
  return absl::StrCat(kCardPrefix, getpid(), "-", ++serial);
}

}  // namespace

void CleanUpOnSignals() {
  worker::OnFirstSignal({SIGINT, SIGTERM, SIGHUP}, [](int signal) {
    Registry& registry = GetRegistry();
    const std::lock_guard<std::mutex> lock(registry.mutex);
    std::fprintf(stderr, "\ninterrupted: ending %zu processes\n", registry.children.size());
    RemoveAll(registry);
    std::_Exit(128 + signal);
  });
}

void RegisterChild(pid_t pid) {
  Registry& registry = GetRegistry();
  const std::lock_guard<std::mutex> lock(registry.mutex);
  registry.children.insert(pid);
}

bool ReapChild(pid_t pid, int* wait_status) {
  Registry& registry = GetRegistry();
  const std::lock_guard<std::mutex> lock(registry.mutex);
  if (registry.children.count(pid) == 0) return true;
  if (waitpid(pid, wait_status, WNOHANG) == 0) return false;
  registry.children.erase(pid);
  return true;
}

TemporaryCardName::TemporaryCardName() : name_(NextCardName()) {
  RemoveAbandonedCards();
  // A process of our number that died before us may have left one.
  (void)card::EmulatedCard::Remove(name_);
  Registry& registry = GetRegistry();
  const std::lock_guard<std::mutex> lock(registry.mutex);
  registry.cards.insert(name_);
}

TemporaryCardName::~TemporaryCardName() {
  Registry& registry = GetRegistry();
  const std::lock_guard<std::mutex> lock(registry.mutex);
  (void)card::EmulatedCard::Remove(name_);
  registry.cards.erase(name_);
}

absl::StatusOr<TemporaryFolder> TemporaryFolder::Create() {
  const char* base = std::getenv("TMPDIR");
  const std::string parent = base != nullptr && *base != '\0' ? base : "/tmp";
  RemoveAbandonedFolders(parent);
  std::string path = absl::StrCat(parent, "/", kFolderPrefix, "XXXXXX");
  if (mkdtemp(path.data()) == nullptr) {
    return absl::UnavailableError(
        absl::StrCat("cannot make a folder ", path, ": ", std::strerror(errno)));
  }
  Registry& registry = GetRegistry();
  const std::lock_guard<std::mutex> lock(registry.mutex);
  registry.folders.insert(path);
  return TemporaryFolder(path, LockOwnerFile(path + kOwnerFile));
}

TemporaryFolder::~TemporaryFolder() {
  if (path_.empty()) return;
  Registry& registry = GetRegistry();
  const std::lock_guard<std::mutex> lock(registry.mutex);
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
  registry.folders.erase(path_);
  if (lock_ >= 0) close(lock_);
}

}  // namespace vrambroker::pipeline
