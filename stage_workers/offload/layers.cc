#include "stage_workers/offload/layers.h"

#include <algorithm>
#include <map>
#include <string_view>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace vrambroker::offload {
namespace {

struct BlockName {
  std::string_view list;
  int index = -1;
};

// Whether a part of a name is an index: digits, no leading zero, below kMaxLayers.
bool IsIndex(std::string_view part, int* index) {
  if (part.empty() || part.size() > 4 || (part.size() > 1 && part[0] == '0')) return false;
  if (!std::all_of(part.begin(), part.end(), [](char c) { return c >= '0' && c <= '9'; })) {
    return false;
  }
  return absl::SimpleAtoi(absl::string_view(part.data(), part.size()), index) &&
         *index < kMaxLayers;
}

// Splits "LIST.INDEX.REST" at the first part that is an index. Index -1: the name has none, or
// nothing before or after it.
BlockName SplitName(std::string_view name) {
  size_t begin = 0;
  while (begin < name.size()) {
    const size_t end = name.find('.', begin);
    if (end == std::string_view::npos) break;
    BlockName split;
    if (begin > 0 && IsIndex(name.substr(begin, end - begin), &split.index)) {
      split.list = name.substr(0, begin - 1);
      return split;
    }
    begin = end + 1;
  }
  return {};
}

constexpr int64_t Align(int64_t bytes) {
  return (bytes + kDeviceAlignment - 1) / kDeviceAlignment * kDeviceAlignment;
}

// Adds bytes at the end of a group; joins them with the last piece where they follow it in memory.
void AddPiece(TensorGroup& group, const char* source, int64_t bytes) {
  if (bytes == 0) return;
  if (!group.pieces.empty()) {
    card::HostPiece& last = group.pieces.back();
    const char* last_source = static_cast<const char*>(last.source);
    if (source != nullptr && last_source != nullptr && last_source + last.bytes == source) {
      last.bytes += bytes;
      group.bytes += bytes;
      return;
    }
  }
  group.pieces.push_back({.source = source, .bytes = bytes, .device_offset = group.bytes});
  group.bytes += bytes;
}

void AddTensor(TensorGroup& group, const SafetensorsFile& file, const Tensor& tensor) {
  AddPiece(group, nullptr, Align(group.bytes) - group.bytes);
  AddPiece(group, file.Data(tensor), tensor.bytes);
}

void FinishGroup(TensorGroup& group) { AddPiece(group, nullptr, Align(group.bytes) - group.bytes); }

// Tensors of a file by list and index; lists in the order in which they begin.
struct Found {
  std::vector<std::string> lists;
  std::map<std::string, std::map<int, std::vector<const Tensor*>>, std::less<>> blocks;
};

Found FindBlocks(const SafetensorsHeader& header) {
  Found found;
  for (const Tensor& tensor : header.tensors) {
    const BlockName name = SplitName(tensor.name);
    if (name.index < 0) continue;
    const std::string list(name.list);
    auto& blocks = found.blocks[list];
    if (blocks.empty()) found.lists.push_back(list);
    blocks[name.index].push_back(&tensor);
  }
  return found;
}

// The lists to use: those asked for, which must be whole, or all that are.
absl::StatusOr<std::vector<std::string>> ChooseLists(const Found& found,
                                                     absl::Span<const std::string> wanted) {
  const auto whole = [](const auto& blocks) {
    return blocks.rbegin()->first == static_cast<int>(blocks.size()) - 1;
  };
  std::vector<std::string> chosen;
  if (wanted.empty()) {
    for (const std::string& list : found.lists) {
      const auto& blocks = found.blocks.at(list);
      if (blocks.size() >= 2 && whole(blocks)) chosen.push_back(list);
    }
    return chosen;
  }
  for (const std::string& list : wanted) {
    const auto blocks = found.blocks.find(list);
    if (blocks == found.blocks.end()) {
      return absl::InvalidArgumentError(
          absl::StrCat("block list \"", list, "\": no tensor is called ", list, ".INDEX.NAME"));
    }
    if (std::find(chosen.begin(), chosen.end(), list) != chosen.end()) {
      return absl::InvalidArgumentError(absl::StrCat("block list \"", list, "\": given twice"));
    }
    int missing = 0;
    while (blocks->second.count(missing) > 0) ++missing;
    if (!whole(blocks->second)) {
      return absl::InvalidArgumentError(absl::StrCat("block list \"", list, "\": index ", missing,
                                                     " is missing, though there is ",
                                                     blocks->second.rbegin()->first));
    }
    chosen.push_back(list);
  }
  return chosen;
}

}  // namespace

