// The endpoint over real sockets.
#include "broker/observe/metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <algorithm>
#include <string>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "broker/observe/host_and_port.h"
#include "broker/observe/unique_fd.h"
#include "tests/http_get.h"

namespace vrambroker::observe {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;

std::string Get(const std::string& address, const std::string& path = "/metrics") {
  return HttpGet(address, path);
}

Observation OneDevice() {
  Observation seen;
  core::DevicePicture device;
  device.uuid = "GPU-1";
  device.ledger.capacity = core::Bytes(1000);
  seen.picture.devices.push_back(device);
  return seen;
}

std::shared_ptr<Metrics> AtOnce() {
  return std::make_shared<Metrics>([](const Metrics::Take& take) { take(OneDevice()); });
}

TEST(MetricsEndpoint, AScrapeGetsWhatIsSoAtThatMoment) {
  int looks = 0;
  auto metrics = std::make_shared<Metrics>([&](const Metrics::Take& take) {
    Observation seen = OneDevice();
    seen.mailbox_waiting = static_cast<size_t>(++looks);
    take(std::move(seen));
  });
  auto endpoint = MetricsEndpoint::Open("127.0.0.1:0", metrics);
  ASSERT_TRUE(endpoint.ok()) << endpoint.status();
  const std::string first = Get((*endpoint)->address());
  EXPECT_THAT(first, HasSubstr("200 OK"));
  EXPECT_THAT(first, HasSubstr("\nvram_broker_device_bytes{UUID=\"GPU-1\",class=\"free\"} 1000\n"));
  EXPECT_THAT(first, HasSubstr("\nvram_broker_mailbox_waiting 1\n"));
  EXPECT_THAT(Get((*endpoint)->address()), HasSubstr("\nvram_broker_mailbox_waiting 2\n"));
  EXPECT_THAT(Get((*endpoint)->address(), "/other"), HasSubstr("404"));
}

TEST(MetricsEndpoint, ChangesNothingAndSaysWhatIsAllowed) {
  auto endpoint = MetricsEndpoint::Open("127.0.0.1:0", AtOnce());
  ASSERT_TRUE(endpoint.ok()) << endpoint.status();
  for (const char* method : {"POST", "PUT", "DELETE", "OPTIONS"}) {
    const UniqueFd fd(ConnectToLoopback((*endpoint)->address()));
    const std::string request =
        absl::StrCat(method, " /metrics HTTP/1.1\r\nHost: ", (*endpoint)->address(), "\r\n\r\n");
    ASSERT_EQ(send(fd.get(), request.data(), request.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(request.size()));
    std::string answer(4096, '\0');
    answer.resize(static_cast<size_t>(
        std::max<ssize_t>(0, recv(fd.get(), answer.data(), answer.size(), MSG_WAITALL))));
    EXPECT_THAT(answer, AllOf(StartsWith("HTTP/1.1 405"), HasSubstr("\r\nAllow: GET\r\n"),
                              HasSubstr("\r\n\r\nGET is allowed\n")))
        << method;
  }
  EXPECT_THAT(Get((*endpoint)->address()), HasSubstr("200 OK"));
}

TEST(MetricsEndpoint, ALookMayComeFromAnotherThreadLater) {
  std::thread later;
  Metrics metrics(
      [&](const Metrics::Take& take) { later = std::thread([take] { take(OneDevice()); }); });
  EXPECT_FALSE(metrics.Collect().empty());
  later.join();
}

TEST(MetricsEndpoint, WhereNoLookComesAScrapeEndsWithoutSamples) {
  Metrics metrics([](const Metrics::Take&) {});
  const absl::Time began = absl::Now();
  EXPECT_TRUE(metrics.Collect().empty());
  EXPECT_GE(absl::Now() - began, Metrics::kPatience);
}

TEST(MetricsEndpoint, APortThatIsTakenIsSaidWithWhatToDo) {
  auto first = MetricsEndpoint::Open("127.0.0.1:0", AtOnce());
  ASSERT_TRUE(first.ok()) << first.status();
  auto second = MetricsEndpoint::Open((*first)->address(), AtOnce());
  EXPECT_EQ(second.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(second.status().message()), HasSubstr((*first)->address()));
  EXPECT_THAT(std::string(second.status().message()), HasSubstr("another --metrics-address"));
}

TEST(MetricsEndpoint, AClientThatSaysNothingHoldsNobodyUpForLong) {
  auto endpoint = MetricsEndpoint::Open("127.0.0.1:0", AtOnce());
  ASSERT_TRUE(endpoint.ok()) << endpoint.status();
  const UniqueFd silent(ConnectToLoopback((*endpoint)->address()));
  EXPECT_THAT(Get((*endpoint)->address()), HasSubstr("vram_broker_build_info"));
  const UniqueFd another(ConnectToLoopback((*endpoint)->address()));
  const absl::Time began = absl::Now();
  endpoint->reset();
  EXPECT_LT(absl::Now() - began, absl::Seconds(1));
}

TEST(MetricsAddress, HostsAreAddressesAndPortsArePorts) {
  for (const char* good : {"127.0.0.1:9464", "0.0.0.0:0", "localhost:65535", "[::1]:9464"}) {
    EXPECT_TRUE(CheckHttpAddress(good).ok()) << good;
  }
  for (const char* bad : {"", "9464", ":9464", "example.org:9464", "127.0.0.1:65536", "::1:9464",
                          "127.0.0.1:9464s", "[127.0.0.1]:1", "127.0.0.1:1,[::]:2"}) {
    const absl::Status status = CheckHttpAddress(bad);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << bad;
    EXPECT_THAT(std::string(status.message()), HasSubstr(absl::StrCat("'", bad, "'")));
  }
}

TEST(SplitHostAndPort, TakesNamesAndAddresses) {
  const auto of = [](absl::string_view text) {
    const auto split = SplitHostAndPort(text);
    return split.has_value() ? absl::StrCat(split->host, " ", split->port) : "none";
  };
  EXPECT_EQ(of("node-7:0"), "node-7 0");
  EXPECT_EQ(of("[::1]:65535"), "::1 65535");
  EXPECT_EQ(of("127.0.0.1:80"), "127.0.0.1 80");
  for (const char* bad : {"", "node", ":1", "node:", "node:65536", "node:-1", "node:+1", "node: 1",
                          "::1:1", "[node]:1", "[::1:1", "a/b:1", "a b:1", "[]:1"}) {
    EXPECT_EQ(of(bad), "none") << bad;
  }
}

TEST(IsLoopbackHost, IsOfThisMachineWhateverItLooksLike) {
  for (const char* here : {"localhost", "LocalHost", "::1", "127.0.0.1", "127.255.255.255"}) {
    EXPECT_TRUE(IsLoopbackHost(here)) << here;
  }
  for (const char* elsewhere : {"", "localhost.", "::2", "127.0.0.256", "127.1", "128.0.0.1",
                                "127.0.0.1.example", "0.0.0.0"}) {
    EXPECT_FALSE(IsLoopbackHost(elsewhere)) << elsewhere;
  }
}

}  // namespace
}  // namespace vrambroker::observe
