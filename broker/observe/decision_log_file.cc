#include "broker/observe/decision_log_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "absl/strings/str_cat.h"

namespace vrambroker::observe {
namespace {

absl::Status Failed(const std::string& path, absl::string_view what) {
  return absl::FailedPreconditionError(absl::StrCat(path, ": ", what, ": ", std::strerror(errno)));
}

std::string Numbered(const std::string& path, int number) {
  return number == 0 ? path : absl::StrCat(path, ".", number);
}

}  // namespace

absl::StatusOr<DecisionLogFile> DecisionLogFile::Open(const std::string& path, int64_t max_bytes,
                                                      int files) {
  DecisionLogFile file(path, max_bytes, files);
  if (absl::Status status = file.OpenNow(); !status.ok()) return status;
  return file;
}

absl::Status DecisionLogFile::OpenNow() {
  // Not to wait for the reader of a pipe.
  UniqueFd fd(open(path_.c_str(), O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC | O_NONBLOCK, 0640));
  if (!fd.valid()) return Failed(path_, "cannot be opened to be written");
  struct stat found {};
  if (fstat(fd.get(), &found) != 0) return Failed(path_, "cannot be looked at");
  const bool regular = S_ISREG(found.st_mode);
  if (!regular && !S_ISCHR(found.st_mode)) {
    return absl::FailedPreconditionError(absl::StrCat(path_, ": is no file; a file is needed"));
  }
  if (regular && flock(fd.get(), LOCK_EX | LOCK_NB) != 0) {
    return errno == EWOULDBLOCK
               ? absl::FailedPreconditionError(absl::StrCat(
                     path_, ": another broker writes to it; each broker needs a file of its own"))
               : Failed(path_, "cannot be locked");
  }
  fd_ = std::move(fd);
  size_ = regular ? found.st_size : 0;
  regular_ = regular;
  written_ = size_ > 0;
  torn_ = false;
  return size_ > 0 ? CheckFound() : absl::OkStatus();
}

// That what is there is ours, and whether its last line is whole.
absl::Status DecisionLogFile::CheckFound() {
  char begins[sizeof(kBegins) - 1] = {};
  char last = 0;
  if (pread(fd_.get(), begins, sizeof(begins), 0) < 0 ||
      pread(fd_.get(), &last, 1, size_ - 1) != 1) {
    return Failed(path_, "cannot be read");
  }
  // A crash may have cut off its beginning.
  const auto known = static_cast<size_t>(std::min<int64_t>(size_, sizeof(begins)));
  if (std::memcmp(begins, kBegins, known) != 0) {
    return absl::FailedPreconditionError(
        absl::StrCat(path_, ": holds something other than a decision log; name another file"));
  }
  torn_ = last != '\n';
  return absl::OkStatus();
}

bool DecisionLogFile::Lost() const {
  if (!regular_) return false;
  struct stat named {
  }, ours{};
  if (stat(path_.c_str(), &named) != 0) return errno == ENOENT || errno == ENOTDIR;
  return fstat(fd_.get(), &ours) == 0 &&
         (named.st_dev != ours.st_dev || named.st_ino != ours.st_ino);
}

absl::Status DecisionLogFile::Rotate() {
  for (int number = files_ - 1; number > 0; --number) {
    const std::string from = Numbered(path_, number - 1);
    if (rename(from.c_str(), Numbered(path_, number).c_str()) != 0 && errno != ENOENT) {
      return Failed(from, "cannot be renamed");
    }
  }
  if (files_ == 1) {
    if (ftruncate(fd_.get(), 0) != 0) return Failed(path_, "cannot be emptied");
    size_ = 0;
    written_ = false;
    return absl::OkStatus();
  }
  return OpenNow();
}

absl::Status DecisionLogFile::Append(absl::string_view lines, bool beginning) {
  const std::string ended = torn_ ? absl::StrCat("\n", lines) : std::string();
  if (torn_) lines = ended;
  size_t done = 0;
  while (done < lines.size()) {
    const ssize_t wrote = write(fd_.get(), lines.data() + done, lines.size() - done);
    if (wrote > 0) {
      done += static_cast<size_t>(wrote);
    } else if (wrote == 0 || errno != EINTR) {
      absl::Status status = Failed(path_, "cannot be written");
      if (regular_ && done > 0 && ftruncate(fd_.get(), size_) != 0) {
        size_ += static_cast<int64_t>(done);
        torn_ = true;
      }
      return status;
    }
  }
  size_ += static_cast<int64_t>(lines.size());
  torn_ = false;
  written_ |= !beginning;
  return absl::OkStatus();
}

}  // namespace vrambroker::observe
