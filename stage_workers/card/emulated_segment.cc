// Making, opening and removing the segment of an emulated card.
#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "stage_workers/card/emulated_memory.h"

namespace vrambroker::card {
namespace {

constexpr char kMagic[8] = {'v', 'r', 'a', 'm', 'c', 'a', 'r', 'd'};
// Raised with every change of the header's layout.
constexpr uint32_t kLayout = 2;

static_assert(std::atomic<double>::is_always_lock_free);
static_assert(std::atomic<int64_t>::is_always_lock_free);

constexpr int64_t RoundUp(int64_t value, int64_t unit) { return (value + unit - 1) / unit * unit; }

std::string SegmentPath(const std::string& name) { return "/dev/shm/vram-card-" + name; }

absl::Status CheckName(const std::string& name) {
  const bool good = !name.empty() && name.size() <= 100 &&
                    std::all_of(name.begin(), name.end(), [](unsigned char c) {
                      return std::isalnum(c) || c == '.' || c == '-' || c == '_';
                    });
  if (good) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "card name \"", name, "\": 1 to 100 letters, digits, '.', '-' or '_' are allowed"));
}

absl::Status CheckOptions(const EmulatedCardOptions& options) {
  if (options.capacity_bytes < 1 || options.capacity_bytes > kMaxCapacityBytes) {
    return absl::InvalidArgumentError(absl::StrCat("capacity_bytes: ", options.capacity_bytes,
                                                   " given; 1 to ", kMaxCapacityBytes,
                                                   " (1TiB) are allowed"));
  }
  if (!(options.h2d_bytes_per_second >= 0 && options.h2d_bytes_per_second <= 1e15)) {
    return absl::InvalidArgumentError(
        absl::StrCat("h2d_bytes_per_second: ", options.h2d_bytes_per_second,
                     " given; 0 to 1e15 bytes a second are allowed"));
  }
  if (options.usage_lag.has_value() &&
      (*options.usage_lag < absl::ZeroDuration() || *options.usage_lag > absl::Hours(1))) {
    return absl::InvalidArgumentError(absl::StrCat(
        "usage_lag: ", absl::FormatDuration(*options.usage_lag), " given; 0 to 1h is allowed"));
  }
  return absl::OkStatus();
}

absl::Status FileError(const std::string& path, const char* what) {
  const int error = errno;
  return absl::ErrnoToStatus(error, absl::StrCat(path, ": ", what));
}

// The segment's file, locked for sharing, and still the one of its name.
absl::StatusOr<int> OpenLocked(const std::string& name) {
  constexpr int kTries = 100;
  const std::string path = SegmentPath(name);
  for (int i = 0; i < kTries; ++i) {
    const int fd = open(path.c_str(), O_RDWR | O_CLOEXEC);
    if (fd < 0 && errno == ENOENT) {
      return absl::NotFoundError(absl::StrCat("there is no emulated card ", name, " (", path, ")"));
    }
    if (fd < 0) return FileError(path, "cannot be opened");
    struct stat info = {};
    // Locked alone by one who removes it: then it has no name any more.
    if (flock(fd, LOCK_SH) == 0 && fstat(fd, &info) == 0 && info.st_nlink > 0) return fd;
    close(fd);
  }
  return absl::UnavailableError(absl::StrCat(path, ": cannot be locked"));
}

}  // namespace

EmulatedMemory::EmulatedMemory(std::string name, char* map, int64_t map_bytes, int file)
    : name_(std::move(name)),
      file_(file),
      map_(map),
      map_bytes_(map_bytes),
      header_(reinterpret_cast<Header*>(map)),
      next_page_(reinterpret_cast<uint32_t*>(map + RoundUp(sizeof(Header), kPageBytes))),
      touched_(reinterpret_cast<std::atomic<uint8_t>*>(next_page_ + header_->page_count)),
      data_(map + map_bytes - header_->page_count * kPageBytes),
      mapped_(header_->page_count) {}

EmulatedMemory::~EmulatedMemory() {
  munmap(map_, map_bytes_);
  if (file_ >= 0) close(file_);
}

uint32_t EmulatedMemory::PageCount(int64_t capacity) {
  return static_cast<uint32_t>(RoundUp(capacity, kPageBytes) / kPageBytes +
                               EmulatedCard::kMaxBlocks);
}

int64_t EmulatedMemory::SegmentBytes(int64_t capacity) {
  const int64_t pages = PageCount(capacity);
  const int64_t tables = pages * (sizeof(uint32_t) + sizeof(uint8_t));
  return RoundUp(sizeof(Header), kPageBytes) + RoundUp(tables, kPageBytes) + pages * kPageBytes;
}

absl::StatusOr<std::unique_ptr<EmulatedMemory>> EmulatedMemory::Create(
    const std::string& name, const EmulatedCardOptions& options) {
  if (absl::Status status = CheckName(name); !status.ok()) return status;
  if (absl::Status status = CheckOptions(options); !status.ok()) return status;
  if (absl::Status status = MakeSegment(name, options); !status.ok()) return status;
  absl::StatusOr<std::unique_ptr<EmulatedMemory>> memory = Open(name);
  if (!memory.ok()) return memory;
  Header* header = (*memory)->header_;
  if (header->capacity != options.capacity_bytes) {
    return absl::FailedPreconditionError(absl::StrCat(
        "emulated card ", name, " exists with ", header->capacity, " bytes; ",
        options.capacity_bytes, " were asked for. Remove ", SegmentPath(name), " to make it anew"));
  }
  if (options.h2d_bytes_per_second > 0) header->rate = options.h2d_bytes_per_second;
  if (options.usage_lag.has_value()) {
    header->lag_nanos = absl::ToInt64Nanoseconds(*options.usage_lag);
  }
  return memory;
}

