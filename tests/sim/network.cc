#include "tests/sim/network.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "broker/server/convert_answers.h"
#include "broker/server/convert_attach.h"
#include "tests/sim/peer.h"

namespace vrambroker::simulation {

absl::Duration Network::Delay() {
  if (Fault(0.03)) return random_.Delay(absl::Milliseconds(1), absl::Seconds(4));
  return random_.Delay(absl::Microseconds(20), absl::Milliseconds(20));
}

std::shared_ptr<Network::Connection> Network::Of(const Peer* peer, uint64_t attach_number) {
  const auto it = newest_.find(peer);
  if (it == newest_.end() || it->second->attach_number != attach_number) return nullptr;
  return it->second;
}

void Network::Open(Peer* peer, const v1::AttachRequest& request) {
  if (const auto it = newest_.find(peer); it != newest_.end()) Break(it->second, false);
  auto connection = std::make_shared<Connection>();
  connection->id = ++last_connection_;
  connection->peer = peer;
  connection->attach_number = request.attach_number();
  newest_[peer] = connection;
  connections_[connection->id] = connection;
  time_.After(Delay(), [this, connection, request] {
    if (connection->dead || (connection->lost && Fault(0.5))) return;
    absl::StatusOr<core::AttachEvent> event = server::ReadAttach(request);
    if (!event.ok()) return hooks_.fail(absl::StrCat("Attach: ", event.status().ToString()));
    event->connection = core::ConnectionId(connection->id);
    event->process = connection->peer->process();
    connection->arrived = true;
    connection->peer->Attached();
    hooks_.step(*event);
    if (connection->lost) TellClosed(connection);
  });
}

// The machine is told of the end of a stream that it knows, once.
void Network::TellClosed(const std::shared_ptr<Connection>& connection) {
  time_.After(Delay(), [this, connection] {
    if (connection->dead || !connection->arrived) return;
    if (std::exchange(connection->close_told, true)) return;
    hooks_.step(core::StreamClosedEvent{core::ConnectionId(connection->id)});
  });
}

void Network::Break(const std::shared_ptr<Connection>& connection, bool tell_client) {
  if (std::exchange(connection->lost, true)) return;
  TellClosed(connection);
  FailCalls(connection);
  if (!tell_client) {
    connection->client_ended = true;
    return;
  }
  connection->peer->Later(Delay(), [connection] {
    if (std::exchange(connection->client_ended, true)) return;
    connection->peer->Step(client::StreamEnded{connection->attach_number,
                                               absl::UnavailableError("the stream was lost")});
  });
}

// What its callers waited for fails; the machine may hear that they wait no more.
void Network::FailCalls(const std::shared_ptr<Connection>& connection) {
  for (auto& [id, call] : calls_) {
    if (call->connection != connection) continue;
    if (call->arrived && Fault(0.5)) {
      time_.After(Delay(), [this, connection, id = id] {
        if (!connection->dead) hooks_.step(core::CallCancelledEvent{core::CallId(id)});
      });
    }
    Answer(call.get(),
           core::Answer{core::CallId(id), absl::UnavailableError("the stream was lost")});
  }
}

void Network::Lose(Peer* peer) {
  if (const auto it = newest_.find(peer); it != newest_.end()) Break(it->second, true);
}

void Network::Restart() {
  for (const auto& [id, connection] : connections_) {
    Break(connection, true);
    connection->dead = true;
  }
  calls_.clear();
  unanswered_ = 0;
}

void Network::Call(Peer* peer, uint64_t attach_number, const std::string& request_id,
                   MakeEvent event, Reply reply) {
  const std::shared_ptr<Connection> connection = Of(peer, attach_number);
  auto replied = std::make_shared<bool>(false);
  if (connection == nullptr || connection->lost) {
    return peer->Later(Delay(), [reply] {
      reply(core::Answer{core::CallId(), absl::UnavailableError("no connection")});
    });
  }
  const bool twice = Fault(scenario_.faults.duplicate);
  Send(connection, request_id, event, replied, reply);
  if (twice) Send(connection, request_id, event, replied, reply);
  if (Fault(scenario_.faults.call_fails)) {
    // Its answer is lost, the stream is not.
    peer->Later(random_.Delay(absl::Duration(), absl::Milliseconds(50)), [replied, reply] {
      if (std::exchange(*replied, true)) return;
      reply(core::Answer{core::CallId(), absl::UnavailableError("the call failed")});
    });
  }
}

void Network::Send(const std::shared_ptr<Connection>& connection, const std::string& request_id,
                   const MakeEvent& make, std::shared_ptr<bool> replied, Reply reply) {
  auto call = std::make_shared<PendingCall>();
  call->connection = connection;
  call->request_id = request_id;
  call->replied = std::move(replied);
  call->reply = std::move(reply);
  const uint64_t id = ++last_call_;
  calls_[id] = call;
  time_.After(Delay(), [this, call, id, make] {
    if (call->connection->dead) return;
    if (call->connection->lost && Fault(0.5)) {
      calls_.erase(id);
      return;
    }
    const absl::StatusOr<core::Event> event = make(core::CallId(id));
    if (!event.ok()) {
      hooks_.fail(absl::StrCat("refused at the edge: ", event.status().ToString()));
      return;
    }
    call->arrived = true;
    ++unanswered_;
    hooks_.step(*event);
  });
}

void Network::Cancel(Peer* peer, const std::string& request_id) {
  for (auto& [id, call] : calls_) {
    if (call->connection->peer != peer || call->request_id != request_id) continue;
    *call->replied = true;  // nobody waits
    if (!Fault(0.7)) continue;
    time_.After(Delay(), [this, id = id] {
      if (!calls_.contains(id) || !calls_.at(id)->arrived) return;
      hooks_.step(core::CallCancelledEvent{core::CallId(id)});
    });
  }
}

// To the client, once.
void Network::Answer(PendingCall* call, const core::Answer& answer) {
  const bool late = call->connection->lost && !std::holds_alternative<absl::Status>(answer.result);
  if (late && Fault(0.7)) return;
  call->connection->peer->Later(Delay(), [replied = call->replied, reply = call->reply, answer] {
    if (std::exchange(*replied, true)) return;
    reply(answer);
  });
}

void Network::Deliver(const core::Answer& answer) {
  const auto it = calls_.find(answer.call.value());
  if (it == calls_.end() || !it->second->arrived || it->second->answered) {
    return hooks_.fail(
        absl::StrCat("call ", answer.call.value(), " is answered twice, or was ", "never made"));
  }
  it->second->answered = true;
  --unanswered_;
  Answer(it->second.get(), answer);
  calls_.erase(it);
}

void Network::Deliver(const core::SendDirective& directive) {
  const auto it = connections_.find(directive.connection.value());
  if (it == connections_.end()) return hooks_.fail("a directive for no connection");
  const std::shared_ptr<Connection> connection = it->second;
  v1::Directive message;
  if (directive.welcome.has_value()) server::Write(*directive.welcome, message.mutable_welcome());
  for (const core::Target& target : directive.targets) server::Write(target, message.add_targets());
  message.set_trim_pool(directive.trim_pool);
  const bool allows = directive.pin_allowance.has_value();
  if (allows) message.set_pin_allowance_bytes(directive.pin_allowance->count());
  if (connection->lost && Fault(0.7)) return;
  absl::Time at = time_.now() + Delay();
  // A stream keeps its order, though targets would not need it; an allowance has no number.
  if (!Fault(scenario_.faults.reorder) || allows) at = std::max(at, connection->last_directive);
  // Nothing overtakes the welcome.
  if (connection->last_directive == absl::InfinitePast()) connection->last_directive = at;
  at = std::max(at, connection->last_directive);
  if (!Fault(scenario_.faults.reorder) || allows) connection->last_directive = at;
  connection->peer->Later(at - time_.now(), [connection, message = std::move(message)] {
    connection->peer->Step(client::DirectiveReceived{connection->attach_number, message});
  });
}

void Network::Deliver(const core::CloseStream& close) {
  const auto it = connections_.find(close.connection.value());
  if (it == connections_.end()) return hooks_.fail("the end of no connection");
  const std::shared_ptr<Connection> connection = it->second;
  if (!std::exchange(connection->lost, true)) FailCalls(connection);
  if (!Fault(0.3)) connection->close_told = true;
  TellClosed(connection);
  connection->peer->Later(Delay(), [connection, status = close.status] {
    if (std::exchange(connection->client_ended, true)) return;
    connection->peer->Step(client::StreamEnded{connection->attach_number, status});
  });
}

}  // namespace vrambroker::simulation
