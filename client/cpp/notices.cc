#include "client/cpp/notices.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace vrambroker::client {
namespace {

std::string Held(const Notices::Components& components) {
  if (components.empty()) return "no components";
  return absl::StrJoin(components, ", ", [](std::string* out, const auto& c) {
    absl::StrAppend(out, c.first, " holds ", c.second.held, " of ", c.second.layers, " layers");
  });
}

std::string Configured(const Notices::Components& components) {
  if (components.empty()) return "no components";
  return absl::StrJoin(components, ", ", [](std::string* out, const auto& c) {
    absl::StrAppend(out, c.first, " with ", c.second.configured, " of ", c.second.layers,
                    " layers resident");
  });
}

}  // namespace

Notices::Lines Notices::Attached(uint64_t session, uint64_t epoch, const Components& components,
                                 const std::map<std::string, std::string>& refused,
                                 absl::Time now) {
  Lines lines;
  const std::string where =
      absl::StrCat("the broker at ", address_, ": session ", session, "; ", Held(components));
  if (!attached_before_) {
    lines.push_back(absl::StrCat("attached to ", where));
  } else {
    lines.push_back(
        absl::StrCat("attached again, ",
                     absl::FormatDuration(absl::Trunc(now - lost_at_, absl::Milliseconds(1))),
                     " after the last session was lost, to ",
                     epoch == epoch_ ? "the same run of " : "a new run of ", where));
  }
  for (const auto& [name, message] : refused) {
    lines.push_back(absl::StrCat("component ", name, " was refused and waits for room: ", message));
  }
  attached_ = true;
  attached_before_ = true;
  lives_ = true;
  epoch_ = epoch;
  refused_ = refused;
  last_failure_.clear();
  return lines;
}

Notices::Lines Notices::Admitted(const std::string& component) {
  if (refused_.erase(component) == 0) return {};
  return {absl::StrCat("component ", component, " is admitted now: there is room")};
}

Notices::Lines Notices::NotAttached(const absl::Status& status, bool again,
                                    const Components& components, absl::Time now) {
  const std::string why = status.ok() ? "the stream was closed" : status.ToString();
  if (std::exchange(attached_, false)) {
    lost_at_ = now;
    last_failure_ = why;
    return {absl::StrCat("lost the broker at ", address_, " (", why, "); ", Held(components),
                         again ? "; attaching is tried again" : "; it refuses this process")};
  }
  if (!again) {
    return {absl::StrCat("the broker at ", address_, " refuses this process: ", why)};
  }
  // What goes on failing in other words each time is said once.
  if (attached_before_ || !last_failure_.empty()) return {};
  last_failure_ = why;
  return {absl::StrCat("no session with the broker at ", address_, " yet (", why,
                       "); it is tried again",
                       absl::IsUnavailable(status) ? absl::StrCat(": ", advice_) : "")};
}

Notices::Lines Notices::Pageable(const std::string& component, const std::string& why) {
  if (std::exchange(pageable_[component], why) == why || why.empty()) return {};
  return {absl::StrCat("component ", component, " stays pageable: ", why)};
}

Notices::Lines Notices::BrokerLives(bool lives, const Components& components) {
  if (std::exchange(lives_, lives) == lives || lives) return {};
  return {absl::StrCat("no broker lives for ", device_, " (its lock in ", lock_dir_,
                       " is free): uses run without one, ", Configured(components),
                       ", and release everything at their end")};
}

}  // namespace vrambroker::client