// Makes the segment under a name of this process and links it in when it is complete, so that
// nobody ever opens half a card. One that exists already is left alone.
absl::Status EmulatedMemory::MakeSegment(const std::string& name,
                                         const EmulatedCardOptions& options) {
  const std::string path = SegmentPath(name);
  if (access(path.c_str(), F_OK) == 0) return absl::OkStatus();
  static std::atomic<int> serial{0};
  const std::string draft =
      absl::StrCat("/dev/shm/.vram-card-", name, ".", getpid(), ".", ++serial);
  const int fd = open(draft.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0660);
  if (fd < 0) return FileError(draft, "cannot be made");
  absl::Status status;
  const int64_t bytes = SegmentBytes(options.capacity_bytes);
  void* map = MAP_FAILED;
  if (ftruncate(fd, bytes) != 0) {
    status = FileError(draft, "cannot be sized");
  } else if (map = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
             map == MAP_FAILED) {
    status = FileError(draft, "cannot be mapped");
  } else {
    static_cast<Header*>(map)->page_count = PageCount(options.capacity_bytes);
    EmulatedMemory memory(name, static_cast<char*>(map), bytes, -1);
    memory.Initialize(options);
    if (link(draft.c_str(), path.c_str()) != 0 && errno != EEXIST) {
      status = FileError(path, "cannot be linked");
    }
  }
  close(fd);
  unlink(draft.c_str());
  return status;
}

void EmulatedMemory::Initialize(const EmulatedCardOptions& options) {
  std::memcpy(header_->magic, kMagic, sizeof(kMagic));
  header_->layout = kLayout;
  header_->capacity = options.capacity_bytes;
  header_->segment_bytes = map_bytes_;
  header_->rate = options.h2d_bytes_per_second;
  header_->lag_nanos = absl::ToInt64Nanoseconds(options.usage_lag.value_or(absl::ZeroDuration()));
  header_->free_head = kNoPage;
  pthread_mutexattr_t attributes;
  pthread_mutexattr_init(&attributes);
  pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
  pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
  pthread_mutex_init(&header_->mutex, &attributes);
  pthread_mutexattr_destroy(&attributes);
}

absl::StatusOr<std::unique_ptr<EmulatedMemory>> EmulatedMemory::Open(const std::string& name) {
  if (absl::Status status = CheckName(name); !status.ok()) return status;
  const absl::StatusOr<int> fd = OpenLocked(name);
  if (!fd.ok()) return fd.status();
  absl::StatusOr<std::unique_ptr<EmulatedMemory>> memory = Map(name, *fd);
  if (!memory.ok()) close(*fd);
  return memory;
}

absl::StatusOr<std::unique_ptr<EmulatedMemory>> EmulatedMemory::Map(const std::string& name,
                                                                    int fd) {
  struct stat info;
  if (fstat(fd, &info) != 0) return FileError(SegmentPath(name), "cannot be read");
  const auto foreign = [&](const char* why) {
    return absl::FailedPreconditionError(absl::StrCat(
        SegmentPath(name), " is no emulated card of this program (", why, "): remove it"));
  };
  if (info.st_size < static_cast<int64_t>(sizeof(Header))) return foreign("too small");
  void* map =
      mmap(nullptr, info.st_size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
  if (map == MAP_FAILED) return FileError(SegmentPath(name), "cannot be mapped");
  const Header* header = static_cast<const Header*>(map);
  const bool known =
      std::memcmp(header->magic, kMagic, sizeof(kMagic)) == 0 && header->layout == kLayout &&
      header->capacity >= 1 && header->capacity <= kMaxCapacityBytes &&
      header->segment_bytes == info.st_size && header->page_count == PageCount(header->capacity) &&
      info.st_size == SegmentBytes(header->capacity);
  if (!known) {
    munmap(map, info.st_size);
    return foreign("another layout");
  }
  return std::unique_ptr<EmulatedMemory>(
      new EmulatedMemory(name, static_cast<char*>(map), info.st_size, fd));
}

absl::Status EmulatedMemory::Remove(const std::string& name) {
  if (absl::Status status = CheckName(name); !status.ok()) return status;
  if (unlink(SegmentPath(name).c_str()) != 0 && errno != ENOENT) {
    return FileError(SegmentPath(name), "cannot be removed");
  }
  return absl::OkStatus();
}

bool EmulatedMemory::RemoveUnused(const std::string& name) {
  if (!CheckName(name).ok()) return false;
  const std::string path = SegmentPath(name);
  const int fd = open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (fd < 0) return false;
  // Of two that try at once the second finds a file without a name.
  struct stat info = {};
  if (flock(fd, LOCK_EX | LOCK_NB) == 0 && fstat(fd, &info) == 0 && info.st_nlink > 0) {
    const absl::StatusOr<std::unique_ptr<EmulatedMemory>> memory = Map(name, fd);
    // It closes the file, and with it gives up the lock.
    if (memory.ok()) return unlink(path.c_str()) == 0;
  }
  close(fd);
  return false;
}

}  // namespace vrambroker::card
