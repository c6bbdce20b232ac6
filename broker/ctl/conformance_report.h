// What a conformance run found: one line for each check.
#pragma once

#include <grpcpp/grpcpp.h>

#include <string>
#include <vector>

namespace vrambroker::ctl {

struct ConformanceCheck {
  enum class Verdict { kAsSaid, kNotAsSaid, kNotProvoked };

  // Which part of the protocol, and what was done.
  std::string part;
  std::string check;
  Verdict verdict = Verdict::kAsSaid;
  // What the protocol says, and what came; of a check that was not provoked, why, in `got`.
  std::string expected;
  std::string got;
};

class ConformanceReport {
 public:
  // Of the checks that follow.
  void SetPart(std::string part) { part_ = std::move(part); }

  // One answer: the code that the protocol says, and words that the message must contain (`names`,
  // empty: any). True where it is so.
  bool Code(const std::string& check, grpc::StatusCode expected, const grpc::Status& got,
            const std::string& names = "");
  // Something other than a code. `got` is told where it does not hold. True where it holds.
  bool Holds(const std::string& check, bool holds, const std::string& expected,
             const std::string& got);
  void NotProvoked(const std::string& check, const std::string& expected, const std::string& why);

  const std::vector<ConformanceCheck>& checks() const { return checks_; }
  int Count(ConformanceCheck::Verdict verdict) const;
  // Something was checked, and everything that was is as the protocol says.
  bool AllAsSaid() const;

  // A table with a line "N of M as the protocol says" at its end.
  std::string Table() const;
  std::string Json() const;

 private:
  bool Add(const std::string& check, bool as_said, std::string expected, std::string got);

  std::string part_;
  std::vector<ConformanceCheck> checks_;
};

// "FAILED_PRECONDITION".
std::string CodeName(grpc::StatusCode code);

}  // namespace vrambroker::ctl
