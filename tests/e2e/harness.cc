#include "tests/e2e/harness.h"

#include <signal.h>
#include <sys/wait.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "stage_workers/offload/weights_writer.h"

namespace vrambroker::e2e {
namespace {

constexpr absl::Duration kStartTimeout = absl::Seconds(30);
constexpr absl::Duration kAnswerTimeout = absl::Seconds(10);
constexpr int kLogLines = 60;

void SetDeadline(grpc::ClientContext* context, absl::Duration timeout) {
  context->set_deadline(absl::ToChronoTime(absl::Now() + timeout));
}

std::string ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return std::string((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
}

// States of all threads of a process, as in /proc: one letter each.
std::string ThreadStates(pid_t pid) {
  std::string states;
  std::error_code error;
  for (const auto& entry :
       std::filesystem::directory_iterator(absl::StrCat("/proc/", pid, "/task"), error)) {
    const std::string stat = ReadFile(entry.path().string() + "/stat");
    const size_t after_name = stat.rfind(") ");
    if (after_name != std::string::npos && after_name + 2 < stat.size()) {
      states += stat[after_name + 2];
    }
  }
  return states;
}

void ExpectAddsUp(const v1::Picture& picture) {
  for (const v1::DevicePicture& d : picture.devices()) {
    EXPECT_EQ(d.free_bytes() + d.in_use_bytes() + d.retained_bytes() + d.permanent_bytes() +
                  d.pooled_bytes() + d.draining_bytes() + d.external_bytes() + d.reserve_bytes() -
                  d.overcommitted_bytes(),
              d.capacity_bytes())
        << d.DebugString();
    EXPECT_GE(d.free_bytes(), 0) << d.DebugString();
  }
}

}  // namespace

std::shared_ptr<grpc::Channel> Connect(const std::string& address) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  return grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments);
}

std::string Program(const std::string& name) { return pipeline::ProgramFolder() + "/" + name; }

void Process::Kill() {
  kill(pid(), SIGKILL);
  EXPECT_TRUE(WaitFor([this] { return !child_->Running(); }));
}

void Process::Freeze() {
  kill(pid(), SIGSTOP);
  EXPECT_TRUE(WaitFor([this] {
    const std::string states = ThreadStates(pid());
    return !states.empty() && states.find_first_not_of('T') == std::string::npos;
  }));
}

void Process::Thaw() { EXPECT_EQ(kill(pid(), SIGCONT), 0); }

absl::Status Process::Terminate(absl::Duration patience) {
  child_->Terminate();
  return child_->Join(patience);
}

std::string Process::Log() const { return ReadFile(child_->log()); }

StageCall::StageCall(const std::shared_ptr<grpc::Channel>& channel, v1::RunStageRequest request,
                     absl::Duration deadline)
    : stub_(v1::StageWorker::NewStub(channel)), request_(std::move(request)) {
  SetDeadline(&context_, deadline);
  thread_ = std::thread([this] {
    status_ = stub_->RunStage(&context_, request_, &response_);
    done_ = true;
  });
}

StageCall::~StageCall() {
  if (!done_) Cancel();
  if (thread_.joinable()) thread_.join();
}

const grpc::Status& StageCall::status() {
  if (thread_.joinable()) thread_.join();
  return status_;
}

const v1::RunStageResponse& StageCall::response() {
  EXPECT_TRUE(status().ok()) << status().error_message();
  return response_;
}

v1::RunStageRequest Stage(int64_t activation_bytes, int passes) {
  constexpr int kActivations = 4096;
  v1::RunStageRequest request;
  request.set_passes(passes);
  request.set_activation_bytes(activation_bytes);
  std::string* bytes = request.mutable_activations();
  for (int i = 0; i < kActivations; ++i) bytes->push_back(static_cast<char>(i * 31 + i / 256));
  return request;
}

std::unique_ptr<StageCall> StageWorker::Begin(const v1::RunStageRequest& request,
                                              absl::Duration deadline) {
  return std::make_unique<StageCall>(channel_, request, deadline);
}

v1::RunStageResponse StageWorker::Run(const v1::RunStageRequest& request) {
  const std::unique_ptr<StageCall> call = Begin(request);
  return call->response();
}

v1::StageWorkerStatus StageWorker::GetStatus() {
  grpc::ClientContext context;
  SetDeadline(&context, kAnswerTimeout);
  v1::StageWorkerStatus response;
  const grpc::Status status =
      v1::StageWorker::NewStub(channel_)->GetStatus(&context, v1::GetStatusRequest(), &response);
  EXPECT_TRUE(status.ok()) << name_ << ": " << status.error_message();
  return response;
}

v1::ComponentStatus StageWorker::Component() {
  const v1::StageWorkerStatus status = GetStatus();
  return status.components_size() == 0 ? v1::ComponentStatus() : status.components(0);
}

