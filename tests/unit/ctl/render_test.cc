#include "broker/ctl/render.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace vrambroker::ctl {
namespace {

using testing::HasSubstr;

constexpr int64_t kGiB = int64_t{1} << 30;

TEST(RenderBytes, ChoosesTheUnit) {
  EXPECT_EQ(RenderBytes(0), "0 B");
  EXPECT_EQ(RenderBytes(1023), "1023 B");
  EXPECT_EQ(RenderBytes(1536), "1.5 KiB");
  EXPECT_EQ(RenderBytes(226701339), "216.2 MiB");
  EXPECT_EQ(RenderBytes(3 * kGiB / 2), "1.50 GiB");
}

TEST(RenderTable, AlignsColumns) {
  EXPECT_EQ(RenderTable({{"name", ">n"}, {"a", "10"}, {"longer", "7"}}),
            "  name     n\n  a       10\n  longer   7\n");
}

TEST(RenderTable, ShowsNamesAsTheyMayBeShown) {
  const std::string text = RenderTable({{"name", "text"},
                                        {"\x1b[31m", "a"},
                                        {std::string(40, 'w') + "/" + std::string(40, 'c'), "b"}});
  EXPECT_EQ(text,
            "  name                                              text\n"
            "  \\x1b[31m                                          a\n"
            "  wwwwwwwwwwwwwwwwwwwwwww..ccccccccccccccccccccccc  b\n");
  EXPECT_THAT(RenderTable({{"text"}, {std::string(100, 't')}}), HasSubstr(std::string(100, 't')));
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
