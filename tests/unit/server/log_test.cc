#include "broker/server/log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <sstream>
#include <string>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "broker/server/grpc_log.h"
#include "tests/poll.h"

namespace vrambroker::server {
namespace {

using testing::HasSubstr;

LogLine Line() {
  return {absl::FromUnixMillis(1700000000123),
          "attach",
          {{"worker", "te-0"}, {"text", "a \"b\"\n"}, {"empty", ""}}};
}

TEST(FormatLine, IsOneLineOfText) {
  EXPECT_EQ(
      FormatLine(Line(), LogFormat::kText),
      "2023-11-14T22:13:20.123Z info attach worker=te-0 text=\"a \\\"b\\\"\\u000a\" empty=\"\"");
}

TEST(FormatLine, IsOneJsonObject) {
  EXPECT_EQ(FormatLine(Line(), LogFormat::kJson),
            "{\"time\":\"2023-11-14T22:13:20.123Z\",\"level\":\"info\",\"event\":\"attach\","
            "\"worker\":\"te-0\","
            "\"text\":\"a \\\"b\\\"\\u000a\",\"empty\":\"\"}");
}

TEST(ToLogLine, NamesADecision) {
  core::Decision decision;
  decision.id = core::DecisionId(3);
  decision.kind = core::DecisionKind::kRetention;
  decision.reason = core::Reason::kKeptForNextUse;
  decision.component = "te-0/text_encoder";
  decision.layers = 53;
  decision.component_layers = 66;
  decision.held = 60;
  const std::string line = FormatLine(ToLogLine(decision), LogFormat::kText);
  EXPECT_THAT(line, HasSubstr(" retention component=te-0/text_encoder layers=53/66 held=60 "
                              "reason=kept_for_next_use decision=3"));
}

std::string ReadAll(int descriptor) {
  std::string all;
  char buffer[4096];
  for (ssize_t got; (got = read(descriptor, buffer, sizeof(buffer))) > 0;) {
    all.append(buffer, static_cast<size_t>(got));
  }
  return all;
}

TEST(Log, WritesAllThatWaitsBeforeItGoes) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  {
    Log log(ends[1], LogFormat::kText);
    for (int i = 0; i < 100; ++i) log.Write(Line());
  }
  close(ends[1]);
  const std::string all = ReadAll(ends[0]);
  close(ends[0]);
  EXPECT_EQ(std::count(all.begin(), all.end(), '\n'), 100);
}

TEST(Log, AWarningIsWrittenAtOnceBehindWhatWaits) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  Log log(ends[1], LogFormat::kJson);
  log.Write(Line());
  log.Write({absl::UnixEpoch(), "not_watched", {}});
  std::string all(4096, '\0');
  const ssize_t got = read(ends[0], all.data(), all.size());
  ASSERT_GT(got, 0);
  all.resize(static_cast<size_t>(got));
  EXPECT_LT(all.find("attach"), all.find("\"level\":\"warning\",\"event\":\"not_watched\""));
  close(ends[0]);
  close(ends[1]);
}

// One line of each level, a decision among them; the levels of those that were written.
std::string LevelsWritten(LogLevel least) {
  int ends[2];
  EXPECT_EQ(pipe(ends), 0);
  {
    Log log(ends[1], LogFormat::kText, least);
    log.Write(ToLogLine(core::TickEvent{}, absl::UnixEpoch(), absl::Microseconds(7)));
    core::Decision decision;
    decision.time = absl::UnixEpoch();
    log.Write(decision);
    log.Write({absl::UnixEpoch(), "no_metrics", {}});
    log.Write({absl::UnixEpoch(), "not_recorded", {}});
    log.Write({absl::UnixEpoch(), "grpc", {}, LogLevel::kWarning});
  }
  close(ends[1]);
  std::istringstream lines(ReadAll(ends[0]));
  close(ends[0]);
  std::string levels;
  for (std::string time, level, rest; lines >> time >> level && std::getline(lines, rest);) {
    absl::StrAppend(&levels, levels.empty() ? "" : " ", level);
  }
  return levels;
}

