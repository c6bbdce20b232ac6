#include "broker/ctl/replay.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "broker/core/planner.h"
#include "broker/ctl/decision_log_reader.h"
#include "broker/ctl/logged_plan.h"
#include "broker/ctl/printable.h"
#include "broker/ctl/render.h"

namespace vrambroker::ctl {
namespace {

// Plans that a line may refer to, as decision_log.proto says.
constexpr size_t kPlans = 16;

// "GRANT" of DECISION_KIND_GRANT.
std::string KindName(const v1::Decision& decision) {
  const std::string name = v1::DecisionKind_Name(decision.kind());
  const std::string prefix = "DECISION_KIND_";
  return name.rfind(prefix, 0) == 0 ? name.substr(prefix.size()) : name;
}

}  // namespace

absl::Status Replay::Read(std::istream* in) {
  DecisionLogReader reader(in);
  v1::DecisionLogLine line;
  while (true) {
    const absl::StatusOr<bool> more = reader.Next(&line);
    if (!more.ok()) return more.status();
    if (!*more) break;
    ++result_.lines;
    if (absl::Status status = Take(line); !status.ok()) return InLine(reader.number(), status);
  }
  result_.torn += reader.torn();
  return absl::OkStatus();
}

absl::Status Replay::Take(const v1::DecisionLogLine& line) {
  if (line.has_header()) {
    known_.clear();
    if (line.header().broker_epoch() != epoch_ || result_.brokers == 0) ++result_.brokers;
    epoch_ = line.header().broker_epoch();
  } else if (line.has_dropped()) {
    result_.dropped +=
        static_cast<int64_t>(std::min<uint64_t>(line.dropped().lines(), uint64_t{1} << 50));
  } else if (line.has_decision()) {
    return Take(line.decision());
  }
  return absl::OkStatus();
}

absl::StatusOr<const Replay::Known*> Replay::PlanOf(const v1::LoggedDecision& logged) {
  if (logged.has_plan()) {
    const absl::StatusOr<LoggedProblem> problem = ReadProblem(logged.plan());
    if (!problem.ok()) return problem.status();
    ++result_.plans;
    known_.push_back({logged.plan_decision_id(), logged.plan().components_size(),
                      Difference(logged.plan(), core::MakePlan(problem->problem))});
    if (known_.size() > kPlans) known_.pop_front();
  }
  const auto known = std::find_if(known_.begin(), known_.end(), [&](const Known& one) {
    return one.decision == logged.plan_decision_id();
  });
  if (known == known_.end()) {
    return absl::InvalidArgumentError(
        absl::StrCat("decision.plan_decision_id: ", logged.plan_decision_id(),
                     " given, which is none of the last ", kPlans, " plans before it"));
  }
  if (logged.plan_component() < 0 || logged.plan_component() >= known->components) {
    return absl::InvalidArgumentError(
        absl::StrCat("decision.plan_component: ", logged.plan_component(), " given, the plan has ",
                     known->components, " components"));
  }
  return &*known;
}

absl::Status Replay::Take(const v1::LoggedDecision& logged) {
  const Known* known = nullptr;
  // Of one that is met again as well: others of its file may refer to its plan.
  if (logged.plan_decision_id() != 0) {
    const absl::StatusOr<const Known*> found = PlanOf(logged);
    if (!found.ok()) return found.status();
    known = *found;
  }
  switch (seen_.Take(epoch_, logged.decision().id())) {
    case SeenIds::Met::kAgain:
      ++result_.repeated;
      return absl::OkStatus();
    case SeenIds::Met::kTooMany:
      return absl::InvalidArgumentError(absl::StrCat(
          "decision.decision.id: the ids have more than ", SeenIds::kMostRanges, " gaps"));
    case SeenIds::Met::kNew:
      break;
  }
  ++result_.decisions;
  if (known == nullptr) {
    ++result_.without_plan;
  } else if (known->difference.empty()) {
    ++result_.reproduced;
  } else {
    ++result_.differ;
    if (result_.differing.size() < ReplayResult::kMostListed) {
      result_.differing.push_back({logged.decision(), known->difference});
    }
  }
  return absl::OkStatus();
}

std::string ReplayText(const ReplayResult& r) {
  std::string out =
      absl::StrCat(Counted(r.decisions, "decision", "decisions"), ": ", r.reproduced,
                   " reproduced, ", r.differ, r.differ == 1 ? " differs, " : " differ, ",
                   r.without_plan, " needed no plan; ", Counted(r.plans, "plan was", "plans were"),
                   " made again, of ", Counted(r.brokers, "broker", "brokers"), "\n");
  if (r.torn > 0) {
    absl::StrAppend(&out, Counted(r.torn, "line was", "lines were"),
                    " cut off by a crash and passed over\n");
  }
  if (r.dropped > 0) {
    absl::StrAppend(&out, Counted(r.dropped, "line is", "lines are"),
                    " missing: the broker could not write as fast as it decided, or not at all\n");
  }
  if (r.repeated > 0) {
    absl::StrAppend(
        &out, "decisions that stand in the files once more, which count once: ", r.repeated, "\n");
  }
  if (r.differing.empty()) return out;
  std::vector<std::vector<std::string>> rows = {{">decision", "kind", "component", "what differs"}};
  for (const ReplayResult::Differing& one : r.differing) {
    rows.push_back({absl::StrCat(one.decision.id()), KindName(one.decision),
                    Printable(one.decision.component_id()), Printable(one.what)});
  }
  absl::StrAppend(&out, "\n", RenderTable(rows));
  if (r.differ > static_cast<int64_t>(r.differing.size())) {
    absl::StrAppend(&out, "and ", r.differ - static_cast<int64_t>(r.differing.size()), " more\n");
  }
  return out;
}

std::string ReplayJson(const ReplayResult& r) {
  nlohmann::ordered_json json = {{"decisions", r.decisions},
                                 {"reproduced", r.reproduced},
                                 {"differ", r.differ},
                                 {"without_plan", r.without_plan},
                                 {"plans", r.plans},
                                 {"brokers", r.brokers},
                                 {"lines", r.lines},
                                 {"torn_lines", r.torn},
                                 {"dropped_lines", r.dropped},
                                 {"repeated_decisions", r.repeated},
                                 {"differing", nlohmann::ordered_json::array()}};
  for (const ReplayResult::Differing& one : r.differing) {
    json["differing"].push_back({{"decision_id", one.decision.id()},
                                 {"kind", KindName(one.decision)},
                                 {"component_id", one.decision.component_id()},
                                 {"what", one.what}});
  }
  return json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace vrambroker::ctl
