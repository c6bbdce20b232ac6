// Members of a shard group over the wire, each a session with a card of its own.
#include <gmock/gmock.h>

#include <future>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/poll.h"
#include "tests/unit/server/server_fixture.h"

namespace vrambroker::server {
namespace {

using testing::HasSubstr;

constexpr int kMembers = 3;
constexpr int kLayers = 40;

struct Asked {
  grpc::Status status;
  v1::BeginUseResponse response;
};

class ShardGroups : public ServerTest {
 protected:
  void StartMembers() {
    Options options = MakeOptions();
    options.emulated_devices.clear();
    for (int i = 0; i < kMembers; ++i) {
      options.emulated_devices.push_back(
          {absl::StrCat(card(), "-", i), kCapacity, 0, std::nullopt});
    }
    Start(options);
    for (int i = 0; i < kMembers; ++i) Attach(i, 1);
  }
  void Attach(int member, uint64_t number) {
    v1::AttachRequest request = MakeAttach(absl::StrCat("rank-", member), kLayers);
    request.set_attach_number(number);
    request.mutable_components(0)->set_device_uuid(absl::StrCat("emulated:", card(), "-", member));
    request.mutable_components(0)->set_window_bytes(kMiB);
    members_.resize(kMembers);
    members_[static_cast<size_t>(member)] = std::make_unique<Session>(Connect(), request);
    ASSERT_TRUE(members_[static_cast<size_t>(member)]->first().has_welcome());
  }
  std::future<Asked> Ask(int member, const std::string& request_id, int64_t activation = 0) {
    const uint64_t session = members_[static_cast<size_t>(member)]->id();
    return std::async(std::launch::async, [this, session, request_id, activation] {
      const auto stub = v1::VramBroker::NewStub(Connect());
      grpc::ClientContext context;
      context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(20));
      v1::BeginUseRequest request;
      request.set_session_id(session);
      request.set_request_id(request_id);
      request.set_component("c");
      request.set_passes(2);
      request.set_activation_bytes(activation);
      request.mutable_shard_group()->set_name("run-1-dit");
      request.mutable_shard_group()->set_size(kMembers);
      Asked asked;
      asked.status = stub->BeginUse(&context, request, &asked.response);
      return asked;
    });
  }
  bool EventuallyWaits(int uses) {
    return WaitFor([&] { return GetPicture().waiting_size() == uses; });
  }

  std::vector<std::unique_ptr<Session>> members_;
};

TEST_F(ShardGroups, AllBeginWithTheLayersOfTheOneWithTheLeastRoom) {
  StartMembers();
  // The last one needs so much beside its layers that only part of them fits.
  std::future<Asked> first = Ask(0, "b"), second = Ask(1, "b");
  ASSERT_TRUE(EventuallyWaits(2));
  EXPECT_THAT(GetPicture().waiting(0).blocked_by(), HasSubstr("2 of 3"));
  const Asked third = Ask(2, "b", 40 * kMiB).get();
  ASSERT_TRUE(third.status.ok()) << third.status.error_message();
  EXPECT_EQ(third.response.resident_layers(), 23) << "64 MiB less 40 and a window of 1";
  for (std::future<Asked>* other : {&first, &second}) {
    const Asked asked = other->get();
    ASSERT_TRUE(asked.status.ok()) << asked.status.error_message();
    EXPECT_EQ(asked.response.resident_layers(), third.response.resident_layers());
  }
}

TEST_F(ShardGroups, OneThatIsLostFailsTheOthersAndAllMayAskAgain) {
  StartMembers();
  std::future<Asked> first = Ask(0, "b"), second = Ask(1, "b");
  ASSERT_TRUE(EventuallyWaits(2));
  members_[0]->Cancel();
  const Asked failed = second.get();
  EXPECT_EQ(failed.status.error_code(), grpc::StatusCode::ABORTED);
  EXPECT_THAT(failed.status.error_message(), HasSubstr("shard group \"run-1-dit\" has failed"));
  EXPECT_THAT(failed.status.error_message(), HasSubstr("rank-0/c waits no more"));
  EXPECT_EQ(first.get().status.error_code(), grpc::StatusCode::ABORTED);
  ASSERT_TRUE(WaitFor([&] { return StateOf("rank-0") == v1::SESSION_STATE_LOST; }));
  Attach(0, 2);
  std::vector<std::future<Asked>> again;
  again.reserve(kMembers);
  for (int i = 0; i < kMembers; ++i) again.push_back(Ask(i, "again"));
  for (std::future<Asked>& one : again) {
    const Asked asked = one.get();
    EXPECT_TRUE(asked.status.ok()) << asked.status.error_message();
    EXPECT_EQ(asked.response.resident_layers(), kLayers);
  }
}

}  // namespace
}  // namespace vrambroker::server
