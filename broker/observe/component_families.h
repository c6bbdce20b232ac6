// The metric families that have a sample for each component.
#pragma once

#include <array>

#include "broker/observe/family_builder.h"
#include "broker/observe/metric_families.h"

namespace vrambroker::observe {

// In the order of core::Reason.
inline constexpr std::array<const char*, kReasons> kReasonNames = {
    "unspecified",     "fits_whole",  "planned",          "grow_wait_ended", "kept_for_next_use",
    "kept_by_recency", "no_next_use", "wanted_by_others", "overcommitted",   "load_ahead",
    "unchanged",       "permanent",   "cannot_fit"};

// Components of the picture; what two sessions of one name have is added up.
void AddComponents(const Observation& seen, Families* out);

}  // namespace vrambroker::observe
