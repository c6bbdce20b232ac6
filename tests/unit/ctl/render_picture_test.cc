#include "broker/ctl/render_picture.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

namespace vrambroker::ctl {
namespace {

using testing::AllOf;
using testing::AnyOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::StartsWith;

constexpr int64_t kGiB = int64_t{1} << 30;

TEST(BarCells, AreInProportion) {
  EXPECT_THAT(BarCells({1, 1, 2}, 8), ElementsAre(2, 2, 4));
  EXPECT_THAT(BarCells({1, 1, 1}, 10), ElementsAre(3, 4, 3));
  EXPECT_THAT(BarCells({0, 5, 0}, 4), ElementsAre(0, 4, 0));
  EXPECT_THAT(BarCells({0, 0}, 4), ElementsAre(0, 0));
  EXPECT_THAT(BarCells({-3, 4}, 4), ElementsAre(0, 4));
  EXPECT_THAT(BarCells({}, 4), IsEmpty());
}

TEST(BarCells, AnythingThatIsThereShows) {
  EXPECT_THAT(BarCells({1, 1000000, 1}, 10), ElementsAre(1, 8, 1));
  EXPECT_THAT(BarCells({1, 1, 1}, 2), ElementsAre(1, 0, 1)) << "as far as there are cells";
}

TEST(BarCells, TakeAllCellsWhateverTheParts) {
  for (int64_t step = 1; step < 400; ++step) {
    const std::vector<int> cells = BarCells({step, step * step % 97, 31, 5000 % step}, 57);
    EXPECT_EQ(std::accumulate(cells.begin(), cells.end(), 0), 57) << step;
  }
}

v1::Picture SomePicture() {
  v1::Picture picture;
  v1::DevicePicture* device = picture.add_devices();
  device->set_uuid("emulated:a");
  device->set_capacity_bytes(24 * kGiB);
  device->set_in_use_bytes(12 * kGiB);
  device->set_retained_bytes(3 * kGiB);
  device->set_reserve_bytes(kGiB / 2);
  device->set_free_bytes(17 * kGiB / 2);
  v1::ComponentPicture* component = device->add_components();
  component->set_id("te-0/text_encoder");
  component->set_layers(66);
  component->set_held_layers(53);
  component->set_target_layers(53);
  component->set_held_bytes(11 * kGiB);
  component->set_charge_bytes(12 * kGiB);
  component->set_use_id(7);
  component->set_granted_layers(53);
  component->set_generation(4);
  component->set_completed_generation(3);
  component = device->add_components();
  component->set_id("vae-0/vae");
  component->set_layers(4);
  component->set_held_layers(4);
  component->set_target_layers(4);
  component->set_held_bytes(3 * kGiB);
  component->set_charge_bytes(3 * kGiB);
  v1::SessionPicture* session = picture.add_sessions();
  session->set_worker("te-0");
  session->set_session_id(3);
  session->set_pid(4711);
  session->set_state(v1::SESSION_STATE_LOST);
  session->set_under_released(true);
  v1::WaitingUse* waiting = picture.add_waiting();
  waiting->set_component_id("dit-0/dit");
  waiting->mutable_waited()->set_nanos(500000000);
  waiting->set_needed_bytes(13 * kGiB);
  waiting->set_blocked_by("use 7 of te-0/text_encoder");
  return picture;
}

TEST(PictureLines, ShowWhoHoldsWhatAndWhoWaits) {
  EXPECT_EQ(PaintAll(PictureLines(SomePicture(), 80), false),
            "emulated:a  24.00 GiB, 8.50 GiB free\n"
            "  [######################################==========-...........................]\n"
            "  # in use      12.00 GiB   50.0 %   = retained     3.00 GiB   12.5 %\n"
            "  x external    not known            - reserve     512.0 MiB    2.1 %\n"
            "  . free         8.50 GiB   35.4 %\n"
            "\n"
            "  component           held  target  granted  held bytes     charge  state\n"
            "  te-0/text_encoder  53/66      53       53   11.00 GiB  12.00 GiB  use 7 runs, "
            "converging\n"
            "  vae-0/vae            4/4       4        -    3.00 GiB   3.00 GiB  kept\n"
            "\n"
            "  waits        for      needs  priority  held up by\n"
            "  dit-0/dit  0.5 s  13.00 GiB         0  use 7 of te-0/text_encoder\n"
            "\n"
            "  worker  session   pid  state  pool  notes\n"
            "  te-0          3  4711  lost    0 B  under-released\n");
}

TEST(PictureLines, NarrowScreensGetOneClassALine) {
  const std::string text = PaintAll(LedgerLines(SomePicture().devices(0), 50), false);
  EXPECT_THAT(text, HasSubstr("\n  # in use      12.00 GiB   50.0 %\n  = retained "));
  EXPECT_EQ(PaintAll(LedgerLines(SomePicture().devices(0), 1), false),
            PaintAll(LedgerLines(SomePicture().devices(0), 40), false))
      << "not narrower than 40";
}

TEST(PictureLines, SayWhenItDrainsAndRecovers) {
  v1::Picture picture = SomePicture();
  EXPECT_THAT(NoticeLines(picture), IsEmpty());
  picture.set_draining(true);
  picture.mutable_recovery_left()->set_seconds(2);
  picture.mutable_recovery_left()->set_nanos(1);
  EXPECT_THAT(PaintAll(PictureLines(picture, 80), false),
              StartsWith("draining: no use is admitted\n"
                         "recovering from a restart: nothing grows until all workers on record "
                         "have attached again, at most 3 s more\n\nemulated:a"));
}

TEST(PictureLines, AnOvercommittedCardIsSaidToBe) {
  v1::Picture picture = SomePicture();
  EXPECT_THAT(PaintAll(PictureLines(picture, 80), false), Not(HasSubstr("overcommitted")));
  v1::DevicePicture* device = picture.mutable_devices(0);
  device->set_external_known(true);
  device->set_external_bytes(10 * kGiB);
  device->set_free_bytes(0);
  device->set_overcommitted_bytes(3 * kGiB / 2);
  const std::string text = PaintAll(PictureLines(picture, 80), false);
  EXPECT_THAT(text, HasSubstr("overcommitted by 1.50 GiB: the classes sum to more than the card"));
  EXPECT_THAT(text, HasSubstr("x external    10.00 GiB   41.7 %"));
  EXPECT_THAT(text, HasSubstr(". free              0 B    0.0 %"));
}

TEST(PictureLines, WithoutAnythingSaySo) {
  EXPECT_EQ(PaintAll(PictureLines({}, 80), false), "");
  v1::Picture picture;
  picture.add_devices()->set_uuid("GPU-\x1b[2J");
  const std::string text = PaintAll(PictureLines(picture, 80), false);
  EXPECT_THAT(text, StartsWith("GPU-\\x1b[2J  0 B, 0 B free\n  []\n"));
  EXPECT_THAT(text, HasSubstr("no components"));
}

TEST(WaitingLines, ThoseThatWaitTooLongStandOutInWordsAndInColour) {
  v1::Picture picture = SomePicture();
  v1::WaitingUse* late = picture.add_waiting();
  late->set_component_id("vae-0/vae");
  late->mutable_waited()->set_seconds(75);
  late->set_is_long(true);
  const std::vector<Line> lines = WaitingLines(picture);
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_THAT(Paint(lines[1], true), Not(AnyOf(HasSubstr("\x1b"), HasSubstr("too long"))));
  EXPECT_THAT(Paint(lines[2], false), StartsWith("  vae-0/vae  too long, 75.0 s"));
  EXPECT_THAT(Paint(lines[2], true), StartsWith("\x1b[1;31m"));
}

TEST(ComponentLines, TellWhatBecomesOfEach) {
  v1::DevicePicture device;
  const auto add = [&](int held, int target) {
    v1::ComponentPicture* one = device.add_components();
    one->set_id("w/c");
    one->set_held_layers(held);
    one->set_target_layers(target);
    return one;
  };
  add(4, 2);
  add(2, 4);
  add(0, 0)->set_refused(true);
  add(4, 4)->set_lifetime(v1::LIFETIME_PERMANENT);
  const std::string text = PaintAll(ComponentLines(device), false);
  EXPECT_THAT(text, HasSubstr("releasing"));
  EXPECT_THAT(text, HasSubstr("loading ahead"));
  EXPECT_THAT(text, HasSubstr("refused: it does not fit"));
  EXPECT_THAT(text, HasSubstr("permanent, kept"));
}

TEST(ComponentLines, AReleaseSaysSinceWhenAndStandsOutPastItsDeadline) {
  v1::DevicePicture device;
  for (const bool overdue : {false, true}) {
    v1::ComponentPicture* one = device.add_components();
    one->set_id("w/c");
    one->set_session_id(overdue ? 7 : 3);
    one->set_held_layers(4);
    one->mutable_release_asked()->set_seconds(overdue ? 12 : 1);
    one->set_release_overdue(overdue);
  }
  const std::vector<Line> lines = ComponentLines(device);
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_THAT(Paint(lines[1], true),
              AllOf(HasSubstr("w/c of session 3"), HasSubstr("releasing for 1.0 s"),
                    Not(AnyOf(HasSubstr("overdue"), HasSubstr("\x1b")))));
  EXPECT_THAT(Paint(lines[2], false),
              AllOf(HasSubstr("w/c of session 7"), HasSubstr("releasing for 12.0 s, overdue")));
  EXPECT_THAT(Paint(lines[2], true), StartsWith("\x1b[1;31m"));
}

TEST(HostMemoryLines, SayOfWhomAndWhoIsBeyondTheBudget) {
  v1::Picture picture = SomePicture();
  v1::HostMemoryPicture* machine = picture.add_host_memory();
  machine->set_budget_known(true);
  machine->set_budget_bytes(8 * kGiB);
  machine->set_limit_bytes(16 * kGiB);
  EXPECT_THAT(HostMemoryLines(picture), IsEmpty()) << "nobody wishes to pin";
  machine->set_wished_bytes(9 * kGiB);
  machine->set_pinned_bytes(6 * kGiB);
  machine->set_allowed_bytes(5 * kGiB);
  machine->set_charged_bytes(8 * kGiB);
  v1::HostMemoryPicture* domain = picture.add_host_memory();
  domain->set_domain("cgroup:7");
  domain->set_charged_bytes(3 * kGiB);
  EXPECT_EQ(PaintAll(HostMemoryLines(picture), false),
            "  host memory of    pinned   allowed    wished     budget      limit  notes\n"
            "  the machine     6.00 GiB  5.00 GiB  9.00 GiB   8.00 GiB  16.00 GiB\n"
            "  cgroup:7             0 B       0 B       0 B  not known  not known\n");
  machine->set_charged_bytes(8 * kGiB + 1);
  EXPECT_THAT(PaintAll(PictureLines(picture, 80), false),
              HasSubstr("over budget: nobody is allowed more\n"));
}

TEST(Paint, CutsTheTextAndNotTheLook) {
  const Line line = {{"ab", Style::kAlarm}, {"cd"}, {"ef", Style::kHead}};
  EXPECT_EQ(Paint(line, false), "abcdef");
  EXPECT_EQ(Paint(line, false, 3), "abc");
  EXPECT_EQ(Paint(line, true), "\x1b[1;31mab\x1b[0mcd\x1b[1mef\x1b[0m");
  EXPECT_EQ(Paint(line, true, 1), "\x1b[1;31ma\x1b[0m");
  EXPECT_EQ(Paint(line, true, 0), "");
}

}  // namespace
}  // namespace vrambroker::ctl
