// Strong types for bytes, ids and generations. Values of different kinds do not mix, arithmetic on
// bytes is checked: a sum that leaves the range, or a difference below zero, stops the process with
// the place named rather than go on with a wrong ledger.
#pragma once

#include <compare>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <string>

namespace vrambroker::core {

[[noreturn]] inline void CheckFailed(const char* file, int line, const char* what) {
  std::fprintf(stderr, "%s:%d: invariant broken: %s\n", file, line, what);
  std::abort();
}

#define VRAM_CHECK(condition) \
  ((condition) ? (void)0 : ::vrambroker::core::CheckFailed(__FILE__, __LINE__, #condition))

// A count of device or host bytes, 0 to 2^63 - 1.
class Bytes {
 public:
  constexpr Bytes() = default;
  // Requires count >= 0.
  constexpr explicit Bytes(int64_t count) : count_(count) { VRAM_CHECK(count >= 0); }

  constexpr int64_t count() const { return count_; }
  constexpr double as_double() const { return static_cast<double>(count_); }
  constexpr auto operator<=>(const Bytes&) const = default;

  friend constexpr Bytes operator+(Bytes a, Bytes b) {
    VRAM_CHECK(a.count_ <= std::numeric_limits<int64_t>::max() - b.count_);
    return Bytes(a.count_ + b.count_);
  }
  // Requires a >= b; use MinusOrZero where b may be more.
  friend constexpr Bytes operator-(Bytes a, Bytes b) {
    VRAM_CHECK(a.count_ >= b.count_);
    return Bytes(a.count_ - b.count_);
  }
  constexpr Bytes& operator+=(Bytes b) { return *this = *this + b; }
  constexpr Bytes& operator-=(Bytes b) { return *this = *this - b; }

 private:
  int64_t count_ = 0;
};

// a - b, or nothing where b is more.
constexpr Bytes MinusOrZero(Bytes a, Bytes b) { return a > b ? a - b : Bytes(); }

// "13.25 GiB", "216.2 MiB", "512 B".
std::string ToString(Bytes bytes);

// A number that names something; kinds do not mix. Zero names nothing.
template <typename Kind>
class Id {
 public:
  constexpr Id() = default;
  constexpr explicit Id(uint64_t value) : value_(value) {}
  constexpr uint64_t value() const { return value_; }
  constexpr explicit operator bool() const { return value_ != 0; }
  constexpr auto operator<=>(const Id&) const = default;
  constexpr Id Next() const { return Id(value_ + 1); }
  template <typename H>
  friend H AbslHashValue(H h, Id id) {
    return H::combine(std::move(h), id.value_);
  }

 private:
  uint64_t value_ = 0;
};

using SessionId = Id<struct SessionKind>;
using ComponentId = Id<struct ComponentKind>;
using UseId = Id<struct UseKind>;
using RunId = Id<struct RunKind>;
using DecisionId = Id<struct DecisionKind_>;
using Generation = Id<struct GenerationKind>;
using Epoch = Id<struct EpochKind>;
// A waiting unary call, numbered by the shell.
using CallId = Id<struct CallKind>;
// An open stream, numbered by the shell.
using ConnectionId = Id<struct ConnectionKind>;

}  // namespace vrambroker::core
