// What stands for a state: its contents as words, in which names (of sessions, uses, generations
// and the like) are told by their rank among those of their kind. Two states that differ only in
// how things are numbered have the same digest.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <string>
#include <tuple>
#include <vector>

#include "absl/time/time.h"

namespace vrambroker::model {

enum class Name {
  kSession,
  kConnection,
  kComponent,
  kUse,
  kOrder,
  kUsed,
  kGeneration,
  kSequence,
  kAttach,
  kRequest,
  kCall,
  kEpoch,
  kReading,
  kRun,
};

class Digest {
 public:
  explicit Digest(absl::Time now) : now_(now) {}

  void Put(int64_t value) { words_.push_back(static_cast<uint64_t>(value)); }
  void PutReal(double value);
  // A name of those that `owner` has; 0 names nothing.
  void Put(Name kind, int owner, uint64_t value) {
    names_.emplace_back(static_cast<int>(kind) * kOwners + owner, value, words_.size());
    words_.push_back(0);
  }
  // A time as it lies from now.
  void Put(absl::Time time) { Put(absl::ToInt64Nanoseconds(time - now_)); }
  // The same of a time that matters only while it is to come.
  void PutDeadline(absl::Time time) { Put(std::max(time, now_)); }
  // The same of a time that matters only for so long after it.
  void PutSince(absl::Time time, absl::Duration limit) {
    const bool never = time == absl::InfinitePast() || time == absl::InfiniteFuture();
    Put(never ? -1 : absl::ToInt64Nanoseconds(std::min(now_ - time, limit)));
  }

  uint64_t Finish();

 private:
  static constexpr int kOwners = 1024;

  const absl::Time now_;
  std::vector<uint64_t> words_;
  std::vector<std::tuple<int, uint64_t, size_t>> names_;  // kind and owner, value, which word
};

// The number that ends a request id: "use-101-707-3" has 3. 0 where it has none.
uint64_t NumberOf(const std::string& request_id);

}  // namespace vrambroker::model
