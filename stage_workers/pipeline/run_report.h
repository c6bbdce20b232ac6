// What a run of a workload says at its end.
#ifndef VRAMBROKER_STAGE_WORKERS_PIPELINE_RUN_REPORT_H_
#define VRAMBROKER_STAGE_WORKERS_PIPELINE_RUN_REPORT_H_

#include <string>

#include "stage_workers/pipeline/driver.h"

namespace vrambroker::pipeline {

// Totals over the requests that ended well and count.
struct RunTotals {
  int requests = 0;
  int failed = 0;
  double p50_seconds = 0;
  double p95_seconds = 0;
  double mean_queued_seconds = 0;
  // Mean of a request.
  double stall_seconds = 0;
  // One digest of all results, warm-ups included, in the order of the workload.
  std::string result_sha256;
};

// What is not known, and figures of requests where none ended well, are "-" or "not known" in the
// table and null in JSON.
RunTotals Totals(const DriverReport& report);
std::string RunTable(const std::string& workload, const DriverReport& report);
std::string RunJson(const std::string& workload, const DriverReport& report);

}  // namespace vrambroker::pipeline

#endif  // VRAMBROKER_STAGE_WORKERS_PIPELINE_RUN_REPORT_H_
