#include "broker/observe/charge_record.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <system_error>
#include <type_traits>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "broker/observe/device_lock.h"
#include "broker/observe/unique_fd.h"

namespace vrambroker::observe {
namespace {

constexpr uint64_t kMagic = 0x7663726d62637232;  // and the version
constexpr size_t kBootIdBytes = 64;
constexpr int64_t kMostBytes = int64_t{1} << 46;

std::string BootId() {
  std::ifstream in("/proc/sys/kernel/random/boot_id");
  std::string id;
  std::getline(in, id);
  return id.substr(0, kBootIdBytes - 1);
}

absl::Status FileError(absl::string_view what, const std::string& path, int error) {
  const std::string message =
      absl::StrCat("cannot ", what, " the record of charges \"", path, "\": ", std::strerror(error),
                   "; give a --lock-dir that can be written");
  if (error == EACCES || error == EPERM || error == EROFS) {
    return absl::PermissionDeniedError(message);
  }
  if (error == ENOSPC || error == EMFILE || error == ENFILE || error == EDQUOT) {
    return absl::ResourceExhaustedError(message);
  }
  return absl::FailedPreconditionError(message);
}

// FNV-1a.
uint64_t Checksum(const void* data, size_t size) {
  uint64_t hash = 0xcbf29ce484222325;
  for (size_t i = 0; i < size; ++i) {
    hash = (hash ^ static_cast<const unsigned char*>(data)[i]) * 0x100000001b3;
  }
  return hash;
}

// One version of an entry. Counts where its checksum is right.
struct Version {
  uint64_t number;  // of the newer of two, the higher; 0: never written
  int64_t charge;
  uint64_t attach_number;
  uint64_t start_time;
  uint64_t foreign_id;
  int32_t pid;
  int32_t provable;
  char worker[ChargeRecord::kMaxNameBytes + 8];
  uint64_t checksum;  // of all before

  uint64_t Sum() const { return Checksum(this, offsetof(Version, checksum)); }
  bool valid() const { return number > 0 && checksum == Sum(); }
};

// What no broker has written is not read: more than any card has, or a name that no worker has.
bool MayBeRead(const Version& v) {
  const size_t size = strnlen(v.worker, ChargeRecord::kMaxNameBytes);
  return v.charge > 0 && v.charge <= kMostBytes && size > 0 &&
         std::all_of(v.worker, v.worker + size, [](char c) { return c > ' ' && c < 0x7f; });
}

}  // namespace

// A write goes to the older version: the newer one stands until the write is whole.
struct ChargeRecord::Entry {
  Version versions[2];

