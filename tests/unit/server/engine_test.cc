// The engine without gRPC around it: every call gets one answer, whoever else is at work.
#include "broker/server/engine.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdio>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "tests/poll.h"

namespace vrambroker::server {
namespace {

constexpr int64_t kMiB = 1 << 20;

// A call that no gRPC knows of: keeps its answer.
class TestCall final : public UnaryCall {
 public:
  using UnaryCall::UnaryCall;

  void Complete(const Result& result) override { Keep(result); }
  void Refuse(const absl::Status& status) override { Keep(status); }

  const Result& Await() {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [this] { return answers_ > 0; });
    return result_;
  }
  int answers() {
    std::lock_guard<std::mutex> lock(mutex_);
    return answers_;
  }

 private:
  void Keep(Result result) {
    std::lock_guard<std::mutex> lock(mutex_);
    ++answers_;
    result_ = std::move(result);
    changed_.notify_all();
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  int answers_ = 0;
  Result result_;
};

class EngineTest : public testing::Test {
 protected:
  EngineTest()
      : log_(fileno(log_file_.get()), LogFormat::kJson), watch_(*observe::ProcessWatch::Start()) {
    core::DeviceSpec device;
    device.uuid = "d";
    device.capacity = core::Bytes(64 * kMiB);
    EngineHooks hooks;
    hooks.wake_at = [](absl::Time) {};
    hooks.want_reading = [](const std::string&) {};
    hooks.reading_began = [this](const core::ReadingBeganEvent& event) { began_ = event.reading; };
    hooks.changed = [this] { ++changes_; };
    hooks.draining = [] {};
    engine_ = std::make_unique<Engine>(core::Config(), std::vector<core::DeviceSpec>{device},
                                       clock_, &log_, watch_.get(), Engine::Records(), hooks);
  }
  ~EngineTest() override {
    engine_->Stop();
    for (const auto& stream : streams_) {
      static_cast<grpc::ServerWriteReactor<v1::Directive>&>(*stream).OnDone();
    }
    watch_.reset();
  }

  core::SessionId Attach(const std::string& worker) {
    auto stream = AttachStream::Create(engine_.get());
    stream->worker = worker;
    core::AttachEvent event;
    event.worker = worker;
    event.attach_number = 1;
    core::ComponentSpec spec;
    spec.name = "c";
    spec.layers = core::LayerTable({{8, core::Bytes(kMiB)}});
    event.components.push_back(spec);
    engine_->SubmitAttach(stream, std::move(event));
    streams_.push_back(stream);
    EXPECT_TRUE(stream->session);
    return stream->session;
  }

  static core::BeginUseEvent Begin(core::SessionId session, const std::string& id, int mib) {
    core::BeginUseEvent event;
    event.header.session = session;
    event.header.request_id = id;
    event.header.fingerprint = 1;
    event.use.component = "c";
    event.use.activation = core::Bytes(mib * kMiB);
    return event;
  }

  static core::EndUseEvent End(core::SessionId session, const std::string& id,
                               const std::string& begin_id, uint64_t sequence) {
    core::EndUseEvent event;
    event.header.session = session;
    event.header.request_id = id;
    event.header.fingerprint = 2;
    event.begin_request_id = begin_id;
    event.snapshot.sequence = sequence;
    // Never converges: what four idle components are charged then leaves room for one use.
    event.snapshot.components.push_back({"c", 0, core::Generation(), true});
    return event;
  }

  // All that was logged so far.
  std::string Logged() const {
    std::string text(1 << 16, '\0');
    const ssize_t size = pread(fileno(log_file_.get()), text.data(), text.size(), 0);
    text.resize(static_cast<size_t>(std::max<ssize_t>(0, size)));
    return text;
  }

