#include "tests/model/digest.h"

#include <cstring>

#include "absl/strings/numbers.h"
#include "absl/strings/string_view.h"

namespace vrambroker::model {
namespace {

uint64_t Mix(uint64_t hash, uint64_t word) {
  hash ^= word + 0x9e3779b97f4a7c15 + (hash << 6) + (hash >> 2);
  hash = (hash ^ (hash >> 30)) * 0xbf58476d1ce4e5b9;
  hash = (hash ^ (hash >> 27)) * 0x94d049bb133111eb;
  return hash ^ (hash >> 31);
}

}  // namespace

void Digest::PutReal(double value) {
  uint64_t word = 0;
  std::memcpy(&word, &value, sizeof word);
  words_.push_back(word);
}

uint64_t Digest::Finish() {
  std::sort(names_.begin(), names_.end());
  uint64_t rank = 0, last = 0;
  int kind = -1;
  for (const auto& [of, value, word] : names_) {
    if (of != kind) rank = last = 0;
    kind = of;
    const bool counted = of / kOwners == static_cast<int>(Name::kGeneration) && last != 0;
    rank += counted ? value - last : value > last ? 1 : 0;
    last = value;
    words_[word] = rank;
  }
  uint64_t hash = words_.size();
  for (uint64_t word : words_) hash = Mix(hash, word);
  return hash;
}

uint64_t NumberOf(const std::string& request_id) {
  const size_t dash = request_id.rfind('-');
  uint64_t number = 0;
  if (dash == std::string::npos) return 0;
  return absl::SimpleAtoi(absl::string_view(request_id).substr(dash + 1), &number) ? number : 0;
}

}  // namespace vrambroker::model
