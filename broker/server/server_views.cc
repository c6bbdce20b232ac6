// What shows people what the broker does: the decision log, the metrics, the page.
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "broker/server/convert_decision_log.h"
#include "broker/server/server_parts.h"

namespace vrambroker::server {

void Server::Parts::Record(const core::Effect& effect) {
  if (const auto* decision = std::get_if<core::LogDecision>(&effect)) {
    decision_log->Write(*decision);
  } else {
    recorder.Note(effect, clock.Now());
  }
  WriteRecorded();
}

void Server::Parts::WriteRecorded() {
  for (v1::DecisionLogLine& line : recorder.Take()) decision_log->Write(std::move(line));
}

absl::Status Server::Parts::OpenDecisionLog(const core::Config& config) {
  if (options.decision_log.empty()) return absl::OkStatus();
  auto file = observe::DecisionLogFile::Open(options.decision_log, options.decision_log_max_bytes,
                                             options.decision_log_files);
  if (!file.ok()) {
    return absl::Status(file.status().code(),
                        absl::StrCat("--decision-log: ", file.status().message()));
  }
  v1::DecisionLogHeader header;
  header.set_version(1);
  header.set_broker_version(VRAM_BROKER_VERSION);
  header.set_broker_epoch(config.epoch.value());
  header.set_load_ahead(config.load_ahead);
  for (const Device& device : devices) Write(device.spec, header.add_devices());
  decision_log = std::make_unique<DecisionLog>(
      *std::move(file), std::move(header), [this](uint64_t lines, const std::string& why) {
        log.Write(LogLine{
            clock.Now(), "decision_log_dropped", {{"lines", absl::StrCat(lines)}, {"why", why}}});
      });
  return absl::OkStatus();
}

absl::Status Server::Parts::StartMetrics() {
  if (options.metrics_address.empty()) return absl::OkStatus();
  auto collected = std::make_shared<observe::Metrics>([this](observe::Metrics::Take take) {
    const size_t waiting = engine->waiting();
    engine->Inspect([=, this](const core::Machine& machine, absl::Time now) {
      take({machine.GetPicture(now), tally, waiting,
            decision_log == nullptr ? 0 : decision_log->dropped()});
    });
  });
  auto opened = observe::MetricsEndpoint::Open(options.metrics_address, std::move(collected));
  if (opened.ok()) {
    metrics = *std::move(opened);
  } else if (options.metrics_if_possible) {
    log.Write(LogLine{clock.Now(), "no_metrics", {{"error", opened.status().ToString()}}});
  } else {
    return opened.status();
  }
  return absl::OkStatus();
}

absl::Status Server::Parts::StartPage() {
  if (options.page_address.empty()) return absl::OkStatus();
  page_source = std::make_unique<PageSource>(engine.get(), feed.get());
  auto opened = page::Page::Open(options.page_address, page_source->Sources());
  if (opened.ok()) {
    page = *std::move(opened);
  } else if (options.page_if_possible) {
    log.Write(LogLine{clock.Now(), "no_page", {{"error", opened.status().ToString()}}});
  } else {
    return opened.status();
  }
  return absl::OkStatus();
}

}  // namespace vrambroker::server
