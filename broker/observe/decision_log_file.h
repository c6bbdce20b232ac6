// The files of the decision log: whole lines are added to FILE; a full one becomes FILE.1, that
// FILE.2 and so on, the oldest goes.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "broker/observe/unique_fd.h"

namespace vrambroker::observe {

// Not thread-safe. Every call may block as long as the disk does.
class DecisionLogFile {
 public:
  // What every decision log begins with; no other file is written to.
  static constexpr char kBegins[] = "{\"time\":";

  // Opens or makes the file, mode 0640, and locks it until this goes. At most `max_bytes` (but for
  // what a file must begin with, and one line) each, `files` of them, FILE included, both above 0.
  // A last line that was cut off by a crash is ended, so that what follows is a line of its own.
  // FAILED_PRECONDITION where it cannot be had: no such folder, no permission, in use by another
  // broker, no decision log.
  static absl::StatusOr<DecisionLogFile> Open(const std::string& path, int64_t max_bytes,
                                              int files);

  // Whether `more` bytes are too many for this file once the `coming` ones are in it. Never of one
  // that is no regular file, or has nothing but its beginning.
  bool Full(int64_t coming, int64_t more) const {
    return regular_ && (written_ || coming > 0) && size_ + coming + more > max_bytes_;
  }
  // Somebody has removed or moved the file, or its folder: what is added is not found by its name.
  bool Lost() const;
  // A new file of that name. Where that fails nothing has changed.
  absl::Status Reopen() { return OpenNow(); }
  // Moves the files on and begins a new one. Where that fails nothing has changed, or the file is
  // as good as new.
  absl::Status Rotate();
  // `lines`: whole ones. All of them or nothing: what a full disk took in part is cut off again.
  // `beginning`: they are what the file begins with.
  absl::Status Append(absl::string_view lines, bool beginning);

 private:
  DecisionLogFile(std::string path, int64_t max_bytes, int files)
      : path_(std::move(path)), max_bytes_(max_bytes), files_(files) {}

  absl::Status OpenNow();
  absl::Status CheckFound();

  std::string path_;
  int64_t max_bytes_;
  int files_;
  UniqueFd fd_;
  int64_t size_ = 0;
  bool regular_ = false;
  // Something other than a beginning is in the file.
  bool written_ = false;
  // Its last line has no end.
  bool torn_ = false;
};

}  // namespace vrambroker::observe
