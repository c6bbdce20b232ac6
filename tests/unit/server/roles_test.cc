// Who has which role, and who passes for whom.
#include "broker/server/roles.h"

#include <gmock/gmock.h>
#include <grp.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "broker/observe/process_watch.h"
#include "broker/observe/unique_fd.h"
#include "broker/server/callers.h"
#include "broker/server/sessions.h"
#include "broker/server/unix_roles.h"

namespace vrambroker::server {
namespace {

using testing::HasSubstr;

TEST(RoleOfUri, TakesTheFourRolesOnly) {
  EXPECT_EQ(RoleOfUri("vram-broker:role/worker"), Role::kWorker);
  EXPECT_EQ(RoleOfUri("vram-broker:role/driver"), Role::kDriver);
  EXPECT_EQ(RoleOfUri("vram-broker:role/viewer"), Role::kViewer);
  EXPECT_EQ(RoleOfUri("vram-broker:role/admin"), Role::kAdmin);
  for (const char* uri : {"", "worker", "vram-broker:role/", "vram-broker:role/Worker",
                          "vram-broker:role/worker/", "VRAM-BROKER:role/worker",
                          "vram-broker:role/worker,admin", "spiffe://x/vram-broker:role/admin"}) {
    EXPECT_EQ(RoleOfUri(uri), std::nullopt) << uri;
  }
}

TEST(RoleSet, IsNamedInWords) {
  EXPECT_EQ(ToString(RoleSet()), "none");
  EXPECT_EQ(ToString(RoleSet{Role::kAdmin, Role::kWorker}), "worker, admin");
  EXPECT_EQ(ToString(RoleSet::All()), "worker, driver, viewer, admin");
}

TEST(CheckRole, NamesWhatIsNeededAndWhatIsThere) {
  const Caller caller = {Transport::kPlain, nullptr, "", {Role::kDriver}};
  EXPECT_TRUE(CheckRole(caller, Method("VramBroker.DeclareRun")).ok());
  const absl::Status status = CheckRole(caller, Method("BrokerAdmin.GetPicture"));
  EXPECT_EQ(status.code(), absl::StatusCode::kPermissionDenied);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("BrokerAdmin.GetPicture needs the role viewer or admin; a caller without "
                        "TLS has: driver"));
}

// Both ends of a connection within this process, whose further groups the kernel then names.
class UnixRolesTest : public testing::Test {
 protected:
  UnixRolesTest() {
    int ends[2] = {-1, -1};
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    socket_ = observe::UniqueFd(ends[0]);
    other_ = observe::UniqueFd(ends[1]);
  }

  static observe::Peer PeerOf(uint32_t uid, uint32_t gid) {
    observe::Peer peer;
    peer.pid = 1;
    peer.uid = uid;
    peer.gid = gid;
    return peer;
  }

