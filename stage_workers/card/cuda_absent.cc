#include "stage_workers/card/cuda_card.h"

namespace vrambroker::card {
namespace {

absl::Status Absent() {
  return absl::UnimplementedError("this program was built without the CUDA toolkit");
}

}  // namespace

bool BuiltWithCuda() { return false; }
absl::StatusOr<std::vector<std::string>> ListCudaCards() { return Absent(); }
absl::StatusOr<std::unique_ptr<Card>> OpenCudaCard(const std::string&) { return Absent(); }

}  // namespace vrambroker::card
