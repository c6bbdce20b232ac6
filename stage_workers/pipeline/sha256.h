// SHA-256 (FIPS 180-4), for telling results apart.
#ifndef VRAMBROKER_STAGE_WORKERS_PIPELINE_SHA256_H_
#define VRAMBROKER_STAGE_WORKERS_PIPELINE_SHA256_H_

#include <string>
#include <string_view>

namespace vrambroker::pipeline {

// The digest of `bytes` in 64 lower-case hexadecimal digits.
std::string Sha256Hex(std::string_view bytes);

}  // namespace vrambroker::pipeline

#endif  // VRAMBROKER_STAGE_WORKERS_PIPELINE_SHA256_H_
