// vram-brokerd as a process: how it starts, refuses to, and ends.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "tests/poll.h"
#include "tests/test_ca.h"
#include "vrambroker/v1/admin.grpc.pb.h"

extern char** environ;

namespace vrambroker::server {
namespace {

using testing::AnyOf;
using testing::HasSubstr;
using testing::Not;

std::string ReadFile(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

// One run of the program; killed at the latest when this goes.
class Program {
 public:
  // With an empty `log` it has no open standard descriptor.
  Program(const std::vector<std::string>& arguments, std::string log) : log_(std::move(log)) {
    std::vector<std::string> words = {BROKERD_PATH};
    words.insert(words.end(), arguments.begin(), arguments.end());
    std::vector<char*> pointers;
    pointers.reserve(words.size() + 1);
    for (std::string& word : words) pointers.push_back(word.data());
    pointers.push_back(nullptr);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    if (log_.empty()) {
      for (int descriptor : {0, 1, 2}) posix_spawn_file_actions_addclose(&actions, descriptor);
    } else {
      posix_spawn_file_actions_addopen(&actions, 1, log_.c_str(), O_WRONLY | O_CREAT | O_TRUNC,
                                       0600);
      posix_spawn_file_actions_adddup2(&actions, 1, 2);
    }
    EXPECT_EQ(posix_spawn(&pid_, BROKERD_PATH, &actions, nullptr, pointers.data(), environ), 0);
    posix_spawn_file_actions_destroy(&actions);
  }
  ~Program() {
    if (pid_ <= 0) return;
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }

  void Signal(int number) { kill(pid_, number); }
  int pid() const { return pid_; }
  std::string log() const { return ReadFile(log_); }
  // Its exit status; below 0: ended by a signal, or not within 20 s.
  int Wait() {
    int status = -1;
    if (!WaitFor([&] { return waitpid(pid_, &status, WNOHANG) == pid_; })) return -1;
    pid_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }

 private:
  const std::string log_;
  pid_t pid_ = -1;
};

class BrokerdTest : public testing::Test {
 protected:
  BrokerdTest()
      : name_(absl::StrCat("brokerd-", getpid(), "-",
                           testing::UnitTest::GetInstance()->current_test_info()->line())),
        folder_("/tmp/vb-" + name_) {
    std::filesystem::create_directories(folder_);
  }
  ~BrokerdTest() override {
    std::filesystem::remove_all(folder_);
    std::filesystem::remove("/dev/shm/vram-card-" + name_);
  }

  std::vector<std::string> Arguments() const {
    return {"--listen=" + address(), "--lock-dir=" + folder_,
            "--emulated-device=" + name_ + "=64MiB", "--reserve=0"};
  }
  std::string address() const { return absl::StrCat("unix:", folder_, "/b.sock"); }
  std::string File(const std::string& name) const { return folder_ + "/" + name; }
  bool Serves() const {
    auto channel = grpc::CreateChannel(address(), grpc::InsecureChannelCredentials());
    grpc::ClientContext context;
    context.set_deadline(absl::ToChronoTime(absl::Now() + absl::Seconds(5)));
    v1::Picture picture;
    return v1::BrokerAdmin::NewStub(channel)->GetPicture(&context, {}, &picture).ok();
  }

  const std::string name_;
  const std::string folder_;
};

TEST_F(BrokerdTest, StopsWithinTwoSecondsAndLeavesNothing) {
  for (const int number : {SIGTERM, SIGINT, SIGHUP}) {
    Program broker(Arguments(), File("log"));
    ASSERT_TRUE(WaitFor([&] { return Serves(); })) << broker.log();
    const absl::Time began = absl::Now();
    broker.Signal(number);
    EXPECT_EQ(broker.Wait(), 0) << broker.log();
    EXPECT_LT(absl::Now() - began, absl::Seconds(2));
    EXPECT_FALSE(std::filesystem::exists(File("b.sock")));
    EXPECT_FALSE(std::filesystem::exists("/dev/shm/vram-card-" + name_));
    EXPECT_THAT(broker.log(), HasSubstr(" start listen=" + address()));
    EXPECT_THAT(broker.log(), HasSubstr(" stop"));
  }
}

TEST_F(BrokerdTest, ANewOneTakesOverFromOneThatWasKilled) {
  Program first(Arguments(), File("log"));
  ASSERT_TRUE(WaitFor([&] { return Serves(); })) << first.log();
  first.Signal(SIGKILL);
  EXPECT_EQ(first.Wait(), -1);
  EXPECT_TRUE(std::filesystem::exists(File("b.sock")));
  Program second(Arguments(), File("log2"));
  EXPECT_TRUE(WaitFor([&] { return Serves(); })) << second.log();
}

TEST_F(BrokerdTest, TheCardOfOneThatWasKilledIsMadeAnewAndRemovedAtTheEnd) {
  const std::string segment = "/dev/shm/vram-card-" + name_;
  Program first(Arguments(), File("log"));
  ASSERT_TRUE(WaitFor([&] { return Serves(); })) << first.log();
  const auto size = std::filesystem::file_size(segment);
  first.Signal(SIGKILL);
  EXPECT_EQ(first.Wait(), -1);
  EXPECT_TRUE(std::filesystem::exists(segment));
  std::vector<std::string> larger = Arguments();
  larger[2] = "--emulated-device=" + name_ + "=128MiB";
  Program second(larger, File("log2"));
  ASSERT_TRUE(WaitFor([&] { return Serves(); })) << second.log();
  EXPECT_GT(std::filesystem::file_size(segment), size);
  second.Signal(SIGTERM);
  EXPECT_EQ(second.Wait(), 0) << second.log();
  EXPECT_FALSE(std::filesystem::exists(segment));
}

TEST_F(BrokerdTest, ClosedStandardDescriptorsAreNotTakenByItsFiles) {
  Program broker(Arguments(), "");
  ASSERT_TRUE(WaitFor([&] { return Serves(); }));
  for (int descriptor : {0, 1, 2}) {
    const std::string link = absl::StrCat("/proc/", broker.pid(), "/fd/", descriptor);
    EXPECT_EQ(std::filesystem::read_symlink(link), "/dev/null") << descriptor;
  }
  broker.Signal(SIGTERM);
  EXPECT_EQ(broker.Wait(), 0);
}

TEST_F(BrokerdTest, ASecondOneExitsWithTwoAndNamesTheFirst) {
  Program first(Arguments(), File("log"));
  ASSERT_TRUE(WaitFor([&] { return Serves(); })) << first.log();
  Program second(Arguments(), File("log2"));
  EXPECT_EQ(second.Wait(), 2);
  EXPECT_THAT(second.log(), HasSubstr(absl::StrCat("process ", first.pid())));
  EXPECT_TRUE(Serves());
}

TEST_F(BrokerdTest, WhatItCannotDoItSaysAndExitsWithTwo) {
  Program stranger({"--listen=0.0.0.0:7000"}, File("log"));
  EXPECT_EQ(stranger.Wait(), 2);
  EXPECT_THAT(stranger.log(), HasSubstr("without TLS"));
  Program missing({"--listen=" + address(), "--lock-dir=" + folder_, "--device=GPU-none"},
                  File("log"));
  EXPECT_EQ(missing.Wait(), 2);
  EXPECT_THAT(missing.log(), HasSubstr("vram-brokerd: "));
  std::vector<std::string> arguments = Arguments();
  arguments.pop_back();
  Program reserve(arguments, File("log"));
  EXPECT_EQ(reserve.Wait(), 2);
  EXPECT_THAT(reserve.log(), HasSubstr("--reserve: the default, 512.0 MiB, leaves nothing of the "
                                       "64.0 MiB of device emulated:" +
                                       name_));
  Program unknown({"--colour=red"}, File("log"));
  EXPECT_EQ(unknown.Wait(), 2);
  EXPECT_THAT(unknown.log(), HasSubstr("--colour is not known"));
}

TEST_F(BrokerdTest, HelpExplainsTheFlags) {
  Program help({"--help"}, File("log"));
  EXPECT_EQ(help.Wait(), 0);
  EXPECT_THAT(help.log(), HasSubstr("--emulated-device=NAME=SIZE"));
}

TEST_F(BrokerdTest, TheLogCanBeJson) {
  std::vector<std::string> arguments = Arguments();
  arguments.push_back("--log-format=json");
  Program broker(arguments, File("log"));
  EXPECT_TRUE(WaitFor([&] {
    return broker.log().find("\"event\":\"start\"") != std::string::npos;
  })) << broker.log();
}

TEST_F(BrokerdTest, TheLogBeginsAtItsLevel) {
  std::vector<std::string> arguments = Arguments();
  arguments.push_back("--log-level=debug");
  Program talkative(arguments, File("log"));
  EXPECT_TRUE(WaitFor([&] {
    const std::string log = talkative.log();
    return log.find(" info start ") != std::string::npos &&
           log.find(" debug step of=reading ") != std::string::npos;
  })) << talkative.log();
  talkative.Signal(SIGTERM);
  ASSERT_EQ(talkative.Wait(), 0);
  arguments.back() = "--log-level=warning";
  Program quiet(arguments, File("quiet"));
  ASSERT_TRUE(WaitFor([&] { return Serves(); })) << quiet.log();
  quiet.Signal(SIGTERM);
  EXPECT_EQ(quiet.Wait(), 0);
  EXPECT_THAT(quiet.log(), Not(AnyOf(HasSubstr(" info "), HasSubstr(" debug "))));
}

TEST_F(BrokerdTest, AHandshakeThatFailsIsLoggedInTheFormOfTheLog) {
  const TestCa ca(File("ca"));
  const TestCertificate own = ca.Issue("broker", kBrokerNames);
  std::vector<std::string> arguments = Arguments();
  arguments.insert(arguments.end(),
                   {"--log-format=json", "--listen=127.0.0.1:0", "--tls-cert=" + own.cert,
                    "--tls-key=" + own.key, "--tls-client-ca=" + ca.cert()});
  Program broker(arguments, File("log"));
  ASSERT_TRUE(WaitFor([&] { return broker.log().find(" MiB, reserve") != std::string::npos; }))
      << broker.log();
  const std::string log = broker.log();
  const size_t begin = log.find(",127.0.0.1:") + 1;
  const auto plain = grpc::CreateChannel(log.substr(begin, log.find('"', begin) - begin),
                                         grpc::InsecureChannelCredentials());
  grpc::ClientContext context;
  context.set_deadline(absl::ToChronoTime(absl::Now() + absl::Seconds(5)));
  v1::Picture picture;
  EXPECT_FALSE(v1::BrokerAdmin::NewStub(plain)->GetPicture(&context, {}, &picture).ok());
  EXPECT_TRUE(WaitFor([&] { return broker.log().find("\"event\":\"grpc\"") != std::string::npos; }))
      << broker.log();
  std::istringstream lines(broker.log());
  for (std::string line; std::getline(lines, line);) EXPECT_EQ(line.rfind('{', 0), 0u) << line;
}

}  // namespace
}  // namespace vrambroker::server
