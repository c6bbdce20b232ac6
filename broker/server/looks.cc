#include "broker/server/looks.h"

#include <algorithm>

#include "broker/server/convert_answers.h"

namespace vrambroker::server {

void CopyDecisions(const core::Machine& machine, size_t limit, core::DecisionId after,
                   v1::ListDecisionsResponse* out) {
  const auto& all = machine.decisions();
  auto first = std::upper_bound(
      all.begin(), all.end(), after,
      [](core::DecisionId id, const core::Decision& decision) { return id < decision.id; });
  const size_t left = static_cast<size_t>(all.end() - first);
  if (left > limit) first += static_cast<std::ptrdiff_t>(left - limit);
  for (; first != all.end(); ++first) Write(*first, out->add_decisions());
}

}  // namespace vrambroker::server
