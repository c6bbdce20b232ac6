// Checks of what a file says, field by field.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace vrambroker::ctl {

// Collects the first fault; later checks cost nothing.
class FieldChecker {
 public:
  void Within(const std::string& field, int64_t value, int64_t least, int64_t most) {
    if (!ok() || (value >= least && value <= most)) return;
    Fail(absl::StrCat(field, ": ", value, " given; ", least, " to ", most, " is allowed"));
  }
  void Within(const std::string& field, double value, double least, double most) {
    if (!ok() || (value >= least && value <= most)) return;  // NaN is not
    Fail(absl::StrCat(field, ": ", value, " given; ", least, " to ", most, " is allowed"));
  }
  void Fail(const std::string& what) {
    if (ok()) status_ = absl::InvalidArgumentError(what);
  }
  bool ok() const { return status_.ok(); }
  absl::Status Take() { return std::move(status_); }

 private:
  absl::Status status_;
};

}  // namespace vrambroker::ctl
