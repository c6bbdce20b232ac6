#include "stage_workers/offload/safetensors.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <nlohmann/json.hpp>
#include <unordered_set>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

namespace vrambroker::offload {
namespace {

constexpr int64_t kLengthBytes = 8;
constexpr size_t kMaxMetadataEntries = 4096;
constexpr char kMetadataKey[] = "__metadata__";

// A name as it can be printed, however long and strange it is.
std::string Printable(std::string_view name) {
  return absl::CHexEscape(absl::string_view(name.data(), std::min<size_t>(name.size(), 80)));
}

// Builds a header from the events of a JSON parser, so that no more is kept in memory than is
// wanted and the first thing that is wrong ends it. Levels: 1 tensors, 2 fields of one, 3 a list of
// numbers.
class HeaderBuilder : public nlohmann::json_sax<nlohmann::json> {
 public:
  const absl::Status& status() const { return status_; }
  SafetensorsHeader&& header() { return std::move(header_); }

  bool null() override { return Unexpected("null"); }
  bool boolean(bool) override { return Unexpected("a boolean"); }
  bool number_float(number_float_t, const string_t& text) override {
    return Fail(absl::StrCat(Where(), ": ", text, " given; a whole number is needed"));
  }
  bool number_integer(number_integer_t value) override {
    return Fail(absl::StrCat(Where(), ": ", value, " given; 0 or more is allowed"));
  }
  bool number_unsigned(number_unsigned_t value) override;
  bool string(string_t& value) override;
  bool binary(binary_t&) override { return Unexpected("binary data"); }
  bool start_object(size_t) override;
  bool key(string_t& name) override;
  bool end_object() override;
  bool start_array(size_t) override;
  bool end_array() override;
  bool parse_error(size_t position, const std::string&,
                   const nlohmann::detail::exception&) override {
    return Fail(absl::StrCat("byte ", position, " of the header: not JSON"));
  }

 private:
  bool Fail(const std::string& message) {
    if (status_.ok()) status_ = absl::InvalidArgumentError(message);
    return false;
  }
  bool Unexpected(const char* what) { return Fail(absl::StrCat(Where(), ": ", what, " given")); }
  std::string Where() const {
    if (level_ < 1 || (level_ == 1 && tensor_.name.empty())) return "header";
    const std::string place = absl::StrCat("tensor \"", Printable(tensor_.name), "\"");
    return level_ < 2 ? place : absl::StrCat(place, " field ", Printable(field_));
  }
  bool FinishTensor();

