// A real card through the CUDA run-time. Builds without the toolkit too, and then says so.
#ifndef VRAMBROKER_STAGE_WORKERS_CARD_CUDA_CARD_H_
#define VRAMBROKER_STAGE_WORKERS_CARD_CUDA_CARD_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "stage_workers/card/card.h"

namespace vrambroker::card {

// Whether this program was built with the CUDA toolkit.
bool BuiltWithCuda();

// The uuids of the cards that this process sees, "GPU-..." as the driver prints them.
// UNIMPLEMENTED where the program was built without the toolkit, UNAVAILABLE where there is no
// driver or no device, with what the run-time says.
absl::StatusOr<std::vector<std::string>> ListCudaCards();

// Opens the card with this uuid. The same errors, and NOT_FOUND for a uuid that no card has, naming
// those that there are. ReadUsage of such a card tells totals only: the run-time knows no pids.
absl::StatusOr<std::unique_ptr<Card>> OpenCudaCard(const std::string& uuid);

// Opens a card of either kind by its uuid: "emulated:NAME" or a CUDA card's.
absl::StatusOr<std::unique_ptr<Card>> OpenCard(const std::string& uuid);

}  // namespace vrambroker::card

#endif  // VRAMBROKER_STAGE_WORKERS_CARD_CUDA_CARD_H_
