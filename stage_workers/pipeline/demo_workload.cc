#include "stage_workers/pipeline/demo_workload.h"

#include <google/protobuf/util/json_util.h>

#include "absl/strings/str_cat.h"
#include "stage_workers/offload/workload_file.h"

namespace vrambroker::pipeline {

// Generated from the workload's file.
extern const char kDemoWorkloadJson[];

absl::StatusOr<v1::Workload> DemoWorkload() {
  v1::Workload workload;
  const auto status = google::protobuf::util::JsonStringToMessage(kDemoWorkloadJson, &workload);
  if (!status.ok()) {
    return absl::InternalError(
        absl::StrCat("the demo's workload cannot be read: ", status.ToString()));
  }
  if (absl::Status checked = offload::CheckWorkload(workload); !checked.ok()) return checked;
  return workload;
}

BlockLists DemoBlockLists() { return {{"text_encoder", {36, 27, 3}}}; }

}  // namespace vrambroker::pipeline
