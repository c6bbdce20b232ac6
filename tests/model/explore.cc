#include "tests/model/explore.h"

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tests/model/checks.h"
#include "tests/model/digest.h"

namespace vrambroker::model {
namespace {

// From any state all comes to rest within so many actions, where nothing more goes wrong.
constexpr int kCalmSteps = 1000;
// Of the states that are reached again, one in so many is compared with what it was taken for.
constexpr uint64_t kCompared = 16;

// What happens next where all goes well; false where nothing does.
bool DoNext(const Scenario& scenario, State* state) {
  const std::vector<Action> actions = Enabled(scenario, *state, true);
  const auto first =
      std::min_element(actions.begin(), actions.end(),
                       [](const Action& a, const Action& b) { return a.kind < b.kind; });
  if (first == actions.end()) return false;
  Do(scenario, *first, state, nullptr);
  return true;
}

void ComeToRest(const Scenario& scenario, State* state) {
  for (int step = 0; step < kCalmSteps && !Unsettled(scenario, *state).empty(); ++step) {
    if (!DoNext(scenario, state)) break;
  }
  if (state->violation.empty()) state->violation = Unsettled(scenario, *state);
}

class Search {
 public:
  explicit Search(const Scenario& scenario) : scenario_(scenario) {
    running_ = this;
    std::signal(SIGABRT, TellWay);
  }
  ~Search() { running_ = nullptr; }
  Search(const Search&) = delete;
  Search& operator=(const Search&) = delete;

  Exploration Run(int64_t most_states) {
    Visit(Begin(scenario_), -1, 0);
    while (!queue_.empty() && found_.failure.empty() && found_.states < most_states) Expand();
    found_.complete = queue_.empty() && found_.failure.empty();
    return std::move(found_);
  }

 private:
  struct Node {
    int64_t before = 0;
    int action = 0;
    int64_t length = 0;
  };

  void Expand() {
    const State state = std::move(queue_.front().first);
    const int64_t node = queue_.front().second;
    const uint64_t digest = digests_.front();
    queue_.pop_front();
    digests_.pop_front();
    const std::vector<Action> actions = Enabled(scenario_, state, false);
    std::vector<uint64_t> next;
    for (size_t i = 0; i < actions.size() && found_.failure.empty(); ++i) {
      State after = state;
      at_ = {node, static_cast<int>(i)};
      ++found_.steps;
      ++found_.taken[static_cast<size_t>(actions[i].kind)];
      Do(scenario_, actions[i], &after, nullptr);
      next.push_back(Visit(std::move(after), node, static_cast<int>(i)));
    }
    if (digest % kCompared == 0) expanded_[digest] = {Join(std::move(next)), node};
  }

  // Returns the digest.
  uint64_t Visit(State state, int64_t before, int action) {
    if (const std::string wrong = WrongIn(scenario_, state); !wrong.empty()) {
      Fail(before, action, wrong);
      return 0;
    }
    const uint64_t digest = DigestOf(state);
    if (!seen_.insert(digest).second) {
      Compare(state, digest, before, action);
      return digest;
    }
    const int64_t length = before < 0 ? 0 : nodes_[static_cast<size_t>(before)].length + 1;
    nodes_.push_back({before, action, length});
    ++found_.states;
    found_.longest = std::max(found_.longest, length);
    CheckThatItSettles(state);
    queue_.emplace_back(std::move(state), static_cast<int64_t>(nodes_.size()) - 1);
    digests_.push_back(digest);
    return digest;
  }

  // Whether a state that is taken for another goes on as that one did.
  void Compare(const State& state, uint64_t digest, int64_t before, int action) {
    const auto it = expanded_.find(digest);
    if (it == expanded_.end()) return;
    std::vector<uint64_t> next;
    for (const Action& a : Enabled(scenario_, state, false)) {
      State after = state;
      Do(scenario_, a, &after, nullptr);
      next.push_back(DigestOf(after));
    }
    ++found_.compared;
    if (Join(std::move(next)) == it->second.first) return;
    Fail(before, action,
         absl::StrCat("the digest is blind: it is taken for what is there after ",
                      absl::StrJoin(WayTo(it->second.second, -1), ","), ", and goes on otherwise"));
  }

  static uint64_t Join(std::vector<uint64_t> digests) {
    std::sort(digests.begin(), digests.end());
    Digest d{absl::Time()};
    for (uint64_t digest : digests) d.Put(static_cast<int64_t>(digest));
    return d.Finish();
  }

