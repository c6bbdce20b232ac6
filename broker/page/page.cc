#include "broker/page/page.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "broker/observe/host_and_port.h"
#include "broker/observe/unique_fd.h"
#include "broker/page/connections.h"
#include "broker/page/http.h"
#include "broker/page/routes.h"

namespace vrambroker::page {
namespace {

using observe::UniqueFd;

constexpr int kBacklog = 64;
// What a reader that lags costs of the kernel's memory, at most.
constexpr int kSendBuffer = 256 << 10;

absl::Status CannotListen(const std::string& address, int error) {
  return absl::FailedPreconditionError(
      absl::StrCat("cannot serve the page at ", address, ": ", std::strerror(error),
                   error == EADDRINUSE ? " (by another broker?)" : "",
                   ". Give another --page-address, or an empty one for none"));
}

absl::StatusOr<UniqueFd> Listen(const std::string& address, const observe::HostAndPort& at) {
  const int family = at.ipv6 ? AF_INET6 : AF_INET;
  UniqueFd fd(socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const observe::SocketAddress to = observe::ToSocketAddress(at);
  const int one = 1;
  if (!fd.valid() || setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)) != 0 ||
      (at.ipv6 && setsockopt(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, &one, sizeof(one)) != 0) ||
      bind(fd.get(), to.get(), to.size) != 0 || listen(fd.get(), kBacklog) != 0) {
    return CannotListen(address, errno);
  }
  return fd;
}

int PortOf(int fd) {
  sockaddr_storage own{};
  socklen_t size = sizeof(own);
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&own), &size) != 0) return 0;
  return ntohs(own.ss_family == AF_INET6 ? reinterpret_cast<const sockaddr_in6&>(own).sin6_port
                                         : reinterpret_cast<const sockaddr_in&>(own).sin_port);
}

}  // namespace

class Page::Parts {
 public:
  Parts(UniqueFd listener, UniqueFd stop, std::string address, bool loopback, Sources sources,
        const Limits& limits)
      : address_(std::move(address)),
        watchers_(Watchers::Create(limits.watchers, sources.watch)),
        routes_(std::move(sources)),
        http_(&routes_, watchers_, limits, loopback),
        listener_(std::move(listener)),
        stop_(std::move(stop)),
        connections_(limits.connections, [this](int fd) { http_.Serve(fd); }),
        thread_([this] { Accept(); }) {}

  ~Parts() {
    const uint64_t one = 1;
    (void)!write(stop_.get(), &one, sizeof(one));
    thread_.join();
    watchers_->Close();
    connections_.Stop();
  }

  const std::string& address() const { return address_; }
  const std::shared_ptr<Watchers>& watchers() const { return watchers_; }

 private:
  void Accept() {
    pollfd both[] = {{listener_.get(), POLLIN, 0}, {stop_.get(), POLLIN, 0}};
    while (true) {
      if (poll(both, 2, -1) < 0 && errno != EINTR) return;
      if (both[1].revents != 0) return;
      UniqueFd connection(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
      if (connection.valid()) {
        Prepare(connection.get());
        if (!connections_.Take(&connection)) Http::Refuse(connection.get());
      } else if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS) {
        // It stays in the queue: looked at again after a while, unless the end comes first.
        poll(&both[1], 1, 100);
      }
    }
  }

  static void Prepare(int fd) {
    const int one = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &kSendBuffer, sizeof(kSendBuffer));
  }

  const std::string address_;
  const std::shared_ptr<Watchers> watchers_;
  const Routes routes_;
  Http http_;
  const UniqueFd listener_;
  const UniqueFd stop_;
  Connections connections_;
  std::thread thread_;
};

Page::Page(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}

Page::~Page() = default;

const std::string& Page::address() const { return parts_->address(); }

const std::shared_ptr<Watchers>& Page::watchers() const { return parts_->watchers(); }

absl::StatusOr<std::unique_ptr<Page>> Page::Open(const std::string& address, Sources sources,
                                                 const Limits& limits) {
  const auto at = observe::ParseHostAndPort(address);
  if (!at.has_value()) return observe::CheckHttpAddress(address);
  auto listener = Listen(address, *at);
  if (!listener.ok()) return listener.status();
  UniqueFd stop(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!stop.valid()) return CannotListen(address, errno);
  std::string reached = observe::WithPort(*at, PortOf(listener->get()));
  return std::unique_ptr<Page>(
      new Page(std::make_unique<Parts>(*std::move(listener), std::move(stop), std::move(reached),
                                       observe::IsLoopback(*at), std::move(sources), limits)));
}

}  // namespace vrambroker::page
