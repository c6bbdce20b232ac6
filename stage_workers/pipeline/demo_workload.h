// The workload of the demo, which is part of the program.
#ifndef VRAMBROKER_STAGE_WORKERS_PIPELINE_DEMO_WORKLOAD_H_
#define VRAMBROKER_STAGE_WORKERS_PIPELINE_DEMO_WORKLOAD_H_

#include "absl/status/statusor.h"
#include "stage_workers/pipeline/weights.h"
#include "vrambroker/v1/workload.pb.h"

namespace vrambroker::pipeline {

// workloads/qwen-image-2.1-32g.json as it was when the program was built.
absl::StatusOr<v1::Workload> DemoWorkload();
// The text encoder's layers are three block lists: 36 of the language model, 27 of the vision part
// and 3 between them.
BlockLists DemoBlockLists();

}  // namespace vrambroker::pipeline

#endif  // VRAMBROKER_STAGE_WORKERS_PIPELINE_DEMO_WORKLOAD_H_
