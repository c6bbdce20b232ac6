// What the page for people has its data from: looks at the engine, and the feed of pictures.
#pragma once

#include <functional>
#include <memory>

#include "broker/page/page.h"
#include "broker/server/engine.h"
#include "broker/server/picture_feed.h"

namespace vrambroker::server {

class PictureTap;

class PageSource {
 public:
  // A look that the engine does not come to within this time is given up.
  static constexpr absl::Duration kPatience = absl::Seconds(5);
  // Pictures for the page come at most this often; where making one takes long, as seldom as keeps
  // them below 1/64 of a core.
  static constexpr absl::Duration kMinInterval = absl::Milliseconds(250);

  // Both outlive it, and it outlives the page.
  PageSource(Engine* engine, PictureFeed* feed) : engine_(engine), feed_(feed) {}

  page::Sources Sources();

 private:
  using Answer = page::Sources::Answer;

  // What `look` gives between two decisions.
  Answer Look(std::function<Answer(const core::Machine&, absl::Time)> look) const;

  Engine* const engine_;
  PictureFeed* const feed_;
  // While somebody watches. Used under the watchers' lock.
  std::shared_ptr<PictureTap> tap_;
};

}  // namespace vrambroker::server
