#include "broker/sim/random_workload.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "absl/strings/str_cat.h"

namespace vrambroker::sim {
namespace {

constexpr double kMB = 1e6;
constexpr double kGiB = 1073741824.0;

// Numbers that are the same everywhere, which the library's distributions are not.
class Dice {
 public:
  explicit Dice(uint64_t seed) : state_(seed) {}

  // Splitmix64.
  uint64_t Next() {
    uint64_t z = state_ += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
  // From 0 to less than 1.
  double Unit() { return static_cast<double>(Next() >> 11) * 0x1.0p-53; }
  double Between(double low, double high) { return low + (high - low) * Unit(); }
  // As likely in each octave.
  double Spread(double low, double high) { return low * std::exp2(Unit() * std::log2(high / low)); }
  int Count(int low, int high) {
    return low + static_cast<int>(Next() % static_cast<uint64_t>(high - low + 1));
  }
  bool Chance(double probability) { return Unit() < probability; }

 private:
  uint64_t state_;
};

// Groups of equal layers that together have about `bytes`.
std::vector<std::pair<int, int64_t>> LayersOf(double bytes, Dice* dice) {
  const int groups = dice->Chance(0.4) ? dice->Count(2, 3) : 1;
  std::vector<std::pair<int, int64_t>> layers;
  for (int g = 0; g < groups; ++g) {
    const int count = dice->Count(2, 48 / groups);
    layers.emplace_back(count, static_cast<int64_t>(bytes / groups / count) + 1);
  }
  return layers;
}

// A VAE, a text encoder, a transformer, or anything.
Component RandomComponent(int number, double link_rate, Dice* dice) {
  Component c;
  c.name = absl::StrCat("c", number);
  const int kind = dice->Count(0, 3);
  const double bytes = kind == 0   ? dice->Spread(40 * kMB, 400 * kMB)
                       : kind == 1 ? dice->Spread(kGiB, 16 * kGiB)
                       : kind == 2 ? dice->Spread(4 * kGiB, 30 * kGiB)
                                   : dice->Spread(40 * kMB, 30 * kGiB);
  c.layer_groups = LayersOf(bytes, dice);
  c.window_layers = dice->Chance(0.2) ? dice->Count(1, 4) : 2;
  if (dice->Chance(0.2)) c.fixed_bytes = static_cast<int64_t>(bytes * dice->Between(0.01, 0.1));
  // Compute between hardly anything and twice what hides the copies.
  c.pass_seconds = bytes / link_rate * dice->Spread(0.02, 2);
  return c;
}

Stage RandomStage(int component, const Component& c, Dice* dice) {
  Stage stage;
  stage.component = component;
  stage.passes = dice->Chance(0.5) ? 1 : dice->Count(2, 40);
  const double layers = c.Layers().All().as_double();
  stage.activation_bytes = static_cast<int64_t>(layers * dice->Spread(0.01, 0.4));
  return stage;
}

void AddPipelines(Dice* dice, Workload* w) {
  const int count = dice->Count(1, 3);
  for (int p = 0; p < count; ++p) {
    Pipeline pipeline;
    pipeline.name = absl::StrCat("p", p);
    const int stages = dice->Count(1, 5);
    for (int s = 0; s < stages; ++s) {
      const int c = dice->Count(0, static_cast<int>(w->components.size()) - 1);
      pipeline.stages.push_back(RandomStage(c, w->components[static_cast<size_t>(c)], dice));
    }
    w->pipelines.push_back(std::move(pipeline));
  }
}

// The least that every use needs with everybody's fixed bytes, and what all together could use.
void ChooseCard(Dice* dice, Workload* w) {
  double least = 0, all = 0, fixed = 0;
  for (const Component& c : w->components) {
    fixed += static_cast<double>(c.fixed_bytes);
    all += c.Layers().All().as_double();
  }
  double needs = 0;
  for (const Pipeline& p : w->pipelines) {
    for (const Stage& s : p.stages) {
      const Component& c = w->components[static_cast<size_t>(s.component)];
      const double window =
          std::min(static_cast<double>(c.WindowBytes()), c.Layers().All().as_double());
      const double need = static_cast<double>(s.activation_bytes);
      least = std::max(least, need + window);
      needs = std::max(needs, need);
    }
  }
  const double most = std::max(1.05 * least, all + needs);
  const double room = dice->Chance(0.03) ? 0.95 * least : dice->Between(least, most);
  w->device.reserve_bytes = dice->Chance(0.5) ? int64_t{1} << 29 : 0;
  w->device.capacity_bytes = static_cast<int64_t>(fixed + room) + 1 + w->device.reserve_bytes;
}

double RunSeconds(const Workload& w, const Pipeline& p) {
  double seconds = 0;
  for (const Stage& s : p.stages) {
    seconds += s.passes * w.components[static_cast<size_t>(s.component)].pass_seconds;
  }
  return seconds;
}

void AddRuns(Arrivals arrivals, Dice* dice, Workload* w) {
  const int count = dice->Count(3, 10);
  // Of the time that runs take on average, between full and half idle.
  const double load = dice->Between(0.5, 1.2);
  double at = 0;
  for (int r = 0; r < count; ++r) {
    Run run;
    run.pipeline = dice->Count(0, static_cast<int>(w->pipelines.size()) - 1);
    if (arrivals != Arrivals::kSequential) {
      const double mean = RunSeconds(*w, w->pipelines[static_cast<size_t>(run.pipeline)]) /
                          (load * w->max_concurrent_runs);
      at += -std::log(1 - dice->Unit()) * mean;
      run.arrival_seconds = at;
    }
    w->runs.push_back(run);
  }
}

// Short uses of a model of a few GiB, one after the other from the start to the end.
void AddBusyModel(Dice* dice, Workload* w) {
  Component llm;
  llm.name = "llm";
  const double bytes = dice->Spread(2 * kGiB, 10 * kGiB);
  llm.layer_groups = {{32, static_cast<int64_t>(bytes / 32)}};
  llm.pass_seconds = bytes / w->device.link_rate * dice->Spread(0.02, 0.2);
  Pipeline chat;
  chat.name = "chat";
  chat.stages = {{static_cast<int>(w->components.size()), dice->Count(10, 60),
                  static_cast<int64_t>(bytes * 0.1)}};
  w->components.push_back(llm);
  w->pipelines.push_back(chat);
}

void AddChats(Dice* dice, Workload* w) {
  const int pipeline = static_cast<int>(w->pipelines.size()) - 1;
  const double each = RunSeconds(*w, w->pipelines.back());
  const double end = w->runs.back().arrival_seconds;
  // At most so many; where they are short, over a part of the time only.
  double at = 0;
  for (int i = 0; i < 24 && at <= end; ++i) {
    w->runs.push_back({pipeline, at});
    at += each * dice->Between(0.9, 1.3);
  }
}

}  // namespace

Workload RandomWorkload(uint64_t seed) {
  const Arrivals arrivals = static_cast<Arrivals>(seed % 4);
  Dice dice(seed);
  Workload w;
  w.name = absl::StrCat("random-", seed);
  w.device.link_rate = dice.Spread(6e9, 60e9);
  const bool overlap = arrivals == Arrivals::kOverlapping || arrivals == Arrivals::kBusyModel;
  w.max_concurrent_runs = overlap ? dice.Count(2, 4) : 1;
  const int components = dice.Count(2, arrivals == Arrivals::kBusyModel ? 5 : 6);
  for (int c = 0; c < components; ++c) {
    w.components.push_back(RandomComponent(c, w.device.link_rate, &dice));
  }
  AddPipelines(&dice, &w);
  if (arrivals == Arrivals::kBusyModel) AddBusyModel(&dice, &w);
  ChooseCard(&dice, &w);
  AddRuns(arrivals, &dice, &w);
  if (arrivals == Arrivals::kBusyModel) AddChats(&dice, &w);
  return w;
}

}  // namespace vrambroker::sim
