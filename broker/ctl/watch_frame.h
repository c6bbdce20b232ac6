// What vramctl watch shows: one frame of a terminal, from a picture and where somebody looks. Pure.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "broker/ctl/styled.h"
#include "vrambroker/v1/admin.pb.h"

namespace vrambroker::ctl {

enum class Key {
  kQuit,      // q
  kHelp,      // ?
  kNext,      // tab, right: the next device
  kPrevious,  // shift-tab, left
  kUp,
  kDown,
  kPageUp,
  kPageDown,
  kHome,
  kEnd,
  kRedraw,  // Ctrl-L
  kOther,
};

// Keys from the bytes that a terminal sends. Sequences may come in pieces; unknown ones are one
// kOther.
class KeyReader {
 public:
  std::vector<Key> Feed(absl::string_view bytes);
  // Nothing more came for a while: an escape that began no sequence was a key by itself.
  std::vector<Key> Flush();

 private:
  std::string pending_;
};

// Where somebody looks.
struct WatchView {
  std::string device_uuid;  // empty: the first
  size_t scroll = 0;        // lines of the body above the first that shows
  bool help = false;
};

// What there is to see.
struct WatchScene {
  std::string address;
  const v1::Picture* picture = nullptr;
  absl::Duration age;   // since the picture came
  absl::Time now;       // shown in local time
  std::string trouble;  // why no newer picture comes. Empty: the broker is connected.
};

struct WatchFrame {
  std::vector<Line> lines;  // as many as there are rows
  size_t max_scroll = 0;
  size_t page = 1;  // rows of the body that show
};

// `columns`, `rows`: of the terminal, at least 1 each. Lines may be longer than `columns`.
WatchFrame MakeFrame(const WatchScene& scene, const WatchView& view, size_t columns, size_t rows);

// The view after a key; `frame`: the one that it was pressed at.
WatchView After(Key key, const WatchView& view, const v1::Picture& picture,
                const WatchFrame& frame);

// The bytes that turn a screen that shows the lines `before` into one that shows `now`, each cut to
// the screen's width already: only lines that differ are written, each over what was there. Without
// `before` the screen is blank.
std::string DrawingOf(const std::vector<std::string>& now, const std::vector<std::string>& before);

// The picture as it would read now, as far as time alone goes: for how long uses wait and layers
// are asked back, and how long a recovery still lasts.
v1::Picture Aged(const v1::Picture& picture, absl::Duration age);

}  // namespace vrambroker::ctl
