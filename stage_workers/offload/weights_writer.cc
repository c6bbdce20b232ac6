#include "stage_workers/offload/weights_writer.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "stage_workers/offload/safetensors.h"

namespace vrambroker::offload {
namespace {

// Rows of a tensor are one line; every size is a multiple of it.
constexpr int64_t kLine = 64;
constexpr int64_t kLineElements = kLine / 2;
constexpr int64_t kMaxScale = 1 << 20;
constexpr int64_t kBufferBytes = 1 << 20;
// Raised when files with the same sizes get other contents or names.
constexpr int kGenerator = 1;

uint64_t Fingerprint(absl::string_view text) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return hash;
}

struct NewTensor {
  std::string name;
  int64_t bytes = 0;
};

// The names of `count` block lists, as models of one, two or three parts have them.
std::vector<std::string> ListNames(size_t count) {
  if (count == 1) return {"blocks"};
  if (count == 2) return {"double_blocks", "single_blocks"};
  if (count == 3) return {"visual.blocks", "language_model.layers", "refiner.blocks"};
  std::vector<std::string> names;
  for (size_t i = 0; i < count; ++i) names.push_back(absl::StrCat("part_", i, ".blocks"));
  return names;
}

// The tensors of a layer, in the proportions of a transformer block.
void AddLayer(const std::string& prefix, int64_t bytes, std::vector<NewTensor>& tensors) {
  const int64_t lines = bytes / kLine;
  const int64_t norm = lines >= 2 ? 1 : 0;
  const int64_t qkv = lines * 3 / 12;
  const int64_t out = lines / 12;
  const int64_t up = lines * 4 / 12;
  const std::pair<const char*, int64_t> parts[] = {
      {".norm.weight", norm},
      {".attn.qkv.weight", qkv},
      {".attn.out.weight", out},
      {".mlp.up.weight", up},
      {".mlp.down.weight", lines - norm - qkv - out - up}};
  for (const auto& [name, part] : parts) {
    if (part > 0) tensors.push_back({prefix + name, part * kLine});
  }
}

// All tensors in file order.
std::vector<NewTensor> Tensors(const WeightsPlan& plan) {
  std::vector<NewTensor> tensors;
  const int64_t embed = plan.fixed_bytes / kLine * 3 / 4 * kLine;
  if (embed > 0) tensors.push_back({"embed.weight", embed});
  size_t layer = 0;
  for (const BlockList& list : plan.lists) {
    for (int index = 0; index < list.count; ++index) {
      AddLayer(absl::StrCat(list.name, ".", index), plan.layer_bytes[layer++], tensors);
    }
  }
  if (plan.fixed_bytes > embed) tensors.push_back({"head.weight", plan.fixed_bytes - embed});
  return tensors;
}

// Length and header, padded so that data begins at a multiple of a line.
std::string Header(const WeightsPlan& plan, const std::vector<NewTensor>& tensors) {
  nlohmann::ordered_json header;
  header["__metadata__"] = {{"vram.component", plan.component},
                            {"vram.bytes_scale", absl::StrCat(plan.bytes_scale)},
                            {"vram.digest", plan.digest}};
  int64_t begin = 0;
  for (const NewTensor& tensor : tensors) {
    header[tensor.name] = {{"dtype", "BF16"},
                           {"shape", {tensor.bytes / kLine, kLineElements}},
                           {"data_offsets", {begin, begin + tensor.bytes}}};
    begin += tensor.bytes;
  }
  std::string text = header.dump();
  while ((text.size() + 8) % kLine != 0) text += ' ';
  std::string length(8, '\0');
  for (int i = 0; i < 8; ++i) length[i] = static_cast<char>(text.size() >> (8 * i));
  return length + text;
}

class Output {
 public:
  explicit Output(const std::string& path)
      : path_(path), fd_(open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644)) {
    if (fd_ < 0) status_ = Error("cannot be made");
  }
  ~Output() {
    if (fd_ >= 0) close(fd_);
  }
  Output(const Output&) = delete;
  Output& operator=(const Output&) = delete;

  const absl::Status& status() const { return status_; }
  void Write(const void* data, int64_t bytes) {
    const char* at = static_cast<const char*>(data);
    while (status_.ok() && bytes > 0) {
      const ssize_t written = write(fd_, at, bytes);
      if (written < 0 && errno == EINTR) continue;
      if (written < 0) {
        status_ = Error("cannot be written");
        return;
      }
      at += written;
      bytes -= written;
    }
  }

 private:
  absl::Status Error(const char* what) const {
    const int error = errno;
    return absl::ErrnoToStatus(error, absl::StrCat(path_, ": ", what));
  }

  const std::string path_;
  const int fd_;
  absl::Status status_;
};

// Finite BF16 values: the exponents' highest bits are cleared.
void FillRandom(uint64_t seed, uint64_t first_word, std::vector<uint64_t>& words) {
  for (size_t i = 0; i < words.size(); ++i) {
    uint64_t word = seed + (first_word + i) * 0x9e3779b97f4a7c15;
    word = (word ^ (word >> 30)) * 0xbf58476d1ce4e5b9;
    word = (word ^ (word >> 27)) * 0x94d049bb133111eb;
    words[i] = (word ^ (word >> 31)) & 0xbfffbfffbfffbfff;
  }
}

