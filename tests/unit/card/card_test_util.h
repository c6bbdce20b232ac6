// What the card's tests share: cards of their own that go away, and child processes.
#ifndef VRAMBROKER_TESTS_UNIT_CARD_CARD_TEST_UTIL_H_
#define VRAMBROKER_TESTS_UNIT_CARD_CARD_TEST_UTIL_H_

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "stage_workers/card/emulated_card.h"
#include "tests/poll.h"

extern char** environ;

namespace vrambroker::card {

// A card name that no other test uses; the card is removed in the end.
class TestCardName {
 public:
  TestCardName() {
    static std::atomic<int> serial{0};
    name_ = absl::StrCat("test-", getpid(), "-", ++serial);
  }
  ~TestCardName() { (void)EmulatedCard::Remove(name_); }
  TestCardName(const TestCardName&) = delete;
  TestCardName& operator=(const TestCardName&) = delete;

  const std::string& get() const { return name_; }

 private:
  std::string name_;
};

inline std::unique_ptr<EmulatedCard> MakeCard(const TestCardName& name, int64_t capacity,
                                              double rate = 0,
                                              std::optional<absl::Duration> lag = std::nullopt) {
  absl::StatusOr<std::unique_ptr<EmulatedCard>> card = EmulatedCard::Create(
      name.get(), {.capacity_bytes = capacity, .h2d_bytes_per_second = rate, .usage_lag = lag});
  EXPECT_TRUE(card.ok()) << card.status();
  return *std::move(card);
}

// Whether `condition` comes true within ten seconds.
inline bool Eventually(const std::function<bool()>& condition) {
  return WaitFor(condition, absl::Seconds(10));
}

// A child process with its standard input and output on pipes. Killed in the end.
class Child {
 public:
  explicit Child(std::vector<std::string> arguments) {
    int in[2];
    int out[2];
    EXPECT_EQ(pipe2(in, O_CLOEXEC), 0);
    EXPECT_EQ(pipe2(out, O_CLOEXEC), 0);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, in[0], 0);
    posix_spawn_file_actions_adddup2(&actions, out[1], 1);
    arguments.insert(arguments.begin(), CARD_TEST_CHILD);
    std::vector<char*> argv;
    for (std::string& argument : arguments) argv.push_back(argument.data());
    argv.push_back(nullptr);
    EXPECT_EQ(posix_spawn(&pid_, argv[0], &actions, nullptr, argv.data(), environ), 0);
    posix_spawn_file_actions_destroy(&actions);
    close(in[0]);
    close(out[1]);
    input_ = in[1];
    output_ = fdopen(out[0], "r");
  }
  ~Child() {
    Kill();
    Reap();
    close(input_);
    std::fclose(output_);
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  pid_t pid() const { return pid_; }
  std::string ReadLine() {
    char line[256] = {};
    if (std::fgets(line, sizeof(line), output_) == nullptr) return "";
    std::string text = line;
    if (!text.empty() && text.back() == '\n') text.pop_back();
    return text;
  }
  void SendLine() { EXPECT_EQ(write(input_, "\n", 1), 1); }
  void Kill() {
    if (!reaped_) kill(pid_, SIGKILL);
  }
  void Reap() {
    if (!reaped_) waitpid(pid_, nullptr, 0);
    reaped_ = true;
  }

 private:
  pid_t pid_ = 0;
  int input_ = -1;
  FILE* output_ = nullptr;
  bool reaped_ = false;
};

}  // namespace vrambroker::card

#endif  // VRAMBROKER_TESTS_UNIT_CARD_CARD_TEST_UTIL_H_