  SafetensorsHeader header_;
  absl::Status status_;
  int level_ = 0;
  bool in_metadata_ = false;
  bool had_metadata_ = false;
  std::unordered_set<std::string> names_;
  // The tensor and the field at hand, and which fields it has had.
  Tensor tensor_;
  std::string field_;
  bool has_dtype_ = false;
  bool has_shape_ = false;
  std::vector<int64_t> offsets_;
  bool has_offsets_ = false;
};

bool HeaderBuilder::start_object(size_t) {
  if (level_ >= 2) return Unexpected("an object");
  ++level_;
  if (level_ < 2) return true;
  field_.clear();
  offsets_.clear();
  has_dtype_ = has_shape_ = has_offsets_ = false;
  return true;
}

bool HeaderBuilder::key(string_t& name) {
  if (level_ == 2) {
    field_ = name;
    if (in_metadata_) {
      if (header_.metadata.size() >= kMaxMetadataEntries) {
        return Fail(absl::StrCat("__metadata__: more than ", kMaxMetadataEntries, " entries"));
      }
      if (header_.metadata.count(name) > 0) return Fail(absl::StrCat(Where(), ": given twice"));
      return true;
    }
    const bool again = (name == "dtype" && has_dtype_) || (name == "shape" && has_shape_) ||
                       (name == "data_offsets" && has_offsets_);
    if (again) return Fail(absl::StrCat(Where(), ": given twice"));
    if (name == "dtype" || name == "shape" || name == "data_offsets") return true;
    return Fail(absl::StrCat(Where(), ": unknown; dtype, shape and data_offsets are allowed"));
  }
  in_metadata_ = name == kMetadataKey;
  tensor_ = Tensor{};
  tensor_.name = name;
  if (in_metadata_) {
    if (std::exchange(had_metadata_, true)) return Fail("__metadata__: given twice");
    return true;
  }
  if (name.empty() || name.size() > kMaxTensorName) {
    return Fail(absl::StrCat("tensor \"", Printable(name), "\": a name of ", name.size(),
                             " bytes; 1 to ", kMaxTensorName, " are allowed"));
  }
  if (!names_.insert(name).second) return Fail(absl::StrCat(Where(), ": given twice"));
  if (names_.size() > static_cast<size_t>(kMaxTensors)) {
    return Fail(absl::StrCat("more than ", kMaxTensors, " tensors"));
  }
  return true;
}

bool HeaderBuilder::string(string_t& value) {
  if (level_ != 2) return Unexpected("a string");
  if (in_metadata_) {
    header_.metadata[field_] = value;
    return true;
  }
  if (field_ != "dtype") return Unexpected("a string");
  if (DtypeBytes(value) == 0) {
    return Fail(absl::StrCat(Where(), ": \"", Printable(value), "\" is not known"));
  }
  tensor_.dtype = value;
  has_dtype_ = true;
  return true;
}

bool HeaderBuilder::start_array(size_t) {
  if (level_ != 2 || in_metadata_ || field_ == "dtype") return Unexpected("a list");
  ++level_;
  return true;
}

bool HeaderBuilder::number_unsigned(number_unsigned_t value) {
  if (level_ != 3) return Unexpected("a number");
  if (value > static_cast<uint64_t>(INT64_MAX)) {
    return Fail(absl::StrCat(Where(), ": ", value, " given; at most 2^63 - 1 is allowed"));
  }
  std::vector<int64_t>& list = field_ == "shape" ? tensor_.shape : offsets_;
  const size_t most = field_ == "shape" ? kMaxDimensions : 2;
  if (list.size() >= most) return Fail(absl::StrCat(Where(), ": more than ", most, " numbers"));
  list.push_back(static_cast<int64_t>(value));
  return true;
}

bool HeaderBuilder::end_array() {
  --level_;
  if (field_ == "shape") {
    has_shape_ = true;
    return true;
  }
  has_offsets_ = true;
  if (offsets_.size() == 2) return true;
  return Fail(absl::StrCat(Where(), ": ", offsets_.size(), " numbers given; 2 are needed"));
}

bool HeaderBuilder::end_object() {
  --level_;
  if (level_ == 0) return true;
  if (std::exchange(in_metadata_, false)) return true;
  return FinishTensor();
}

// Checks what one tensor says of itself.
bool HeaderBuilder::FinishTensor() {
  field_.clear();
  const std::string where = Where();
  if (!has_dtype_) return Fail(absl::StrCat(where, " field dtype: missing"));
  if (!has_shape_) return Fail(absl::StrCat(where, " field shape: missing"));
  if (!has_offsets_) return Fail(absl::StrCat(where, " field data_offsets: missing"));
  int64_t bytes = DtypeBytes(tensor_.dtype);
  for (int64_t dimension : tensor_.shape) {
    if (__builtin_mul_overflow(bytes, dimension, &bytes)) {
      return Fail(absl::StrCat(where, " field shape: more than 2^63 - 1 bytes"));
    }
  }
  if (offsets_[0] > offsets_[1]) {
    return Fail(absl::StrCat(where, " field data_offsets: begins at ", offsets_[0],
                             ", after its end at ", offsets_[1]));
  }
  if (offsets_[1] - offsets_[0] != bytes) {
    return Fail(absl::StrCat(where, " field data_offsets: ", offsets_[1] - offsets_[0],
                             " bytes, but dtype and shape need ", bytes));
  }
  tensor_.begin = offsets_[0];
  tensor_.bytes = bytes;
  header_.tensors.push_back(std::move(tensor_));
  tensor_ = Tensor{};
  return true;
}

// Tensors lie one after the other and fill the data section.
absl::Status CheckPlaces(const SafetensorsHeader& header) {
  int64_t end = 0;
  for (const Tensor& tensor : header.tensors) {
    if (tensor.begin != end) {
      return absl::InvalidArgumentError(absl::StrCat(
          "tensor \"", Printable(tensor.name), "\" field data_offsets: begins at ", tensor.begin,
          tensor.begin < end ? ", within the tensor before, which ends at "
                             : ", which leaves a gap after ",
          end));
    }
    end += tensor.bytes;
    if (end > header.data_bytes) {
      return absl::InvalidArgumentError(
          absl::StrCat("tensor \"", Printable(tensor.name), "\" field data_offsets: ends at ", end,
                       ", beyond the ", header.data_bytes, " bytes of data in the file"));
    }
  }
  if (end != header.data_bytes) {
    return absl::InvalidArgumentError(absl::StrCat("the tensors take ", end, " bytes, but ",
                                                   header.data_bytes, " bytes of data follow"));
  }
  return absl::OkStatus();
}

absl::Status FileError(const std::string& path, const char* what) {
  const int error = errno;
  return absl::ErrnoToStatus(error, absl::StrCat(path, ": ", what));
}

}  // namespace

int DtypeBytes(std::string_view dtype) {
  struct Size {
    std::string_view name;
    int bytes;
  };
  constexpr std::array<Size, 17> kSizes = {{{"BOOL", 1},
                                            {"U8", 1},
                                            {"I8", 1},
                                            {"F8_E5M2", 1},
                                            {"F8_E4M3", 1},
                                            {"F8_E8M0", 1},
                                            {"I16", 2},
                                            {"U16", 2},
                                            {"F16", 2},
                                            {"BF16", 2},
                                            {"I32", 4},
                                            {"U32", 4},
                                            {"F32", 4},
                                            {"I64", 8},
                                            {"U64", 8},
                                            {"F64", 8},
                                            {"C64", 8}}};
  for (const Size& size : kSizes) {
    if (size.name == dtype) return size.bytes;
  }
  return 0;
}

absl::StatusOr<SafetensorsHeader> ParseSafetensorsHeader(std::string_view prefix,
                                                         int64_t file_bytes) {
  if (file_bytes < kLengthBytes || prefix.size() < static_cast<size_t>(kLengthBytes)) {
    return absl::InvalidArgumentError(
        absl::StrCat("header length: the file has ", file_bytes, " bytes; at least 8 are needed"));
  }
  uint64_t length = 0;
  for (int i = 0; i < kLengthBytes; ++i) {
    length |= static_cast<uint64_t>(static_cast<unsigned char>(prefix[i])) << (8 * i);
  }
  if (length > static_cast<uint64_t>(kMaxSafetensorsHeaderBytes)) {
    return absl::InvalidArgumentError(absl::StrCat("header length: ", length, " given; at most ",
                                                   kMaxSafetensorsHeaderBytes,
                                                   " bytes are allowed"));
  }
  const uint64_t left = std::min<uint64_t>(file_bytes, prefix.size()) - kLengthBytes;
  if (length > left) {
    return absl::InvalidArgumentError(absl::StrCat("header length: ", length, " given, but ", left,
                                                   " bytes follow: the file is cut short"));
  }
  const std::string_view text = prefix.substr(kLengthBytes, length);
  if (text.empty() || text.front() != '{') {
    return absl::InvalidArgumentError("header: does not begin with '{'");
  }
  HeaderBuilder builder;
  const bool parsed = nlohmann::json::sax_parse(text.begin(), text.end(), &builder);
  if (!builder.status().ok()) return builder.status();
  if (!parsed) return absl::InvalidArgumentError("header: not JSON");
  SafetensorsHeader header = builder.header();
  header.data_offset = kLengthBytes + static_cast<int64_t>(length);
  header.data_bytes = file_bytes - header.data_offset;
  std::sort(header.tensors.begin(), header.tensors.end(), [](const Tensor& a, const Tensor& b) {
    return std::tie(a.begin, a.bytes, a.name) < std::tie(b.begin, b.bytes, b.name);
  });
  if (absl::Status status = CheckPlaces(header); !status.ok()) return status;
  return header;
}

SafetensorsFile::SafetensorsFile(std::string path, std::unique_ptr<MappedFile> map,
                                 SafetensorsHeader header)
    : path_(std::move(path)), map_(std::move(map)), header_(std::move(header)) {}

absl::StatusOr<std::shared_ptr<SafetensorsFile>> SafetensorsFile::Open(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return FileError(path, "cannot be opened");
  struct stat info;
  absl::StatusOr<std::unique_ptr<MappedFile>> map = absl::UnknownError("");
  if (fstat(fd, &info) != 0) {
    map = FileError(path, "cannot be read");
  } else if (!S_ISREG(info.st_mode) || info.st_size < kLengthBytes) {
    map = absl::InvalidArgumentError(
        absl::StrCat(path, ": no safetensors file: not a regular file of at least 8 bytes"));
  } else {
    map = MappedFile::Map(fd, info.st_size, path);
  }
  close(fd);
  if (!map.ok()) return map.status();
  absl::StatusOr<SafetensorsHeader> header =
      ParseSafetensorsHeader(std::string_view((*map)->data(), info.st_size), info.st_size);
  if (absl::Status whole = (*map)->CheckWhole(); !whole.ok()) return whole;
  if (!header.ok()) {
    return absl::Status(header.status().code(),
                        absl::StrCat(path, ": ", header.status().message()));
  }
  return std::shared_ptr<SafetensorsFile>(
      new SafetensorsFile(path, *std::move(map), *std::move(header)));
}

}  // namespace vrambroker::offload