grpc::Status StageWorker::ReleaseAll(v1::ReleaseAllResponse* response) {
  grpc::ClientContext context;
  SetDeadline(&context, kStartTimeout);
  return v1::StageWorker::NewStub(channel_)->ReleaseAll(&context, v1::ReleaseAllRequest(),
                                                        response);
}

E2eTest::E2eTest() {
  absl::StatusOr<pipeline::TemporaryFolder> folder = pipeline::TemporaryFolder::Create();
  if (!folder.ok()) {
    ADD_FAILURE() << folder.status().ToString();
    std::abort();
  }
  folder_.emplace(*std::move(folder));
}

E2eTest::~E2eTest() {
  workers_.clear();
  broker_.reset();
  if (!HasFailure()) return;
  for (const std::string& name : logs_) {
    std::cerr << "---- the end of " << name << ".log ----\n"
              << pipeline::LastLines(LogPath(name), kLogLines) << "\n";
  }
}

std::string E2eTest::LogPath(const std::string& name) const {
  return absl::StrCat(folder_->path(), "/", name, ".log");
}

void E2eTest::MakeCard(const CardSetup& setup) {
  card::EmulatedCardOptions options;
  options.capacity_bytes = setup.capacity;
  options.h2d_bytes_per_second = setup.rate;
  options.usage_lag = setup.lag;
  absl::StatusOr<std::unique_ptr<card::EmulatedCard>> card =
      card::EmulatedCard::Create(card_name_.name(), options);
  ASSERT_TRUE(card.ok()) << card.status().ToString();
  card_ = *std::move(card);
}

std::unique_ptr<pipeline::ChildProcess> E2eTest::StartChild(
    const std::string& name, const std::vector<std::string>& command) {
  if (std::find(logs_.begin(), logs_.end(), name) == logs_.end()) logs_.push_back(name);
  absl::StatusOr<std::unique_ptr<pipeline::ChildProcess>> child =
      pipeline::ChildProcess::Start(command, LogPath(name));
  EXPECT_TRUE(child.ok()) << child.status().ToString();
  if (!child.ok()) std::abort();
  return *std::move(child);
}

std::unique_ptr<Process> E2eTest::StartProgram(const std::string& name,
                                               const std::vector<std::string>& command) {
  return std::make_unique<Process>(StartChild(name, command));
}

std::vector<std::string> E2eTest::BrokerCommand(const std::string& socket,
                                                const std::string& device,
                                                const std::vector<std::string>& flags) {
  std::vector<std::string> command = broker_program_;
  for (const std::string& flag :
       {"--listen=unix:" + socket, "--emulated-device=" + device, std::string("--reserve=0"),
        "--lock-dir=" + folder_->path(), std::string("--reading-interval=50ms"),
        std::string("--grow-wait=200ms")}) {
    command.push_back(flag);
  }
  command.insert(command.end(), flags.begin(), flags.end());
  return command;
}

void E2eTest::BeginBroker(const std::vector<std::string>& flags) {
  if (card_ == nullptr) {
    ASSERT_NO_FATAL_FAILURE(MakeCard(CardSetup{}));
  }
  const std::string device = absl::StrCat(card_name_.name(), "=", card_->CapacityBytes());
  broker_ = StartProgram("broker", BrokerCommand(folder_->path() + "/broker", device, flags));
}

void E2eTest::StartBroker(const std::vector<std::string>& flags) {
  ASSERT_NO_FATAL_FAILURE(BeginBroker(flags));
  const absl::Time give_up = absl::Now() + kStartTimeout;
  do {
    admin_ = v1::BrokerAdmin::NewStub(Connect(broker_address()));
    grpc::ClientContext context;
    SetDeadline(&context, absl::Milliseconds(500));
    v1::Picture picture;
    if (admin_->GetPicture(&context, v1::GetPictureRequest(), &picture).ok()) return;
  } while (broker_->Running() && absl::Now() < give_up);
  FAIL() << "the broker does not answer:\n" << broker_->Log();
}

std::string E2eTest::MakeWeights(const std::string& name, const WorkerSetup& setup) {
  v1::WorkloadComponent component;
  component.set_name(name);
  component.set_fixed_bytes(setup.fixed_bytes);
  v1::LayerGroup* group = component.add_layer_groups();
  group->set_count(setup.layers);
  group->set_layer_bytes(setup.layer_bytes);
  const absl::StatusOr<offload::WeightsPlan> plan = offload::PlanWeights(component, {}, 1);
  EXPECT_TRUE(plan.ok()) << plan.status().ToString();
  std::string path = offload::WeightsPath(folder_->path(), name);
  const absl::Status written = offload::WriteWeights(path, *plan, [](int64_t) {});
  EXPECT_TRUE(written.ok()) << written.ToString();
  return path;
}

bool E2eTest::Ready(const std::string& name) const {
  return std::filesystem::exists(absl::StrCat(folder_->path(), "/", name, ".ready"));
}

