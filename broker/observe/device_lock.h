// One owner for a device, or for a socket's path: a lock that the kernel drops with its holder.
#ifndef VRAMBROKER_BROKER_OBSERVE_DEVICE_LOCK_H_
#define VRAMBROKER_BROKER_OBSERVE_DEVICE_LOCK_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "broker/observe/unique_fd.h"

namespace vrambroker::observe {

// Who holds a lock, as the holder wrote it.
struct LockHolder {
  // In the holder's pid namespace. 0: not known.
  int32_t pid = 0;
  // Where it listens, as given to Acquire. May be empty.
  std::string address;
};

// "DIRECTORY/device-UUID.lock", with every character of the uuid that is not a letter, a digit,
// '-',
// '_' or '.' written as "%" and two upper-case hexadecimal digits ("emulated:a": "emulated%3Aa").
std::string DeviceLockPath(const std::string& directory, const std::string& uuid);
// "SOCKET_PATH.lock", beside the socket.
std::string SocketLockPath(const std::string& socket_path);

// Holds a lock as long as it lives. Movable only. The file stays when the lock goes: it is the lock
// on it that counts, and that one ends with the process at the latest.
//
// The lock is an open file description lock (fcntl F_OFD_SETLK, exclusive, on the whole file),
// which can be asked about without being taken, by readers of the file in any pid namespace.
// Processes that share the directory must see one local file system.
class FileLock {
 public:
  // Takes the lock, making file (0664, less the umask) and directories where needed; the lock's end
  // removes the file, and of those directories the ones that are empty then, unless its process is
  // killed.
  // ALREADY_EXISTS where another process, or this one, holds it: names the holder's pid and
  // address. PERMISSION_DENIED or FAILED_PRECONDITION, naming the path, where the file cannot be
  // used. `address` has at most 1024 bytes and no line end: INVALID_ARGUMENT otherwise.
  static absl::StatusOr<FileLock> Acquire(const std::string& path, const std::string& address);

  FileLock(FileLock&&) = default;
  FileLock& operator=(FileLock&& other) noexcept;
  ~FileLock() { Release(); }

  const std::string& path() const { return path_; }

 private:
  FileLock(UniqueFd fd, std::string path, std::vector<std::string> made)
      : fd_(std::move(fd)), path_(std::move(path)), made_(std::move(made)) {}
  void Release();

  // Not valid: moved away.
  UniqueFd fd_;
  std::string path_;
  // Directories, the outermost first.
  std::vector<std::string> made_;
};

// Takes the lock of a device: its one broker's. Errors as FileLock::Acquire; INVALID_ARGUMENT for
// an empty uuid or one of more than 128 bytes.
absl::StatusOr<FileLock> LockDevice(const std::string& directory, const std::string& uuid,
                                    const std::string& address);
// Takes the lock of a Unix socket's path, before listening on it: a second server would take the
// path over without an error.
absl::StatusOr<FileLock> LockSocketPath(const std::string& socket_path);

// Whether somebody holds the lock of this file, without taking it. False where there is no file.
absl::StatusOr<bool> IsFileLocked(const std::string& path);
// Whether a broker lives for the device. False: none, and nobody need be waited for.
absl::StatusOr<bool> IsHeld(const std::string& directory, const std::string& uuid);
// What the last holder wrote. NOT_FOUND where there is no file. Says nothing of whether it lives.
absl::StatusOr<LockHolder> ReadHolder(const std::string& path);

}  // namespace vrambroker::observe

#endif  // VRAMBROKER_BROKER_OBSERVE_DEVICE_LOCK_H_
