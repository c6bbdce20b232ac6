#include "broker/observe/device_lock.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"

namespace vrambroker::observe {
namespace {

constexpr size_t kMaxAddressBytes = 1024;
constexpr size_t kMaxUuidBytes = 128;
constexpr size_t kMaxHolderBytes = 2048;
// Of taking a lock whose file is removed meanwhile.
constexpr int kAttempts = 16;

absl::Status FileError(absl::string_view what, const std::string& path, int error) {
  const std::string message =
      absl::StrCat("cannot ", what, " lock file \"", path, "\": ", std::strerror(error));
  if (error == ENOENT) return absl::NotFoundError(message);
  if (error == EACCES || error == EPERM || error == EROFS) {
    return absl::PermissionDeniedError(message);
  }
  if (error == EMFILE || error == ENFILE || error == ENOSPC) {
    return absl::ResourceExhaustedError(message);
  }
  return absl::FailedPreconditionError(message);
}

struct flock WholeFile() {
  struct flock lock {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  return lock;  // From 0 with length 0: to the end, however far that moves.
}

// Those that are empty; the innermost first.
void RemoveDirectories(const std::vector<std::string>& made) {
  for (auto directory = made.rbegin(); directory != made.rend(); ++directory) {
    if (rmdir(directory->c_str()) != 0) return;
  }
}

absl::StatusOr<UniqueFd> OpenForRead(const std::string& path) {
  UniqueFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd.valid()) return FileError("read", path, errno);
  return fd;
}

absl::StatusOr<std::string> ReadText(int fd, const std::string& path) {
  std::string text(kMaxHolderBytes, '\0');
  const ssize_t bytes = pread(fd, text.data(), text.size(), 0);
  if (bytes < 0) return FileError("read", path, errno);
  text.resize(static_cast<size_t>(bytes));
  return text;
}

LockHolder ParseHolder(const std::string& text) {
  LockHolder holder;
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    if (absl::ConsumePrefix(&line, "pid=")) {
      if (!absl::SimpleAtoi(line, &holder.pid)) holder.pid = 0;
    } else if (absl::ConsumePrefix(&line, "address=")) {
      holder.address = std::string(line);
    }
  }
  return holder;
}

absl::Status HeldError(int fd, const std::string& path) {
  const absl::StatusOr<std::string> text = ReadText(fd, path);
  const LockHolder holder = text.ok() ? ParseHolder(*text) : LockHolder();
  return absl::AlreadyExistsError(absl::StrCat(
      "\"", path, "\" is locked by process ",
      holder.pid == 0 ? "(not known)" : absl::StrCat(holder.pid),
      holder.address.empty() ? "" : absl::StrCat(", which serves at ", holder.address)));
}

absl::Status WriteHolder(int fd, const std::string& path, const std::string& address) {
  const std::string text = absl::StrCat("pid=", getpid(), "\naddress=", address, "\n");
  // Longer first, so that a reader never sees the new pid with an end of the old text cut off.
  if (pwrite(fd, text.data(), text.size(), 0) != static_cast<ssize_t>(text.size()) ||
      ftruncate(fd, static_cast<off_t>(text.size())) != 0) {
    return FileError("write", path, errno);
  }
  return absl::OkStatus();
}

// Whether a descriptor's file is the one that lies at a path.
bool LiesAt(int fd, const std::string& path) {
  struct stat own = {};
  struct stat there = {};
  return fstat(fd, &own) == 0 && stat(path.c_str(), &there) == 0 && own.st_ino == there.st_ino &&
         own.st_dev == there.st_dev;
}

// Makes the directories that a file needs; adds those that were not there, the outermost first.
absl::Status MakeDirectories(const std::string& file, std::vector<std::string>* made) {
  std::vector<std::string> missing;
  std::error_code ignored;
  for (std::filesystem::path directory = std::filesystem::path(file).parent_path();
       !directory.empty() && !std::filesystem::exists(directory, ignored);
       directory = directory.parent_path()) {
    missing.push_back(directory.string());
  }
  for (auto directory = missing.rbegin(); directory != missing.rend(); ++directory) {
    if (mkdir(directory->c_str(), 0777) == 0) {
      made->push_back(*directory);
    } else if (errno != EEXIST) {
      const absl::Status status = FileError("make the directory of", file, errno);
      RemoveDirectories(*made);
      if (absl::IsNotFound(status)) return absl::FailedPreconditionError(status.message());
      return status;
    }
  }
  return absl::OkStatus();
}

absl::Status CheckUuid(const std::string& uuid) {
  if (!uuid.empty() && uuid.size() <= kMaxUuidBytes) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("device uuid \"", uuid, "\" has ", uuid.size(),
                                                 " bytes, allowed are 1 to ", kMaxUuidBytes));
}

}  // namespace

