// A session under a clock that the test turns, and what it asked for.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "client/cpp/session.h"

namespace vrambroker::client {

class SessionFixture : public testing::Test {
 protected:
  SessionFixture() { Build({Spec("m", 10)}); }

  static v1::Component Spec(const std::string& name, int layers) {
    v1::Component c;
    c.set_name(name);
    v1::LayerRun* run = c.add_layer_runs();
    run->set_count(layers);
    run->set_layer_bytes(1000);
    c.set_window_bytes(50);
    return c;
  }
  void Build(std::vector<v1::Component> components) {
    SessionOptions options;
    options.worker = "w";
    options.pid = 7;
    options.start_time_ticks = 70;
    options.components = std::move(components);
    options.configured_resident["m"] = 3;
    session_.emplace(options);
  }

  Effects Step(const Event& event) {
    Effects effects = session_->Step(event, now_);
    for (const Effect& effect : effects) all_.push_back(effect);
    return effects;
  }
  Effects Pass(absl::Duration time) {
    now_ += time;
    return Step(Tick{});
  }

  template <typename T>
  static std::vector<T> Of(const Effects& effects) {
    std::vector<T> found;
    for (const Effect& effect : effects) {
      if (const auto* one = std::get_if<T>(&effect)) found.push_back(*one);
    }
    return found;
  }
  // The newest of its kind so far.
  template <typename T>
  T Last() const {
    const std::vector<T> found = Of<T>(all_);
    EXPECT_FALSE(found.empty());
    return found.empty() ? T() : found.back();
  }

  static v1::Target Target(const std::string& component, int layers, uint64_t generation) {
    v1::Target t;
    t.set_component(component);
    t.set_layers(layers);
    t.set_generation(generation);
    return t;
  }
  Effects Direct(const v1::Target& target) {
    DirectiveReceived e;
    e.attach_number = session_->attach_number();
    *e.directive.add_targets() = target;
    return Step(e);
  }
  // Opens a stream and welcomes it, with these targets.
  Effects Welcome(const std::vector<v1::Target>& targets,
                  const std::vector<std::pair<std::string, uint64_t>>& resumed = {}) {
    Effects effects = Step(Connect{});
    DirectiveReceived e;
    e.attach_number = session_->attach_number();
    v1::Welcome* welcome = e.directive.mutable_welcome();
    welcome->set_session_id(++last_session_);
    welcome->set_broker_epoch(1);
    welcome->set_version(1);
    welcome->mutable_orphan_after()->set_seconds(60);
    for (const auto& [request, use] : resumed) {
      v1::ResumedUse* r = welcome->add_resumed_uses();
      r->set_request_id(request);
      r->set_use_id(use);
    }
    for (const v1::Target& t : targets) *e.directive.add_targets() = t;
    for (Effect& effect : Step(e)) effects.push_back(std::move(effect));
    return effects;
  }
  // The same with the component placed, holding what it is told, and reported.
  void Settle(int layers = 0, uint64_t generation = 1) {
    Welcome({Target("m", layers, generation)});
    Step(FixedPlaced{"m"});
    Step(HeldChanged{"m", layers, false, std::nullopt});
    AnswerReport();
    AnswerReport();
  }
  Effects Lose() {
    return Step(StreamEnded{session_->attach_number(), absl::UnavailableError("lost")});
  }

  Effects AnswerReport(const std::vector<v1::Target>& targets = {}) {
    ReportAnswered e;
    e.attach_number = session_->attach_number();
    for (const v1::Target& t : targets) *e.response.add_targets() = t;
    return Step(e);
  }
  Effects Ask(Ticket ticket, const std::string& component = "m") {
    UseAsked e;
    e.ticket = ticket;
    e.request.set_component(component);
    e.request.set_activation_bytes(500);
    return Step(e);
  }
  BeginAnswered Grant(const std::string& request, int layers, uint64_t generation,
                      uint64_t use = 1) {
    BeginAnswered e;
    e.attach_number = session_->attach_number();
    e.request_id = request;
    e.response.set_use_id(use);
    e.response.set_resident_layers(layers);
    e.response.set_generation(generation);
    e.response.set_window_bytes(50);
    e.response.set_activation_bytes(300);
    return e;
  }
  BeginAnswered Refusal(const std::string& request, absl::Status status) {
    BeginAnswered e;
    e.attach_number = session_->attach_number();
    e.request_id = request;
    e.status = std::move(status);
    return e;
  }
  EndAnswered Ended(const std::string& request, const v1::Target& target) {
    EndAnswered e;
    e.attach_number = session_->attach_number();
    e.request_id = request;
    *e.response.mutable_target() = target;
    return e;
  }
  // A use that runs with these layers on the device; its request id.
  std::string RunUse(Ticket ticket, int layers, uint64_t generation) {
    Ask(ticket);
    const std::string request = Last<SendBegin>().request.request_id();
    Step(Grant(request, layers, generation));
    return request;
  }
  Effects Over(Ticket ticket, int held) {
    UseOver e;
    e.ticket = ticket;
    e.held = held;
    return Step(e);
  }

  std::optional<Session> session_;
  absl::Time now_ = absl::FromUnixSeconds(1000);
  Effects all_;
  uint64_t last_session_ = 0;
};

}  // namespace vrambroker::client
