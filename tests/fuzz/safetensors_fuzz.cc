// Headers of safetensors files: the whole input as a file; and, where it is a line with a number
// and text after it, the text as a header of the right length before so many bytes of data.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "absl/strings/numbers.h"
#include "broker/core/units.h"
#include "stage_workers/offload/safetensors.h"

namespace vrambroker::offload {
namespace {

// What was taken covers the data section without gap or overlap.
void CheckHeader(const SafetensorsHeader& header, int64_t file_bytes) {
  VRAM_CHECK(header.data_offset >= 8 && header.data_bytes >= 0);
  VRAM_CHECK(header.data_offset + header.data_bytes == file_bytes);
  VRAM_CHECK(header.tensors.size() <= static_cast<size_t>(kMaxTensors));
  int64_t end = 0;
  for (const Tensor& tensor : header.tensors) {
    VRAM_CHECK(tensor.begin == end && tensor.bytes >= 0);
    VRAM_CHECK(tensor.bytes <= header.data_bytes - end);
    end += tensor.bytes;
    double elements = DtypeBytes(tensor.dtype);
    VRAM_CHECK(elements > 0 && tensor.shape.size() <= static_cast<size_t>(kMaxDimensions));
    for (int64_t dimension : tensor.shape) elements *= static_cast<double>(dimension);
    VRAM_CHECK(elements == static_cast<double>(tensor.bytes));
  }
  VRAM_CHECK(end == header.data_bytes);
}

void Parse(std::string_view prefix, int64_t file_bytes) {
  const absl::StatusOr<SafetensorsHeader> header = ParseSafetensorsHeader(prefix, file_bytes);
  if (header.ok()) CheckHeader(*header, file_bytes);
}

void ParseText(std::string_view input) {
  const size_t line = input.find('\n');
  int64_t data_bytes = 0;
  if (line == std::string_view::npos ||
      !absl::SimpleAtoi(absl::string_view(input.data(), line), &data_bytes) || data_bytes < 0 ||
      data_bytes > int64_t{1} << 46) {
    return;
  }
  const std::string_view text = input.substr(line + 1);
  std::string prefix;
  for (uint64_t length = text.size(), i = 0; i < 8; ++i) {
    prefix += static_cast<char>(length >> (8 * i) & 255);
  }
  prefix += text;
  Parse(prefix, static_cast<int64_t>(prefix.size()) + data_bytes);
}

}  // namespace
}  // namespace vrambroker::offload

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  vrambroker::offload::Parse(input, static_cast<int64_t>(size));
  vrambroker::offload::ParseText(input);
  return 0;
}