absl::Status CheckPlanInput(const v1::WorkloadComponent& component, int64_t scale) {
  const std::string& name = component.name();
  const bool good = !name.empty() && name.size() <= 200 && name[0] != '.' &&
                    std::all_of(name.begin(), name.end(), [](unsigned char c) {
                      return std::isalnum(c) || c == '.' || c == '-' || c == '_';
                    });
  if (!good) {
    return absl::InvalidArgumentError(absl::StrCat(
        "component \"", name,
        "\": as a file's name, up to 200 letters, digits, '.', '-' and '_' are allowed"));
  }
  if (scale < 1 || scale > kMaxScale) {
    return absl::InvalidArgumentError(
        absl::StrCat("bytes scale: ", scale, " given; 1 to ", kMaxScale, " are allowed"));
  }
  return absl::OkStatus();
}

}  // namespace

int64_t ScaleBytes(int64_t bytes, int64_t scale) {
  if (bytes == 0) return 0;
  const int64_t scaled = bytes / scale;
  return std::max(kLine, (scaled + kLine / 2) / kLine * kLine);
}

int64_t WeightsPlan::data_bytes() const {
  return std::accumulate(layer_bytes.begin(), layer_bytes.end(), fixed_bytes);
}

absl::StatusOr<WeightsPlan> PlanWeights(const v1::WorkloadComponent& component,
                                        const std::vector<int>& list_counts, int64_t scale) {
  if (absl::Status status = CheckPlanInput(component, scale); !status.ok()) return status;
  WeightsPlan plan;
  plan.component = component.name();
  plan.bytes_scale = scale;
  plan.fixed_bytes = ScaleBytes(component.fixed_bytes(), scale);
  std::vector<int> counts = list_counts;
  for (const v1::LayerGroup& group : component.layer_groups()) {
    plan.layer_bytes.insert(plan.layer_bytes.end(), group.count(),
                            ScaleBytes(group.layer_bytes(), scale));
    if (list_counts.empty()) counts.push_back(group.count());
  }
  const int64_t listed = std::accumulate(counts.begin(), counts.end(), int64_t{0});
  if (listed != static_cast<int64_t>(plan.layer_bytes.size()) ||
      std::any_of(counts.begin(), counts.end(), [](int count) { return count < 1; })) {
    return absl::InvalidArgumentError(absl::StrCat(
        "block lists of ", plan.component, ": ", absl::StrJoin(counts, ","), " given; its ",
        plan.layer_bytes.size(), " layers in lists of at least 1 are needed"));
  }
  const std::vector<std::string> names = ListNames(counts.size());
  for (size_t i = 0; i < counts.size(); ++i) plan.lists.push_back({names[i], counts[i]});
  plan.digest = absl::StrCat(
      absl::Hex(Fingerprint(absl::StrCat(kGenerator, "|", plan.component, "|", scale, "|",
                                         plan.fixed_bytes, "|", absl::StrJoin(counts, ","), "|",
                                         absl::StrJoin(plan.layer_bytes, ","))),
                absl::kZeroPad16));
  return plan;
}

std::string WeightsPath(const std::string& directory, const std::string& component) {
  return absl::StrCat(directory, "/", component, ".safetensors");
}

bool WeightsAreCurrent(const std::string& path, const WeightsPlan& plan) {
  absl::StatusOr<std::shared_ptr<SafetensorsFile>> file = SafetensorsFile::Open(path);
  if (!file.ok()) return false;
  const SafetensorsHeader& header = (*file)->header();
  const auto digest = header.metadata.find("vram.digest");
  return header.data_bytes == plan.data_bytes() && digest != header.metadata.end() &&
         digest->second == plan.digest;
}

namespace {

// A file that somebody else wrote may be somebody's weights.
absl::Status CheckReplaceable(const std::string& path) {
  if (access(path.c_str(), F_OK) != 0) return absl::OkStatus();
  const absl::StatusOr<std::shared_ptr<SafetensorsFile>> file = SafetensorsFile::Open(path);
  if (file.ok() && (*file)->header().metadata.contains("vram.digest")) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat(path,
                   " is there and was not generated: it is left as it is. Move it away, or "
                   "name another folder for generated weights."));
}

}  // namespace

absl::Status WriteWeights(const std::string& path, const WeightsPlan& plan,
                          const std::function<void(int64_t)>& progress) {
  if (absl::Status status = CheckReplaceable(path); !status.ok()) return status;
  const std::string draft = absl::StrCat(path, ".", getpid(), ".part");
  const std::vector<NewTensor> tensors = Tensors(plan);
  absl::Status status;
  {
    Output output(draft);
    const std::string header = Header(plan, tensors);
    output.Write(header.data(), static_cast<int64_t>(header.size()));
    std::vector<uint64_t> words;
    int64_t done = 0;
    for (const NewTensor& tensor : tensors) {
      const uint64_t seed = Fingerprint(absl::StrCat(plan.component, "/", tensor.name));
      for (int64_t at = 0; at < tensor.bytes && output.status().ok(); at += kBufferBytes) {
        const int64_t bytes = std::min(kBufferBytes, tensor.bytes - at);
        words.resize(bytes / sizeof(uint64_t));
        FillRandom(seed, at / sizeof(uint64_t), words);
        output.Write(words.data(), bytes);
        done += bytes;
        if (progress) progress(done);
      }
    }
    status = output.status();
  }
  if (status.ok() && std::rename(draft.c_str(), path.c_str()) != 0) {
    const int error = errno;
    status = absl::ErrnoToStatus(error, absl::StrCat(path, ": cannot be renamed into place"));
  }
  if (!status.ok()) unlink(draft.c_str());
  return status;
}

}  // namespace vrambroker::offload
