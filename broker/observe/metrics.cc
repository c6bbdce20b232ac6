#include "broker/observe/metrics.h"

#include <arpa/inet.h>
#include <sys/socket.h>

#include <chrono>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "broker/observe/unique_fd.h"

namespace vrambroker::observe {
namespace {

// Where a scrape and the look that it asked for meet.
struct Meeting {
  std::mutex mutex;
  std::condition_variable come;
  std::optional<Observation> seen;
};

struct HostAndPort {
  std::string host;  // as an address, without brackets
  int port = 0;
  bool ipv6 = false;
};

bool IsAddress(int family, const std::string& host) {
  unsigned char address[sizeof(in6_addr)];
  return inet_pton(family, host.c_str(), address) == 1;
}

std::optional<HostAndPort> Parse(absl::string_view text) {
  const size_t colon = text.rfind(':');
  HostAndPort parsed;
  if (colon == absl::string_view::npos || !absl::SimpleAtoi(text.substr(colon + 1), &parsed.port) ||
      parsed.port < 0 || parsed.port > 65535) {
    return std::nullopt;
  }
  absl::string_view host = text.substr(0, colon);
  parsed.ipv6 = absl::ConsumePrefix(&host, "[");
  if (parsed.ipv6 && !absl::ConsumeSuffix(&host, "]")) return std::nullopt;
  parsed.host = host == "localhost" ? "127.0.0.1" : std::string(host);
  if (!IsAddress(parsed.ipv6 ? AF_INET6 : AF_INET, parsed.host)) return std::nullopt;
  return parsed;
}

std::string Bracketed(const HostAndPort& at, int port) {
  return absl::StrCat(at.ipv6 ? "[" : "", at.host, at.ipv6 ? "]:" : ":", port);
}

// A connection to a listener of this machine, that ends at once.
void Knock(const HostAndPort& at) {
  sockaddr_in four{};
  sockaddr_in6 six{};
  four.sin_family = AF_INET;
  four.sin_port = htons(static_cast<uint16_t>(at.port));
  six.sin6_family = AF_INET6;
  six.sin6_port = four.sin_port;
  inet_pton(AF_INET, at.host.c_str(), &four.sin_addr);
  inet_pton(AF_INET6, at.host.c_str(), &six.sin6_addr);
  const UniqueFd fd(
      socket(at.ipv6 ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.valid()) return;
  // To a wildcard address: to this machine. Whether it is taken does not matter.
  (void)!connect(
      fd.get(),
      at.ipv6 ? reinterpret_cast<const sockaddr*>(&six) : reinterpret_cast<const sockaddr*>(&four),
      at.ipv6 ? sizeof(six) : sizeof(four));
}

}  // namespace

std::vector<prometheus::MetricFamily> Metrics::Collect() const {
  const auto meeting = std::make_shared<Meeting>();
  ask_([meeting](Observation seen) {
    std::lock_guard<std::mutex> lock(meeting->mutex);
    meeting->seen = std::move(seen);
    meeting->come.notify_one();
  });
  std::unique_lock<std::mutex> lock(meeting->mutex);
  meeting->come.wait_for(lock, absl::ToChronoNanoseconds(kPatience),
                         [&] { return meeting->seen.has_value(); });
  if (!meeting->seen.has_value()) return {};
  return ToFamilies(*meeting->seen);
}

absl::Status CheckMetricsAddress(absl::string_view address) {
  if (Parse(address).has_value()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("'", address,
                   "': HOST:PORT is allowed, the host an IPv4 address, an IPv6 address in brackets "
                   "or localhost, the port from 0 (any that is free) to 65535"));
}

absl::StatusOr<std::unique_ptr<MetricsEndpoint>> MetricsEndpoint::Open(
    const std::string& address, std::shared_ptr<prometheus::Collectable> metrics) {
  const std::optional<HostAndPort> at = Parse(address);
  if (!at.has_value()) return CheckMetricsAddress(address);
  // One thread: scrapes come one at a time. A client that says nothing holds the one for half a
  // second.
  const std::vector<std::string> options = {
      "listening_ports", Bracketed(*at, at->port), "num_threads", "1", "request_timeout_ms", "500"};
  std::unique_ptr<prometheus::Exposer> exposer;
  try {
    exposer = std::make_unique<prometheus::Exposer>(options);
  } catch (const std::exception&) {
    return absl::FailedPreconditionError(
        absl::StrCat("cannot serve metrics at ", address,
                     ": is the port taken, or not allowed? Give another --metrics-address, or an "
                     "empty one for none"));
  }
  exposer->RegisterCollectable(metrics);
  const std::vector<int> ports = exposer->GetListeningPorts();
  std::string reached = Bracketed(*at, ports.empty() ? at->port : ports.front());
  return std::unique_ptr<MetricsEndpoint>(
      new MetricsEndpoint(std::move(metrics), std::move(exposer), std::move(reached)));
}

// The listener looks whether it is to end every 2 s only, and when somebody comes.
MetricsEndpoint::~MetricsEndpoint() {
  const std::optional<HostAndPort> at = Parse(address_);
  std::mutex mutex;
  std::condition_variable changed;
  bool ended = false;
  std::thread ender([&] {
    exposer_.reset();
    std::lock_guard<std::mutex> lock(mutex);
    ended = true;
    changed.notify_one();
  });
  std::unique_lock<std::mutex> lock(mutex);
  while (!changed.wait_for(lock, std::chrono::milliseconds(10), [&] { return ended; })) {
    lock.unlock();
    if (at.has_value()) Knock(*at);
    lock.lock();
  }
  lock.unlock();
  ender.join();
}

}  // namespace vrambroker::observe
