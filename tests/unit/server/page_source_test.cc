// The page of a whole server: what it shows is what the broker knows.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <atomic>
#include <string>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "broker/observe/unique_fd.h"
#include "broker/server/server.h"
#include "tests/http_get.h"
#include "tests/poll.h"
#include "tests/unit/server/server_fixture.h"

namespace vrambroker::server {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

class PageSourceTest : public ServerTest {
 protected:
  void StartWithPage() {
    Options options = MakeOptions();
    options.page_address = "127.0.0.1:0";
    Start(options);
  }
  std::string Get(const std::string& path) const { return HttpGet(server_->page_address(), path); }
};

// Reads events until this has come, for 20 s without anything at most.
bool ReadUntil(int fd, const std::string& wanted, std::string* all = nullptr) {
  const timeval patience{20, 0};
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
  std::string own;
  std::string& text = all == nullptr ? own : *all;
  char buffer[4096];
  while (text.find(wanted) == std::string::npos) {
    const ssize_t got = recv(fd, buffer, sizeof(buffer), 0);
    if (got <= 0) return false;
    text.append(buffer, static_cast<size_t>(got));
  }
  return true;
}

TEST_F(PageSourceTest, ShowsWhatIsDecidedAndWhy) {
  StartWithPage();
  Session session(Connect(), MakeAttach("w", 8));
  v1::BeginUseResponse begun;
  ASSERT_TRUE(session.BeginUse("b1", &begun, 10 * kMiB).ok());
  EXPECT_THAT(Get("/api/picture"),
              AllOf(StartsWith("HTTP/1.1 200"), HasSubstr("\"id\":\"w/c\""),
                    HasSubstr(absl::StrCat("\"in_use_bytes\":\"", 18 * kMiB, "\"")),
                    HasSubstr(absl::StrCat("\"layer_bytes\":\"", 8 * kMiB, "\""))));
  EXPECT_THAT(Get("/api/decisions?limit=1"),
              AllOf(HasSubstr("DECISION_KIND_GRANT"), HasSubstr("\"component_id\":\"w/c\"")));
  EXPECT_THAT(Get(absl::StrCat("/api/decisions?after=", begun.decision_id())),
              Not(HasSubstr("DECISION_KIND_GRANT")));
  EXPECT_THAT(Get(absl::StrCat("/api/explain?id=", begun.decision_id())),
              AllOf(StartsWith("HTTP/1.1 200"), HasSubstr("\"planned\":")));
  EXPECT_THAT(Get("/api/explain?id=999"), StartsWith("HTTP/1.1 404"));
}

TEST_F(PageSourceTest, WatchersSeeChangesAndTheEnd) {
  StartWithPage();
  const observe::UniqueFd fd(ConnectToLoopback(server_->page_address()));
  ASSERT_TRUE(fd.valid());
  const std::string request = "GET /api/events HTTP/1.1\r\nHost: localhost\r\n\r\n";
  ASSERT_EQ(send(fd.get(), request.data(), request.size(), MSG_NOSIGNAL),
            static_cast<ssize_t>(request.size()));
  EXPECT_TRUE(ReadUntil(fd.get(), "event: picture\ndata: {\"broker_epoch\":"));
  Session session(Connect(), MakeAttach("w", 8));
  EXPECT_TRUE(ReadUntil(fd.get(), "\"id\":\"w/c\""));
  v1::BeginUseResponse begun;
  ASSERT_TRUE(session.BeginUse("b1", &begun).ok());
  EXPECT_TRUE(ReadUntil(fd.get(), absl::StrCat("\"use_id\":\"", begun.use_id(), "\"")));
  const absl::Time began = absl::Now();
  server_->Stop();
  EXPECT_LT(absl::Now() - began, absl::Seconds(2));
  EXPECT_FALSE(ReadUntil(fd.get(), "event: never"));
}

// The driver is read fifty times a second meanwhile.
TEST_F(PageSourceTest, WatchersAreSentNothingWhileNothingButTheTimeChanges) {
  std::atomic<int> readings{0};
  Options options = MakeOptions();
  options.page_address = "127.0.0.1:0";
  ServerExtras extras;
  extras.log_descriptor = -1;
  extras.on_step = [&readings](const core::Event& event, absl::Duration) {
    readings += std::holds_alternative<core::ReadingEvent>(event) ? 1 : 0;
  };
  auto server = Server::Start(options, extras);
  ASSERT_TRUE(server.ok()) << server.status();
  server_ = *std::move(server);
  const observe::UniqueFd fd(ConnectToLoopback(server_->page_address()));
  const std::string request = "GET /api/events HTTP/1.1\r\nHost: localhost\r\n\r\n";
  ASSERT_EQ(send(fd.get(), request.data(), request.size(), MSG_NOSIGNAL),
            static_cast<ssize_t>(request.size()));
  ASSERT_TRUE(WaitFor([&] { return readings > 100; }));
  Session session(Connect(), MakeAttach("w", 8));
  std::string text;
  ASSERT_TRUE(ReadUntil(fd.get(), "\"id\":\"w/c\"", &text));
  const std::vector<std::string> pictures = absl::StrSplit(text, "event: picture");
  EXPECT_LE(pictures.size(), 4u) << "the first, with the first reading, and with the session";
  EXPECT_THAT(pictures.back(), HasSubstr(absl::StrCat("\"session_id\":\"", session.id(), "\"")));
}

TEST_F(PageSourceTest, APortThatIsTakenStopsABrokerThatWasAskedForIt) {
  StartWithPage();
  Options second = MakeOptions();
  second.listen[0].path += ".second";
  second.lock_dir += "/second";
  second.emulated_devices[0].name += "-second";
  second.page_address = server_->page_address();
  ServerExtras silent;
  silent.log_descriptor = -1;
  const auto refused = Server::Start(second, silent);
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(refused.status().message()), HasSubstr("--page-address"));
  second.page_if_possible = true;
  const auto without = Server::Start(second, silent);
  ASSERT_TRUE(without.ok()) << without.status();
  EXPECT_EQ((*without)->page_address(), "");
}

}  // namespace
}  // namespace vrambroker::server
