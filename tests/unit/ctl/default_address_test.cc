// A broker, its clients and vramctl that are told nothing meet at the same place.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "broker/server/addresses.h"
#include "client/cpp/broker_client.h"
#include "client/cpp/defaults.h"

namespace vrambroker {
namespace {

class DefaultAddressTest : public testing::Test {
 protected:
  DefaultAddressTest()
      : folder_(absl::StrCat("/tmp/vb-default-", getpid())),
        system_(folder_ + "/run"),
        user_(folder_ + "/user") {
    std::filesystem::create_directories(user_);
  }
  ~DefaultAddressTest() override { std::filesystem::remove_all(folder_); }

  void MakeSystem() { std::filesystem::create_directories(system_); }
  static void MakeSocket(const std::string& dir) {
    std::filesystem::create_directories(dir);
    std::ofstream(dir + "/broker.sock").close();
  }
  // Both give the same directory, and this one.
  void ExpectBoth(const std::string& system, const std::string& user,
                  const std::string& expected) const {
    EXPECT_EQ(server::RunDir(system, user), expected);
    EXPECT_EQ(client::RunTimeDir(system, user), expected);
  }

  const std::string folder_;
  const std::string system_;
  const std::string user_;
};

TEST_F(DefaultAddressTest, ClientsLookWhereABrokerOfTheirUserWouldListen) {
  ExpectBoth(system_, user_, user_ + "/vram-broker");  // no /run: nothing can be made there
  ExpectBoth(system_, "", absl::StrCat("/run/user/", getuid(), "/vram-broker"));
  MakeSystem();
  ExpectBoth(system_, user_, system_ + "/vram-broker");
  MakeSocket(system_ + "/vram-broker");
  ExpectBoth(system_, user_, system_ + "/vram-broker");
}

TEST_F(DefaultAddressTest, ASocketThatIsThereGoesBeforeAPlaceThatIsEmpty) {
  MakeSystem();
  MakeSocket(user_ + "/vram-broker");
  EXPECT_EQ(client::RunTimeDir(system_, user_), user_ + "/vram-broker");
  MakeSocket(system_ + "/vram-broker");
  EXPECT_EQ(client::RunTimeDir(system_, user_), system_ + "/vram-broker");
}

TEST_F(DefaultAddressTest, AddressAndLocksAreInThatDirectory) {
  ASSERT_EQ(unsetenv("VRAM_BROKER_ADDRESS"), 0);
  ASSERT_EQ(setenv("XDG_RUNTIME_DIR", user_.c_str(), 1), 0);
  EXPECT_EQ(client::DefaultLockDir(), client::RunTimeDir("/run", user_));
  EXPECT_EQ(client::DefaultAddress(), "unix:" + client::DefaultLockDir() + "/broker.sock");
  ASSERT_EQ(setenv("VRAM_BROKER_ADDRESS", "127.0.0.1:7", 1), 0);
  EXPECT_EQ(client::DefaultAddress(), "127.0.0.1:7");
}

}  // namespace
}  // namespace vrambroker
