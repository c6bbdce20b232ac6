// What uses have shown of a component: how long a pass computes, how fast its layers come to the
// device, what a streamed byte costs, how much activation a use takes. Plain values and pure
// functions of the measurements that EndUse brings.
//
// Where the figures come from, all of one use (Measurements in specs.h):
//   pass seconds   compute_seconds / passes. Compute alone: waits for copies are not in it.
//   link rate      bytes_loaded / copy_seconds, where the worker measured how long its copies took.
//                  Without copy_seconds the copies took at least the stall (all of it is waiting
//                  for them) and at most stall + compute (the use has no other time), so the rate
//                  lies between bytes / (stall + compute) and bytes / stall. Where compute is at
//                  most an eighth of the stall, that is narrow enough: the middle,
//                  bytes / (stall + compute / 2), is off by a sixteenth at most. Else nothing is
//                  learned of it. Uses that load less than kLeastLoaded say nothing: latency.
//   stall          stall_seconds / bytes_loaded: seconds that a byte copied during the use exposed.
//                  What planner.h calls sigma, as it came out; shown to people, not planned with.
//   activation     peak_activation.
//
// Robustness: of each figure the last Samples::kMost uses count, and their median is the estimate:
// fewer than half of them can be anything (a first slow pass, a paused process) and move it no
// further than to another good one. Where their number is even, the faster of the two in the middle
// is taken: what disturbs a measurement makes it slow. What was said before anything was measured
// (declared, or the device's rate) starts the estimate off and weighs as one sample until
// Samples::kSettled uses are measured; then it is forgotten. Figures that cannot be (not finite,
// negative, 0, or beyond the bounds below) are not taken, nor is anything of a warm-up.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "broker/core/specs.h"
#include "broker/core/units.h"

namespace vrambroker::core {

// The newest measured values of one figure, at most kMost: an older one gives way.
class Samples {
 public:
  static constexpr int kMost = 9;
  // From so many on, only what was measured counts.
  static constexpr int kSettled = 3;

  // Requires a finite value.
  void Add(double value);
  int count() const { return count_; }
  bool settled() const { return count_ >= kSettled; }
  // The median, of two in the middle the smaller (larger) one. `start` weighs as one sample while
  // not settled; 0: there is none. 0 where there is neither.
  double LowerMedian(double start) const { return Median(start, false); }
  double UpperMedian(double start) const { return Median(start, true); }
  // 0 where there is none.
  double Most() const;

 private:
  double Median(double start, bool upper) const;

  std::array<double, kMost> values_{};
  int count_ = 0;
  int next_ = 0;
};

// What a use asks for itself, by which its activation is known again.
struct ActivationAsk {
  // The caller's name for what makes uses alike, e.g. "1024x1024x1"; at most 64 bytes. Empty: it
  // gives none, and uses that declare the same bytes are taken for alike.
  std::string shape;
  // 0: none.
  Bytes declared;
  // The caller insists: exactly what is declared is charged, whatever was measured.
  bool exact = false;
};

class Estimates {
 public:
  // Shapes known of a component at most. One more, and that which was used longest ago is
  // forgotten: a use of it is charged as declared again, until it is known anew.
  static constexpr int kMaxShapes = 16;
  // The need is this much above the highest recent peak.
  static constexpr double kMargin = 1.2;
  // Uses that loaded less than this many bytes say nothing of the link.
  static constexpr int64_t kLeastLoaded = int64_t{1} << 20;
  // What is beyond is not believed: rates in bytes a second, seconds of a pass.
  static constexpr double kLeastRate = 1e6;
  static constexpr double kMostRate = 1e13;
  static constexpr double kMostSeconds = 1e5;

  // Takes in what a use measured. `capacity`: of its device, above which no peak is believed.
  // Returns the rate of the link that it shows, in bytes a second; nothing where it shows none.
  std::optional<double> Learn(const Measurements& measured, Bytes capacity);
  // Takes in the peak of a use that asked so. Nothing is taken of a warm-up, of a use without a
  // pass, or where no peak was measured.
  void LearnActivation(const ActivationAsk& ask, const Measurements& measured, Bytes capacity);

  // Seconds that a pass computes. `declared` 0: nothing was. 0: not known.
  double PassSeconds(double declared) const { return pass_seconds_.LowerMedian(declared); }
  // Its layers come from elsewhere on the host from now on.
  void ForgetLinkRate() { link_rate_ = Samples(); }

  // Bytes a second to the device. `start`: what is known without this component's own uses, 0 where
  // nothing is. 0: not known.
  double LinkRate(double start) const { return link_rate_.UpperMedian(start); }
  // Seconds lost to each byte that was copied during uses. 0: none, or not measured.
  double StallPerByte() const { return stall_per_byte_.LowerMedian(0); }

  // Bytes to charge for the activation of a use. With p the highest of the recent peaks of its
  // shape (at most Samples::kMost):
  //   exact, or nothing measured      declared
  //   p above declared                p * kMargin, from the first peak on
  //   fewer than kSettled peaks       declared
  //   else                            min(declared, p * kMargin)
  // So an honest caller is charged what it declares, one that declares too much what it takes with
  // a margin, and one that declares too little what it takes.
  Bytes ActivationNeed(const ActivationAsk& ask) const;
  // The highest recent peak over all shapes. 0: none was measured.
  Bytes ActivationPeak() const;

  // Uses of which something was learned, all time.
  int64_t uses() const { return uses_; }
  int shapes() const { return static_cast<int>(shapes_.size()); }

 private:
  struct Shape {
    std::string name;  // empty: by `declared`
    Bytes declared;
    Samples peaks;
    uint64_t used = 0;  // newer is higher
  };

  const Shape* Find(const ActivationAsk& ask) const;
  Shape& FindOrAdd(const ActivationAsk& ask);

  Samples pass_seconds_;
  Samples link_rate_;
  Samples stall_per_byte_;
  std::vector<Shape> shapes_;
  uint64_t last_used_ = 0;
  int64_t uses_ = 0;
};

// Bytes of layers that left the device and came back within the minimum residency. Layers are a
// prefix of the keep order: what leaves is [held, before), the last first.
class Regret {
 public:
  // `held` layers are on the device from `now` on. Returns the layers, first and end of each
  // stretch, that are back within `residency` of their release.
  std::vector<std::pair<int, int>> Note(int held, absl::Time now, absl::Duration residency);
  // When layers came last.
  absl::Time came() const { return came_; }

 private:
  struct Released {
    int first = 0;
    int end = 0;
    absl::Time at;
  };

  int held_ = 0;
  absl::Time came_ = absl::InfinitePast();
  // The last released lies lowest and is at the back. None older than the residency, none twice: at
  // most one for each layer.
  std::vector<Released> released_;
};

}  // namespace vrambroker::core
