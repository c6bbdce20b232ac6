// The page over real sockets, before sources of the test.
#pragma once

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "broker/observe/unique_fd.h"
#include "broker/page/page.h"
#include "tests/http_get.h"
#include "tests/poll.h"

namespace vrambroker::page {

using observe::UniqueFd;

// Sends what is given, and what comes back until the other side ends.
inline std::string Talk(const std::string& address, const std::string& sent) {
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

inline std::string Request(const std::string& method, const std::string& path,
                           const std::string& host) {
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
    sources_.watch.renew = [this] { ++renewed_; };
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
  std::atomic<int> renewed_{0};
  std::atomic<int> ended_{0};
  std::atomic<int> made_{0};
  std::unique_ptr<Page> page_;
};

}  // namespace vrambroker::page