  Clock clock_;
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> log_file_{std::tmpfile(), &std::fclose};
  Log log_;
  std::unique_ptr<observe::ProcessWatch> watch_;
  std::atomic<uint64_t> began_{0};
  std::atomic<int> changes_{0};
  std::unique_ptr<Engine> engine_;
  std::vector<std::shared_ptr<AttachStream>> streams_;
};

TEST_F(EngineTest, ARefusalIsLoggedUnderTheNameOfItsRequest) {
  const core::SessionId session = Attach("w");
  TestCall call(engine_.get());
  engine_->Submit(&call, Begin(session, "too-much", 1000));
  EXPECT_EQ(call.answers(), 1);
  EXPECT_TRUE(WaitFor([this] {
    return absl::StrContains(Logged(), "\"event\":\"refused\"") &&
           absl::StrContains(Logged(), "\"request\":\"too-much\"");
  })) << Logged();
}

TEST_F(EngineTest, ReadingsThatFailAreLoggedOnceAndThatTheyAreBack) {
  const std::vector<absl::Status> readings = {absl::UnavailableError("lost card"),
                                              absl::UnavailableError("lost card"), absl::OkStatus(),
                                              absl::OkStatus()};
  uint64_t number = 0;
  for (const absl::Status& status : readings) {
    engine_->Post(core::ReadingBeganEvent{"d", ++number});
    core::ReadingEvent event;
    event.device_uuid = "d";
    event.reading = number;
    event.status = status;
    engine_->Post(event);
  }
  EXPECT_TRUE(WaitFor([this] { return absl::StrContains(Logged(), "reading_back"); })) << Logged();
  const std::string line =
      R"("level":"warning","event":"reading_failed","device":"d","error":"UNAVAILABLE: lost card")";
  for (const std::string& once : {line, std::string("reading_back")}) {
    const std::vector<std::string> parts = absl::StrSplit(Logged(), once);
    EXPECT_EQ(parts.size(), 2u) << once << " in " << Logged();
  }
}

TEST_F(EngineTest, AnswersOnTheCallersThread) {
  const core::SessionId session = Attach("w");
  TestCall call(engine_.get());
  engine_->Submit(&call, Begin(session, "b", 1));
  EXPECT_EQ(call.answers(), 1);
  EXPECT_TRUE(std::holds_alternative<core::BeginAnswer>(call.Await()));
  EXPECT_GT(changes_, 0);
}

TEST_F(EngineTest, ACancelledCallIsAnsweredOnce) {
  const core::SessionId first = Attach("first"), second = Attach("second");
  TestCall holder(engine_.get()), waiter(engine_.get());
  engine_->Submit(&holder, Begin(first, "b", 50));
  engine_->Submit(&waiter, Begin(second, "b", 50));
  EXPECT_EQ(waiter.answers(), 0);
  engine_->CallCancelled(waiter.id());
  engine_->CallCancelled(waiter.id());
  ASSERT_EQ(waiter.answers(), 1);
  EXPECT_EQ(std::get<absl::Status>(waiter.Await()).code(), absl::StatusCode::kCancelled);
}

TEST_F(EngineTest, AReadingIsKnownBeforeItsSample) {
  engine_->Post(core::ReadingBeganEvent{"d", 7});
  EXPECT_EQ(began_, 7u);
}

TEST_F(EngineTest, AStreamThatEndsLosesItsSession) {
  const core::SessionId session = Attach("w");
  engine_->StreamEnded(streams_[0]->id);
  engine_->StreamEnded(streams_[0]->id);
  TestCall call(engine_.get());
  engine_->Submit(&call, Begin(session, "b", 1));
  EXPECT_EQ(std::get<absl::Status>(call.Await()).code(), absl::StatusCode::kAborted);
}

TEST_F(EngineTest, EveryCallGetsOneAnswerWhileManySubmitAndCancel) {
  constexpr int kThreads = 4;
  constexpr int kEach = 150;
  std::vector<core::SessionId> sessions;
  sessions.reserve(kThreads);
  for (int t = 0; t < kThreads; ++t) sessions.push_back(Attach(absl::StrCat("w", t)));
  std::vector<std::vector<std::unique_ptr<TestCall>>> calls(kThreads);
  std::atomic<bool> done{false};
  std::atomic<uint64_t> newest{0};
  std::thread canceller([&] {
    std::mt19937_64 random(1);
    uint64_t last = 0;  // a caller gives up once
    while (!done) {
      const uint64_t call = newest - std::min<uint64_t>(newest, random() % 4);
      if (call > last) engine_->CallCancelled(core::CallId(last = call));
      std::this_thread::yield();
    }
  });
  std::vector<std::thread> threads;
  threads.reserve(kThreads);
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      auto& mine = calls[static_cast<size_t>(t)];
      const core::SessionId session = sessions[static_cast<size_t>(t)];
      for (int i = 0; i < kEach; ++i) {
        const std::string begin_id = absl::StrCat("b", i);
        for (const bool begins : {true, false}) {
          mine.push_back(std::make_unique<TestCall>(engine_.get()));
          if (begins) {
            engine_->Submit(mine.back().get(), Begin(session, begin_id, 30));
          } else {
            engine_->Submit(mine.back().get(), End(session, absl::StrCat("e", i), begin_id,
                                                   static_cast<uint64_t>(i) + 1));
          }
          newest = mine.back()->id().value();
          mine.back()->Await();
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  done = true;
  canceller.join();
  for (const auto& mine : calls) {
    for (const auto& call : mine) EXPECT_EQ(call->answers(), 1);
  }
}

TEST_F(EngineTest, StopAnswersWhatWaitsAndWhatComesLater) {
  constexpr int kThreads = 3;
  std::vector<core::SessionId> sessions;
  sessions.reserve(kThreads);
  for (int t = 0; t < kThreads; ++t) sessions.push_back(Attach(absl::StrCat("w", t)));
  std::vector<std::vector<std::unique_ptr<TestCall>>> calls(kThreads);
  std::atomic<int> submitted{0};
  std::vector<std::thread> threads;
  threads.reserve(kThreads);
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      auto& mine = calls[static_cast<size_t>(t)];
      for (int i = 0; i < 300; ++i) {
        mine.push_back(std::make_unique<TestCall>(engine_.get()));
        engine_->Submit(mine.back().get(),
                        Begin(sessions[static_cast<size_t>(t)], absl::StrCat("b", i), 50));
        ++submitted;
      }
    });
  }
  EXPECT_TRUE(WaitFor([&] { return submitted > 50; }));
  engine_->Stop();
  for (std::thread& thread : threads) thread.join();
  int unavailable = 0;
  for (const auto& mine : calls) {
    for (const auto& call : mine) {
      ASSERT_EQ(call->answers(), 1);
      const auto* status = std::get_if<absl::Status>(&call->Await());
      unavailable += status != nullptr && absl::IsUnavailable(*status) ? 1 : 0;
    }
  }
  EXPECT_GT(unavailable, 0);
}

}  // namespace
}  // namespace vrambroker::server
