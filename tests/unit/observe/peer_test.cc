#include "broker/observe/peer.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

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
  EXPECT_EQ(peer->foreign_id, 0u);
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

// What somebody in a pid namespace of his own, to whom our pids mean nothing, is told of two peers.
struct SeenFromInside {
  int32_t pids[2] = {-1, -1};
  uint64_t foreign_ids[2] = {0, 0};
  bool watched[2] = {false, false};
  bool died[2] = {true, true};
};

// Whether `run` was run in one. The kernel may not allow that to everybody.
bool InOwnPidNamespace(const std::function<void()>& run) {
  const pid_t outer = fork();
  if (outer == 0) {
    if (unshare(CLONE_NEWPID) != 0 && unshare(CLONE_NEWUSER | CLONE_NEWPID) != 0) _exit(1);
    const pid_t inner = fork();
    if (inner == 0) {
      run();
      _exit(0);
    }
    int status = 0;
    _exit(waitpid(inner, &status, 0) == inner && status == 0 ? 0 : 2);
  }
  int status = 0;
  EXPECT_EQ(waitpid(outer, &status, 0), outer);
  EXPECT_NE(WEXITSTATUS(status), 2);
  return status == 0;
}

TEST_F(PeerTest, PeersOfAnotherPidNamespaceAreToldApartAndWatched) {
  Child first([&] { return Connect(); });
  Child second([&] { return Connect(); });
  ASSERT_TRUE(first.worked() && second.worked());
  int told[2];
  ASSERT_EQ(pipe(told), 0);
  const bool ran = InOwnPidNamespace([&] {
    SeenFromInside seen;
    std::vector<UniqueFd> connections;
    for (int i = 0; i < 2; ++i) {
      connections.push_back(Accept());
      const auto peer = ReadPeer(connections.back().get());
      if (!peer.ok()) _exit(3);
      seen.pids[i] = peer->pid;
      seen.foreign_ids[i] = peer->foreign_id;
      seen.watched[i] = peer->pidfd.valid();
      seen.died[i] = peer->died || (peer->pidfd.valid() && HasDied(peer->pidfd.get()));
    }
    if (write(told[1], &seen, sizeof(seen)) != sizeof(seen)) _exit(4);
  });
  close(told[1]);
  SeenFromInside seen;
  const ssize_t got = read(told[0], &seen, sizeof(seen));
  close(told[0]);
  if (!ran) {
    EXPECT_EQ(got, 0) << "it may not make a namespace, and nothing was seen from one";
    return;
  }
  ASSERT_EQ(got, static_cast<ssize_t>(sizeof(seen)));
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(seen.pids[i], 0);
    EXPECT_GE(seen.foreign_ids[i], 1u);
    EXPECT_FALSE(seen.died[i]);
  }
  // What older kernels do not tell is said to be so.
  Child probe;
  const auto opened = OpenPidfd(probe.pid());
  ASSERT_TRUE(opened.ok());
  if (UniqueIdOfPidfd(opened->get()).ok()) {
    EXPECT_TRUE(seen.watched[0] && seen.watched[1]);
    EXPECT_NE(seen.foreign_ids[0], seen.foreign_ids[1]);
    EXPECT_GT(std::min(seen.foreign_ids[0], seen.foreign_ids[1]), 1u);
  } else {
    EXPECT_EQ(seen.foreign_ids[0], 1u);
  }
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