std::string DeviceLockPath(const std::string& directory, const std::string& uuid) {
  std::string path = absl::StrCat(directory, "/device-");
  for (const char c : uuid) {
    const bool plain =
        absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '-' || c == '_' || c == '.';
    if (plain) {
      path.push_back(c);
    } else {
      absl::StrAppendFormat(&path, "%%%02X", static_cast<unsigned char>(c));
    }
  }
  return absl::StrCat(path, ".lock");
}

std::string SocketLockPath(const std::string& socket_path) {
  return absl::StrCat(socket_path, ".lock");
}

absl::StatusOr<FileLock> FileLock::Acquire(const std::string& path, const std::string& address) {
  if (address.size() > kMaxAddressBytes || address.find('\n') != std::string::npos) {
    return absl::InvalidArgumentError(absl::StrCat("address of a lock's holder has ",
                                                   address.size(), " bytes, allowed are ",
                                                   kMaxAddressBytes, " without a line end"));
  }
  // The last holder may remove its file, and the directory, while this one takes them.
  absl::Status status;
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    std::vector<std::string> made;
    status = MakeDirectories(path, &made);
    if (!status.ok()) return status;
    UniqueFd fd(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0664));
    if (!fd.valid()) {
      status = FileError("open", path, errno);
      RemoveDirectories(made);
      if (absl::IsNotFound(status)) continue;
      return status;
    }
    struct flock lock = WholeFile();
    if (fcntl(fd.get(), F_OFD_SETLK, &lock) != 0) {
      if (errno == EAGAIN || errno == EACCES) return HeldError(fd.get(), path);
      return FileError("lock", path, errno);
    }
    if (!LiesAt(fd.get(), path)) {
      status = absl::FailedPreconditionError(
          absl::StrCat("lock file \"", path, "\" is removed again and again"));
      continue;
    }
    FileLock taken(std::move(fd), path, std::move(made));
    status = WriteHolder(taken.fd_.get(), path, address);
    if (!status.ok()) return status;
    return taken;
  }
  return status;
}

FileLock& FileLock::operator=(FileLock&& other) noexcept {
  Release();
  fd_ = std::move(other.fd_);
  path_ = std::move(other.path_);
  made_ = std::move(other.made_);
  return *this;
}

// Still locked while it is removed: whoever opened it meanwhile finds that it lies there no more.
// Another file may lie there by now, where somebody removed this one: that is another's.
void FileLock::Release() {
  if (!fd_.valid()) return;
  if (LiesAt(fd_.get(), path_)) unlink(path_.c_str());
  fd_ = UniqueFd();
  RemoveDirectories(made_);
}

absl::StatusOr<FileLock> LockDevice(const std::string& directory, const std::string& uuid,
                                    const std::string& address) {
  const absl::Status valid = CheckUuid(uuid);
  if (!valid.ok()) return valid;
  absl::StatusOr<FileLock> lock = FileLock::Acquire(DeviceLockPath(directory, uuid), address);
  if (!absl::IsAlreadyExists(lock.status())) return lock;
  return absl::AlreadyExistsError(
      absl::StrCat("device \"", uuid, "\" has a broker: ", lock.status().message()));
}

absl::StatusOr<FileLock> LockSocketPath(const std::string& socket_path) {
  return FileLock::Acquire(SocketLockPath(socket_path), absl::StrCat("unix:", socket_path));
}

absl::StatusOr<bool> IsFileLocked(const std::string& path) {
  const absl::StatusOr<UniqueFd> fd = OpenForRead(path);
  if (absl::IsNotFound(fd.status())) return false;
  if (!fd.ok()) return fd.status();
  struct flock lock = WholeFile();
  if (fcntl(fd->get(), F_OFD_GETLK, &lock) != 0) return FileError("ask about", path, errno);
  return lock.l_type != F_UNLCK;
}

absl::StatusOr<bool> IsHeld(const std::string& directory, const std::string& uuid) {
  const absl::Status valid = CheckUuid(uuid);
  if (!valid.ok()) return valid;
  return IsFileLocked(DeviceLockPath(directory, uuid));
}

absl::StatusOr<LockHolder> ReadHolder(const std::string& path) {
  const absl::StatusOr<UniqueFd> fd = OpenForRead(path);
  if (!fd.ok()) return fd.status();
  const absl::StatusOr<std::string> text = ReadText(fd->get(), path);
  if (!text.ok()) return text.status();
  return ParseHolder(*text);
}

}  // namespace vrambroker::observe
