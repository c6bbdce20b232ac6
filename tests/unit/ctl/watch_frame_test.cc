#include "broker/ctl/watch_frame.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace vrambroker::ctl {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

constexpr int64_t kGiB = int64_t{1} << 30;

v1::Picture SomePicture(int devices = 2, int components = 1) {
  v1::Picture picture;
  for (int d = 0; d < devices; ++d) {
    v1::DevicePicture* device = picture.add_devices();
    device->set_uuid("GPU-" + std::to_string(d));
    device->set_capacity_bytes(4 * kGiB);
    device->set_in_use_bytes(kGiB);
    device->set_external_known(true);
    device->set_free_bytes(3 * kGiB);
    for (int c = 0; c < components; ++c) {
      device->add_components()->set_id("w" + std::to_string(d) + "/c" + std::to_string(c));
    }
  }
  return picture;
}

WatchScene SceneOf(const v1::Picture& picture) {
  return {"unix:/run/b", &picture, absl::ZeroDuration(),
          absl::FromCivil(absl::CivilSecond(2030, 1, 2, 3, 4, 5), absl::LocalTimeZone()), ""};
}

std::string TextOf(const WatchFrame& frame) { return PaintAll(frame.lines, false); }

TEST(KeyReader, KnowsKeysAndSequences) {
  KeyReader keys;
  EXPECT_THAT(keys.Feed("q?\t"), ElementsAre(Key::kQuit, Key::kHelp, Key::kNext));
  EXPECT_THAT(keys.Feed("\x1b[A\x1bOB\x1b[C\x1b[D\x1b[Z"),
              ElementsAre(Key::kUp, Key::kDown, Key::kNext, Key::kPrevious, Key::kPrevious));
  EXPECT_THAT(keys.Feed("\x1b[5~\x1b[6~\x1b[H\x1b[4~ \x0c"),
              ElementsAre(Key::kPageUp, Key::kPageDown, Key::kHome, Key::kEnd, Key::kPageDown,
                          Key::kRedraw));
  EXPECT_THAT(keys.Feed("x\x1b[1;5Cq"), ElementsAre(Key::kOther, Key::kOther, Key::kQuit))
      << "an unknown sequence is one key, none of its letters another";
}

TEST(KeyReader, PutsPiecesTogether) {
  KeyReader keys;
  EXPECT_THAT(keys.Feed("\x1b"), IsEmpty());
  EXPECT_THAT(keys.Feed("["), IsEmpty());
  EXPECT_THAT(keys.Feed("B"), ElementsAre(Key::kDown));
  EXPECT_THAT(keys.Feed("\x1b"), IsEmpty());
  EXPECT_THAT(keys.Flush(), ElementsAre(Key::kOther)) << "escape by itself";
  EXPECT_THAT(keys.Flush(), IsEmpty());
  EXPECT_THAT(keys.Feed("\x1bq"), ElementsAre(Key::kOther, Key::kQuit));
  EXPECT_EQ(keys.Feed("\x1b[" + std::string(100, '0')).size(), 87u) << "an endless one is cut";
}

TEST(MakeFrame, FillsTheScreenExactly) {
  const v1::Picture picture = SomePicture();
  EXPECT_EQ(TextOf(MakeFrame(SceneOf(picture), {}, 72, 14)),
            " vram broker at unix:/run/b  03:04:05                   q quits  ? help \n"
            "> GPU-0    3.00 GiB free of   4.00 GiB  [#######.....................]\n"
            "  GPU-1    3.00 GiB free of   4.00 GiB  [#######.....................]\n"
            "\n"
            "GPU-0  4.00 GiB, 3.00 GiB free\n"
            "  [#################...................................................]\n"
            "  # in use       1.00 GiB   25.0 %   . free         3.00 GiB   75.0 %\n"
            "\n"
            "  component  held  target  granted  held bytes  charge  state\n"
            "  w0/c0       0/0       0        -         0 B     0 B\n"
            "\n\n\n\n");
}

TEST(MakeFrame, HasAsManyLinesAsThereAreRows) {
  v1::Picture picture = SomePicture(12, 5);
  picture.set_draining(true);
  WatchScene scene = SceneOf(picture);
  scene.trouble = "connection refused";
  for (size_t rows = 1; rows < 40; ++rows) {
    for (const size_t columns : {size_t{1}, size_t{20}, size_t{200}}) {
      EXPECT_EQ(MakeFrame(scene, {}, columns, rows).lines.size(), rows);
    }
  }
}

TEST(MakeFrame, ShortensTheAddressBeforeTheRest) {
  const v1::Picture picture = SomePicture(1);
  WatchScene scene = SceneOf(picture);
  scene.address = "unix:/run/user/1000/vram-broker/broker.sock";
  EXPECT_EQ(Paint(MakeFrame(scene, {}, 60, 20).lines[0], false),
            " vram broker at unix:/r..er.sock  03:04:05  q quits  ? help ");
}

