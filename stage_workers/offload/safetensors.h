// Reads safetensors files, which may come from anywhere: every figure in them is checked before
// use.
#ifndef VRAMBROKER_STAGE_WORKERS_OFFLOAD_SAFETENSORS_H_
#define VRAMBROKER_STAGE_WORKERS_OFFLOAD_SAFETENSORS_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "stage_workers/offload/mapped_file.h"

namespace vrambroker::offload {

// The format's own bound of the header, in bytes.
inline constexpr int64_t kMaxSafetensorsHeaderBytes = 100'000'000;
// Bounds of ours: tensors in a file, dimensions of a tensor, bytes of a tensor's name.
inline constexpr int kMaxTensors = 1 << 18;
inline constexpr int kMaxDimensions = 16;
inline constexpr int kMaxTensorName = 1024;

struct Tensor {
  std::string name;
  // As the file spells it: "BF16", "F32", ...
  std::string dtype;
  std::vector<int64_t> shape;
  // Where the bytes lie, counted from the file's data section (not from its begin).
  int64_t begin = 0;
  int64_t bytes = 0;
};

struct SafetensorsHeader {
  // In the order of their place in the file. They cover the data section without gap or overlap.
  std::vector<Tensor> tensors;
  std::map<std::string, std::string> metadata;
  // Where the data section begins in the file, and its size, in bytes.
  int64_t data_offset = 0;
  int64_t data_bytes = 0;
};

// Bytes of one element; 0 for a dtype that the format does not know.
int DtypeBytes(std::string_view dtype);

// Reads a header from the first bytes of a file of `file_bytes`. `prefix` holds at least the 8
// bytes of length and the header, or all of a shorter file. INVALID_ARGUMENT names tensor, field,
// the value given and what is allowed.
absl::StatusOr<SafetensorsHeader> ParseSafetensorsHeader(std::string_view prefix,
                                                         int64_t file_bytes);

// A file mapped privately: what is written to its memory stays in this process.
class SafetensorsFile {
 public:
  // NOT_FOUND, PERMISSION_DENIED, or INVALID_ARGUMENT as above; all name the file.
  static absl::StatusOr<std::shared_ptr<SafetensorsFile>> Open(const std::string& path);
  SafetensorsFile(const SafetensorsFile&) = delete;
  SafetensorsFile& operator=(const SafetensorsFile&) = delete;

  const std::string& path() const { return path_; }
  const SafetensorsHeader& header() const { return header_; }
  // The bytes of a tensor of this file's header. Writable, privately.
  char* Data(const Tensor& tensor) const { return mapping() + header_.data_offset + tensor.begin; }
  // The whole mapping, page-aligned, for pinning.
  char* mapping() const { return map_->data(); }
  int64_t mapping_bytes() const { return map_->bytes(); }
  // To be asked after each copy from Data(), before it counts: DATA_LOSS where the file was cut
  // short, as MappedFile says.
  absl::Status CheckWhole() const { return map_->CheckWhole(); }

 private:
  SafetensorsFile(std::string path, std::unique_ptr<MappedFile> map, SafetensorsHeader header);

  const std::string path_;
  const std::unique_ptr<MappedFile> map_;
  const SafetensorsHeader header_;
};

}  // namespace vrambroker::offload

#endif  // VRAMBROKER_STAGE_WORKERS_OFFLOAD_SAFETENSORS_H_