StageWorker& E2eTest::StartWorker(const std::string& name, const WorkerSetup& setup) {
  StageWorker& worker = BeginWorker(name, setup);
  EXPECT_TRUE(WaitFor([&] { return Ready(name) || !worker.Running(); }, kStartTimeout));
  EXPECT_TRUE(worker.Running() && Ready(name)) << worker.Log();
  return worker;
}

StageWorker& E2eTest::BeginWorker(const std::string& name, const WorkerSetup& setup) {
  const std::string ready = absl::StrCat(folder_->path(), "/", name, ".ready");
  std::filesystem::remove(ready);
  const std::string address = absl::StrCat("unix:", folder_->path(), "/", name);
  std::vector<std::string> command = {
      Program("vram-stage-worker"),
      "--name=" + name,
      "--component=" + name,
      "--weights=" + MakeWeights(name, setup),
      "--card=" + card_->Uuid(),
      "--listen=" + address,
      "--ready-file=" + ready,
      "--broker=" + (setup.broker.empty() ? broker_address() : setup.broker),
      "--lock-dir=" + folder_->path(),
      absl::StrCat("--pass-seconds=", setup.pass_seconds)};
  command.insert(command.end(), setup.flags.begin(), setup.flags.end());
  std::unique_ptr<pipeline::ChildProcess> child = StartChild(name, command);
  workers_[name] = std::make_unique<StageWorker>(std::move(child), name, address);
  return *workers_[name];
}

v1::Picture E2eTest::Picture() {
  grpc::ClientContext context;
  SetDeadline(&context, kAnswerTimeout);
  v1::Picture picture;
  const grpc::Status status = admin_->GetPicture(&context, v1::GetPictureRequest(), &picture);
  EXPECT_TRUE(status.ok()) << status.error_message();
  ExpectAddsUp(picture);
  return picture;
}

v1::DevicePicture E2eTest::Device() {
  const v1::Picture picture = Picture();
  EXPECT_EQ(picture.devices_size(), 1);
  return picture.devices_size() == 1 ? picture.devices(0) : v1::DevicePicture();
}

v1::ComponentPicture E2eTest::Component(const std::string& id) {
  const v1::DevicePicture device = Device();
  for (const v1::ComponentPicture& c : device.components()) {
    if (c.id() == id) return c;
  }
  return {};
}

v1::SessionPicture E2eTest::Session(const std::string& worker) {
  const v1::Picture picture = Picture();
  for (const v1::SessionPicture& s : picture.sessions()) {
    if (s.worker() == worker) return s;
  }
  return {};
}

bool E2eTest::Waits(const std::string& component_id) {
  const v1::Picture picture = Picture();
  for (const v1::WaitingUse& w : picture.waiting()) {
    if (w.component_id() == component_id) return true;
  }
  return false;
}

std::vector<v1::Decision> E2eTest::Decisions(v1::DecisionKind kind) {
  grpc::ClientContext context;
  SetDeadline(&context, kAnswerTimeout);
  v1::ListDecisionsRequest request;
  request.set_limit(4096);
  v1::ListDecisionsResponse response;
  const grpc::Status status = admin_->ListDecisions(&context, request, &response);
  EXPECT_TRUE(status.ok()) << status.error_message();
  std::vector<v1::Decision> decisions;
  for (const v1::Decision& d : response.decisions()) {
    if (d.kind() == kind) decisions.push_back(d);
  }
  return decisions;
}

int E2eTest::DeclaredRuns() {
  grpc::ClientContext context;
  SetDeadline(&context, kAnswerTimeout);
  v1::ListRunsResponse response;
  const grpc::Status status = admin_->ListRuns(&context, v1::ListRunsRequest(), &response);
  EXPECT_TRUE(status.ok()) << status.error_message();
  return response.runs_size();
}

int64_t E2eTest::OnCard(pid_t pid) {
  const absl::StatusOr<card::Usage> usage = card_->ReadUsage();
  EXPECT_TRUE(usage.ok()) << usage.status().ToString();
  if (!usage.ok()) return 0;
  const auto it = usage->by_pid.find(pid);
  return it == usage->by_pid.end() ? 0 : it->second;
}

int64_t E2eTest::UsedOnCard() {
  const absl::StatusOr<card::Usage> usage = card_->ReadUsage();
  EXPECT_TRUE(usage.ok()) << usage.status().ToString();
  return usage.ok() ? usage->total_used : 0;
}

testing::AssertionResult E2eTest::Eventually(const std::function<bool()>& condition,
                                             absl::Duration within) {
  if (WaitFor(condition, within)) return testing::AssertionSuccess();
  return testing::AssertionFailure()
         << "does not hold within " << absl::FormatDuration(within) << "; the picture:\n"
         << (admin_ == nullptr ? "(no broker)" : Picture().DebugString());
}

}  // namespace vrambroker::e2e