TEST(MakeFrame, SaysHowOldThePictureIs) {
  const v1::Picture picture = SomePicture(1);
  WatchScene scene = SceneOf(picture);
  EXPECT_THAT(TextOf(MakeFrame(scene, {}, 80, 20)), Not(HasSubstr("unchanged")));
  scene.age = absl::Seconds(7);
  EXPECT_THAT(TextOf(MakeFrame(scene, {}, 80, 20)), HasSubstr("\nunchanged for 7 s\n"));
  scene.age = absl::Minutes(3);
  scene.trouble = "cut\x1b[2J";
  const std::string text = TextOf(MakeFrame(scene, {}, 80, 20));
  EXPECT_THAT(text, HasSubstr("no connection: cut\\x1b[2J\n"
                              "trying again; the picture is 3 min old\n"));
  EXPECT_THAT(text, Not(HasSubstr("unchanged")));
}

TEST(MakeFrame, KeepsTheChosenOfManyDevicesInSight) {
  const v1::Picture picture = SomePicture(20);
  for (int chosen = 0; chosen < 20; ++chosen) {
    const std::string name = "GPU-" + std::to_string(chosen);
    const std::string text = TextOf(MakeFrame(SceneOf(picture), {name, 0, false}, 80, 40));
    EXPECT_THAT(text, HasSubstr("\n> " + name + " "));
    EXPECT_THAT(text, HasSubstr("device " + std::to_string(chosen + 1) + " of 20"));
    EXPECT_THAT(text, HasSubstr("\n" + name + "  4.00 GiB"));
  }
}

TEST(After, ChoosesDevicesInACircle) {
  const v1::Picture picture = SomePicture(3);
  const WatchFrame frame = MakeFrame(SceneOf(picture), {}, 80, 24);
  WatchView view;
  view = After(Key::kPrevious, view, picture, frame);
  EXPECT_EQ(view.device_uuid, "GPU-2");
  view = After(Key::kNext, view, picture, frame);
  EXPECT_EQ(view.device_uuid, "GPU-0");
  EXPECT_EQ(After(Key::kNext, {}, {}, frame).device_uuid, "") << "no device at all";
}

TEST(After, ScrollsWithinTheBody) {
  const v1::Picture picture = SomePicture(1, 50);
  const WatchScene scene = SceneOf(picture);
  const WatchFrame frame = MakeFrame(scene, {}, 80, 12);
  EXPECT_EQ(frame.page, 10u);
  EXPECT_EQ(frame.max_scroll, 45u) << "55 lines";
  WatchView view = After(Key::kUp, {}, picture, frame);
  EXPECT_EQ(view.scroll, 0u);
  view = After(Key::kPageDown, view, picture, frame);
  EXPECT_EQ(view.scroll, 10u);
  view = After(Key::kUp, view, picture, frame);
  EXPECT_EQ(view.scroll, 9u);
  view = After(Key::kEnd, view, picture, frame);
  EXPECT_THAT(TextOf(MakeFrame(scene, view, 80, 12)), HasSubstr("w0/c49"));
  view = After(Key::kDown, view, picture, frame);
  EXPECT_EQ(view.scroll, 45u);
  view = After(Key::kHome, view, picture, frame);
  EXPECT_EQ(view.scroll, 0u);
  EXPECT_TRUE(After(Key::kHelp, view, picture, frame).help);
  EXPECT_THAT(TextOf(MakeFrame(scene, {"", 0, true}, 80, 30)), HasSubstr("Classes of the ledger"));
}

TEST(DrawingOf, WritesTheLinesThatDiffer) {
  EXPECT_EQ(DrawingOf({"one", "", "three"}, {}), "\x1b[1;1Hone\x1b[K\x1b[3;1Hthree\x1b[K");
  EXPECT_EQ(DrawingOf({"one", "", "3"}, {"one", "two", "three"}),
            "\x1b[2;1H\x1b[K\x1b[3;1H3\x1b[K");
  EXPECT_EQ(DrawingOf({"one"}, {"one"}), "");
}

TEST(Aged, MovesWhatTimeMoves) {
  v1::Picture picture;
  picture.add_waiting()->mutable_waited()->set_seconds(2);
  v1::DevicePicture* device = picture.add_devices();
  device->add_components()->mutable_release_asked()->set_seconds(5);
  device->add_components();
  picture.mutable_recovery_left()->set_seconds(3);
  const v1::Picture later = Aged(picture, absl::Milliseconds(1500));
  EXPECT_EQ(later.waiting(0).waited().seconds(), 3);
  EXPECT_EQ(later.devices(0).components(0).release_asked().seconds(), 6);
  EXPECT_FALSE(later.devices(0).components(1).has_release_asked());
  EXPECT_EQ(later.waiting(0).waited().nanos(), 500000000);
  EXPECT_EQ(later.recovery_left().seconds(), 1);
  EXPECT_EQ(Aged(picture, absl::Seconds(9)).recovery_left().seconds(), 0);
  EXPECT_FALSE(Aged({}, absl::Seconds(9)).has_recovery_left());
}

}  // namespace
}  // namespace vrambroker::ctl
