#include "broker/server/options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <map>

#include "absl/strings/str_cat.h"

namespace vrambroker::server {
namespace {

using testing::HasSubstr;

class OptionsTest : public testing::Test {
 protected:
  absl::StatusOr<ParsedOptions> Parse(const std::vector<std::string>& args) {
    return ParseOptions(args, [this](const std::string& name) -> std::optional<std::string> {
      const auto found = env_.find(name);
      if (found == env_.end()) return std::nullopt;
      return found->second;
    });
  }
  Options Good(const std::vector<std::string>& args) {
    auto parsed = Parse(args);
    EXPECT_TRUE(parsed.ok()) << parsed.status();
    return parsed.ok() ? parsed->options : Options();
  }
  std::string Refusal(const std::vector<std::string>& args) {
    auto parsed = Parse(args);
    EXPECT_EQ(parsed.status().code(), absl::StatusCode::kInvalidArgument);
    return std::string(parsed.status().message());
  }
  std::string File(const std::string& text) {
    std::string path =
        absl::StrCat(testing::TempDir(), "/options-", getpid(), "-",
                     testing::UnitTest::GetInstance()->current_test_info()->name(), ".conf");
    std::ofstream(path) << text;
    return path;
  }

  std::map<std::string, std::string> env_;
};

TEST_F(OptionsTest, DefaultsAreTheDocumentedOnes) {
  const Options options = Good({});
  ASSERT_EQ(options.listen.size(), 1u);
  EXPECT_EQ(options.listen[0].path, DefaultRunDir() + "/broker.sock");
  EXPECT_EQ(options.lock_dir, DefaultRunDir());
  EXPECT_EQ(options.socket_mode, 0660u);
  EXPECT_EQ(options.reserve_bytes, 512 << 20);
  EXPECT_EQ(options.reading_interval, absl::Seconds(1));
  EXPECT_EQ(options.log_format, LogFormat::kText);
  EXPECT_TRUE(options.devices.empty());
  EXPECT_TRUE(options.emulated_devices.empty());
  EXPECT_EQ(options.metrics_address, "127.0.0.1:9464");
  EXPECT_TRUE(options.metrics_if_possible);
}

TEST_F(OptionsTest, ThePageIsServedWhereItIsAskedForOrNotAtAll) {
  EXPECT_EQ(Good({}).page_address, "127.0.0.1:9465");
  EXPECT_TRUE(Good({}).page_if_possible);
  EXPECT_EQ(Good({"--page-address="}).page_address, "");
  EXPECT_FALSE(Good({"--page-address=[::1]:80"}).page_if_possible) << "it has to be there";
  env_["VRAM_BROKERD_PAGE_ADDRESS"] = "0.0.0.0:0";
  EXPECT_EQ(Good({}).page_address, "0.0.0.0:0");
  EXPECT_THAT(Refusal({"--page-address=node-7:80"}),
              HasSubstr("--page-address: 'node-7:80': HOST:PORT is allowed"));
}

TEST_F(OptionsTest, MetricsAreServedWhereTheyAreAskedForOrNotAtAll) {
  const Options chosen = Good({"--metrics-address=0.0.0.0:9000"});
  EXPECT_EQ(chosen.metrics_address, "0.0.0.0:9000");
  EXPECT_FALSE(chosen.metrics_if_possible) << "what was asked for has to be there";
  EXPECT_EQ(Good({"--metrics-address="}).metrics_address, "");
  env_["VRAM_BROKERD_METRICS_ADDRESS"] = "[::1]:9001";
  EXPECT_EQ(Good({}).metrics_address, "[::1]:9001");
  EXPECT_THAT(Refusal({"--metrics-address=9464"}),
              HasSubstr("--metrics-address: '9464': HOST:PORT is allowed"));
}

TEST_F(OptionsTest, TheDecisionLogIsOffAndItsBoundsAreChecked) {
  EXPECT_EQ(Good({}).decision_log, "");
  EXPECT_EQ(Good({}).decision_log_max_bytes, 64 << 20);
  EXPECT_EQ(Good({}).decision_log_files, 4);
  const Options chosen =
      Good({"--decision-log=/tmp/x", "--decision-log-max-size=1MiB", "--decision-log-files=1"});
  EXPECT_EQ(chosen.decision_log, "/tmp/x");
  EXPECT_EQ(chosen.decision_log_max_bytes, 1 << 20);
  EXPECT_EQ(chosen.decision_log_files, 1);
  EXPECT_THAT(Refusal({"--decision-log-max-size=1KiB"}), HasSubstr("64KiB to 64TiB"));
  EXPECT_THAT(Refusal({"--decision-log-files=0"}), HasSubstr("1 to 100"));
}

TEST_F(OptionsTest, TheLevelOfTheLogComesFromFlagEnvironmentAndFileAlike) {
  EXPECT_EQ(Good({}).log_level, LogLevel::kInfo);
  const std::string file = File("log-level=warning\n");
  EXPECT_EQ(Good({"--config", file}).log_level, LogLevel::kWarning);
  env_["VRAM_BROKERD_LOG_LEVEL"] = "error";
  EXPECT_EQ(Good({"--config", file}).log_level, LogLevel::kError);
  EXPECT_EQ(Good({"--config", file, "--log-level=debug"}).log_level, LogLevel::kDebug);
  EXPECT_EQ(Refusal({"--log-level=loud"}),
            "--log-level: 'loud': debug, info, warning or error is allowed");
}

TEST_F(OptionsTest, TheCommandLineGoesBeforeTheEnvironmentAndThatBeforeTheFile) {
  const std::string file = File("# times\nreserve = 1MiB\n\nmax-wait=3s\ngrow-wait=4s\n");
  env_["VRAM_BROKERD_RESERVE"] = "2MiB";
  env_["VRAM_BROKERD_MAX_WAIT"] = "5s";
  const Options options = Good({"--reserve=3MiB", "--config", file});
  EXPECT_EQ(options.reserve_bytes, 3 << 20);
  EXPECT_EQ(options.core.max_wait, absl::Seconds(5));
  EXPECT_EQ(options.core.grow_wait, absl::Seconds(4));
}

TEST_F(OptionsTest, TheFileMayBeNamedByTheEnvironment) {
  env_["VRAM_BROKERD_CONFIG"] = File("log-format=json\nload-ahead=true\n");
  const Options options = Good({});
  EXPECT_EQ(options.log_format, LogFormat::kJson);
  EXPECT_TRUE(options.core.load_ahead);
  EXPECT_EQ(Refusal({"--config=/nowhere/at.all"}),
            "--config: '/nowhere/at.all' cannot be read: No such file or directory");
}

TEST_F(OptionsTest, TheFileIsARegularOneOfOneMebibyteAtMost) {
  EXPECT_THAT(Refusal({"--config=/tmp"}), HasSubstr("'/tmp' is a directory"));
  EXPECT_THAT(Refusal({"--config=/dev/zero"}), HasSubstr("'/dev/zero' is no regular file"));
  const std::string pipe = File("") + ".pipe";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_THAT(Refusal({"--config=" + pipe}), HasSubstr(".pipe' is no regular file"));
  unlink(pipe.c_str());
  const std::string filler((1 << 20) - 12, '#');
  EXPECT_EQ(Good({"--config=" + File(filler + "\nreserve=1MB")}).reserve_bytes, 1000000);
  EXPECT_THAT(Refusal({"--config=" + File(filler + "\nreserve=1MiB")}),
              HasSubstr("is longer than 1 MiB, which is the bound"));
}

TEST_F(OptionsTest, RepeatableFlagsAddUpWithinOneSourceOnly) {
  env_["VRAM_BROKERD_LISTEN"] = "unix:/e1 unix:/e2;unix:/e3";
  EXPECT_EQ(Good({}).listen.size(), 3u);
  const Options options =
      Good({"--plain-loopback", "--listen=unix:/a,127.0.0.1:0", "--listen", "unix:/b"});
  ASSERT_EQ(options.listen.size(), 3u);
  EXPECT_EQ(ToString(options.listen[0]), "unix:/a");
  EXPECT_EQ(ToString(options.listen[1]), "127.0.0.1:0");
  EXPECT_EQ(ToString(options.listen[2]), "unix:/b");
}

TEST_F(OptionsTest, DevicesAreReadWithTheirParticulars) {
  const Options options = Good({"--device=GPU-1", "--device=GPU-2=12GiB", "--emulated-device",
                                "a=24GiB", "--emulated-device=b=1GiB,rate=29.9e9,lag=250ms"});
  ASSERT_EQ(options.devices.size(), 2u);
  EXPECT_EQ(options.devices[0].uuid, "GPU-1");
  EXPECT_FALSE(options.devices[0].cap.has_value());
  EXPECT_EQ(options.devices[1].cap, int64_t{12} << 30);
  ASSERT_EQ(options.emulated_devices.size(), 2u);
  EXPECT_EQ(options.emulated_devices[0].name, "a");
  EXPECT_EQ(options.emulated_devices[0].capacity_bytes, int64_t{24} << 30);
  EXPECT_FALSE(options.emulated_devices[0].lag.has_value());
  EXPECT_EQ(options.emulated_devices[1].rate, 29.9e9);
  EXPECT_EQ(options.emulated_devices[1].lag, absl::Milliseconds(250));
}

TEST_F(OptionsTest, ASwitchNeedsNoValueAndCanBeTurnedOff) {
  EXPECT_TRUE(Good({"--load-ahead"}).core.load_ahead);
  EXPECT_FALSE(Good({"--load-ahead=false"}).core.load_ahead);
  EXPECT_THAT(Refusal({"--load-ahead=maybe"}), HasSubstr("true or false"));
}

TEST_F(OptionsTest, RefusalsNameFlagSourceValueAndWhatIsAllowed) {
  EXPECT_THAT(Refusal({"--reserve=lots"}), HasSubstr("--reserve: 'lots'"));
  EXPECT_THAT(Refusal({"--nonsense=1"}), HasSubstr("--nonsense is not known"));
  EXPECT_THAT(Refusal({"stray"}), HasSubstr("'stray' is no flag"));
  EXPECT_THAT(Refusal({"--reserve"}), HasSubstr("--reserve needs a value"));
  EXPECT_THAT(Refusal({"--reserve=1", "--reserve=2"}), HasSubstr("2 times, once is allowed"));
  EXPECT_THAT(Refusal({"--socket-mode=999"}), HasSubstr("octal"));
  EXPECT_THAT(Refusal({"--log-format=xml"}), HasSubstr("text or json"));
  EXPECT_THAT(Refusal({"--emulated-device=a"}), HasSubstr("NAME=SIZE"));
  EXPECT_THAT(Refusal({"--emulated-device=a=1GiB,size=2"}), HasSubstr("'size=2'"));
  EXPECT_THAT(Refusal({"--emulated-device=a=1GiB,lag=2h"}), HasSubstr("0 to 1h"));
  EXPECT_THAT(Refusal({"--device="}), HasSubstr("UUID=SIZE"));
  EXPECT_THAT(Refusal({"--reading-interval=1ms"}), HasSubstr("10ms"));
  EXPECT_THAT(Refusal({"--release-deadline=0"}), HasSubstr("--release-deadline"));
  env_["VRAM_BROKERD_RESERVE"] = "many";
  EXPECT_THAT(Refusal({}), HasSubstr("VRAM_BROKERD_RESERVE: 'many'"));
  const std::string file = File("reserve=1MiB\nwhatever\n");
  EXPECT_THAT(Refusal({"--config=" + file}), HasSubstr(absl::StrCat(file, ":2: 'whatever'")));
}

TEST_F(OptionsTest, HostPinBudgets) {
  EXPECT_EQ(Good({}).core.host_pin_fraction, 0.5);
  EXPECT_EQ(Good({}).core.host_pin_budget, core::Bytes());
  const Options options = Good({"--host-pin-fraction=0.25", "--host-pin-budget=3MiB"});
  EXPECT_EQ(options.core.host_pin_fraction, 0.25);
  EXPECT_EQ(options.core.host_pin_budget, core::Bytes(3 << 20));
  EXPECT_EQ(Good({"--host-pin-fraction=0"}).core.host_pin_fraction, 0);
  EXPECT_EQ(Good({"--host-pin-fraction=1"}).core.host_pin_fraction, 1);
  for (const char* bad : {"-0.1", "1.01", "nan", "half", ""}) {
    EXPECT_THAT(Refusal({absl::StrCat("--host-pin-fraction=", bad)}),
                HasSubstr(absl::StrCat("--host-pin-fraction: '", bad, "': 0 to 1 is allowed")));
  }
  EXPECT_THAT(Refusal({"--host-pin-budget=-1"}), HasSubstr("--host-pin-budget"));
}

TEST_F(OptionsTest, HelpNamesEveryFlagAndItsVariable) {
  auto parsed = Parse({"--help", "--reserve=nonsense is not looked at"});
  ASSERT_TRUE(parsed.ok());
  EXPECT_TRUE(parsed->help_wanted);
  for (const char* flag :
       {"listen",     "socket-mode",   "socket-group",   "device",           "emulated-device",
        "reserve",    "grow-wait",     "max-wait",       "release-deadline", "settling-time",
        "run-grace",  "orphan-after",  "load-ahead",     "admin-group",      "tls-cert",
        "tls-key",    "tls-client-ca", "plain-loopback", "reading-interval", "lock-dir",
        "log-format", "config"}) {
    EXPECT_THAT(parsed->help, HasSubstr(absl::StrCat("--", flag)));
  }
  EXPECT_THAT(parsed->help, HasSubstr("VRAM_BROKERD_LISTEN"));
}

TEST(ParseAddress, TakesUnixPathsAndHosts) {
  EXPECT_EQ(ParseAddress("unix:/run/b.sock")->path, "/run/b.sock");
  EXPECT_EQ(ParseAddress("unix:///run/b.sock")->path, "/run/b.sock");
  EXPECT_EQ(ParseAddress("127.0.0.1:50051")->port, 50051);
  EXPECT_EQ(ParseAddress("127.1.2.3:0")->host, "127.1.2.3");
  EXPECT_EQ(ToString(*ParseAddress("[::1]:7")), "[::1]:7");
  EXPECT_EQ(ParseAddress("localhost:7")->host, "localhost");
}

TEST_F(OptionsTest, TcpNeedsTlsOrTheLoopbackAndAFlag) {
  for (const char* text : {"0.0.0.0:1", "10.0.0.1:1", "[::]:1", "example.com:1",
                           "127.0.0.1.evil.org:1", "127.0.0.256:1"}) {
    const std::string listen = absl::StrCat("--listen=", text);
    EXPECT_THAT(Refusal({listen}), HasSubstr("without TLS")) << text;
    EXPECT_THAT(Refusal({listen, "--plain-loopback"}), HasSubstr("only loopback hosts")) << text;
    const Options options = Good({listen, "--tls-cert=/c", "--tls-key=/k", "--tls-client-ca=/a"});
    ASSERT_EQ(options.listen.size(), 1u);
    EXPECT_TRUE(options.tls.all());
  }
  for (const char* text : {"127.0.0.1:1", "127.1.2.3:1", "localhost:1", "[::1]:1"}) {
    const std::string listen = absl::StrCat("--listen=", text);
    EXPECT_THAT(Refusal({listen}), HasSubstr("--plain-loopback")) << text;
    EXPECT_TRUE(Good({listen, "--plain-loopback"}).plain_loopback) << text;
  }
}

TEST_F(OptionsTest, TheFilesOfTlsGoTogether) {
  EXPECT_THAT(Refusal({"--tls-key=/k", "--tls-client-ca=/a"}), HasSubstr("--tls-cert is missing"));
  EXPECT_THAT(Refusal({"--tls-cert=/c", "--tls-client-ca=/a"}), HasSubstr("--tls-key is missing"));
  env_["VRAM_BROKERD_TLS_CERT"] = "/c";
  EXPECT_THAT(Refusal({"--tls-key=/k"}), HasSubstr("--tls-client-ca is missing"));
  env_["VRAM_BROKERD_TLS_CLIENT_CA"] = "/a";
  EXPECT_EQ(Good({"--tls-key=/k"}).tls.client_ca, "/a");
  env_.clear();
  env_["VRAM_BROKERD_CONFIG"] =
      File("listen=0.0.0.0:7000\ntls-cert=/c\ntls-key=/k\ntls-client-ca=/a\nadmin-group=ops\n");
  EXPECT_EQ(Good({}).tls.cert, "/c");
  EXPECT_EQ(Good({}).admin_group, "ops");
}

TEST(ParseAddress, RefusesWhatIsNoAddress) {
  for (const char* text : {"", "unix:", "127.0.0.1", "127.0.0.1:65536", "127.0.0.1:x", ":1",
                           "::1:1", "[::1:1", "a/b:1", "[a]:1"}) {
    EXPECT_FALSE(ParseAddress(text).ok()) << text;
  }
  EXPECT_TRUE(ParseAddress("unix:" + std::string(107, 'a')).ok());
  EXPECT_FALSE(ParseAddress("unix:" + std::string(108, 'a')).ok());
}

TEST_F(OptionsTest, VariablesThatNameNoFlagAreWarnedOfWithTheNearestOnes) {
  const auto parsed = ParseOptions(
      {}, [](const std::string&) { return std::nullopt; },
      {"HOME", "VRAM_BROKERD_LISTEN", "VRAM_BROKERD_CONFIG", "VRAM_BROKERD_LISTN",
       "VRAM_BROKERD_PORT", "VRAM_BROKERD_PORT_7000_TCP", "VRAM_BROKERD_SERVICE_HOST"});
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  ASSERT_EQ(parsed->warnings.size(), 1u);
  EXPECT_THAT(parsed->warnings[0], HasSubstr("VRAM_BROKERD_LISTN is set but names no flag"));
  EXPECT_THAT(parsed->warnings[0], HasSubstr("nearest are VRAM_BROKERD_LISTEN and "));
}

TEST_F(OptionsTest, ADirectoryIsNoConfigAndNothingIsNoCard) {
  EXPECT_THAT(Refusal({"--config=/tmp"}), HasSubstr("'/tmp' is a directory"));
  EXPECT_THAT(
      Refusal({"--emulated-device=x=24"}),
      HasSubstr("'24' given, which is bytes; a size with its unit is needed, such as 24GiB"));
  EXPECT_THAT(Refusal({"--emulated-device=x=0"}), HasSubstr("'x=0': a size of '0' given; above 0"));
}

}  // namespace
}  // namespace vrambroker::server