TEST(Log, LinesBelowItsLevelAreLeftOut) {
  EXPECT_EQ(LevelsWritten(LogLevel::kDebug), "debug info warning error warning");
  EXPECT_EQ(LevelsWritten(LogLevel::kInfo), "info warning error warning");
  EXPECT_EQ(LevelsWritten(LogLevel::kWarning), "warning error warning");
  EXPECT_EQ(LevelsWritten(LogLevel::kError), "error");
}

TEST(ToLogLine, OfAStepSaysWhatItTookAndForWhom) {
  core::BeginUseEvent begin;
  begin.header.session = core::SessionId(4);
  begin.header.request_id = "b1";
  EXPECT_EQ(
      FormatLine(ToLogLine(begin, absl::UnixEpoch(), absl::Microseconds(12)), LogFormat::kText),
      "1970-01-01T00:00:00.000Z debug step of=begin_use microseconds=12 session=4 request=b1");
  core::ReadingEvent reading;
  reading.device_uuid = "GPU-0";
  reading.status = absl::UnavailableError("gone");
  EXPECT_THAT(
      FormatLine(ToLogLine(reading, absl::UnixEpoch(), absl::Microseconds(1)), LogFormat::kText),
      HasSubstr("device=GPU-0 used=\"UNAVAILABLE: gone\""));
}

// Nobody reads: whoever logs is not held up.
TEST(Log, WarningsDoNotBlockWhereThePipeIsFull) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  {
    Log log(ends[1], LogFormat::kText);
    const absl::Time start = absl::Now();
    for (int i = 0; i < 20000; ++i) log.Write({absl::UnixEpoch(), "not_recorded", {}});
    EXPECT_LT(absl::Now() - start, absl::Seconds(20));
  }
  close(ends[0]);
  close(ends[1]);
}

TEST(Log, DropsAndCountsWhatNobodyReads) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  {
    Log log(ends[1], LogFormat::kText);
    for (size_t i = 0; i < 3 * Log::kMaxWaiting; ++i) log.Write(Line());
  }
  close(ends[1]);
  const std::string all = ReadAll(ends[0]);
  close(ends[0]);
  EXPECT_GT(all.size(), 0u);
  EXPECT_LE(std::count(all.begin(), all.end(), '\n'), static_cast<long>(3 * Log::kMaxWaiting));
}

// A reader comes back after a while: every line is whole, and what is missing is counted.
TEST(Log, WhatASlowReaderMissesIsCountedAndNoLineIsCut) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  constexpr size_t kLines = 4000;  // more than a pipe takes
  size_t lines = 0, dropped = 0;
  std::string all;
  {
    Log log(ends[1], LogFormat::kJson);
    for (size_t i = 0; i < kLines; ++i) log.Write(Line());
    ASSERT_TRUE(WaitFor([] { return Log::Unwritten() <= 1; }));
    std::thread reader([&] { all = ReadAll(ends[0]); });
    log.Write(Line());
    ASSERT_TRUE(WaitFor([] { return Log::Unwritten() == 0; }));
    close(ends[1]);
    reader.join();
  }
  close(ends[0]);
  std::istringstream text(all);
  for (std::string line; std::getline(text, line);) {
    ++lines;
    EXPECT_TRUE(line.starts_with("{\"time\":") && line.ends_with("}")) << line;
    const size_t at = line.find("\"count\":\"");
    if (at != std::string::npos) dropped += std::stoul(line.substr(at + 9)) - 1;
  }
  EXPECT_GT(dropped, 0U);
  EXPECT_EQ(lines + dropped, kLines + 1);
}

TEST(LineBudget, HoldsBackWhatIsTooMuchAndSaysHowMuchItWas) {
  LineBudget budget;
  const absl::Time start = absl::UnixEpoch();
  size_t held_back = 7;
  for (size_t i = 0; i < LineBudget::kLines; ++i) {
    EXPECT_TRUE(budget.Pass(start, &held_back));
    EXPECT_EQ(held_back, 0u);
  }
  for (int i = 0; i < 3; ++i) EXPECT_FALSE(budget.Pass(start + absl::Seconds(1), &held_back));
  EXPECT_TRUE(budget.Pass(start + LineBudget::kWindow, &held_back));
  EXPECT_EQ(held_back, 3u);
  EXPECT_TRUE(budget.Pass(start + LineBudget::kWindow, &held_back));
  EXPECT_EQ(held_back, 0u);
}

}  // namespace
}  // namespace vrambroker::server
