#include "stage_workers/worker/local_rule.h"

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "stage_workers/worker/command_line.h"

namespace vrambroker::worker {

absl::StatusOr<RetainRule> ParseRetain(const std::string& text) {
  static const std::string kIfFree = "if-free:";
  if (text == "none") return RetainRule{.mode = RetainMode::kNone};
  if (text == "all") return RetainRule{.mode = RetainMode::kAll};
  if (text.rfind(kIfFree, 0) == 0) {
    absl::StatusOr<int64_t> bytes = ParseBytes("--retain", text.substr(kIfFree.size()));
    if (!bytes.ok()) return bytes.status();
    return RetainRule{.mode = RetainMode::kIfFree, .free_bytes = *bytes};
  }
  return absl::InvalidArgumentError(
      absl::StrCat("--retain: '", text, "' given; none, all or if-free:BYTES is allowed"));
}

int LayersToKeep(const RetainRule& rule, int resident, int64_t free_bytes) {
  switch (rule.mode) {
    case RetainMode::kNone:
      return 0;
    case RetainMode::kAll:
      return resident;
    case RetainMode::kIfFree:
      return free_bytes >= rule.free_bytes ? resident : 0;
  }
  return 0;
}

absl::StatusOr<offload::KeepSpec> ParseResident(const std::string& text) {
  offload::KeepSpec spec;
  if (text == "all") return spec;
  const bool ratio = text.find('.') != std::string::npos;
  if (!ratio && absl::SimpleAtoi(text, &spec.count) && spec.count >= 0) return spec;
  if (ratio && absl::SimpleAtod(text, &spec.ratio) && spec.ratio >= 0 && spec.ratio <= 1) {
    spec.pattern = offload::KeepPattern::kRatioPerList;
    return spec;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("--resident: '", text,
                   "' given; a count of layers (53), a ratio of each block list from 0.0 to 1.0 "
                   "(0.8), or all is allowed"));
}

int LayersThatFit(const FitQuestion& question) {
  const auto need = [&question](int layers) {
    return question.prefix_bytes(layers) + question.window_bytes(layers) +
           question.activation_bytes;
  };
  // The whole set needs no window, so that it may fit where one layer less does not.
  for (int layers = question.configured; layers > 0; --layers) {
    if (need(layers) <= question.available_bytes) return layers;
  }
  return 0;
}

}  // namespace vrambroker::worker
