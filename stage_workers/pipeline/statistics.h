// Figures over requests.
#ifndef VRAMBROKER_STAGE_WORKERS_PIPELINE_STATISTICS_H_
#define VRAMBROKER_STAGE_WORKERS_PIPELINE_STATISTICS_H_

#include <vector>

namespace vrambroker::pipeline {

// The `percent`-th percentile by nearest rank: the smallest value that at least that share of the
// values does not exceed. `percent` is 0 to 100. 0 of no values.
double Percentile(std::vector<double> values, double percent);

// 0 of no values.
double Mean(const std::vector<double>& values);

}  // namespace vrambroker::pipeline

#endif  // VRAMBROKER_STAGE_WORKERS_PIPELINE_STATISTICS_H_
