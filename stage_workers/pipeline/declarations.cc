#include "stage_workers/pipeline/declarations.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "stage_workers/offload/weights_writer.h"

namespace vrambroker::pipeline {
namespace {

constexpr absl::Duration kAttachTimeout = absl::Seconds(30);
// The session is there sooner, or it is said what it waits for.
constexpr absl::Duration kSayWhatIsWaitedFor = absl::Milliseconds(300);
// A run waits so long for an answer of the broker.
constexpr absl::Duration kAnswerPatience = absl::Milliseconds(250);
// With nothing to tell, or nobody to tell it to, the session is looked at this often.
constexpr absl::Duration kLookAtSession = absl::Milliseconds(50);

v1::DeclarePipelineRequest ToDeclaration(const v1::WorkloadPipeline& pipeline, int64_t scale) {
  v1::DeclarePipelineRequest request;
  request.set_pipeline(pipeline.name());
  for (const v1::WorkloadStage& stage : pipeline.stages()) {
    v1::StageSpec* spec = request.add_stages();
    spec->set_component(stage.component());
    spec->set_passes(stage.passes());
    const int64_t declared = stage.declared_activation_bytes() > 0
                                 ? stage.declared_activation_bytes()
                                 : stage.activation_bytes();
    spec->set_activation_bytes(offload::ScaleBytes(declared, scale));
    spec->set_shape(stage.shape());
  }
  return request;
}

// What keeps the session from beginning, and what can be done about it.
std::string Waiting(const client::BrokerClient& client) {
  std::string waiting = client.WaitingFor();
  if (absl::StrContains(waiting, "is in use by process")) {
    absl::StrAppend(&waiting, "; give this run another --name, or wait for that process to end");
  }
  return waiting;
}

// Says at once, and whenever it changes, what it waits for.
absl::Status WaitForSession(client::BrokerClient& client,
                            const std::function<void(const std::string&)>& notice) {
  const absl::Time give_up = absl::Now() + kAttachTimeout;
  std::string said;
  while (true) {
    const absl::Status ready =
        client.WaitReady(std::min(give_up, absl::Now() + kSayWhatIsWaitedFor));
    if (ready.ok()) return ready;
    const std::string waiting = Waiting(client);
    if (!absl::IsDeadlineExceeded(ready)) {
      return absl::Status(ready.code(), waiting.empty() ? std::string(ready.message()) : waiting);
    }
    if (absl::Now() >= give_up) {
      return absl::DeadlineExceededError(
          absl::StrCat(waiting, "; given up after ", absl::FormatDuration(kAttachTimeout)));
    }
    if (notice && waiting != said && !waiting.empty()) {
      notice(absl::StrCat("waits up to ", absl::FormatDuration(kAttachTimeout), ": ", waiting));
    }
    said = waiting;
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<Declarations>> Declarations::Create(const DriverOptions& options) {
  if (options.broker == "none" || options.declared == Declared::kNone) {
    return std::unique_ptr<Declarations>(new Declarations(nullptr, Declared::kNone));
  }
  client::ClientOptions client_options;
  client_options.address = options.broker;
  client_options.tls = options.tls;
  client_options.worker = options.name;
  absl::StatusOr<std::unique_ptr<client::BrokerClient>> client =
      client::BrokerClient::Create(std::move(client_options));
  if (!client.ok()) return client.status();
  if (absl::Status ready = WaitForSession(**client, options.notice); !ready.ok()) return ready;
  for (const v1::WorkloadPipeline& pipeline : options.workload.pipelines()) {
    absl::Status status = (*client)->DeclarePipeline(ToDeclaration(pipeline, options.bytes_scale));
    if (!status.ok()) return status;
  }
  return std::unique_ptr<Declarations>(new Declarations(*std::move(client), options.declared));
}

Declarations::Declarations(std::unique_ptr<client::BrokerClient> client, Declared declared)
    : client_(std::move(client)), declared_(declared) {
  if (client_ != nullptr) thread_ = std::thread([this] { Work(); });
}

Declarations::~Declarations() {
  if (client_ == nullptr) return;
  {
    std::unique_lock<std::mutex> lock(mutex_);
    // Runs that never started are nobody's; their ends go out with the session.
    std::erase_if(runs_, [](const auto& entry) { return entry.second.id == 0; });
    WaitWhileAnswered(lock);
    stopping_ = true;
    changed_.notify_all();
  }
  thread_.join();
}

void Declarations::Arrived(int run, const std::string& pipeline) {
  if (client_ == nullptr || declared_ != Declared::kAll) return;
  const std::lock_guard<std::mutex> lock(mutex_);
  runs_[run].pipeline = pipeline;
  changed_.notify_all();
}

void Declarations::Started(int run, const std::string& pipeline) {
  if (client_ == nullptr) return;
  std::unique_lock<std::mutex> lock(mutex_);
  Entry& entry = runs_[run];
  entry.pipeline = pipeline;
  entry.refused = false;
  changed_.notify_all();
  WaitWhileAnswered(lock);
  if (runs_[run].id == 0) ++undeclared_runs_;
}

uint64_t Declarations::IdOf(int run) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto found = runs_.find(run);
  return found == runs_.end() ? 0 : found->second.id;
}

void Declarations::Finished(int run) {
  if (client_ == nullptr) return;
  std::unique_lock<std::mutex> lock(mutex_);
  const auto found = runs_.find(run);
  if (found == runs_.end()) return;
  if (found->second.id != 0) over_.push_back(found->second.id);
  runs_.erase(found);
  changed_.notify_all();
  WaitWhileAnswered(lock);
}

// As long as there is something to tell and answers come.
void Declarations::WaitWhileAnswered(std::unique_lock<std::mutex>& lock) {
  const absl::Time began = absl::Now();
  while (!stalled_ && InHand()) {
    const absl::Time give_up = std::max(began, answered_at_) + kAnswerPatience;
    if (absl::Now() >= give_up) {
      stalled_ = true;
      undeclared_reason_.Update(absl::UnavailableError(absl::StrCat(
          "the broker has answered nothing for ", absl::FormatDuration(kAnswerPatience))));
      return;
    }
    changed_.wait_until(lock, absl::ToChronoTime(give_up));
  }
}

void Declarations::Work() {
  std::unique_lock<std::mutex> lock(mutex_);
  while (!stopping_) {
    FollowSession();
    const std::optional<Job> job = session_.id == 0 ? std::nullopt : NextJob();
    if (!job.has_value()) {
      // The session is looked at again: nobody says that it changed.
      changed_.wait_for(lock, absl::ToChronoNanoseconds(kLookAtSession));
      continue;
    }
    calling_ = true;
    lock.unlock();
    absl::StatusOr<uint64_t> answer = job->id;
    if (job->finish) {
      const absl::Status finished = client_->FinishRun(job->id);
      if (!finished.ok()) answer = finished;
    } else {
      answer = client_->DeclareRun(job->pipeline);
    }
    lock.lock();
    calling_ = false;
    Take(*job, answer);
    changed_.notify_all();
  }
}

// A new broker knows nothing of what was declared to an older one.
void Declarations::FollowSession() {
  const client::SessionInfo now = client_->session();
  if (now.id == session_.id && now.epoch == session_.epoch) return;
  const bool new_broker = now.id != 0 && now.epoch != session_.epoch;
  for (auto& [run, entry] : runs_) {
    if (new_broker) entry.id = 0;
    entry.refused = false;
  }
  if (new_broker) over_.clear();
  // While there is none the last one's epoch is what the ids belong to.
  session_.id = now.id;
  if (now.id != 0) session_.epoch = now.epoch;
}

std::optional<Declarations::Job> Declarations::NextJob() const {
  if (!over_.empty()) return Job{.finish = true, .run = 0, .id = over_.front(), .pipeline = ""};
  for (const auto& [run, entry] : runs_) {
    if (entry.id == 0 && !entry.refused)
      return Job{.finish = false, .run = run, .id = 0, .pipeline = entry.pipeline};
  }
  return std::nullopt;
}

void Declarations::Take(const Job& job, const absl::StatusOr<uint64_t>& answer) {
  // Not answered: the same again, in the next session.
  const bool answered = answer.ok() || !(absl::IsUnavailable(answer.status()) ||
                                         absl::IsDeadlineExceeded(answer.status()) ||
                                         absl::IsAborted(answer.status()));
  if (answered) {
    answered_at_ = absl::Now();
    stalled_ = false;
  }
  if (job.finish) {
    // A run that the broker no longer knows is over as well.
    if (answered && !over_.empty() && over_.front() == job.id) over_.pop_front();
    return;
  }
  if (!answer.ok()) undeclared_reason_ = answer.status();
  const auto found = runs_.find(job.run);
  if (found == runs_.end()) {
    if (answer.ok()) over_.push_back(*answer);  // it ended meanwhile
    return;
  }
  if (answer.ok()) found->second.id = *answer;
  if (!answer.ok() && answered) found->second.refused = true;
}

int Declarations::undeclared_runs() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return undeclared_runs_;
}

absl::Status Declarations::undeclared_reason() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return undeclared_reason_;
}

}  // namespace vrambroker::pipeline
