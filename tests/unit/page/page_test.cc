// The page over real sockets: what is answered to what, within which bounds.
#include "broker/page/page.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "broker/observe/unique_fd.h"
#include "tests/http_get.h"
#include "tests/poll.h"

namespace vrambroker::page {
namespace {

using observe::UniqueFd;
using testing::AllOf;
using testing::AnyOf;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::StartsWith;

// Sends what is given, and what comes back until the other side ends.
std::string Talk(const std::string& address, const std::string& sent) {
  const UniqueFd fd(ConnectToLoopback(address));
  if (!fd.valid()) return "no connection";
  (void)!send(fd.get(), sent.data(), sent.size(), MSG_NOSIGNAL);
  std::string answer;
  char buffer[4096];
  for (ssize_t n; (n = recv(fd.get(), buffer, sizeof(buffer), 0)) > 0;) {
    answer.append(buffer, static_cast<size_t>(n));
  }
  return answer;
}

std::string Request(const std::string& method, const std::string& path, const std::string& host) {
  return absl::StrCat(method, " ", path, " HTTP/1.1\r\nHost: ", host, "\r\n\r\n");
}

// One who watches /api/events, and reads when it is told to.
class Browser {
 public:
  explicit Browser(const std::string& address) : fd_(ConnectToLoopback(address)) {
    const std::string request = Request("GET", "/api/events", address);
    (void)!send(fd_.get(), request.data(), request.size(), MSG_NOSIGNAL);
    timeval patience{20, 0};
    setsockopt(fd_.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
  }
  // Reads until this has come; false: the end, or 20 s without anything.
  bool ReadUntil(const std::string& wanted) {
    char buffer[65536];
    for (size_t from = 0; text_.find(wanted, from) == std::string::npos;) {
      const ssize_t got = recv(fd_.get(), buffer, sizeof(buffer), 0);
      if (got <= 0) return false;
      from = text_.size() - std::min(text_.size(), wanted.size());
      text_.append(buffer, static_cast<size_t>(got));
    }
    return true;
  }
  const std::string& text() const { return text_; }
  void Forget() { text_.clear(); }

 private:
  const UniqueFd fd_;
  std::string text_;
};

class PageTest : public testing::Test {
 protected:
  PageTest() {
    sources_.picture = [] { return Sources::Answer(R"({"picture":1})"); };
    sources_.decisions = [](uint64_t after, int limit) {
      return Sources::Answer(absl::StrCat("[", after, ",", limit, "]"));
    };
    sources_.explanation = [](uint64_t id) -> Sources::Answer {
      if (id > 9) return absl::NotFoundError("decisions 1 to 9 are known");
      return absl::StrCat("{\"id\":", id, "}");
    };
    sources_.watch.begin = [this](const std::shared_ptr<Watchers>&) {
      ++begun_;
      return absl::OkStatus();
    };
    sources_.watch.end = [this] { ++ended_; };
  }

  void Open(const Limits& limits = {}) {
    auto opened = Page::Open("127.0.0.1:0", sources_, limits);
    ASSERT_TRUE(opened.ok()) << opened.status();
    page_ = *std::move(opened);
  }
  const std::string& address() const { return page_->address(); }
  std::string Get(const std::string& path) const { return HttpGet(address(), path); }
  void Publish(const std::string& text) {
    page_->watchers()->Publish(std::make_shared<Frame>([this, text] {
      ++made_;
      return text;
    }));
  }
  bool Watching(size_t count) {
    return WaitFor([&] { return page_->watchers()->count() == count; });
  }

