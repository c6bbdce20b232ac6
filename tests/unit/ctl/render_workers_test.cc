#include "broker/ctl/render_workers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "broker/ctl/drain_command.h"

namespace vrambroker::ctl {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

constexpr int64_t kMiB = 1 << 20;

void AddComponent(const std::string& id, uint64_t session, int64_t held, uint64_t use,
                  v1::DevicePicture* device) {
  v1::ComponentPicture* one = device->add_components();
  one->set_id(id);
  one->set_session_id(session);
  one->set_held_bytes(held);
  one->set_charge_bytes(held + kMiB);
  one->set_use_id(use);
}

void AddSession(const std::string& worker, int pid, v1::SessionState state, v1::Picture* picture) {
  v1::SessionPicture* session = picture->add_sessions();
  session->set_worker(worker);
  session->set_session_id(static_cast<uint64_t>(picture->sessions_size()));
  session->set_pid(pid);
  session->set_state(state);
}

v1::Picture SomePicture() {
  v1::Picture picture;
  v1::DevicePicture* a = picture.add_devices();
  a->set_uuid("emulated:a");
  AddComponent("te-0/clip", 1, 10 * kMiB, 7, a);
  AddComponent("te-0/t5", 1, 30 * kMiB, 0, a);
  AddComponent("te-01/t5", 2, 5 * kMiB, 0, a);
  AddSession("te-0", 4711, v1::SESSION_STATE_ATTACHED, &picture);
  AddSession("te-01", 12, v1::SESSION_STATE_LOST, &picture);
  AddSession("driver", 99, v1::SESSION_STATE_ATTACHED, &picture);
  picture.mutable_sessions(0)->set_unexplained_bytes(3 * kMiB);
  picture.mutable_sessions(0)->set_pool_bytes(2 * kMiB);
  picture.mutable_sessions(1)->set_overdue_targets(2);
  return picture;
}

TEST(WorkersTest, TheTableHasAllFiguresInColumns) {
  EXPECT_EQ(WorkersTable(WorkersOf(SomePicture())),
            "  worker   pid  state     device      uses      held    charge     pool  unexplained  "
            "overdue  notes\n"
            "  te-0    4711  attached  emulated:a     1  40.0 MiB  42.0 MiB  2.0 MiB      3.0 MiB  "
            "      0  3.0 MiB unexplained\n"
            "  te-01     12  lost      emulated:a     0   5.0 MiB   6.0 MiB      0 B          0 B  "
            "      2  2 overdue\n"
            "  driver    99  attached  -              0       0 B       0 B      0 B          0 B  "
            "      0\n");
  EXPECT_EQ(WorkersTable({}), "no workers\n");
}

TEST(WorkersTest, OfTwoSessionsOfOneNameEachHasItsOwnFigures) {
  v1::Picture picture = SomePicture();
  AddSession("te-0", 4712, v1::SESSION_STATE_LOST, &picture);
  AddComponent("te-0/clip", 4, 9 * kMiB, 0, picture.mutable_devices(0));
  const std::vector<WorkerRow> rows = WorkersOf(picture);
  ASSERT_EQ(rows.size(), 4u);
  EXPECT_EQ(rows[0].held_bytes, 40 * kMiB);
  EXPECT_EQ(rows[3].held_bytes, 9 * kMiB);
}

TEST(WorkersTest, WhatIsPinnedBeyondTheAllowanceIsNamed) {
  v1::Picture picture = SomePicture();
  v1::SessionPicture* session = picture.mutable_sessions(2);
  session->set_pinned_host_bytes(3 * kMiB);
  session->set_pin_wish_bytes(4 * kMiB);
  session->set_pin_allowance_bytes(3 * kMiB);
  EXPECT_THAT(WorkersTable(WorkersOf(picture)), Not(HasSubstr("pinned")));
  const std::string json = WorkersJson(WorkersOf(picture));
  for (const char* field : {"\"pinned_host_bytes\": 3145728", "\"pin_wish_bytes\": 4194304",
                            "\"pin_allowance_bytes\": 3145728"}) {
    EXPECT_THAT(json, HasSubstr(field));
  }
  session->set_pin_allowance_bytes(kMiB);
  EXPECT_THAT(WorkersTable(WorkersOf(picture)),
              HasSubstr("2.0 MiB of host memory pinned beyond its allowance"));
}

TEST(WorkersTest, JsonIsValidWhateverTheNames) {
  v1::Picture picture = SomePicture();
  picture.mutable_sessions(0)->set_worker("\xff\n\"");
  const std::string json = WorkersJson(WorkersOf(picture));
  EXPECT_THAT(json, HasSubstr("\"worker\": \"\xef\xbf\xbd\\n\\\"\"")) << "U+FFFD for the byte";
  EXPECT_THAT(json, HasSubstr("\"unexplained_bytes\": 3145728"));
}

TEST(RunsTest, AreCountedAndListed) {
  EXPECT_EQ(RenderRuns({}), "no declared runs\n");
  v1::ListRunsResponse runs;
  uint64_t id = 9;
  for (int i = 0; i < 3; ++i) {
    v1::RunPicture* run = runs.add_runs();
    run->set_run_id(id++);
    run->set_pipeline("images");
    run->set_driver("driver\x1b");
    run->set_stages(3);
    run->set_next_stage(i == 0 ? 3 : 2 - i);
    run->set_started(i < 2);
  }
  EXPECT_EQ(RenderRuns(runs),
            "3 runs: 2 started, 1 waits\n"
            "  pipeline  run  driver      next stage  state\n"
            "  images      9  driver\\x1b   none left  started\n"
            "  images     10  driver\\x1b      2 of 3  started\n"
            "  images     11  driver\\x1b      1 of 3  waits\n");
}

TEST(DrainStateTest, CountsUsesAndWhatIsKeptBetweenThem) {
  v1::Picture picture = SomePicture();
  AddComponent("vae/vae", 3, kMiB, 0, picture.mutable_devices(0));
  picture.mutable_devices(0)->mutable_components(3)->set_lifetime(v1::LIFETIME_PERMANENT);
  picture.set_draining(true);
  const DrainState state = DrainStateOf(picture);
  EXPECT_TRUE(state.draining);
  EXPECT_THAT(state.running, ElementsAre("te-0/clip"));
  EXPECT_EQ(state.keeping, 2) << "permanent sets stay";
  EXPECT_EQ(state.kept_bytes, 35 * kMiB);
  EXPECT_EQ(DrainProgress(state),
            "1 use runs (te-0/clip), 35.0 MiB kept by 2 components without a use");
}

TEST(DrainStateTest, NamesFewAndCountsTheOthers) {
  DrainState state;
  EXPECT_EQ(DrainProgress(state), "no use runs, nothing is kept between uses");
  state.running = {"a", "b", "c", "d", "e", "f"};
  EXPECT_EQ(DrainProgress(state),
            "6 uses run (a, b, c, d and 2 more), nothing is kept between uses");
}

}  // namespace
}  // namespace vrambroker::ctl
