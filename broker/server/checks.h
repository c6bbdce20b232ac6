// Checks of a request's fields against their documented ranges.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "google/protobuf/duration.pb.h"

namespace vrambroker::server {

// Bounds that the contract documents.
inline constexpr int kMaxComponents = 64;
inline constexpr int kMaxLayerRuns = 256;
inline constexpr int kMaxLayers = 4096;
inline constexpr int kMaxPasses = 1000000;
inline constexpr int kMaxStages = 64;
inline constexpr int kMaxHeldUses = 16;
inline constexpr size_t kMaxGroupNameBytes = 64;
inline constexpr int kMaxGroupSize = 64;
inline constexpr int kMaxPriority = 100;
inline constexpr int kMaxNameBytes = 128;
inline constexpr int kMaxRequestIdBytes = 64;
inline constexpr int kMaxShapeBytes = 64;
inline constexpr int kMaxDecisions = 4096;
// The version of the protocol that is spoken here.
inline constexpr int kProtocolVersion = 1;

// Remembers the first field that is out of its range; later checks then change nothing, so that a
// conversion checks everything in a row and asks once. Field names are paths, as
// "components[2].fixed_bytes", made of a prefix and a name.
class Checks {
 public:
  bool ok() const { return status_.ok(); }
  // OK, or INVALID_ARGUMENT naming the field, the value and what is allowed.
  const absl::Status& status() const { return status_; }

  // Of the fields that follow.
  void SetPrefix(std::string prefix) { prefix_ = std::move(prefix); }

  void Range(absl::string_view field, int64_t value, int64_t low, int64_t high);
  // 0 to kMaxBytes.
  void Bytes(absl::string_view field, int64_t value);
  void NotZero(absl::string_view field, uint64_t value);
  // Finite, 0 to `high`.
  void Amount(absl::string_view field, double value, double high);
  // 1 to 128 of letters, digits, '.', '-', '_'.
  void Name(absl::string_view field, absl::string_view value);
  // NAME, or NAME/NAME.
  void ComponentReference(absl::string_view field, absl::string_view value);
  void RequestId(absl::string_view field, absl::string_view value);
  void Length(absl::string_view field, absl::string_view value, size_t high);
  // 0 and more, in the range of the wire type.
  void Duration(absl::string_view field, const google::protobuf::Duration& value);
  void Require(bool holds, absl::string_view field, absl::string_view given,
               absl::string_view allowed);

 private:
  void Fail(absl::string_view field, absl::string_view given, absl::string_view allowed);

  std::string prefix_;
  absl::Status status_;
};

absl::Duration ToDuration(const google::protobuf::Duration& duration);
// Infinite ones become the longest of the wire type.
void FromDuration(absl::Duration duration, google::protobuf::Duration* out);

}  // namespace vrambroker::server