  void CheckThatItSettles(State state) {
    state.left = Faults();
    for (Worker& w : state.workers) w.uses_left = 0;
    std::vector<uint64_t> way;
    for (int step = 0; step < kCalmSteps; ++step) {
      way.push_back(DigestOf(state));
      const bool known = settles_.contains(way.back());
      if (known || Unsettled(scenario_, state).empty()) {
        settles_.insert(way.begin(), way.end());
        ++found_.settled;
        return;
      }
      if (!DoNext(scenario_, &state)) break;
      const std::string wrong = WrongIn(scenario_, state);
      if (!wrong.empty()) return Fail(static_cast<int64_t>(nodes_.size()) - 1, -1, wrong);
    }
    Fail(static_cast<int64_t>(nodes_.size()) - 1, -1,
         absl::StrCat("it never comes to rest: ", Unsettled(scenario_, state)));
  }

  // `action` -1: the node itself, and all going well from there.
  void Fail(int64_t node, int action, const std::string& wrong) {
    if (!found_.failure.empty()) return;
    const std::vector<int> way = WayTo(node, action);
    found_.failure = absl::StrCat(wrong, "\nafter ", way.size(), " actions of ", scenario_.name,
                                  action < 0 ? ", and all going well from there" : "",
                                  "; VRAM_MODEL_REPLAY=", scenario_.name, ":",
                                  absl::StrJoin(way, ","), "\n", Replay(scenario_, way));
  }

  std::vector<int> WayTo(int64_t node, int action) const {
    std::vector<int> way;
    if (action >= 0) way.push_back(action);
    for (; node > 0; node = nodes_[static_cast<size_t>(node)].before) {
      way.push_back(nodes_[static_cast<size_t>(node)].action);
    }
    std::reverse(way.begin(), way.end());
    return way;
  }

  // The machine stops the process where its state contradicts itself: say how it came to it.
  static void TellWay(int) {
    std::signal(SIGABRT, SIG_DFL);
    if (running_ != nullptr) {
      const std::string way =
          absl::StrJoin(running_->WayTo(running_->at_.first, running_->at_.second), ",");
      std::fprintf(stderr, "VRAM_MODEL_REPLAY=%s:%s\n", running_->scenario_.name.c_str(),
                   way.c_str());
    }
    std::abort();
  }

  static Search* running_;

  const Scenario& scenario_;
  Exploration found_;
  std::vector<Node> nodes_;
  std::deque<std::pair<State, int64_t>> queue_;  // with its node
  std::deque<uint64_t> digests_;                 // of what is in the queue
  absl::flat_hash_set<uint64_t> seen_;
  absl::flat_hash_set<uint64_t> settles_;
  // Of some states, what comes next, and their nodes.
  absl::flat_hash_map<uint64_t, std::pair<uint64_t, int64_t>> expanded_;
  std::pair<int64_t, int> at_{0, -1};
};

Search* Search::running_ = nullptr;

}  // namespace

State Begin(const Scenario& scenario) {
  State state = Blank(scenario);
  if (scenario.warm < 0) return state;
  const Faults faults = std::exchange(state.left, Faults());
  Scenario warm_up = scenario;
  if (scenario.most_of_first > 0) warm_up.need = warm_up.most_of_first = 0;
  ComeToRest(warm_up, &state);
  for (int worker = 0; worker < scenario.warm; ++worker) {
    Do(warm_up, {Action::Kind::kAsk, worker}, &state, nullptr);
    ComeToRest(warm_up, &state);
  }
  for (size_t i = 0; i < state.workers.size(); ++i) {
    state.workers[i].uses_left = scenario.uses[i];
  }
  state.left = faults;
  return state;
}

Exploration Explore(const Scenario& scenario, int64_t most_states) {
  return Search(scenario).Run(most_states);
}

std::string Replay(const Scenario& scenario, const std::vector<int>& way) {
  std::vector<std::string> story;
  State state = Begin(scenario);
  for (int number : way) {
    const std::vector<Action> actions = Enabled(scenario, state, false);
    if (number < 0 || number >= static_cast<int>(actions.size())) {
      story.push_back(absl::StrCat(number, " is not one of ", actions.size(), " actions"));
      break;
    }
    Do(scenario, actions[static_cast<size_t>(number)], &state, &story);
  }
  const std::string wrong = WrongIn(scenario, state);
  story.push_back(wrong.empty() ? absl::StrCat("not at rest: ", Unsettled(scenario, state))
                                : wrong);
  return absl::StrJoin(story, "\n");
}

}  // namespace vrambroker::model