  const Version* Newest() const {
    const Version* newest = nullptr;
    for (const Version& v : versions) {
      if (v.valid() && (newest == nullptr || v.number > newest->number)) newest = &v;
    }
    return newest;
  }
};

struct ChargeRecord::File {
  uint64_t magic;
  uint64_t epoch;
  char boot_id[kBootIdBytes];
  Entry entries[kSlots];
};

ChargeRecord::Key ChargeRecord::KeyOf(const std::string& worker, const core::Process& process) {
  return {worker, process};
}

std::string ChargeRecord::PathOf(const std::string& directory, const std::string& uuid) {
  std::string path = DeviceLockPath(directory, uuid);
  return absl::StrCat(absl::StripSuffix(path, ".lock"), ".charges");
}

absl::StatusOr<std::unique_ptr<ChargeRecord>> ChargeRecord::Open(const std::string& directory,
                                                                 const std::string& uuid) {
  static_assert(std::is_trivially_copyable_v<File>);
  const std::string path = PathOf(directory, uuid);
  std::error_code error;
  std::filesystem::create_directories(directory, error);
  const UniqueFd fd(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!fd.valid()) return FileError("open", path, errno);
  struct stat there = {};
  if (fstat(fd.get(), &there) != 0) return FileError("look at", path, errno);
  if (!S_ISREG(there.st_mode)) return FileError("use", path, EINVAL);
  std::string why;
  if (there.st_size != 0 && there.st_size != static_cast<off_t>(sizeof(File))) {
    why = absl::StrCat("it has ", there.st_size, " bytes, not ", sizeof(File));
    if (ftruncate(fd.get(), 0) != 0) return FileError("empty", path, errno);
  }
  // Room for all of it from the start: a store into a mapped file that finds none ends the process.
  const int allocated = posix_fallocate(fd.get(), 0, sizeof(File));
  if (allocated != 0) return FileError("make room for", path, allocated);
  void* map = mmap(nullptr, sizeof(File), PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
  if (map == MAP_FAILED) return FileError("map", path, errno);
  auto* file = static_cast<File*>(map);
  const std::string boot_id = BootId();
  const bool fresh = there.st_size == 0 || !why.empty();
  if (!fresh && file->magic != kMagic) why = "it is of another version";
  if (!fresh && why.empty() && std::strncmp(file->boot_id, boot_id.c_str(), kBootIdBytes) != 0) {
    why = "it is of another boot";
  }
  if (fresh || !why.empty()) {
    std::memset(map, 0, sizeof(File));
    std::memcpy(file->boot_id, boot_id.c_str(), boot_id.size());
    std::atomic_signal_fence(std::memory_order_seq_cst);
    file->magic = kMagic;
  }
  return std::unique_ptr<ChargeRecord>(
      new ChargeRecord(path, uuid, there.st_ino, file, std::move(why)));
}

ChargeRecord::ChargeRecord(std::string path, std::string uuid, ino_t inode, File* file,
                           std::string why)
    : path_(std::move(path)),
      uuid_(std::move(uuid)),
      inode_(inode),
      file_(file),
      why_(std::move(why)) {
  for (size_t slot = kSlots; slot-- > 0;) {
    const Version* v = file_->entries[slot].Newest();
    if (v == nullptr || !MayBeRead(*v)) {
      free_.push_back(slot);
      continue;
    }
    core::Owner owner{std::string(v->worker, strnlen(v->worker, kMaxNameBytes)),
                      {v->pid, v->start_time, v->foreign_id},
                      v->attach_number,
                      uuid_,
                      core::Bytes(v->charge),
                      v->provable != 0};
    slots_[KeyOf(owner.worker, owner.process)] = {slot, owner};
    found_.push_back(std::move(owner));
  }
  std::reverse(found_.begin(), found_.end());
}

ChargeRecord::~ChargeRecord() {
  munmap(file_, sizeof(File));
  struct stat there = {};
  const bool ours = stat(path_.c_str(), &there) == 0 && there.st_ino == inode_;
  if (ours && slots_.empty()) unlink(path_.c_str());
}

uint64_t ChargeRecord::newest_epoch() const { return file_->epoch; }
void ChargeRecord::PutEpoch(uint64_t epoch) { file_->epoch = epoch; }

absl::Status ChargeRecord::Put(const core::Owner& owner) {
  if (owner.worker.size() > kMaxNameBytes) {
    return absl::InvalidArgumentError(absl::StrCat("worker: a name of ", owner.worker.size(),
                                                   " bytes, at most ", kMaxNameBytes,
                                                   " can be put on record"));
  }
  const Key key = KeyOf(owner.worker, owner.process);
  auto it = slots_.find(key);
  if (it == slots_.end()) {
    if (owner.charge == core::Bytes()) return absl::OkStatus();
    if (free_.empty()) {
      return absl::ResourceExhaustedError(
          absl::StrCat("\"", path_, "\" has room for ", kSlots, " workers, and no more"));
    }
    it = slots_.emplace(key, std::make_pair(free_.back(), owner)).first;
    free_.pop_back();
  }
  core::Owner& kept = it->second.second;
  const bool provable = kept.provable || owner.provable;
  kept = owner;
  kept.provable = provable;
  Write(it->second.first, kept);
  if (owner.charge > core::Bytes()) return absl::OkStatus();
  free_.push_back(it->second.first);
  slots_.erase(it);
  return absl::OkStatus();
}

void ChargeRecord::SetProvable(const std::string& worker, const core::Process& process) {
  const auto it = slots_.find(KeyOf(worker, process));
  if (it == slots_.end() || it->second.second.provable) return;
  it->second.second.provable = true;
  Write(it->second.first, it->second.second);
}

void ChargeRecord::Write(size_t slot, const core::Owner& owner) {
  Entry& entry = file_->entries[slot];
  const Version* newest = entry.Newest();
  Version& older = entry.versions[newest == &entry.versions[0] ? 1 : 0];
  Version v = {};
  v.number = newest == nullptr ? 1 : newest->number + 1;
  v.charge = owner.charge.count();
  v.attach_number = owner.attach_number;
  v.start_time = owner.process.start_time;
  v.foreign_id = owner.process.foreign_id;
  v.pid = owner.process.pid;
  v.provable = owner.provable ? 1 : 0;
  std::memcpy(v.worker, owner.worker.data(), owner.worker.size());
  v.checksum = v.Sum();
  // Not valid while it is written; the compiler keeps the order, and so does the kernel for who
  // maps the file later.
  older.checksum = ~v.checksum;
  std::atomic_signal_fence(std::memory_order_seq_cst);
  std::memcpy(&older, &v, offsetof(Version, checksum));
  std::atomic_signal_fence(std::memory_order_seq_cst);
  older.checksum = v.checksum;
}

}  // namespace vrambroker::observe
