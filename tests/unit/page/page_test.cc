// What is answered to what, within which bounds.
#include "broker/page/page.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "tests/unit/page/page_fixture.h"

namespace vrambroker::page {
namespace {

using testing::AllOf;
using testing::AnyOf;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::StartsWith;

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
      {"/a%1b%5b31m%0d%0aSet-Cookie:x", "404", "nothing is at /a\\x1b[31m\\r\\nSet-Cookie:x"},
      {"/api/decisions?after=%00%9b", "400", "after: '\\x00\\x9b' given"},
      {"/api/decisions?limit=1&limit=1", "400", "limit: given twice, once is allowed"},
      {"/api/decisions?limit=1&limit=2", "400", "limit: given twice, once is allowed"},
      {"/api/decisions?limits=1", "400",
       "'limits' is no key of the query here; after, limit are allowed"},
      {"/api/explain?id=1&x%07=1", "400", "'x\\x07' is no key of the query here; id is allowed"},
      {"/api/picture?now=1", "400", "'now' is no key of the query here; none is allowed"},
      {"/api/events?after=1", "400", "'after' is no key"},
      {"/?devices=a", "400", "'devices' is no key of the query here; device, from, to are allowed"},
  };
  for (const auto& one : kCases) {
    EXPECT_THAT(Get(one.path), AllOf(StartsWith(absl::StrCat("HTTP/1.1 ", one.status)),
                                     HasSubstr("text/plain"), HasSubstr(one.why)))
        << one.path;
  }
  EXPECT_THAT(Get("/?device=GPU-0&from=1&to=2"), StartsWith("HTTP/1.1 200"));
}

TEST_F(PageTest, WhatARequestBringsAlongHasALengthThatCanBe) {
  Open();
  const auto with = [this](const std::string& headers) {
    return Talk(address(), absl::StrCat("GET /api/picture HTTP/1.1\r\nHost: ", address(), "\r\n",
                                        headers, "\r\n"));
  };
  EXPECT_THAT(with("Content-Length: 0\r\n"), StartsWith("HTTP/1.1 200"));
  EXPECT_THAT(with("Content-Length: 3\r\n"), StartsWith("HTTP/1.1 200"));
  for (const char* bad : {"-1", "16385", "99999999999999999999", "1x", "0x10", "1, 1"}) {
    EXPECT_THAT(with(absl::StrCat("Content-Length: ", bad, "\r\n")),
                AllOf(StartsWith("HTTP/1.1 400"),
                      HasSubstr(absl::StrCat("Content-Length: '", bad, "' given"))));
  }
  EXPECT_THAT(with("Content-Length: 1\r\nContent-Length: 2\r\n"),
              AllOf(StartsWith("HTTP/1.1 400"), HasSubstr("given more than once")));
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
  EXPECT_THAT(Talk(address(), body), StartsWith("HTTP/1.1 400"));
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

TEST_F(PageTest, PastTheBoundOfConnectionsTheAnswerIs503) {
  Limits limits;
  limits.connections = 2;
  Open(limits);
  Browser one(address()), two(address());
  ASSERT_TRUE(Watching(2));
  EXPECT_THAT(Get("/api/picture"),
              AllOf(StartsWith("HTTP/1.1 503"), HasSubstr("as many connections")));
}

TEST_F(PageTest, EndsAtOnce) {
  Open();
  std::vector<std::unique_ptr<Browser>> browsers;
  browsers.reserve(8);
  for (int i = 0; i < 8; ++i) browsers.push_back(std::make_unique<Browser>(address()));
  ASSERT_TRUE(Watching(8));
  const UniqueFd silent(ConnectToLoopback(address()));
  const std::shared_ptr<Watchers> watchers = page_->watchers();
  const absl::Time began = absl::Now();
  page_.reset();
  EXPECT_LT(absl::Now() - began, absl::Seconds(1));
  EXPECT_EQ(watchers->count(), 0u);
  EXPECT_FALSE(watchers->Add(absl::ZeroDuration()).ok());
  for (const auto& browser : browsers) EXPECT_FALSE(browser->ReadUntil("event: never"));
}

}  // namespace
}  // namespace vrambroker::page
