#include "broker/observe/peer.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <string>

#include "absl/strings/str_cat.h"
#include "broker/observe/process_watch.h"
#include "tests/poll.h"
#include "tests/unit/observe/child.h"

namespace vrambroker::observe {
namespace {

sockaddr_un AddressOf(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strncpy(address.sun_path, path.c_str(), sizeof(address.sun_path) - 1);
  return address;
}

// A listening Unix socket, and children that connect to it.
class PeerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const sockaddr_un address = AddressOf(path_);
    ASSERT_EQ(bind(listener_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)),
              0);
    ASSERT_EQ(listen(listener_.get(), 8), 0);
  }

  // Connects and keeps the connection open.
  bool Connect() {
    const int connection = socket(AF_UNIX, SOCK_STREAM, 0);
    const sockaddr_un address = AddressOf(path_);
    return connect(connection, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0;
  }

  UniqueFd Accept() { return UniqueFd(accept(listener_.get(), nullptr, nullptr)); }

  TempDir dir_;
  std::string path_ = absl::StrCat(dir_.path(), "/s");
  UniqueFd listener_{socket(AF_UNIX, SOCK_STREAM, 0)};
};

TEST_F(PeerTest, IsTheProcessThatConnected) {
  Child child([&] { return Connect(); });
  ASSERT_TRUE(child.worked());
  const UniqueFd connection = Accept();
  const auto peer = ReadPeer(connection.get());
  ASSERT_TRUE(peer.ok()) << peer.status();
  EXPECT_EQ(peer->pid, child.pid());
  EXPECT_EQ(peer->uid, getuid());
  EXPECT_EQ(peer->gid, getgid());
  EXPECT_EQ(peer->start_ticks, ProcessStartTime(child.pid()).value());
  EXPECT_FALSE(peer->died);
  ASSERT_TRUE(peer->pidfd.valid());
  EXPECT_EQ(PidOfPidfd(peer->pidfd.get()).value(), child.pid());
}

TEST_F(PeerTest, ItsDeathIsSeenByAWatchWhoeverHoldsTheConnection) {
  Child child([&] { return Connect(); });
  const UniqueFd connection = Accept();
  auto peer = ReadPeer(connection.get());
  ASSERT_TRUE(peer.ok()) << peer.status();
  auto watch = ProcessWatch::Start();
  ASSERT_TRUE(watch.ok()) << watch.status();
  std::atomic<int> calls{0};
  ASSERT_TRUE((*watch)->WatchPidfd(std::move(peer->pidfd), [&] { ++calls; }).ok());
  // A closed stream is no death.
  shutdown(connection.get(), SHUT_RDWR);
  Child later;
  EXPECT_EQ(calls, 0);
  child.Kill();
  EXPECT_TRUE(WaitFor([&] { return calls == 1; }));
}

TEST_F(PeerTest, OneThatDiedBeforeItWasAcceptedIsKnownToBeDead) {
  Child child([&] { return Connect(); });
  ASSERT_TRUE(child.worked());
  child.Kill();
  child.Reap();
  const UniqueFd connection = Accept();
  const auto peer = ReadPeer(connection.get());
  ASSERT_TRUE(peer.ok()) << peer.status();
  EXPECT_EQ(peer->pid, child.pid());
  EXPECT_TRUE(peer->died);
  EXPECT_EQ(peer->start_ticks, 0u);
}

TEST_F(PeerTest, OtherDescriptorsHaveNone) {
  EXPECT_TRUE(absl::IsInvalidArgument(ReadPeer(-1).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(ReadPeer(listener_.get() + 1000).status()));
  const UniqueFd unconnected(socket(AF_UNIX, SOCK_STREAM, 0));
  EXPECT_TRUE(absl::IsInvalidArgument(ReadPeer(unconnected.get()).status()));
  const UniqueFd tcp(socket(AF_INET, SOCK_STREAM, 0));
  EXPECT_TRUE(absl::IsInvalidArgument(ReadPeer(tcp.get()).status()));
}

}  // namespace
}  // namespace vrambroker::observe
