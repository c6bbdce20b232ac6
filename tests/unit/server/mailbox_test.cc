#include "broker/server/mailbox.h"

#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

#include "tests/poll.h"

namespace vrambroker::server {
namespace {

using Posted = Mailbox<int>::Posted;

// Holds up whoever passes until it is opened.
class Gate {
 public:
  void Pass() {
    std::unique_lock<std::mutex> lock(mutex_);
    ++passing_;
    changed_.notify_all();
    changed_.wait(lock, [this] { return open_; });
  }
  void AwaitSomebody() {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [this] { return passing_ > 0; });
  }
  void Open() {
    std::lock_guard<std::mutex> lock(mutex_);
    open_ = true;
    changed_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int passing_ = 0;
  bool open_ = false;
};

TEST(Mailbox, HandlesOnThePostingThreadWhereNobodyIsAtWork) {
  std::thread::id handled_by;
  Mailbox<int> mailbox(4, [&](int) { handled_by = std::this_thread::get_id(); });
  EXPECT_EQ(mailbox.TryPost(1), Posted::kYes);
  EXPECT_EQ(handled_by, std::this_thread::get_id());
}

TEST(Mailbox, KeepsTheOrderOfEveryThreadAndHandlesOneAtATime) {
  constexpr int kThreads = 8;
  constexpr int kEach = 2000;
  constexpr size_t kAll = size_t{kThreads} * kEach;
  std::atomic<int> inside{0};
  std::vector<int> seen;  // guarded by the mailbox's own promise
  Mailbox<int> mailbox(kAll, [&](int item) {
    EXPECT_EQ(inside.fetch_add(1), 0);
    seen.push_back(item);
    inside.fetch_sub(1);
  });
  std::vector<std::thread> threads;
  threads.reserve(kThreads);
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < kEach; ++i) EXPECT_EQ(mailbox.TryPost(t * kEach + i), Posted::kYes);
    });
  }
  for (std::thread& thread : threads) thread.join();
  mailbox.Close();
  ASSERT_EQ(seen.size(), kAll);
  std::vector<int> last(kThreads, -1);
  for (const int item : seen) {
    EXPECT_LT(last[static_cast<size_t>(item / kEach)], item);
    last[static_cast<size_t>(item / kEach)] = item;
  }
}

TEST(Mailbox, RefusesPastItsBoundAndNeverWhatIsBoundedElsewhere) {
  Gate gate;
  std::vector<int> seen;
  Mailbox<int> mailbox(2, [&](int item) {
    if (item == 0) gate.Pass();
    seen.push_back(item);
  });
  std::thread holder([&] { mailbox.TryPost(0); });
  gate.AwaitSomebody();
  EXPECT_EQ(mailbox.TryPost(1), Posted::kYes);
  EXPECT_EQ(mailbox.TryPost(2), Posted::kYes);
  EXPECT_EQ(mailbox.TryPost(3), Posted::kFull);
  EXPECT_TRUE(mailbox.Post(4));
  gate.Open();
  holder.join();
  EXPECT_EQ(seen, (std::vector<int>{0, 1, 2, 4}));
  EXPECT_EQ(mailbox.TryPost(5), Posted::kYes);
}

TEST(Mailbox, WhatTheHandlerPostsComesAfterIt) {
  std::vector<int> seen;
  Mailbox<int>* self = nullptr;
  Mailbox<int> mailbox(4, [&](int item) {
    if (item < 3) self->TryPost(item + 1);
    seen.push_back(item);
  });
  self = &mailbox;
  mailbox.TryPost(1);
  EXPECT_EQ(seen, (std::vector<int>{1, 2, 3}));
}

TEST(Mailbox, CloseWaitsForTheHandlerAndDropsTheRest) {
  Gate gate;
  std::atomic<int> handled{0};
  Mailbox<int> mailbox(8, [&](int) {
    gate.Pass();
    ++handled;
  });
  std::thread holder([&] { mailbox.TryPost(0); });
  gate.AwaitSomebody();
  EXPECT_EQ(mailbox.TryPost(1), Posted::kYes);
  std::atomic<bool> closed{false};
  std::thread closer([&] {
    mailbox.Close();
    closed = true;
  });
  ASSERT_TRUE(WaitFor([&] { return mailbox.TryPost(2) == Posted::kClosed; }));
  EXPECT_FALSE(closed);
  gate.Open();
  closer.join();
  holder.join();
  EXPECT_EQ(handled, 1);
  EXPECT_FALSE(mailbox.Post(3));
}

}  // namespace
}  // namespace vrambroker::server