absl::StatusOr<LayerMap> GroupLayers(std::shared_ptr<SafetensorsFile> file,
                                     absl::Span<const std::string> list_names) {
  const Found found = FindBlocks(file->header());
  const auto named = [&](const absl::Status& status) {
    return absl::Status(status.code(), absl::StrCat(file->path(), ": ", status.message()));
  };
  absl::StatusOr<std::vector<std::string>> lists = ChooseLists(found, list_names);
  if (!lists.ok()) return named(lists.status());
  LayerMap map;
  for (const std::string& list : *lists) {
    const auto& blocks = found.blocks.at(list);
    map.lists.push_back({list, static_cast<int>(blocks.size())});
    if (map.layers.size() + blocks.size() > static_cast<size_t>(kMaxLayers)) {
      return named(absl::InvalidArgumentError(
          absl::StrCat("block list \"", list, "\": more than ", kMaxLayers, " layers in all")));
    }
    for (const auto& [index, tensors] : blocks) {
      Layer layer = {.list = list, .index = index, .tensors = {}};
      for (const Tensor* tensor : tensors) AddTensor(layer.tensors, *file, *tensor);
      FinishGroup(layer.tensors);
      if (layer.tensors.bytes == 0) {
        return named(absl::InvalidArgumentError(
            absl::StrCat("layer ", list, ".", index, ": its tensors have no bytes")));
      }
      map.layer_bytes_total += layer.tensors.bytes;
      map.largest_layer_bytes = std::max(map.largest_layer_bytes, layer.tensors.bytes);
      map.layers.push_back(std::move(layer));
    }
  }
  for (const Tensor& tensor : file->header().tensors) {
    const BlockName name = SplitName(tensor.name);
    const bool in_list =
        name.index >= 0 && std::find(lists->begin(), lists->end(), name.list) != lists->end();
    if (!in_list) AddTensor(map.fixed, *file, tensor);
  }
  FinishGroup(map.fixed);
  map.file = std::move(file);
  return map;
}

absl::StatusOr<KeepOrder> MakeKeepOrder(absl::Span<const BlockList> lists, const KeepSpec& spec) {
  int layers = 0;
  for (const BlockList& list : lists) layers += list.count;
  const bool by_ratio = spec.pattern == KeepPattern::kRatioPerList;
  if (by_ratio && !(spec.ratio >= 0 && spec.ratio <= 1)) {
    return absl::InvalidArgumentError(
        absl::StrCat("ratio: ", spec.ratio, " given; 0 to 1 is allowed"));
  }
  if (!by_ratio && (spec.count < -1 || spec.count > layers)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "count: ", spec.count, " given; -1 (all) to the ", layers, " layers are allowed"));
  }
  const int count = spec.count < 0 ? layers : spec.count;
  KeepOrder keep;
  std::vector<int> others;
  int layer = 0;
  for (const BlockList& list : lists) {
    // Halves are rounded up; the addend covers products such as 0.7 * 5 that miss their half.
    const int of_list = static_cast<int>(spec.ratio * list.count + 0.5 + 1e-9);
    for (int index = 0; index < list.count; ++index, ++layer) {
      bool kept = false;
      switch (spec.pattern) {
        case KeepPattern::kLeading:
          kept = layer < count;
          break;
        case KeepPattern::kStrided:
          kept = int64_t{layer} * count / layers != int64_t{layer + 1} * count / layers;
          break;
        case KeepPattern::kRatioPerList:
          kept = index < of_list;
          break;
      }
      (kept ? keep.order : others).push_back(layer);
    }
  }
  keep.configured = static_cast<int>(keep.order.size());
  keep.order.insert(keep.order.end(), others.begin(), others.end());
  return keep;
}

}  // namespace vrambroker::offload
