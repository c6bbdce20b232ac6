#include "broker/server/page_source.h"

#include <google/protobuf/util/json_util.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <ctime>
#include <mutex>
#include <optional>
#include <utility>

#include "broker/server/convert_answers.h"
#include "broker/server/convert_explanation.h"
#include "broker/server/looks.h"

namespace vrambroker::server {
namespace {

constexpr int kShare = 64;
constexpr absl::Duration kMaxInterval = absl::Seconds(10);

// As vramctl prints it.
std::string ToJson(const google::protobuf::Message& message) {
  google::protobuf::util::JsonPrintOptions options;
  options.always_print_primitive_fields = true;
  options.preserve_proto_field_names = true;
  std::string json;
  // Messages without Any can always be printed.
  (void)!google::protobuf::util::MessageToJsonString(message, &json, options).ok();
  return json;
}

// What of a picture does not change with time alone: nobody needs another one for the rest.
std::string Lasting(const v1::Picture& picture) {
  v1::Picture copy = picture;
  copy.clear_time();
  copy.clear_recovery_left();
  for (v1::WaitingUse& one : *copy.mutable_waiting()) one.clear_waited();
  for (v1::DevicePicture& device : *copy.mutable_devices()) {
    for (v1::ComponentPicture& one : *device.mutable_components()) {
      if (one.has_release_asked()) one.mutable_release_asked()->Clear();
    }
  }
  if (picture.has_recovery_left()) copy.mutable_recovery_left();
  return copy.SerializeAsString();
}

absl::Duration ThreadTime() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return absl::DurationFromTimespec(time);
}

}  // namespace

// From the feed to those who watch the page, as long as there are any.
class PictureTap final : public PictureWatcher {
 public:
  explicit PictureTap(std::shared_ptr<page::Watchers> watchers) : watchers_(std::move(watchers)) {}

  void End() { done_ = true; }
  // The next picture is shown whether or not anything has changed.
  void Renew() { renew_ = true; }

  void Send(PicturePtr picture) override {
    std::string lasting = Lasting(*picture);
    if (!renew_.exchange(false) && lasting == lasting_) return;
    lasting_ = std::move(lasting);
    watchers_->Publish(std::make_shared<page::Frame>([picture = std::move(picture), cost = cost_] {
      const absl::Duration began = ThreadTime();
      std::string json = ToJson(*picture);
      *cost = absl::ToInt64Nanoseconds(ThreadTime() - began);
      return json;
    }));
  }
  void Close(const absl::Status&) override { watchers_->Close(); }
  bool done() const override { return done_; }
  absl::Duration min_interval() const override {
    return std::clamp(absl::Nanoseconds(cost_->load()) * kShare, PageSource::kMinInterval,
                      kMaxInterval);
  }

 private:
  const std::shared_ptr<page::Watchers> watchers_;
  std::string lasting_;  // of the last that was shown
  std::atomic<bool> renew_{true};
  // Nanoseconds that making the last picture's text took.
  const std::shared_ptr<std::atomic<int64_t>> cost_ = std::make_shared<std::atomic<int64_t>>(0);
  std::atomic<bool> done_{false};
};

PageSource::Answer PageSource::Look(
    std::function<Answer(const core::Machine&, absl::Time)> look) const {
  // Where the look and the one who waits for it meet; whoever comes too late meets nobody.
  struct Meeting {
    std::mutex mutex;
    std::condition_variable come;
    std::optional<Answer> answer;
  };
  const auto meeting = std::make_shared<Meeting>();
  engine_->Inspect([meeting, look = std::move(look)](const core::Machine& machine, absl::Time now) {
    Answer answer = look(machine, now);
    std::lock_guard<std::mutex> lock(meeting->mutex);
    meeting->answer = std::move(answer);
    meeting->come.notify_one();
  });
  std::unique_lock<std::mutex> lock(meeting->mutex);
  meeting->come.wait_for(lock, absl::ToChronoNanoseconds(kPatience),
                         [&] { return meeting->answer.has_value(); });
  if (meeting->answer.has_value()) return *std::move(meeting->answer);
  return absl::UnavailableError("the broker does not answer now; try again in some seconds");
}

page::Sources PageSource::Sources() {
  page::Sources sources;
  sources.picture = [this] {
    const auto picture = std::make_shared<v1::Picture>();
    const Answer looked = Look([picture](const core::Machine& machine, absl::Time now) -> Answer {
      Write(machine.GetPicture(now), picture.get());
      return "";
    });
    return looked.ok() ? Answer(ToJson(*picture)) : looked;
  };
  sources.decisions = [this](uint64_t after, int limit) {
    const auto decisions = std::make_shared<v1::ListDecisionsResponse>();
    const Answer looked = Look([=](const core::Machine& machine, absl::Time) -> Answer {
      CopyDecisions(machine, static_cast<size_t>(limit), core::DecisionId(after), decisions.get());
      return "";
    });
    return looked.ok() ? Answer(ToJson(*decisions)) : looked;
  };
  sources.explanation = [this](uint64_t id) {
    const auto explanation = std::make_shared<v1::ExplainDecisionResponse>();
    const Answer looked = Look([=](const core::Machine& machine, absl::Time) -> Answer {
      const absl::StatusOr<core::Explanation> why = machine.Explain(core::DecisionId(id));
      if (!why.ok()) return why.status();
      Write(*why, explanation.get());
      return "";
    });
    return looked.ok() ? Answer(ToJson(*explanation)) : looked;
  };
  sources.watch.begin = [this](const std::shared_ptr<page::Watchers>& watchers) {
    tap_ = std::make_shared<PictureTap>(watchers);
    return feed_->Add(tap_);
  };
  sources.watch.renew = [this] {
    tap_->Renew();
    feed_->Changed();
  };
  sources.watch.end = [this] {
    tap_->End();
    tap_ = nullptr;
  };
  return sources;
}

}  // namespace vrambroker::server
