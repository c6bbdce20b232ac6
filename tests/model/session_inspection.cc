#include <vector>

#include "tests/model/inspection.h"

namespace vrambroker::model {

void Tell(const v1::Snapshot& snapshot, int owner, Digest* d) {
  d->Put(Name::kSequence, owner, snapshot.sequence());
  d->Put(snapshot.pool_bytes());
  for (const v1::ComponentResidency& r : snapshot.components()) {
    d->Put(r.held_layers() * 2 + (r.fixed_placed() ? 1 : 0));
    d->Put(Name::kGeneration, owner, r.completed_generation());
  }
}

void Tell(const v1::Target& target, int owner, Digest* d) {
  d->Put(Name::kGeneration, owner, target.generation());
  d->Put(target.layers());
  d->Put(target.pace_bytes_per_second());
  d->Put(target.component().empty());
}

}  // namespace vrambroker::model

namespace vrambroker::client {
namespace {

using model::Digest;
using model::Name;
using model::NumberOf;

void TellEnd(const v1::EndUseRequest& end, int owner, Digest* d) {
  d->Put(Name::kSession, 0, end.session_id());
  d->Put(Name::kRequest, owner, NumberOf(end.request_id()));
  d->Put(Name::kRequest, owner, NumberOf(end.begin_request_id()));
  model::Tell(end.snapshot(), owner, d);
}

}  // namespace

std::vector<std::string> SessionInspection::Requests(const Session& session) {
  std::vector<std::string> ids;
  const auto add = [&ids](const v1::EndUseRequest& end) {
    ids.push_back(end.request_id());
    ids.push_back(end.begin_request_id());
  };
  for (const auto& [ticket, use] : session.uses_) {
    ids.push_back(use.request.request_id());
    add(use.end);
  }
  for (const auto& [id, withdrawal] : session.withdrawals_) add(withdrawal.request);
  for (const Session::UseState& use : session.untold_) ids.push_back(use.request.request_id());
  return ids;
}

void SessionInspection::Tell(const Session& session, int owner, Digest* d) {
  [[maybe_unused]] const auto& [options, components, uses, withdrawals, untold, refused,
                                attach_number, stream_open, closed, session_id, epoch, sequence,
                                requests, pool_bytes, pinned_host_bytes, pin_allowance,
                                pins_given_up, pin_freely, update, update_again, backoff,
                                orphan_after, lost_at, orphaned, report_due, report_in_flight,
                                reported_sequence, report_again, connect_at, wake_at, now,
                                effects] = session;
  const auto tell_use = [&](const Session::UseState& u) {
    [[maybe_unused]] const auto& [phase, request, sent, listed, use_id, former_use_ids, granted,
                                  generation, window_bytes, activation_bytes, brokered, end,
                                  send_again] = u;
    d->Put(static_cast<int64_t>(phase) * 8 + (sent ? 4 : 0) + (listed ? 2 : 0) +
           (brokered ? 1 : 0));
    d->Put(Name::kRequest, owner, NumberOf(request.request_id()));
    d->Put(Name::kUse, owner, use_id);
    for (uint64_t id : former_use_ids) d->Put(Name::kUse, owner, id);
    d->Put(granted);
    d->Put(Name::kGeneration, owner, generation);
    d->Put(window_bytes);
    d->Put(activation_bytes);
    if (phase == Session::Phase::kEnding) TellEnd(end, owner, d);
    d->PutDeadline(send_again);
  };
  for (const auto& [name, component] : components) {
    [[maybe_unused]] const auto& [spec, layers, held, copying, fixed_placed, placing, target,
                                  completed, dropped_after, pinning, pin_refused, host_changed] =
        component;
    d->Put(held * 8 + (copying ? 4 : 0) + (fixed_placed ? 2 : 0) + (placing ? 1 : 0));
    d->Put(Name::kGeneration, owner, completed);
    d->Put(Name::kSequence, owner, dropped_after);
    d->Put(target.has_value());
    if (!target.has_value()) continue;
    [[maybe_unused]] const auto& [generation, to, pace, not_before, put_off] = *target;
    d->Put(Name::kGeneration, owner, generation);
    d->Put(to * 2 + (put_off ? 1 : 0));
    d->PutReal(pace);
    d->PutDeadline(not_before);
  }
  for (const auto& [ticket, use] : uses) tell_use(use);
  for (const auto& [id, withdrawal] : withdrawals) {
    TellEnd(withdrawal.request, owner, d);
    d->PutDeadline(withdrawal.send_again);
  }
  for (const Session::UseState& use : untold) tell_use(use);
  d->Put(static_cast<int64_t>(refused.size()));
  d->Put(Name::kAttach, owner, attach_number);
  d->Put((stream_open ? 16 : 0) + (closed ? 8 : 0) + (orphaned ? 4 : 0) + (report_due ? 2 : 0) +
         (report_in_flight ? 1 : 0));
  d->Put(Name::kSession, 0, session_id);
  d->Put(Name::kEpoch, 0, epoch);
  d->Put(Name::kSequence, owner, sequence);
  d->Put(Name::kSequence, owner, reported_sequence);
  d->Put(pool_bytes);
  d->Put(absl::ToInt64Nanoseconds(orphan_after));
  d->PutSince(lost_at, orphan_after);
  d->PutDeadline(report_again);
  d->PutDeadline(wake_at);
}

}  // namespace vrambroker::client
