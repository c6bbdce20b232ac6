// Request ids: a repeat of a finished success returns the first answer, a repeat of a waiting call
// takes over its place, an ended use stays ended.
#include <utility>

#include "absl/strings/str_cat.h"
#include "broker/core/machine_impl.h"

namespace vrambroker::core {

Session* Machine::Impl::OpenSession(const CallHeader& header) {
  const auto it = state.sessions.find(header.session);
  if (it != state.sessions.end() && it->second.phase == SessionPhase::kAttached) return &it->second;
  Fail(header.call, absl::AbortedError(absl::StrCat("session_id: session ", header.session.value(),
                                                    " is not open here; attach again")));
  return nullptr;
}

bool Machine::Impl::DealtWith(const CallHeader& header, Session* session) {
  const auto it = session->requests.find(header.request_id);
  if (it == session->requests.end()) return false;
  RequestRecord& record = it->second;
  if (record.mark && record.fingerprint == 0) {
    // The BeginUse that an EndUse came before.
    record.fingerprint = header.fingerprint;
    record.mark = false;
    --session->marks;
    Finished(header.request_id, session);
  } else if (record.fingerprint != 0 && record.fingerprint != header.fingerprint) {
    Fail(header.call, absl::InvalidArgumentError(absl::StrCat(
                          "request_id: \"", header.request_id,
                          "\" came before with another payload; use a new id for each request")));
    return true;
  }
  switch (record.state) {
    case RequestRecord::State::kEnded:
      Fail(header.call, absl::CancelledError(absl::StrCat("the use of request ", header.request_id,
                                                          " has ended; ask under a new id")));
      return true;
    case RequestRecord::State::kAnswered:
      std::visit(
          [&](const auto& answer) {
            if constexpr (!std::is_same_v<std::decay_t<decltype(answer)>, std::monostate>) {
              effects.push_back(Answer{header.call, answer});
            }
          },
          record.answer);
      return true;
    case RequestRecord::State::kWaiting:
      break;
  }
  for (auto& [order, w] : state.waiting) {
    if (w.session != session->id || w.request_id != header.request_id) continue;
    Fail(w.call, absl::CancelledError("a repeat of this request has taken its place"));
    state.waiting_calls.erase(w.call);
    w.call = header.call;
    state.waiting_calls[w.call] = order;
    return true;
  }
  VRAM_CHECK(false);  // a waiting record has its waiting use
  return true;
}

void Machine::Impl::Remember(const CallHeader& header, RequestRecord record, Session* session) {
  record.fingerprint = header.fingerprint;
  session->requests[header.request_id] = std::move(record);
}

// From now on the id may be forgotten, oldest first, past the bound.
void Machine::Impl::Finished(const std::string& request_id, Session* session) {
  session->finished.push_back(request_id);
  while (static_cast<int>(session->finished.size()) > config.max_request_ids) {
    session->requests.erase(session->finished.front());
    session->finished.pop_front();
  }
}

void Machine::Impl::LeaveMark(const std::string& begin_request_id, Session* session) {
  if (session->requests.contains(begin_request_id)) return;
  RequestRecord record;
  record.state = RequestRecord::State::kEnded;
  record.mark = true;
  session->requests[begin_request_id] = std::move(record);
  ++session->marks;
}

}  // namespace vrambroker::core
