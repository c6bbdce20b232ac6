// A file's bytes in memory that stay safe to read when somebody cuts the file short.
#ifndef VRAMBROKER_STAGE_WORKERS_OFFLOAD_MAPPED_FILE_H_
#define VRAMBROKER_STAGE_WORKERS_OFFLOAD_MAPPED_FILE_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace vrambroker::offload {

// Mappings at a time in a process.
inline constexpr int kMaxMappedFiles = 256;

// A regular file mapped privately and writable: what is written stays in this process.
//
// Touching a page of a mapping beyond the end of its file raises SIGBUS, in whichever thread does
// it, be it in the midst of a driver's copy. The first mapping installs a handler for the process
// that puts a page of zeros there, notes it and lets the thread go on; whoever has copied from the
// mapping asks CheckWhole() afterwards, before the copy counts. SIGBUS from anywhere else goes
// where it went before.
class MappedFile {
 public:
  // Maps the first `bytes` (above 0) of an open file. `path` is for messages. UNAVAILABLE where the
  // system refuses, RESOURCE_EXHAUSTED beyond kMaxMappedFiles.
  static absl::StatusOr<std::unique_ptr<MappedFile>> Map(int fd, int64_t bytes, std::string path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  char* data() const { return data_; }
  int64_t bytes() const { return bytes_; }
  // Whether all that was read so far was the file's. DATA_LOSS, from the first time on, where the
  // file is or was shorter than its mapping: names it, the size expected and the size found. A
  // system call; from any thread.
  absl::Status CheckWhole() const;

 private:
  MappedFile(int fd, char* data, int64_t bytes, std::string path, int slot)
      : fd_(fd), data_(data), bytes_(bytes), path_(std::move(path)), slot_(slot) {}

  const int fd_;
  char* const data_;
  const int64_t bytes_;
  const std::string path_;
  // In the handler's table.
  const int slot_;
};

}  // namespace vrambroker::offload

#endif  // VRAMBROKER_STAGE_WORKERS_OFFLOAD_MAPPED_FILE_H_
