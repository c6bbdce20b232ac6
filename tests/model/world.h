// Does actions to a state.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/model/actions.h"

namespace vrambroker::model {

class World {
 public:
  World(const Scenario& scenario, State* state, std::vector<std::string>* story)
      : scenario_(scenario), s_(*state), story_(story) {}

  void Do(const Action& action);

 private:
  // world.cc: the network and the broker.
  void OfNetwork(const Action& action);
  void OfBroker(const Action& action);
  void Lose(Connection* connection, bool worker_hears);
  void ArriveCall(Call call);
  void ArriveAttach(Connection* connection);
  void ArriveReply(size_t index);
  void Fail(Call* call);
  void Restart();
  void Pass();
  void Step(const core::Event& event);
  void CarryOut(const core::Effects& effects);
  void CarryOut(const core::Answer& answer);
  void Tidy();
  Connection* Find(uint64_t connection);
  Connection* NewestOf(int worker);

  // world_worker.cc: workers and what they do with their sessions.
  void OfWorker(const Action& action);
  void Ask(int worker);
  void Apply(int worker);
  void Run(int worker);
  void Place(int worker);
  void Free(int units, Worker* w);
  void Allocate(int units, Worker* w);
  void TellHeld(int worker, int held, bool copying);
  void Step(int worker, const client::Event& event);
  void Carry(int worker, const client::OpenStream& e);
  void Carry(int worker, const client::SendBegin& e);
  void Carry(int worker, const client::SendEnd& e);
  void Carry(int worker, const client::SendReport& e);
  void Carry(int worker, const client::CancelBegin& e);
  void Carry(int worker, const client::UseGranted& e);
  void Carry(int worker, const client::UseRefused& e);
  void Carry(int worker, const client::UseClosed& e);
  void Carry(int, const client::WorkChanged&) {}
  void Carry(int worker, const client::PlaceFixed&) { Of(worker).place_due = true; }
  void Carry(int worker, const client::TrimPool&) { Of(worker).trim_due = true; }
  void Carry(int worker, const client::SendUpdate&) {
    Violate(absl::StrCat("w", worker, " updates a component of which nothing has changed"));
  }
  void Carry(int, const client::PinsChanged&) {}
  void Carry(int worker, const client::SessionChanged& e);
  void Carry(int worker, const client::ConnectAt&) { Of(worker).connect_due = true; }
  void Carry(int, const client::WakeAt&) {}
  void Send(int worker, Call call);

  Worker& Of(int worker) { return s_.workers[static_cast<size_t>(worker)]; }
  bool IsPermanent(int worker) const {
    return scenario_.permanent && worker == scenario_.last_worker();
  }
  void Note(const std::string& text) {
    if (story_ != nullptr) story_->push_back(text);
  }
  void Violate(const std::string& text) {
    if (s_.violation.empty()) s_.violation = text;
  }

  const Scenario& scenario_;
  State& s_;
  std::vector<std::string>* story_;
  // At least 0: the broker is killed once it has said so many more things.
  int said_ = -1;
};

}  // namespace vrambroker::model
