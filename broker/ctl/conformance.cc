#include "broker/ctl/conformance.h"

#include <unistd.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "broker/ctl/conformance_checks.h"

namespace vrambroker::ctl {
namespace {

// Nobody's but this run's.
std::string Suffix() {
  return absl::StrCat(getpid(), "-", absl::Hex(absl::ToUnixNanos(absl::Now())));
}

absl::Status ToAbsl(const grpc::Status& status) {
  return absl::Status(static_cast<absl::StatusCode>(status.error_code()), status.error_message());
}

// PERMISSION_DENIED where this caller lacks a role without which little can be checked: who has it
// is told that an empty request is wrong.
absl::Status CheckRoles(const ConformanceBed& bed) {
  v1::EndUseResponse ended;
  v1::DeclarePipelineResponse declared;
  for (const grpc::Status& status :
       {bed.Call(&BrokerStub::EndUse, v1::EndUseRequest(), &ended),
        bed.Call(&BrokerStub::DeclarePipeline, v1::DeclarePipelineRequest(), &declared)}) {
    if (status.error_code() == grpc::StatusCode::PERMISSION_DENIED) return ToAbsl(status);
  }
  return absl::OkStatus();
}

// `seen`: whether this caller may see the picture.
void CheckNothingLeft(const ConformanceBed& bed, bool seen) {
  bed.report->SetPart("left behind");
  if (!seen) {
    bed.report->NotProvoked("components of this run in the picture", "none",
                            "this caller has neither the role viewer nor admin");
    return;
  }
  v1::Picture picture;
  bed.report->Code("GetPicture", grpc::StatusCode::OK,
                   Ask(bed.admin, &v1::BrokerAdmin::Stub::GetPicture, v1::GetPictureRequest(),
                       &picture, bed.timeout));
  std::string left;
  for (const v1::DevicePicture& device : picture.devices()) {
    for (const v1::ComponentPicture& component : device.components()) {
      if (absl::StrContains(component.id(), bed.suffix))
        absl::StrAppend(&left, component.id(), " ");
    }
  }
  bed.report->Holds("components of this run in the picture", left.empty(), "none", left);
}

}  // namespace

absl::StatusOr<ConformanceReport> RunConformance(const ConformanceOptions& options) {
  const std::unique_ptr<BrokerStub> broker = v1::VramBroker::NewStub(options.channel);
  const std::unique_ptr<v1::BrokerAdmin::Stub> admin = v1::BrokerAdmin::NewStub(options.channel);
  ConformanceReport report;
  ConformanceBed bed{broker.get(), admin.get(),    options.timeout,
                     Suffix(),     options.device, options.start_time_ticks,
                     &report};
  v1::Picture picture;
  const grpc::Status seen = Ask(admin.get(), &v1::BrokerAdmin::Stub::GetPicture,
                                v1::GetPictureRequest(), &picture, options.timeout);
  if (!seen.ok() && seen.error_code() != grpc::StatusCode::PERMISSION_DENIED) {
    return ToAbsl(seen);
  }
  if (absl::Status roles = CheckRoles(bed); !roles.ok()) return roles;
  if (picture.draining()) {
    return absl::FailedPreconditionError(
        "the broker is draining and admits no use: restart it, or ask another");
  }
  if (bed.device.empty() && picture.devices_size() > 0) bed.device = picture.devices(0).uuid();
  // First of all, while no stream of this process is open.
  CheckAccess(&bed, options.socket_path);
  CheckSessions(&bed);
  CheckUses(&bed);
  CheckComponents(&bed);
  CheckRuns(&bed);
  CheckRepeats(&bed);
  CheckRanges(&bed);
  if (options.drain) CheckDrained(&bed);
  CheckNothingLeft(bed, seen.ok());
  NoteWhatIsLeftOut(&bed, options.drain);
  return report;
}

}  // namespace vrambroker::ctl
