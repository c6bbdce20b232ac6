// A rule in the broker's place, in the same event loop: asked when a use begins, one use after the
// other in the order in which they were asked for. Bytes of running uses are not its to give; a use
// that does not fit beside them even with only its window waits until one ends, and those asked for
// later wait behind it. A use whose own component is busy holds up nobody else.
#pragma once

#include <deque>
#include <functional>
#include <vector>

#include "broker/sim/decider.h"
#include "broker/sim/rules.h"

namespace vrambroker::sim {

class RuleDecider : public Decider {
 public:
  // `clock`: nanoseconds of a steady clock, or empty. `card` outlives the decider.
  RuleDecider(Rule rule, std::function<int64_t()> clock, Card* card);

  absl::Status Start() override;
  void RunBegins(int) override {}
  void RunEnds(int) override {}
  void Ask(const Request& request) override;
  void Ended(const Request& request, const Outcome& outcome) override;
  void Loaded(int) override {}
  std::vector<Verdict> Take() override;

 private:
  // Bytes beside the uses that run.
  int64_t Free() const;
  int64_t Least(const Request& request) const;
  void AdmitWaiting();
  void Admit(const Request& request);

  Rule rule_;
  std::function<int64_t()> clock_;
  Card* card_;
  std::deque<Request> waiting_;
  std::vector<uint64_t> used_;  // of each component
  uint64_t last_used_ = 0;
  std::vector<Verdict> verdicts_;
};

}  // namespace vrambroker::sim
