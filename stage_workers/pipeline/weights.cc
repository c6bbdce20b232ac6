#include "stage_workers/pipeline/weights.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "stage_workers/offload/weights_writer.h"

namespace vrambroker::pipeline {
namespace {

// A lock file that is held as long as the object lives.
class FolderLock {
 public:
  explicit FolderLock(const std::string& path)
      : fd_(open(path.c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0600)) {
    held_ = fd_ >= 0 && flock(fd_, LOCK_EX) == 0;
  }
  ~FolderLock() {
    if (fd_ >= 0) close(fd_);
  }
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

  bool held() const { return held_; }

 private:
  const int fd_;
  bool held_ = false;
};

}  // namespace

absl::Status EnsureWeights(
    const v1::Workload& workload, const BlockLists& lists, int64_t bytes_scale,
    const std::string& folder,
    const std::function<void(const std::string&, int64_t, int64_t)>& progress) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) return absl::UnavailableError(absl::StrCat(folder, ": ", error.message()));
  const FolderLock lock(folder + "/.lock");
  if (!lock.held()) {
    return absl::UnavailableError(
        absl::StrCat(folder, "/.lock: cannot be locked: ", std::strerror(errno)));
  }
  for (const v1::WorkloadComponent& component : workload.components()) {
    const auto counts = lists.find(component.name());
    const absl::StatusOr<offload::WeightsPlan> plan = offload::PlanWeights(
        component, counts == lists.end() ? std::vector<int>() : counts->second, bytes_scale);
    if (!plan.ok()) return plan.status();
    const std::string path = offload::WeightsPath(folder, component.name());
    if (offload::WeightsAreCurrent(path, *plan)) continue;
    absl::Status status = offload::WriteWeights(path, *plan, [&](int64_t written) {
      progress(component.name(), written, plan->data_bytes());
    });
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

}  // namespace vrambroker::pipeline
