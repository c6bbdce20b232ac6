// A session's uses: asked for, granted, given up, ended, and what is sent again.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/cpp/session.h"
#include "client/cpp/session_proto.h"

namespace vrambroker::client {

std::string Session::NewRequestId(const char* kind) {
  return absl::StrCat(kind, "-", options_.pid, "-", options_.start_time_ticks, "-", ++requests_);
}

void Session::On(const UseAsked& e) {
  UseState use;
  use.request = e.request;
  uses_.emplace(e.ticket, std::move(use));
  if (session_id_ != 0) SendWaiting(e.ticket);
}

// Under a new id in each session: what an older one knows of the old id is nobody's any more.
void Session::SendWaiting(Ticket ticket) {
  UseState& use = uses_.at(ticket);
  if (!use.sent) use.request.set_request_id(NewRequestId("use"));
  use.sent = true;
  use.send_again = absl::InfiniteFuture();
  use.request.set_session_id(session_id_);
  Emit(SendBegin{attach_number_, use.request});
}

void Session::On(const BeginAnswered& e) {
  if (e.attach_number != attach_number_ || session_id_ == 0) return;
  const auto it = std::find_if(uses_.begin(), uses_.end(), [&](const auto& entry) {
    return entry.second.phase == Phase::kWaiting && entry.second.sent &&
           entry.second.request.request_id() == e.request_id;
  });
  if (it == uses_.end()) return;  // given up meanwhile: its EndUse is on the way
  UseState& use = it->second;
  ComponentState& c = components_.at(use.request.component());
  if (absl::IsCancelled(e.status) || (e.status.ok() && c.dropped_after != 0)) {
    // Cancelled: its place may have gone to a copy of the call, whose answer nobody would see.
    // Granted while the broker does not know of layers that were dropped: a reading meanwhile has
    // taken their absence for room.
    Withdraw(use);
    use.sent = false;
    use.send_again = now_ + kSendAgain;
    return;
  }
  if (e.status.ok()) {
    use.phase = Phase::kRunning;
    use.use_id = e.response.use_id();
    use.granted = e.response.resident_layers();
    use.generation = e.response.generation();
    use.window_bytes = e.response.window_bytes();
    use.activation_bytes = e.response.activation_bytes();
    if (!c.target.has_value() || c.target->generation < use.generation) {
      c.target = Target{use.generation, use.granted};
    }
    Emit(UseGranted{it->first, use.granted, use.activation_bytes, use.use_id, true,
                    e.response.reason()});
    return;
  }
  if (absl::IsAborted(e.status) && !IsRefusedWait(e.status))
    return;  // a new session will ask again
  if (IsPassing(e.status)) {
    use.send_again = now_ + kSendAgain;  // the same id: it takes over its place, or gets its answer
    return;
  }
  const Ticket ticket = it->first;
  uses_.erase(it);
  Emit(UseRefused{ticket, e.status});
}

void Session::On(const UseGivenUp& e) {
  const auto it = uses_.find(e.ticket);
  if (it == uses_.end() || it->second.phase != Phase::kWaiting) return;
  UseState use = std::move(it->second);
  uses_.erase(it);
  if (!use.sent || session_id_ == 0) return;
  Emit(CancelBegin{use.request.request_id()});
  Withdraw(use);
}

// Ends a use whose answer nobody waits for, known to the broker or not. Requires a session.
void Session::Withdraw(const UseState& use) {
  Withdrawal withdrawal;
  v1::EndUseRequest& end = withdrawal.request;
  end.set_session_id(session_id_);
  end.set_request_id(NewRequestId("end"));
  end.set_begin_request_id(use.request.request_id());
  *end.mutable_snapshot() = TakeSnapshot();
  Emit(SendEnd{attach_number_, end});
  withdrawals_.emplace(end.request_id(), std::move(withdrawal));
}

void Session::On(const UseOver& e) {
  const auto it = uses_.find(e.ticket);
  if (it == uses_.end() || it->second.phase != Phase::kRunning) return;
  UseState& use = it->second;
  ComponentState& c = components_.at(use.request.component());
  c.held = std::clamp(e.held, 0, c.layers);
  c.copying = false;
  if (e.pool_bytes.has_value()) pool_bytes_ = *e.pool_bytes;
  use.phase = Phase::kEnding;
  *use.end.mutable_measured() = e.measured;
  if (session_id_ != 0) return SendEnding(e.ticket);
  // A stream without a welcome yet has been told of the running use: its end is sent after the
  // welcome.
  if (!stream_open_) Close(e.ticket, 0);
}

void Session::SendEnding(Ticket ticket) {
  UseState& use = uses_.at(ticket);
  NoteConverged();
  use.end.set_session_id(session_id_);
  use.end.set_request_id(NewRequestId("end"));
  use.end.set_begin_request_id(use.request.request_id());
  *use.end.mutable_snapshot() = TakeSnapshot();
  Emit(SendEnd{attach_number_, use.end});
}

void Session::On(const EndAnswered& e) {
  if (e.attach_number != attach_number_ || session_id_ == 0) return;
  if (e.status.ok() && !e.response.target().component().empty()) TakeTarget(e.response.target());
  if (e.status.ok() && e.response.trim_pool()) Emit(TrimPool{});
  const bool again = IsPassing(e.status);
  if (const auto w = withdrawals_.find(e.request_id); w != withdrawals_.end()) {
    if (again) w->second.send_again = now_ + kSendAgain;
    if (!again) withdrawals_.erase(w);
    return;
  }
  for (auto& [ticket, use] : uses_) {
    if (use.phase != Phase::kEnding || use.end.request_id() != e.request_id) continue;
    if (again) {
      use.send_again = now_ + kSendAgain;
    } else if (!absl::IsAborted(e.status)) {
      // Not known there: it has ended, and nothing is granted to stay.
      const ComponentState& c = components_.at(use.request.component());
      Close(ticket, e.status.ok() && c.target.has_value() ? std::min(c.held, c.target->layers) : 0);
    }
    return;
  }
}

void Session::On(const EndGivenUp& e) {
  const auto it = uses_.find(e.ticket);
  if (it == uses_.end() || it->second.phase != Phase::kEnding) return;
  if (session_id_ != 0) {
    // The broker must still hear of it.
    withdrawals_.emplace(it->second.end.request_id(),
                         Withdrawal{it->second.end, it->second.send_again});
  } else if (stream_open_ && it->second.listed) {
    untold_.push_back(it->second);
  }
  Close(e.ticket, 0);
}

void Session::Close(Ticket ticket, int keep) {
  const std::string component = uses_.at(ticket).request.component();
  const ComponentState& c = components_.at(component);
  if (c.spec.lifetime() == v1::LIFETIME_PERMANENT) keep = c.held;  // no use releases it
  uses_.erase(ticket);
  report_due_ = true;
  Emit(UseClosed{ticket, keep});
  Emit(WorkChanged{component});
}

void Session::On(const NoBrokerLives&) {
  // An Attach that is under way does not list what would begin here.
  if (session_id_ != 0 || stream_open_) return;
  if (!std::exchange(pin_freely_, true)) SayPinsDue();
  for (auto& [ticket, use] : uses_) {
    if (use.phase != Phase::kWaiting || ActiveUse(use.request.component()) != nullptr) continue;
    const auto configured = options_.configured_resident.find(use.request.component());
    const ComponentState& c = components_.at(use.request.component());
    use.phase = Phase::kRunning;
    use.brokered = false;
    use.use_id = 0;
    use.generation = 0;
    use.granted = configured == options_.configured_resident.end()
                      ? 0
                      : std::clamp(configured->second, 0, c.layers);
    use.window_bytes = use.granted < c.layers ? c.spec.window_bytes() : 0;
    use.activation_bytes = use.request.activation_bytes();
    if (use.request.request_id().empty()) use.request.set_request_id(NewRequestId("use"));
    Emit(UseGranted{ticket, use.granted, use.activation_bytes, 0, false, v1::REASON_UNSPECIFIED});
  }
}

}  // namespace vrambroker::client
