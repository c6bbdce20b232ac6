#include "absl/strings/str_cat.h"
#include "stage_workers/card/cuda_card.h"
#include "stage_workers/card/emulated_card.h"

namespace vrambroker::card {

absl::StatusOr<std::unique_ptr<Card>> OpenCard(const std::string& uuid) {
  const std::string name = EmulatedCard::NameOfUuid(uuid);
  if (name.empty()) return OpenCudaCard(uuid);
  absl::StatusOr<std::unique_ptr<EmulatedCard>> card = EmulatedCard::Open(name);
  if (!card.ok()) return card.status();
  return std::unique_ptr<Card>(*std::move(card));
}

}  // namespace vrambroker::card