  Sources sources_;
  std::atomic<int> begun_{0};
  std::atomic<int> ended_{0};
  std::atomic<int> made_{0};
  std::unique_ptr<Page> page_;
};

TEST_F(PageTest, ServesItsFilesWithTheirTypes) {
  Open();
  EXPECT_THAT(Get("/"), AllOf(StartsWith("HTTP/1.1 200"), HasSubstr("text/html; charset=utf-8"),
                              HasSubstr("<!doctype html>")));
  EXPECT_THAT(Get("/page.js"), HasSubstr("Content-Type: text/javascript"));
  EXPECT_THAT(Get("/page.css"), HasSubstr("Content-Type: text/css"));
  EXPECT_THAT(Get("/icon.svg"), HasSubstr("Content-Type: image/svg+xml"));
}

TEST_F(PageTest, ThePageNamesNoOtherHostAndHasNothingInline) {
  Open();
  const std::string page = BodyOf(Get("/"));
  for (const char* never : {"http:", "https:", "style=", "<style", "onclick", "<script>"}) {
    EXPECT_THAT(page, Not(HasSubstr(never)));
  }
}

TEST_F(PageTest, AnswersWhatIsAsked) {
  Open();
  EXPECT_THAT(Get("/api/picture"),
              AllOf(HasSubstr("application/json"), HasSubstr("\r\n\r\n{\"picture\":1}")));
  EXPECT_EQ(BodyOf(Get("/api/decisions")), "[0,100]");
  EXPECT_EQ(BodyOf(Get("/api/decisions?after=18446744073709551615&limit=4096")),
            "[18446744073709551615,4096]");
  EXPECT_EQ(BodyOf(Get("/api/explain?id=9")), "{\"id\":9}");
}

TEST_F(PageTest, SaysWhatIsWrongWithAQuestion) {
  Open();
  const struct {
    const char* path;
    const char* status;
    const char* why;
  } kCases[] = {
      {"/api/decisions?limit=0", "400", "limit: '0' given, 1 to 4096 is allowed"},
      {"/api/decisions?limit=4097", "400", "limit: '4097' given"},
      {"/api/decisions?after=-1", "400", "after: '-1' given"},
      {"/api/explain", "400", "id: the id of a decision is needed"},
      {"/api/explain?id=x", "400", "id: 'x' given, 1 to"},
      {"/api/explain?id=10", "404", "decisions 1 to 9 are known"},
      {"/other", "404", "nothing is at /other"},
      {"/../options.cc", "404", "nothing is at"},
      {"/%2e%2e/etc/passwd", "404", "nothing is at"},
  };
  for (const auto& one : kCases) {
    EXPECT_THAT(Get(one.path), AllOf(StartsWith(absl::StrCat("HTTP/1.1 ", one.status)),
                                     HasSubstr("text/plain"), HasSubstr(one.why)))
        << one.path;
  }
}

TEST_F(PageTest, EveryAnswerIsSafeToShow) {
  Open();
  for (const char* path : {"/", "/api/picture", "/none", "/api/explain?id=10"}) {
    EXPECT_THAT(
        Get(path),
        AllOf(HasSubstr("Content-Security-Policy: default-src 'none'; script-src 'self';"),
              HasSubstr("X-Content-Type-Options: nosniff"), HasSubstr("X-Frame-Options: DENY"),
              HasSubstr("Cache-Control: no-store"), HasSubstr("Referrer-Policy: no-referrer"),
              Not(HasSubstr("Access-Control-Allow"))))
        << path;
  }
}

TEST_F(PageTest, ChangesNothing) {
  Open();
  for (const char* method : {"POST", "PUT", "DELETE", "PATCH", "OPTIONS"}) {
    const std::string answer = Talk(address(), Request(method, "/api/picture", address()));
    EXPECT_THAT(answer, StartsWith("HTTP/1.1 405")) << method;
    EXPECT_THAT(answer, HasSubstr("Allow: GET, HEAD")) << method;
  }
  const std::string body = absl::StrCat("POST / HTTP/1.1\r\nHost: ", address(),
                                        "\r\nContent-Length: 9999999999\r\n\r\nxyz");
  EXPECT_THAT(Talk(address(), body), StartsWith("HTTP/1.1 405"));
}

TEST_F(PageTest, HeadHasNoBody) {
  Open();
  for (const char* path : {"/", "/api/picture", "/api/events"}) {
    const std::string answer = Talk(address(), Request("HEAD", path, address()));
    EXPECT_THAT(answer, StartsWith("HTTP/1.1 200")) << path;
    EXPECT_THAT(BodyOf(answer), IsEmpty()) << path;
  }
  EXPECT_EQ(begun_, 0) << "nobody watches";
}

TEST_F(PageTest, OnALoopbackAddressRequestsAreToOne) {
  Open();
  for (const char* good :
       {"localhost", "LOCALHOST:8080", "127.0.0.1", "127.1.2.3:9465", "[::1]", "[::1]:9465"}) {
    EXPECT_THAT(Talk(address(), Request("GET", "/api/picture", good)), StartsWith("HTTP/1.1 200"))
        << good;
  }
  for (const char* bad : {"evil.example", "evil.example:9465", "127.0.0.1.evil.example",
                          "localhost.evil.example", "10.0.0.1", "[::2]", "127.0.0.1:x", ""}) {
    EXPECT_THAT(Talk(address(), Request("GET", "/api/picture", bad)),
                AllOf(StartsWith("HTTP/1.1 400"), HasSubstr("Host"), Not(HasSubstr("picture"))))
        << bad;
  }
  EXPECT_THAT(Talk(address(), "GET /api/picture HTTP/1.1\r\n\r\n"), StartsWith("HTTP/1.1 400"));
  EXPECT_THAT(
      Talk(address(), "GET /api/picture HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n"),
      StartsWith("HTTP/1.1 400"));
}

TEST_F(PageTest, OnAnotherAddressAnyNameWillDo) {
  auto opened = Page::Open("0.0.0.0:0", sources_);
  ASSERT_TRUE(opened.ok()) << opened.status();
  EXPECT_THAT(Talk((*opened)->address(), Request("GET", "/api/picture", "node-7.example")),
              StartsWith("HTTP/1.1 200"));
}

TEST_F(PageTest, ATakenAddressIsNamedWithWhatToDo) {
  Open();
  const auto second = Page::Open(address(), sources_);
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(second.status().message()),
              AllOf(HasSubstr(address()), HasSubstr("Address already in use"),
                    HasSubstr("--page-address")));
  EXPECT_EQ(Page::Open("somewhere:1", sources_).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST_F(PageTest, ARequestHasABoundInBytesAndTime) {
  Limits limits;
  limits.request_time = absl::Milliseconds(200);
  Open(limits);
  std::string many = "GET / HTTP/1.1\r\nHost: localhost\r\n";
  for (int i = 0; i < 400; ++i) absl::StrAppend(&many, "X-", i, ": ", std::string(60, 'x'), "\r\n");
  EXPECT_THAT(Talk(address(), many), AnyOf(StartsWith("HTTP/1.1 431"), StartsWith("HTTP/1.1 400")));
  EXPECT_THAT(Talk(address(), Request("GET", "/" + std::string(9000, 'a'), "localhost")),
              AnyOf(StartsWith("HTTP/1.1 414"), StartsWith("HTTP/1.1 400"), IsEmpty()));
  // Says nothing, or not all: the broker hangs up.
  EXPECT_THAT(Talk(address(), ""), AnyOf(StartsWith("HTTP/1.1 408"), IsEmpty()));
  EXPECT_THAT(Talk(address(), "GET / HT"), AnyOf(StartsWith("HTTP/1.1 408"), IsEmpty()));
  EXPECT_THAT(Talk(address(), std::string(100, '\0') + "\r\n\r\n"),
              AnyOf(StartsWith("HTTP/1.1 400"), IsEmpty()));
  EXPECT_THAT(Get("/api/picture"), StartsWith("HTTP/1.1 200")) << "and serves the next";
}

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
  EXPECT_TRUE(browser.ReadUntil("event: alive\ndata: 1"));
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
  EXPECT_TRUE(again.ReadUntil("event: alive"));
  EXPECT_THAT(again.text(), Not(HasSubstr("event: picture"))) << "an old one is not shown as new";
}

TEST_F(PageTest, The33rdWatcherIsRefusedWithTheReason) {
  Open();
  std::vector<std::unique_ptr<Browser>> browsers;
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

TEST_F(PageTest, PastTheBoundOfConnectionsTheAnswerIs503) {
  Limits limits;
  limits.connections = 2;
  Open(limits);
  Browser one(address()), two(address());
  ASSERT_TRUE(Watching(2));
  EXPECT_THAT(Get("/api/picture"),
              AllOf(StartsWith("HTTP/1.1 503"), HasSubstr("as many connections")));
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
  EXPECT_TRUE(quick.ReadUntil("event: alive"));
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

TEST_F(PageTest, EndsAtOnce) {
  Open();
  std::vector<std::unique_ptr<Browser>> browsers;
  for (int i = 0; i < 8; ++i) browsers.push_back(std::make_unique<Browser>(address()));
  ASSERT_TRUE(Watching(8));
  const UniqueFd silent(ConnectToLoopback(address()));
  const std::shared_ptr<Watchers> watchers = page_->watchers();
  const absl::Time began = absl::Now();
  page_.reset();
  EXPECT_LT(absl::Now() - began, absl::Seconds(1));
  EXPECT_EQ(watchers->count(), 0u);
  EXPECT_FALSE(watchers->Add().ok());
  for (const auto& browser : browsers) EXPECT_FALSE(browser->ReadUntil("event: never"));
}

}  // namespace
}  // namespace vrambroker::page
