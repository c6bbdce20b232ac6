// What happens on the device while time passes: uses compute and stream, layers are loaded ahead,
// all over one link.
//
// A pass that streams s bytes of a component of W bytes, T seconds of compute a pass, takes
// T + sigma s seconds with sigma = max(0, 1/b - T/W), where b is its share of the link: the link's
// rate by the number of those that stream at once. A change of the share in the middle of a pass
// changes how fast the rest of it goes. What those that stream leave of the link is for loading
// ahead, in the order in which the loads began, each at its pace at most.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "broker/core/layers.h"
#include "broker/sim/workload.h"

namespace vrambroker::sim {

// A use while it runs. The first pass streams what was not there, each later one what is not
// resident.
struct ActiveUse {
  int request = 0;
  int granted = 0;
  int held_before = 0;
  int passes = 1;
  int64_t window = 0;  // 0 where all layers are resident
  int64_t activation = 0;
  double began = 0;
  // In the order in which uses began.
  uint64_t order = 0;
  // 0: the first pass; 1: the later ones, all alike.
  int phase = 0;
  // Of this phase, 1 to 0.
  double left = 1;
  // Bytes that a pass of each phase streams.
  double streamed[2] = {0, 0};
  // Seconds that the phase takes at the rate of now.
  double phase_seconds = 0;

  int PassesOf(int which) const { return which == 0 ? 1 : passes - 1; }
  double BytesLoaded() const { return streamed[0] + (passes - 1) * streamed[1]; }
};

// A component on the device.
struct Place {
  // Layers allocated, one that is being copied included. While a use runs, those granted.
  int held = 0;
  // Layer `held - 1` is being copied.
  bool loading = false;
  double loaded = 0;  // bytes of it that are there
  double pace = 0;    // bytes a second; 0: the link's own
  // Somebody waits for it, or for the layer to be done with: takes a share like those that stream.
  bool finishing = false;
  uint64_t load_order = 0;
  double load_rate = 0;  // of now
  std::optional<ActiveUse> use;
};

class Card {
 public:
  explicit Card(const Workload& workload);

  const Place& place(int component) const { return places_[static_cast<size_t>(component)]; }
  const core::LayerTable& layers(int component) const {
    return layers_[static_cast<size_t>(component)];
  }
  int64_t window(int component) const { return windows_[static_cast<size_t>(component)]; }
  int components() const { return static_cast<int>(places_.size()); }
  // Less reserve and the fixed bytes that were placed; below 0 where these alone do not fit.
  int64_t room() const { return room_; }
  int64_t fixed() const { return fixed_; }
  double now() const { return now_; }

  // Puts a component's fixed bytes on the device, once and for all.
  void PlaceFixed(int component);
  // Begins a use with `granted` layers. What was held counts for the first pass, up to what is
  // granted; so does what a load has copied so far, which ends.
  void Begin(int component, int request, int granted, int passes, int64_t activation);
  // Ends it; the granted layers are held. Requires a use whose passes are done.
  void End(int component);
  // Gives up all but the first `layers`, at once: what was loaded ahead of them is done with.
  // Requires no use and no copy under way.
  void Release(int component, int layers);
  // Begins to copy the next layer, or goes on with another pace. Requires no use.
  void Load(int component, double pace);
  // Finishes the layer that is being copied with a share of the link, whatever its pace.
  void FinishLoad(int component);

  // Bytes of layers, windows and activations on the device.
  int64_t Occupied() const;
  // What one component takes of it.
  int64_t Layers(int component) const;
  int64_t Needs(int component) const;

  // Whether any use runs.
  bool InUse() const;

  // Seconds until a phase or a layer is done; infinite where nothing goes on.
  double NextChange();
  struct Done {
    std::vector<int> uses;    // components whose use has done all its passes
    std::vector<int> loaded;  // components whose layer is there; the load has ended
  };
  // Lets time pass. Requires no change before that.
  Done Advance(double seconds);

  // Bytes copied ahead so far.
  double bytes_ahead() const { return bytes_ahead_; }
  // Seconds that a pass computes.
  double pass_seconds(int component) const { return pass_seconds_[static_cast<size_t>(component)]; }

 private:
  bool Streams(const Place& p) const;
  void ShareLink();

  std::vector<Place> places_;
  std::vector<core::LayerTable> layers_;
  std::vector<int64_t> windows_;
  std::vector<double> pass_seconds_;
  double link_rate_;
  std::vector<int64_t> fixed_bytes_;
  int64_t room_;
  int64_t fixed_ = 0;
  double now_ = 0;
  uint64_t last_order_ = 0;
  double bytes_ahead_ = 0;
  bool shared_ = false;  // rates are those of now
};

}  // namespace vrambroker::sim
