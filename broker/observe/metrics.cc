#include "broker/observe/metrics.h"

#include <CivetServer.h>
#include <sys/socket.h>

#include <chrono>
#include <condition_variable>
#include <cstring>
#include <exception>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "broker/observe/host_and_port.h"
#include "broker/observe/unique_fd.h"

namespace vrambroker::observe {
namespace {

// Where a scrape and the look that it asked for meet.
struct Meeting {
  std::mutex mutex;
  std::condition_variable come;
  std::optional<Observation> seen;
};

// A connection to a listener of this machine, that ends at once.
void Knock(const HostAndPort& at) {
  const SocketAddress address = ToSocketAddress(at);
  const UniqueFd fd(
      socket(at.ipv6 ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.valid()) return;
  // To a wildcard address: to this machine. Whether it is taken does not matter.
  (void)!connect(fd.get(), address.get(), address.size);
}

// The library answers other methods as if nothing were there.
int RefuseOtherMethods(mg_connection* connection) {
  constexpr char kAnswer[] =
      "HTTP/1.1 405 Method Not Allowed\r\nAllow: GET\r\nContent-Type: text/plain; charset=utf-8\r\n"
      "Content-Length: 15\r\nConnection: close\r\n\r\nGET is allowed\n";
  if (std::strcmp(mg_get_request_info(connection)->request_method, "GET") == 0) return 0;
  mg_write(connection, kAnswer, sizeof(kAnswer) - 1);
  return 405;
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

absl::StatusOr<std::unique_ptr<MetricsEndpoint>> MetricsEndpoint::Open(
    const std::string& address, std::shared_ptr<prometheus::Collectable> metrics) {
  const std::optional<HostAndPort> at = ParseHostAndPort(address);
  if (!at.has_value()) return CheckHttpAddress(address);
  // One thread: scrapes come one at a time. A client that says nothing holds the one for half a
  // second.
  const std::vector<std::string> options = {
      "listening_ports", WithPort(*at, at->port), "num_threads", "1", "request_timeout_ms", "500"};
  std::unique_ptr<prometheus::Exposer> exposer;
  try {
    CivetCallbacks callbacks;
    callbacks.begin_request = RefuseOtherMethods;
    exposer = std::make_unique<prometheus::Exposer>(options, &callbacks);
  } catch (const std::exception&) {
    return absl::FailedPreconditionError(
        absl::StrCat("cannot serve metrics at ", address,
                     ": is the port taken, or not allowed? Give another --metrics-address, or an "
                     "empty one for none"));
  }
  exposer->RegisterCollectable(metrics);
  const std::vector<int> ports = exposer->GetListeningPorts();
  std::string reached = WithPort(*at, ports.empty() ? at->port : ports.front());
  return std::unique_ptr<MetricsEndpoint>(
      new MetricsEndpoint(std::move(metrics), std::move(exposer), std::move(reached)));
}

// The listener looks whether it is to end every 2 s only, and when somebody comes.
MetricsEndpoint::~MetricsEndpoint() {
  const std::optional<HostAndPort> at = ParseHostAndPort(address_);
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
