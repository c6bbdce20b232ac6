#include "broker/ctl/conformance_report.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace vrambroker::ctl {
namespace {

using Verdict = ConformanceCheck::Verdict;

const char* Mark(Verdict verdict) {
  switch (verdict) {
    case Verdict::kAsSaid:
      return "ok";
    case Verdict::kNotAsSaid:
      return "WRONG";
    case Verdict::kNotProvoked:
      return "not provoked";
  }
  return "";
}

nlohmann::ordered_json JsonOf(const ConformanceCheck& check) {
  return {{"part", check.part},
          {"check", check.check},
          {"verdict", Mark(check.verdict)},
          {"expected", check.expected},
          {"got", check.got}};
}

}  // namespace

std::string CodeName(grpc::StatusCode code) {
  return absl::StatusCodeToString(static_cast<absl::StatusCode>(code));
}

bool ConformanceReport::Add(const std::string& check, bool as_said, std::string expected,
                            std::string got) {
  checks_.push_back({part_, check, as_said ? Verdict::kAsSaid : Verdict::kNotAsSaid,
                     std::move(expected), std::move(got)});
  return as_said;
}

bool ConformanceReport::Code(const std::string& check, grpc::StatusCode expected,
                             const grpc::Status& got, const std::string& names) {
  const bool same = got.error_code() == expected;
  const bool named = absl::StrContains(got.error_message(), names);
  const std::string expected_text =
      same && !named ? absl::StrCat(CodeName(expected), " naming \"", names, "\"")
                     : CodeName(expected);
  const std::string got_text =
      same && named
          ? CodeName(got.error_code())
          : absl::StrCat(CodeName(got.error_code()), got.ok() ? "" : ": ", got.error_message());
  return Add(check, same && named, expected_text, got_text);
}

bool ConformanceReport::Holds(const std::string& check, bool holds, const std::string& expected,
                              const std::string& got) {
  return Add(check, holds, expected, holds ? "so" : got);
}

void ConformanceReport::NotProvoked(const std::string& check, const std::string& expected,
                                    const std::string& why) {
  checks_.push_back({part_, check, Verdict::kNotProvoked, expected, why});
}

int ConformanceReport::Count(Verdict verdict) const {
  return static_cast<int>(
      std::count_if(checks_.begin(), checks_.end(),
                    [&](const ConformanceCheck& check) { return check.verdict == verdict; }));
}

bool ConformanceReport::AllAsSaid() const {
  return Count(Verdict::kAsSaid) > 0 && Count(Verdict::kNotAsSaid) == 0;
}

std::string ConformanceReport::Table() const {
  size_t widest = 0;
  size_t part_width = 0;
  size_t expected_width = 0;
  for (const ConformanceCheck& check : checks_) {
    widest = std::max(widest, check.check.size());
    part_width = std::max(part_width, check.part.size());
    if (check.verdict == Verdict::kAsSaid) {
      expected_width = std::max(expected_width, check.expected.size());
    }
  }
  const auto line = [&](const std::string& mark, const std::string& part, const std::string& check,
                        const std::string& expected, const std::string& got) {
    return absl::StrFormat("%-12s  %-*s  %-*s  %-*s  %s\n", mark, static_cast<int>(part_width),
                           part, static_cast<int>(widest), check, static_cast<int>(expected_width),
                           expected, got);
  };
  std::string out = line("", "part", "what was done", "expected", "got");
  for (const ConformanceCheck& check : checks_) {
    absl::StrAppend(&out,
                    line(Mark(check.verdict), check.part, check.check, check.expected, check.got));
  }
  const int right = Count(Verdict::kAsSaid);
  absl::StrAppend(&out, "\n", right, " of ", right + Count(Verdict::kNotAsSaid),
                  " as the protocol says, ", Count(Verdict::kNotProvoked), " not provoked\n");
  return out;
}

std::string ConformanceReport::Json() const {
  nlohmann::ordered_json json = {{"as_said", Count(Verdict::kAsSaid)},
                                 {"wrong", Count(Verdict::kNotAsSaid)},
                                 {"not_provoked", Count(Verdict::kNotProvoked)},
                                 {"checks", nlohmann::ordered_json::array()}};
  for (const ConformanceCheck& check : checks_) json["checks"].push_back(JsonOf(check));
  // A broker's messages are shown even where they are no UTF-8.
  return json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace vrambroker::ctl
