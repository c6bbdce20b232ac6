#include "broker/ctl/render.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace vrambroker::ctl {
namespace {

using testing::HasSubstr;
using testing::Not;

constexpr int64_t kGiB = int64_t{1} << 30;

TEST(RenderBytes, ChoosesTheUnit) {
  EXPECT_EQ(RenderBytes(0), "0 B");
  EXPECT_EQ(RenderBytes(1023), "1023 B");
  EXPECT_EQ(RenderBytes(1536), "1.5 KiB");
  EXPECT_EQ(RenderBytes(226701339), "216.2 MiB");
  EXPECT_EQ(RenderBytes(3 * kGiB / 2), "1.50 GiB");
}

TEST(RenderBar, ShowsShares) {
  EXPECT_EQ(RenderBar(0, 10, 10), "");
  EXPECT_EQ(RenderBar(5, 10, 10), "#####");
  EXPECT_EQ(RenderBar(1, 1000000, 10), "#");
  EXPECT_EQ(RenderBar(99, 10, 10), "##########");
  EXPECT_EQ(RenderBar(1, 0, 10), "");
}

TEST(RenderTable, AlignsColumns) {
  EXPECT_EQ(RenderTable({{"name", ">n"}, {"a", "10"}, {"longer", "7"}}),
            "  name     n\n  a       10\n  longer   7\n");
}

v1::Picture SomePicture() {
  v1::Picture picture;
  v1::DevicePicture* device = picture.add_devices();
  device->set_uuid("emulated:a");
  device->set_capacity_bytes(24 * kGiB);
  device->set_in_use_bytes(12 * kGiB);
  device->set_free_bytes(12 * kGiB);
  v1::ComponentPicture* component = device->add_components();
  component->set_id("te-0/text_encoder");
  component->set_layers(66);
  component->set_held_layers(53);
  component->set_use_id(7);
  component->set_granted_layers(53);
  component->set_generation(4);
  v1::SessionPicture* session = picture.add_sessions();
  session->set_worker("te-0");
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

TEST(RenderPicture, NamesEverything) {
  const std::string text = RenderPicture(SomePicture());
  EXPECT_THAT(text, HasSubstr("emulated:a  24.00 GiB"));
  EXPECT_THAT(text, HasSubstr("in use          12.00 GiB  50.0 %  ####################\n"));
  EXPECT_THAT(text, HasSubstr("external        not known"));
  EXPECT_THAT(text, HasSubstr("te-0/text_encoder"));
  EXPECT_THAT(text, HasSubstr("use 7, converging"));
  EXPECT_THAT(text, HasSubstr("4711  lost"));
  EXPECT_THAT(text, HasSubstr("under-released"));
  EXPECT_THAT(text, HasSubstr("0.5 s"));
  EXPECT_THAT(text, HasSubstr("use 7 of te-0/text_encoder"));
  EXPECT_THAT(text, Not(HasSubstr("overcommitted")));
}

TEST(RenderPicture, SaysWhenItDrainsAndWhenItIsOvercommitted) {
  v1::Picture picture = SomePicture();
  picture.set_draining(true);
  picture.mutable_devices(0)->set_overcommitted_bytes(kGiB);
  const std::string text = RenderPicture(picture);
  EXPECT_THAT(text, HasSubstr("draining: no use is admitted"));
  EXPECT_THAT(text, HasSubstr("overcommitted"));
}

TEST(RenderDecisions, IsOneLineEach) {
  EXPECT_EQ(RenderDecisions({}), "no decisions yet\n");
  v1::ListDecisionsResponse decisions;
  v1::Decision* decision = decisions.add_decisions();
  decision->set_id(9);
  decision->set_kind(v1::DECISION_KIND_RETENTION);
  decision->set_reason(v1::REASON_KEPT_FOR_NEXT_USE);
  decision->set_component_id("te-0/text_encoder");
  decision->set_layers(53);
  decision->set_component_layers(66);
  const std::string text = RenderDecisions(decisions);
  EXPECT_THAT(text, HasSubstr("retention"));
  EXPECT_THAT(text, HasSubstr("53/66"));
  EXPECT_THAT(text, HasSubstr("kept_for_next_use"));
}

}  // namespace
}  // namespace vrambroker::ctl
