#include "broker/ctl/render_explanation.h"

#include <cmath>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "absl/time/time.h"
#include "broker/ctl/printable.h"
#include "broker/ctl/render.h"

namespace vrambroker::ctl {
namespace {

constexpr double kGiB = 1073741824.0;
// Seconds below which nobody notices.
constexpr double kNothing = 5e-7;

std::string Seconds(double seconds) {
  if (std::abs(seconds) < kNothing) return "0 s";
  if (std::abs(seconds) < 0.0995) return absl::StrFormat("%.3g ms", seconds * 1e3);
  return absl::StrFormat("%.3f s", seconds);
}

std::string When(const v1::ExplainedUse& use) {
  if (use.running()) return "running";
  return use.start_seconds() < kNothing ? "now" : "in " + Seconds(use.start_seconds());
}

std::string Layers(int count) { return absl::StrCat(count, count == 1 ? " layer" : " layers"); }

const v1::ExplainedComponent* Find(const v1::ExplainDecisionResponse& why, const std::string& id) {
  for (const v1::ExplainedComponent& one : why.components()) {
    if (one.id() == id) return &one;
  }
  return nullptr;
}

bool HasNextUse(const v1::ExplainDecisionResponse& why) {
  for (const v1::ExplainedUse& use : why.uses()) {
    if (use.component_id() == why.decision().component_id() && !use.running()) return true;
  }
  return false;
}

// How many layers the plan keeps, and what for.
std::string Kept(const v1::ExplainDecisionResponse& why) {
  const int plan = why.planned_layers();
  const std::string keeps = absl::StrCat("  The plan keeps ", Layers(plan), " of it");
  if (HasNextUse(why)) return keeps + " until its next use.";
  return keeps + (plan == 0 ? ": no use of it is known to come."
                            : " as long as nobody needs the room: no use of it is known to come.");
}

std::string Head(const v1::Decision& d) {
  absl::string_view kind = v1::DecisionKind_Name(d.kind());
  absl::ConsumePrefix(&kind, "DECISION_KIND_");
  const absl::Time time =
      absl::FromUnixSeconds(d.time().seconds()) + absl::Nanoseconds(d.time().nanos());
  return absl::StrCat(
      "Decision ", d.id(), ", ", absl::FormatTime("%H:%M:%E3S", time, absl::LocalTimeZone()), ": ",
      absl::AsciiStrToLower(kind), " for ", d.component_id(), "\n  ", d.text(), "\n");
}

std::string WithoutPlan(v1::DecisionKind kind) {
  switch (kind) {
    case v1::DECISION_KIND_GRANT:
      return "all that it may have was free, so that there was nothing to weigh";
    case v1::DECISION_KIND_REFUSAL:
      return "it does not fit on this card whatever else goes";
    case v1::DECISION_KIND_REVOCATION:
      return "no use of it was known to come, or the card held more than it should";
    default:
      return "there was nothing to weigh";
  }
}

// What the plan gave it; and why something else was done, where it was.
std::string Choice(const v1::ExplainDecisionResponse& why) {
  const v1::Decision& d = why.decision();
  const int plan = why.planned_layers();
  const v1::ExplainedComponent* mine = Find(why, d.component_id());
  if (mine != nullptr && mine->layers() == 0) {
    return "  It is a permanent set: its layers are on the card whatever is planned.\n";
  }
  const bool same = d.layers() == plan, more = d.layers() > plan;
  const std::string layers = Layers(plan);
  switch (d.kind()) {
    case v1::DECISION_KIND_GRANT:
      return absl::StrCat("  The plan gives this use ", layers, ".",
                          same ? "" : " It was granted what could be had by then.", "\n");
    case v1::DECISION_KIND_RETENTION:
      return absl::StrCat(Kept(why),
                          same   ? ""
                          : more ? " That use waits already, so that nothing is taken yet."
                                 : " The broker keeps less while it drains.",
                          "\n");
    case v1::DECISION_KIND_REVOCATION:
      return absl::StrCat(Kept(why),
                          same   ? ""
                          : more ? " Only what was missing was asked back."
                                 : " A use that waits could not begin otherwise: that goes first.",
                          "\n");
    case v1::DECISION_KIND_LOAD_AHEAD:
      return absl::StrCat("  The plan has ", layers, " of it on the card by the end of this slot.",
                          same   ? ""
                          : more ? " What is there already stays until somebody needs the room."
                                 : " The rest has no room yet.",
                          "\n");
    default:
      return absl::StrCat("  The plan gives it ", layers, ".\n");
  }
}

std::string Name(const v1::Alternative& a, bool load_ahead) {
  switch (a.kind()) {
    case v1::ALTERNATIVE_KIND_GRANT_FEWEST:
      return absl::StrCat("Granting no more than ", Layers(a.layers()));
    case v1::ALTERNATIVE_KIND_GRANT_MOST:
      return absl::StrCat("Granting all ", Layers(a.layers()), " that it may have");
    case v1::ALTERNATIVE_KIND_KEEP_NOTHING:
      return "Keeping nothing of it";
    case v1::ALTERNATIVE_KIND_KEEP_ALL:
      return a.layers() == 0 ? "Loading nothing of it ahead"
                             : absl::StrCat("Keeping all ", Layers(a.layers()),
                                            load_ahead ? " and loading none ahead" : "");
    default:
      return "Something else";
  }
}

std::string Cost(const v1::ExplainDecisionResponse& why, const v1::Alternative& a) {
  if (a.chosen()) return "this is what the plan chose";
  std::string out;
  if (a.missing_bytes() > 0) {
    absl::StrAppend(&out, "does not fit, ", RenderBytes(a.missing_bytes()),
                    " would be missing; if it did: ");
  }
  if (std::abs(a.cost_seconds()) < kNothing) {
    absl::StrAppend(&out, "no time lost or won");
  } else if (a.cost_seconds() < 0) {
    absl::StrAppend(&out, Seconds(-a.cost_seconds()),
                    " less lost to loading: the plan's search missed this");
  } else {
    absl::StrAppend(&out, Seconds(a.cost_seconds()), " more lost to loading");
  }
  if (a.loser() >= 0 && a.loser() < why.uses_size() && a.loser_seconds() >= kNothing) {
    const v1::ExplainedUse& use = why.uses(a.loser());
    absl::StrAppend(&out, "; most of all by ", use.component_id(), " (", When(use), ", ",
                    use.passes(), use.passes() == 1 ? " pass" : " passes",
                    use.probability() < 1 ? ", expected" : "", "), ", Seconds(a.loser_seconds()));
  }
  return out;
}

std::string Components(const v1::ExplainDecisionResponse& why) {
  std::vector<std::vector<std::string>> rows = {
      {"component", ">layers", ">bytes", ">lost per GiB streamed", ">held", ">keeps", ">loads to"}};
  for (const v1::ExplainedComponent& one : why.components()) {
    const bool permanent = one.layers() == 0;
    rows.push_back(
        {one.id(), permanent ? "permanent" : absl::StrCat(one.layers()),
         permanent ? "-" : RenderBytes(one.layer_bytes()),
         permanent ? "-" : Seconds(one.exposed_seconds_per_byte() * kGiB),
         absl::StrCat(one.held_layers()), absl::StrCat(one.keep_layers()),
         one.ahead_layers() > one.keep_layers() ? absl::StrCat(one.ahead_layers()) : "-"});
  }
  return RenderTable(rows);
}

std::string Uses(const v1::ExplainDecisionResponse& why) {
  std::vector<std::vector<std::string>> rows = {{"use of", "when", ">passes", ">needs", ">chance",
                                                 ">on card", ">kept for it", ">loaded", ">saves",
                                                 ""}};
  for (const v1::ExplainedUse& use : why.uses()) {
    rows.push_back(
        {use.component_id(), When(use), absl::StrCat(use.passes()), RenderBytes(use.need_bytes()),
         absl::StrFormat("%.0f %%", 100 * use.probability()), absl::StrCat(use.resident_layers()),
         absl::StrCat(use.kept_layers()), absl::StrCat(use.loaded_layers()),
         Seconds(use.saved_seconds()), use.deciding() ? "<- this one" : ""});
  }
  return rows.size() == 1 ? "  No use was known to come.\n" : RenderTable(rows);
}

v1::ExplainDecisionResponse WithPrintableNames(v1::ExplainDecisionResponse why) {
  v1::Decision* decision = why.mutable_decision();
  decision->set_component_id(PrintableAscii(decision->component_id()));
  decision->set_text(PrintableAscii(decision->text()));
  for (v1::ExplainedComponent& one : *why.mutable_components())
    one.set_id(PrintableAscii(one.id()));
  for (v1::ExplainedUse& one : *why.mutable_uses()) {
    one.set_component_id(PrintableAscii(one.component_id()));
  }
  return why;
}

}  // namespace

std::string RenderExplanation(const v1::ExplainDecisionResponse& as_sent) {
  const v1::ExplainDecisionResponse why = WithPrintableNames(as_sent);
  std::string out = Head(why.decision());
  if (!why.planned()) {
    return absl::StrCat(out, "  It needed no plan: ", WithoutPlan(why.decision().kind()), ".\n");
  }
  absl::StrAppend(&out, Choice(why));
  if (why.alternatives_size() > 0) out += "\nWhat else could have been done\n";
  for (const v1::Alternative& a : why.alternatives()) {
    absl::StrAppend(&out, "  ", Name(a, why.load_ahead()), ": ", Cost(why, a), ".\n");
  }
  absl::StrAppend(&out, "\nWhat was known: ", RenderBytes(why.capacity_bytes()),
                  " for layers, windows and needs", why.load_ahead() ? ", loading ahead" : "", "\n",
                  Components(why), "\n", Uses(why), "  In all the plan saves ",
                  Seconds(why.saved_seconds()), " against streaming everything.\n");
  if (!why.reproduced()) {
    out +=
        "  Made again, the plan is another one than was decided by: a defect, please report it.\n";
  }
  return out;
}

}  // namespace vrambroker::ctl
