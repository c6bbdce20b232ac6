#include "stage_workers/offload/mapped_file.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"

namespace vrambroker::offload {
namespace {

// What the handler may look at: atomics that need no lock. A slot is free while `begin` is 0, and
// taken by whoever brings it from 0 to kClaimed.
struct Slot {
  std::atomic<uintptr_t> begin{0};
  std::atomic<uintptr_t> end{0};
  std::atomic<bool> damaged{false};
};
constexpr uintptr_t kClaimed = 1;
static_assert(std::atomic<uintptr_t>::is_always_lock_free);

Slot slots[kMaxMappedFiles];
struct sigaction previous;
uintptr_t page_bytes = 4096;

// As if there were no handler of ours.
void PassOn(int signal, siginfo_t* info, void* context) {
  if ((previous.sa_flags & SA_SIGINFO) != 0 && previous.sa_sigaction != nullptr) {
    return previous.sa_sigaction(signal, info, context);
  }
  if (previous.sa_handler != SIG_DFL && previous.sa_handler != SIG_IGN) {
    return previous.sa_handler(signal);
  }
  ::signal(SIGBUS, SIG_DFL);  // the instruction is tried again, and ends the process
}

// Calls only what a signal handler may: mmap is a plain system call.
void OnBusError(int signal, siginfo_t* info, void* context) {
  const int error = errno;
  const uintptr_t address = reinterpret_cast<uintptr_t>(info->si_addr);
  for (Slot& slot : slots) {
    const uintptr_t begin = slot.begin.load(std::memory_order_acquire);
    if (begin <= kClaimed || address < begin || address >= slot.end.load()) continue;
    slot.damaged.store(true);
    void* const page = reinterpret_cast<void*>(address / page_bytes * page_bytes);
    const void* const put = mmap(page, page_bytes, PROT_READ | PROT_WRITE,
                                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    errno = error;
    if (put == page) return;
    break;
  }
  PassOn(signal, info, context);
}

void InstallHandler() {
  static const bool installed = [] {
    page_bytes = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
    struct sigaction action = {};
    action.sa_sigaction = OnBusError;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    sigemptyset(&action.sa_mask);
    return sigaction(SIGBUS, &action, &previous) == 0;
  }();
  (void)installed;
}

int ClaimSlot() {
  for (int i = 0; i < kMaxMappedFiles; ++i) {
    uintptr_t unused = 0;
    if (slots[i].begin.compare_exchange_strong(unused, kClaimed)) return i;
  }
  return -1;
}

absl::Status SystemError(const std::string& path, const char* what) {
  return absl::UnavailableError(absl::StrCat(path, ": ", what, ": ", std::strerror(errno)));
}

}  // namespace

absl::StatusOr<std::unique_ptr<MappedFile>> MappedFile::Map(int fd, int64_t bytes,
                                                            std::string path) {
  InstallHandler();
  const int own = fcntl(fd, F_DUPFD_CLOEXEC, 0);
  if (own < 0) return SystemError(path, "cannot be kept open");
  void* const map =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_NORESERVE, own, 0);
  if (map == MAP_FAILED) {
    const absl::Status status = SystemError(path, "cannot be mapped");
    close(own);
    return status;
  }
  const int slot = ClaimSlot();
  if (slot < 0) {
    munmap(map, bytes);
    close(own);
    return absl::ResourceExhaustedError(absl::StrCat(
        path, ": ", kMaxMappedFiles, " files are mapped already, the most; close some"));
  }
  slots[slot].damaged.store(false);
  slots[slot].end.store(reinterpret_cast<uintptr_t>(map) + bytes);
  slots[slot].begin.store(reinterpret_cast<uintptr_t>(map), std::memory_order_release);
  return std::unique_ptr<MappedFile>(
      new MappedFile(own, static_cast<char*>(map), bytes, std::move(path), slot));
}

MappedFile::~MappedFile() {
  slots[slot_].begin.store(kClaimed);
  slots[slot_].end.store(0);
  munmap(data_, bytes_);
  slots[slot_].begin.store(0);
  close(fd_);
}

absl::Status MappedFile::CheckWhole() const {
  struct stat info = {};
  const int64_t found = fstat(fd_, &info) == 0 ? static_cast<int64_t>(info.st_size) : 0;
  // Cut within its last page there is no signal: the rest of that page reads as zeros.
  if (found < bytes_) slots[slot_].damaged.store(true);
  if (!slots[slot_].damaged.load()) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat(
      path_, ": ", bytes_, " bytes were there when it was opened, ", found,
      " are there now: it was cut short while in use, and what was read of it does not count; put "
      "the whole file there and start again"));
}

}  // namespace vrambroker::offload