  static constexpr uint32_t kNobody = 0xfffe0001;
  observe::UniqueFd socket_;
  observe::UniqueFd other_;
};

TEST_F(UnixRolesTest, WithoutAGroupEverybodyHasAll) {
  const auto roles = UnixRoles::Create("");
  ASSERT_TRUE(roles.ok());
  EXPECT_EQ(roles->Of(socket_.get(), PeerOf(kNobody, kNobody)), RoleSet::All());
}

TEST_F(UnixRolesTest, AnUnknownGroupIsNamed) {
  const auto roles = UnixRoles::Create("no such group");
  EXPECT_EQ(roles.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(roles.status().message()), HasSubstr("'no such group'"));
}

TEST_F(UnixRolesTest, AGroupLeavesAdminToItsMembersToRootAndToTheBrokersUser) {
  std::vector<gid_t> own(static_cast<size_t>(std::max(0, getgroups(0, nullptr))));
  ASSERT_GE(getgroups(static_cast<int>(own.size()), own.data()), 0);
  std::vector<std::pair<std::string, gid_t>> groups;
  setgrent();
  while (const struct group* entry = getgrent()) {
    groups.emplace_back(entry->gr_name, entry->gr_gid);
  }
  endgrent();
  ASSERT_FALSE(groups.empty());
  RoleSet others = RoleSet::All();
  others.Remove(Role::kAdmin);
  for (const auto& [name, gid] : groups) {
    const auto roles = UnixRoles::Create(name);
    ASSERT_TRUE(roles.ok()) << name;
    EXPECT_EQ(roles->Of(socket_.get(), PeerOf(kNobody, gid)), RoleSet::All()) << name;
    EXPECT_EQ(roles->Of(socket_.get(), PeerOf(0, kNobody)), RoleSet::All()) << name;
    EXPECT_EQ(roles->Of(socket_.get(), PeerOf(geteuid(), kNobody)), RoleSet::All()) << name;
    const bool member = std::find(own.begin(), own.end(), gid) != own.end();
    EXPECT_EQ(roles->Of(socket_.get(), PeerOf(kNobody, kNobody)), member ? RoleSet::All() : others)
        << name;
  }
}

TEST(WhyNotTheSame, ProcessesAreToldApartByPidOrElseByUser) {
  const auto of = [](int32_t pid, uint32_t uid) {
    return Identity{Transport::kUnix, pid, uid, ""};
  };
  EXPECT_EQ(WhyNotTheSame(of(5, 1), of(5, 2)), "");
  EXPECT_THAT(WhyNotTheSame(of(5, 1), of(6, 1)),
              HasSubstr("process 5 of user 1, the caller is process 6 of user 1"));
  EXPECT_EQ(WhyNotTheSame(of(0, 1), of(0, 1)), "");
  EXPECT_NE(WhyNotTheSame(of(0, 1), of(0, 2)), "");
  EXPECT_NE(WhyNotTheSame(of(5, 1), of(0, 1)), "");
  EXPECT_NE(WhyNotTheSame(of(0, 0), {Transport::kPlain, 0, 0, ""}), "");
}

TEST(WhyNotTheSame, ProcessesOfAnotherNamespaceAreToldApartWhereTheKernelDoes) {
  const auto of = [](uint64_t foreign_id, uint32_t uid) {
    return Identity{Transport::kUnix, 0, uid, "", foreign_id};
  };
  EXPECT_EQ(WhyNotTheSame(of(71, 0), of(71, 5)), "");
  EXPECT_THAT(WhyNotTheSame(of(71, 0), of(72, 0)),
              HasSubstr("a process of another pid namespace, of user 0"));
  EXPECT_EQ(WhyNotTheSame(of(1, 0), of(1, 0)), "") << "an older kernel: one user is one caller";
  EXPECT_NE(WhyNotTheSame(of(1, 0), of(1, 5)), "");
}

TEST(ProcessOf, TheKernelsWordCountsBeforeTheCallersOwn) {
  const auto peer = [](int32_t pid, uint64_t foreign_id) {
    auto one = std::make_shared<observe::Peer>();
    one->pid = pid;
    one->start_ticks = pid == 0 ? 0 : 9;
    one->foreign_id = foreign_id;
    return Caller{Transport::kUnix, std::move(one), "", {}};
  };
  const core::Process said = {77, 5, 3};
  EXPECT_EQ(ProcessOf(peer(42, 0), "w", said), (core::Process{42, 9}));
  EXPECT_EQ(ProcessOf(peer(0, 71), "w", said), (core::Process{77, 5, 71}));
  const core::Process named = ProcessOf(peer(0, 1), "w", said);
  EXPECT_GT(named.foreign_id, uint64_t{1} << 63) << "told apart by its name, never as ours";
  EXPECT_EQ(named, ProcessOf(peer(0, 1), "w", said));
  EXPECT_NE(named, ProcessOf(peer(0, 1), "v", said));
}

TEST(ProcessOf, OverTcpAProcessIsOursOnlyIfThereIsOne) {
  const Caller caller{Transport::kTls, nullptr, "CN=w", {}};
  const core::Process own = {getpid(), *observe::ProcessStartTime(getpid())};
  EXPECT_EQ(ProcessOf(caller, "w", own), own);
  EXPECT_FALSE(ProcessOf(caller, "w", {own.pid, own.start_time + 1}).named_by_pid());
  EXPECT_TRUE(ProcessOf(caller, "w", {0, 0}).known());
}

TEST(SessionTable, OwnersAreForgottenPastTheBoundThoseWithAStreamLast) {
  SessionTable sessions;
  const auto owner = [](const std::string& names) {
    return Caller{Transport::kTls, nullptr, names, {}};
  };
  const core::Process process = {7, 7};
  sessions.Put(core::SessionId(1), {"open", process, owner("mine"), ""});
  for (uint64_t i = 2; i < SessionTable::kMaxOwners + 3; ++i) {
    sessions.Put(core::SessionId(i), {absl::StrCat("w", i), process, owner("mine"), ""});
    sessions.Erase(core::SessionId(i));
  }
  EXPECT_FALSE(sessions.CheckAttach("open", process, owner("theirs")).ok());
  EXPECT_TRUE(sessions.CheckAttach("open", process, owner("mine")).ok());
  EXPECT_TRUE(sessions.CheckAttach("open", {7, 8}, owner("theirs")).ok());
  EXPECT_TRUE(sessions.CheckAttach("w2", process, owner("theirs")).ok());
  EXPECT_FALSE(sessions.CheckAttach("w4", process, owner("theirs")).ok());
}

}  // namespace
}  // namespace vrambroker::server
