#include "tests/model/scenarios.h"

#include <utility>

namespace vrambroker::model {
namespace {

using Kind = Action::Kind;

Scenario Make(const char* name, std::vector<int> uses, int warm) {
  Scenario s;
  s.name = name;
  s.uses = std::move(uses);
  s.warm = warm;
  return s;
}

// One worker, from its first Attach on.
void AddOne(bool deep, std::vector<Scenario>* all) {
  Scenario s = Make("one_calls", {deep ? 2 : 1}, -1);
  s.faults.duplicate = s.faults.fail = s.faults.time = 1;
  all->push_back(s);
  s = Make("one_gives_up", {2}, -1);
  s.faults.give_up = s.faults.duplicate = 1;
  s.faults.lose = deep ? 1 : 0;
  all->push_back(s);
  s = Make("one_lost", {deep ? 3 : 2}, -1);
  s.faults.lose = 1;
  s.faults.give_up_end = deep ? 1 : 0;
  all->push_back(s);
  s = Make("one_lost_twice", {deep ? 2 : 1}, deep ? -1 : 0);
  s.faults.lose = 2;
  all->push_back(s);
  s = Make("one_end_given_up", {1}, -1);
  s.faults.give_up_end = s.faults.lose = 1;
  all->push_back(s);
  s = Make("one_restart", {deep ? 3 : 2}, -1);
  s.faults.restart = 1;
  all->push_back(s);
  s = Make("one_drops", {2}, -1);
  s.faults.drop = s.faults.time = 1;
  s.faults.fail = deep ? 1 : 0;
  all->push_back(s);
}

// Two that do not fit beside each other: what one keeps, the other wants.
void AddTwo(bool deep, std::vector<Scenario>* all) {
  Scenario s = Make("two", {deep ? 2 : 1, 2}, 1);
  all->push_back(s);
  s = Make("two_twice", {1, 1}, 1);
  s.faults.duplicate = deep ? 2 : 1;
  all->push_back(s);
  s = Make("two_fail", {1, 1}, 1);
  s.faults.fail = 1;
  s.faults.time = deep ? 1 : 0;
  all->push_back(s);
  s = Make("two_give_up", {1, 1}, 1);
  s.faults.give_up = 1;
  s.faults.lose = deep ? 1 : 0;
  all->push_back(s);
  s = Make("two_lost", {deep ? 1 : 0, 1}, 1);
  s.faults.lose = 1;
  all->push_back(s);
  s = Make("two_lost_in_use", {1, 1}, 0);
  s.layers = deep ? 2 : 1;
  s.capacity = deep ? 3 : 2;
  s.faults.lose = 1;
  all->push_back(s);
  s = Make("two_restart", {deep ? 1 : 0, 1}, 1);
  s.faults.restart = 1;
  all->push_back(s);
  s = Make("two_restart_in_use", {1, deep ? 1 : 0}, 0);
  s.faults.restart = 1;
  all->push_back(s);
  s = Make("two_die", {deep ? 1 : 0, 1}, 1);
  s.by_process = true;
  s.faults.die = 1;
  s.faults.time = deep ? 1 : 0;
  all->push_back(s);
  s = Make("two_die_in_use", {1, deep ? 1 : 0}, 0);
  s.by_process = true;
  s.faults.die = s.faults.reading = 1;
  all->push_back(s);
  s = Make("two_die_unread", {deep ? 1 : 0, 1}, 1);
  s.faults.die = 1;
  s.faults.time = 1;
  all->push_back(s);
  s = Make("two_drop", {1, 1}, 1);
  s.faults.drop = 1;
  s.faults.time = deep ? 2 : 0;
  all->push_back(s);
  s = Make("two_late", {1, 1}, 1);
  s.faults.time = deep ? 3 : 1;
  all->push_back(s);
}

// What else is charged, and what is done ahead.
void AddMore(bool deep, std::vector<Scenario>* all) {
  Scenario s = Make("pools", {1, 1}, 1);
  s.caching = true;
  s.faults.duplicate = deep ? 1 : 0;
  all->push_back(s);
  s = Make("windows", {1, deep ? 2 : 1}, 1);
  s.window = 1;
  s.capacity = 4;
  all->push_back(s);
  s = Make("shrinks", {1, deep ? 2 : 1}, 1);
  s.capacity = 2;
  s.most_of_first = 1;
  all->push_back(s);
  s = Make("fixed", {deep ? 1 : 0, 1}, -1);
  s.fixed = 1;
  s.layers = 1;
  s.capacity = 3;
  s.may_refuse = true;
  all->push_back(s);
  s = Make("permanent", {1, deep ? 1 : 0}, -1);
  s.permanent = true;
  s.may_refuse = true;
  s.layers = deep ? 2 : 1;
  s.capacity = deep ? 4 : 2;
  all->push_back(s);
  s = Make("loads_ahead", {1, deep ? 1 : 0}, 0);
  s.declared_runs = 1;
  s.capacity = 4;
  s.faults.time = 1;
  all->push_back(s);
}

}  // namespace

std::vector<Scenario> Scenarios(bool deep) {
  std::vector<Scenario> all;
  AddOne(deep, &all);
  AddTwo(deep, &all);
  AddMore(deep, &all);
  return all;
}

std::vector<Kind> Expected(const Scenario& s) {
  std::vector<Kind> kinds = {Kind::kReply, Kind::kCall, Kind::kRun,
                             Kind::kEnd,   Kind::kAsk,  Kind::kClosed};
  const auto with = [&kinds](int count, std::vector<Kind> more) {
    if (count > 0) kinds.insert(kinds.end(), more.begin(), more.end());
  };
  const Faults& f = s.faults;
  with(s.warm < 0, {Kind::kConnect, Kind::kAttach, Kind::kDirective, Kind::kPlace});
  with(s.uses.size() > 1 && s.warm > 0, {Kind::kDirective, Kind::kApply});
  with(f.duplicate, {Kind::kDuplicate});
  with(f.fail, {Kind::kFail});
  with(f.fail > 0 && s.uses.size() > 1, {Kind::kFailPending});
  with(f.lose, {Kind::kLose, Kind::kCloseTold, Kind::kStreamEnds, Kind::kConnect, Kind::kAttach});
  with(f.give_up, {Kind::kGiveUp});
  with(f.give_up > 0 && s.uses.size() > 1, {Kind::kCancelTold});
  with(f.give_up_end, {Kind::kGiveUpEnd});
  with(f.restart, {Kind::kRestart, Kind::kKilledInCall, Kind::kStreamEnds, Kind::kConnect});
  with(f.restart > 0 && s.warm < 0, {Kind::kKilledInAttach});
  with(f.die, {Kind::kDie, Kind::kDeathNoticed, Kind::kBytesGo, Kind::kCloseTold});
  with(f.drop, {Kind::kDrop});
  with(f.reading, {Kind::kUnpromptedReading, Kind::kReadingBegins, Kind::kReadingSampled,
                   Kind::kReadingArrives});
  with(f.time, {Kind::kTime});
  with(s.caching, {Kind::kTrim});
  with(s.declared_runs, {Kind::kCopied});
  return kinds;
}

}  // namespace vrambroker::model
