#include "broker/core/run_book.h"

#include <utility>

#include "broker/core/units.h"

namespace vrambroker::core {

const Run* RunBook::Find(RunId id) const {
  const auto it = runs_.find(id);
  return it == runs_.end() ? nullptr : &it->second;
}

absl::Time RunBook::next_end() const {
  return ends_.empty() ? absl::InfiniteFuture() : ends_.begin()->first;
}

void RunBook::Add(Run run) {
  VRAM_CHECK(!run.started());
  const auto [it, fresh] = runs_.emplace(run.id, std::move(run));
  VRAM_CHECK(fresh);
  const Run& r = it->second;
  waiting_.emplace(r.starts_at, r.id);
  by_driver_[r.driver].insert(r.id);
  for (const StageSpec& stage : *r.stages) ++named_[stage.component];
}

void RunBook::Erase(RunId id) {
  const auto it = runs_.find(id);
  if (it == runs_.end()) return;
  Run& r = it->second;
  SetEnd(&r, absl::InfiniteFuture());
  started_.erase(r.start_order);
  waiting_.erase({r.starts_at, r.id});
  const auto mine = by_driver_.find(r.driver);
  mine->second.erase(r.id);
  if (mine->second.empty()) by_driver_.erase(mine);
  for (const StageSpec& stage : *r.stages) {
    const auto name = named_.find(stage.component);
    if (--name->second == 0) named_.erase(name);
  }
  runs_.erase(it);
}

void RunBook::Start(RunId id, uint64_t start_order) {
  Run& r = runs_.at(id);
  VRAM_CHECK(!r.started() && start_order != 0);
  waiting_.erase({r.starts_at, r.id});
  r.start_order = start_order;
  VRAM_CHECK(started_.emplace(start_order, id).second);
}

void RunBook::SetNextStage(RunId id, int stage) { runs_.at(id).next_stage = stage; }

void RunBook::SetEnd(Run* run, absl::Time at) {
  ends_.erase({run->ends_at, run->id});
  run->ends_at = at;
  if (at < absl::InfiniteFuture()) ends_.emplace(at, run->id);
}

void RunBook::EndAt(SessionId driver, absl::Time at) {
  const auto mine = by_driver_.find(driver);
  if (mine == by_driver_.end()) return;
  for (RunId id : mine->second) SetEnd(&runs_.at(id), at);
}

void RunBook::HandOver(SessionId driver, SessionId to) {
  EndAt(driver, absl::InfiniteFuture());
  auto mine = by_driver_.extract(driver);
  if (mine.empty()) return;
  for (RunId id : mine.mapped()) runs_.at(id).driver = to;
  mine.key() = to;
  VRAM_CHECK(by_driver_.insert(std::move(mine)).inserted);
}

bool RunBook::EraseEnded(absl::Time now) {
  bool some = false;
  while (next_end() <= now) {
    Erase(ends_.begin()->second);
    some = true;
  }
  return some;
}

}  // namespace vrambroker::core
