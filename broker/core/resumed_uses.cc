// Uses that run on while their worker attaches again, to this broker or to one that starts.
#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "broker/core/machine_impl.h"

namespace vrambroker::core {
namespace {

// Ids that are kept of a use that goes on across sessions: the first, and the newest.
constexpr size_t kFormerIds = 64;

}  // namespace

// A use that goes on has a new id, and those that it had: others may know it by these. To a broker
// that never knew it, it comes with its newest one where that is free.
void Machine::Impl::NameAgain(const ResumedUseSpec& said, RunningUse* use) {
  if (!use->id) {
    use->formerly = said.former_ids;
    std::erase_if(use->formerly, [this](UseId id) { return FindUse(id) != nullptr; });
    if (!use->formerly.empty()) {
      use->id = use->formerly.back();
      use->formerly.pop_back();
      last_use = std::max(last_use, use->id.value());
      return;
    }
  } else {
    if (use->formerly.size() >= kFormerIds) use->formerly.erase(use->formerly.begin() + 1);
    use->formerly.push_back(use->id);
  }
  use->id = UseId(++last_use);
}

// The component whose running use has that id, or had it.
const Component* Machine::Impl::FindUse(UseId id) const {
  for (const auto& [cid, c] : state.components) {
    if (!c.use.has_value()) continue;
    const std::vector<UseId>& former = c.use->formerly;
    if (c.use->id == id || std::find(former.begin(), former.end(), id) != former.end()) return &c;
  }
  return nullptr;
}

// Uses that the worker lists go on under new ids; others of its uses have ended.
void Machine::Impl::ResumeUses(const AttachEvent& e, Session* session, Welcome* welcome) {
  std::map<std::string, RunningUse> before;
  for (ComponentId id : session->components) {
    Component& c = state.components.at(id);
    if (c.use.has_value()) before[c.use->request_id] = *c.use;
    c.use.reset();
  }
  for (const ResumedUseSpec& u : e.running_uses) {
    Component* c = FindComponent(*session, u.component);
    RunningUse use;
    if (const auto it = before.find(u.request_id); it != before.end()) use = it->second;
    NameAgain(u, &use);
    use.request_id = u.request_id;
    use.spec.component = u.component;
    use.granted = u.granted;
    use.window = u.window;
    use.activation = u.activation;
    use.generation = u.generation;
    if (use.order == 0) {
      use.order = ++last_order;
      use.began = now;
    }
    c->generation = std::max(c->generation, u.generation);
    c->use = use;
    AdmitByFact(c);
    RequestRecord record;
    record.state = RequestRecord::State::kAnswered;
    record.live = true;
    record.answer = BeginAnswer{use.id,         use.granted,         use.generation,
                                DecisionId(),   Reason::kUnchanged,  use.window,
                                use.activation, absl::ZeroDuration()};
    session->requests[u.request_id] = std::move(record);
    welcome->resumed_uses.emplace_back(u.request_id, use.id);
  }
  for (auto& [order, w] : state.waiting) UseNewestIds(&w.spec);
  if (!e.running_uses.empty()) RefuseDeadlocks();
}

}  // namespace vrambroker::core
