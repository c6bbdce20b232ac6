// Who watches /api/events: what each is sent, and when its place is free again.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "broker/page/watchers.h"
#include "tests/unit/page/page_fixture.h"

namespace vrambroker::page {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

TEST_F(PageTest, WatchersGetTheNewestPictureMadeOnceForAll) {
  Open();
  Browser first(address()), second(address());
  ASSERT_TRUE(Watching(2));
  Publish(R"({"n":1})");
  EXPECT_TRUE(first.ReadUntil("event: picture\ndata: {\"n\":1}\n\n"));
  EXPECT_TRUE(second.ReadUntil("event: picture\ndata: {\"n\":1}\n\n"));
  EXPECT_THAT(first.text(), HasSubstr("Content-Type: text/event-stream"));
  EXPECT_EQ(made_, 1);
  EXPECT_EQ(begun_, 1) << "one source for all";
  Publish(R"({"n":2})");
  EXPECT_TRUE(first.ReadUntil("{\"n\":2}"));
}

TEST_F(PageTest, AWatcherHearsThatTheBrokerIsThere) {
  Limits limits;
  limits.alive = absl::Milliseconds(10);
  Open(limits);
  Browser browser(address());
  EXPECT_TRUE(browser.ReadUntil("\n: the broker is there\n\n"));
  EXPECT_THAT(browser.text(), Not(HasSubstr("event:"))) << "nothing has happened";
}

TEST_F(PageTest, WhenTheLastOneLeavesNoPictureIsWanted) {
  Limits limits;
  limits.alive = absl::Milliseconds(10);
  Open(limits);
  {
    Browser browser(address());
    ASSERT_TRUE(Watching(1));
    Publish("{}");
    ASSERT_TRUE(browser.ReadUntil("event: picture"));
  }
  EXPECT_TRUE(Watching(0));
  EXPECT_EQ(ended_, 1);
  Browser again(address());
  ASSERT_TRUE(Watching(1));
  EXPECT_EQ(begun_, 2);
  EXPECT_TRUE(again.ReadUntil(": the broker is there"));
  EXPECT_THAT(again.text(), Not(HasSubstr("event: picture"))) << "an old one is not shown as new";
}

TEST_F(PageTest, WhoComesLaterIsShownHowItIsThen) {
  Limits limits;
  limits.alive = absl::Milliseconds(10);
  Open(limits);
  Browser first(address());
  ASSERT_TRUE(Watching(1));
  Publish(R"({"n":1})");
  ASSERT_TRUE(first.ReadUntil("{\"n\":1}"));
  EXPECT_EQ(renewed_, 0);
  Browser second(address());
  ASSERT_TRUE(Watching(2));
  EXPECT_EQ(renewed_, 1) << "a picture of now is asked for";
  EXPECT_TRUE(second.ReadUntil(": the broker is there"));
  EXPECT_THAT(second.text(), Not(HasSubstr("{\"n\":1}"))) << "it may be of hours ago";
  Publish(R"({"n":2})");
  EXPECT_TRUE(second.ReadUntil("{\"n\":2}"));
}

// Without anything to send: a connection that is closed tells by itself.
TEST_F(PageTest, ThePlaceOfOneWhoHasLeftIsFreeForTheNext) {
  Limits limits;
  limits.watchers = 2;
  limits.alive = absl::Hours(1);
  Open(limits);
  auto leaving = std::make_unique<Browser>(address());
  Browser staying(address());
  ASSERT_TRUE(Watching(2));
  leaving.reset();
  Browser next(address());
  EXPECT_TRUE(next.ReadUntil("200 OK"));
  EXPECT_TRUE(Watching(2));
  Publish("{}");
  EXPECT_TRUE(next.ReadUntil("event: picture"));
  EXPECT_TRUE(staying.ReadUntil("event: picture"));
}

TEST_F(PageTest, The33rdWatcherIsRefusedWithTheReason) {
  Open();
  std::vector<std::unique_ptr<Browser>> browsers;
  browsers.reserve(32);
  for (int i = 0; i < 32; ++i) browsers.push_back(std::make_unique<Browser>(address()));
  ASSERT_TRUE(Watching(32));
  Browser refused(address());
  EXPECT_TRUE(refused.ReadUntil("32 watch this page, at most 32 may"));
  EXPECT_THAT(refused.text(), AllOf(StartsWith("HTTP/1.1 503"), HasSubstr("Retry-After: 5")));
  EXPECT_THAT(Get("/api/picture"), StartsWith("HTTP/1.1 200")) << "others are served";
  Publish("{}");
  for (const auto& browser : browsers) EXPECT_TRUE(browser->ReadUntil("event: picture"));
  EXPECT_EQ(made_, 1);
}

TEST_F(PageTest, ASlowReaderHoldsNobodyUpAndIsCutOff) {
  Limits limits;
  limits.write_time = absl::Seconds(1);
  limits.alive = absl::Milliseconds(20);
  Open(limits);
  Browser slow(address()), quick(address());
  ASSERT_TRUE(Watching(2));
  const std::string large(4 << 20, 'x');
  int number = 0;
  // More than the sockets take, while `slow` reads nothing.
  for (int i = 0; i < 4; ++i) {
    const std::string text = absl::StrCat("[", ++number, ",\"", large, "\"]");
    const absl::Time began = absl::Now();
    Publish(text);
    EXPECT_LT(absl::Now() - began, absl::Milliseconds(500)) << "publishing waits for nobody";
    EXPECT_TRUE(quick.ReadUntil(absl::StrCat("data: [", number, ",")));
    EXPECT_TRUE(quick.ReadUntil("x\"]\n"));
    quick.Forget();
  }
  EXPECT_TRUE(Watching(1)) << "the slow one is gone, the other one stays";
  EXPECT_TRUE(quick.ReadUntil(": the broker is there"));
}

TEST_F(PageTest, ASourceThatDoesNotBeginIsSaid) {
  sources_.watch.begin = [](const std::shared_ptr<Watchers>&) {
    return absl::ResourceExhaustedError("64 watch the picture");
  };
  Open();
  Browser browser(address());
  EXPECT_TRUE(browser.ReadUntil("64 watch the picture"));
  EXPECT_THAT(browser.text(), StartsWith("HTTP/1.1 503"));
  EXPECT_EQ(page_->watchers()->count(), 0u);
}

}  // namespace
}  // namespace vrambroker::page
