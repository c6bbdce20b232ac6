#include "tests/sim/peer.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "broker/server/convert_answers.h"
#include "broker/server/convert_attach.h"
#include "broker/server/convert_calls.h"

namespace vrambroker::simulation {
namespace {

// An answer for the wire: its status, and its content where there is one.
template <typename Content, typename Response>
absl::Status WriteAnswer(const core::Answer& answer, Response* response) {
  if (const auto* status = std::get_if<absl::Status>(&answer.result)) return *status;
  const auto* content = std::get_if<Content>(&answer.result);
  if (content == nullptr) return absl::InternalError("an answer of another kind");
  server::Write(*content, response);
  return absl::OkStatus();
}

template <typename Request, typename Read>
Network::MakeEvent Reader(const Request& request, Read read) {
  return [request, read](core::CallId call) -> absl::StatusOr<core::Event> {
    auto event = read(request);
    if (!event.ok()) return event.status();
    event->header.call = call;
    return core::Event(*std::move(event));
  };
}

}  // namespace

Peer::Peer(Surroundings* world, client::SessionOptions options)
    : world_(*world), options_(options), session_(std::move(options)) {}

// Effects are carried out one after the other; what follows from one waits for its turn.
void Peer::Step(const client::Event& event) {
  if (!alive_) return;
  for (client::Effect& effect : session_.Step(event, world_.time.now())) {
    to_do_.push_back(std::move(effect));
  }
  if (doing_) return;
  doing_ = true;
  for (size_t i = 0; i < to_do_.size(); ++i) {
    const client::Effect effect = to_do_[i];
    std::visit([this](const auto& e) { Do(e); }, effect);
  }
  to_do_.clear();
  doing_ = false;
}

void Peer::Later(absl::Duration delay, std::function<void()> run) {
  world_.time.After(delay, [this, run = std::move(run)] {
    if (!alive_) return;
    if (stopped_) {
      put_off_.push_back(run);
    } else {
      run();
    }
  });
}

void Peer::Continue() {
  stopped_ = false;
  for (auto& run : std::exchange(put_off_, {})) {
    if (alive_) run();
  }
}

void Peer::Attached() {
  if (!alive_) world_.watch(process());
}

void Peer::Kill() {
  if (!std::exchange(alive_, false)) return;
  world_.note(absl::StrCat(name(), " (pid ", process().pid, ") dies"));
  world_.network.Lose(this);
  world_.watch(process());
}

void Peer::Do(const client::SendBegin& e) {
  world_.network.Call(this, e.attach_number, e.request.request_id(),
                      Reader(e.request, server::ReadBeginUse),
                      [this, e](const core::Answer& answer) {
                        client::BeginAnswered begun;
                        begun.attach_number = e.attach_number;
                        begun.request_id = e.request.request_id();
                        begun.status = WriteAnswer<core::BeginAnswer>(answer, &begun.response);
                        Step(begun);
                      });
}

void Peer::Do(const client::SendEnd& e) {
  world_.network.Call(this, e.attach_number, e.request.request_id(),
                      Reader(e.request, server::ReadEndUse), [this, e](const core::Answer& answer) {
                        client::EndAnswered ended;
                        ended.attach_number = e.attach_number;
                        ended.request_id = e.request.request_id();
                        ended.status = WriteAnswer<core::EndAnswer>(answer, &ended.response);
                        Step(ended);
                      });
}

void Peer::Do(const client::SendReport& e) {
  world_.network.Call(this, e.attach_number, "", Reader(e.request, server::ReadReport),
                      [this, e](const core::Answer& answer) {
                        client::ReportAnswered reported;
                        reported.attach_number = e.attach_number;
                        reported.status =
                            WriteAnswer<core::ReportAnswer>(answer, &reported.response);
                        Step(reported);
                      });
}

void Peer::Do(const client::SendUpdate& e) {
  const auto read = [](const v1::UpdateComponentsRequest& request) {
    std::string device;
    return server::ReadUpdate(request, &device);
  };
  world_.network.Call(this, e.attach_number, e.request.request_id(), Reader(e.request, read),
                      [this, e](const core::Answer& answer) {
                        client::UpdateAnswered updated;
                        updated.attach_number = e.attach_number;
                        updated.request_id = e.request.request_id();
                        updated.status = WriteAnswer<core::UpdateAnswer>(answer, &updated.response);
                        Step(updated);
                      });
}

void Peer::Do(const client::ConnectAt& e) {
  const uint64_t asked = ++connect_;
  Later(e.time - world_.time.now(), [this, asked] {
    if (asked == connect_) Step(client::Connect{});
  });
}

void Peer::Do(const client::WakeAt& e) {
  const uint64_t asked = ++wake_;
  Later(e.time - world_.time.now(), [this, asked] {
    if (asked == wake_) Step(client::Tick{});
  });
}

}  // namespace vrambroker::simulation
