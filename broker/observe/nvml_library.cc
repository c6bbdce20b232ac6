#include "broker/observe/nvml_library.h"

#include <dlfcn.h>

#include <utility>

#include "absl/strings/str_cat.h"

namespace vrambroker::observe {
namespace {

template <typename Call>
bool Find(void* library, const char* name, Call** call) {
  *call = reinterpret_cast<Call*>(dlsym(library, name));
  return *call != nullptr;
}

}  // namespace

absl::StatusOr<std::shared_ptr<NvmlLibrary>> NvmlLibrary::Load(const std::string& path) {
  void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    const char* reason = dlerror();
    return absl::UnavailableError(absl::StrCat(
        "no NVIDIA driver library: dlopen(\"", path, "\") answered: ",
        reason == nullptr ? "nothing" : reason, "; install the driver, or use emulated devices"));
  }
  std::shared_ptr<NvmlLibrary> library(new NvmlLibrary(path, handle));
  absl::Status found = library->FindCalls();
  if (!found.ok()) return found;
  absl::Status initialised = library->Check(library->calls_.init(), "nvmlInit_v2");
  if (!initialised.ok()) return initialised;
  library->initialised_ = true;
  return library;
}

NvmlLibrary::~NvmlLibrary() {
  if (initialised_) calls_.shutdown();
  dlclose(handle_);
}

absl::Status NvmlLibrary::FindCalls() {
  const char* missing = nullptr;
  auto need = [&](const char* name, auto** call) {
    if (!Find(handle_, name, call) && missing == nullptr) missing = name;
  };
  need("nvmlInit_v2", &calls_.init);
  need("nvmlShutdown", &calls_.shutdown);
  need("nvmlDeviceGetCount_v2", &calls_.device_count);
  need("nvmlDeviceGetHandleByIndex_v2", &calls_.device_by_index);
  need("nvmlDeviceGetHandleByUUID", &calls_.device_by_uuid);
  need("nvmlDeviceGetUUID", &calls_.device_uuid);
  need("nvmlDeviceGetMemoryInfo", &calls_.memory);
  Find(handle_, "nvmlErrorString", &calls_.error_string);
  Find(handle_, "nvmlDeviceGetMemoryInfo_v2", &calls_.memory_v2);
  Find(handle_, "nvmlDeviceGetComputeRunningProcesses_v3", &calls_.compute_processes);
  Find(handle_, "nvmlDeviceGetMigMode", &calls_.mig_mode);
  Find(handle_, "nvmlDeviceGetMaxMigDeviceCount", &calls_.mig_device_count);
  Find(handle_, "nvmlDeviceGetMigDeviceHandleByIndex", &calls_.mig_device_by_index);
  if (missing == nullptr) return absl::OkStatus();
  return absl::UnavailableError(
      absl::StrCat("the library \"", path_, "\" has no ", missing,
                   ": it is no NVIDIA driver library, or older than 450"));
}

absl::Status NvmlLibrary::Check(nvml::Result result, absl::string_view call) const {
  if (result == nvml::kSuccess) return absl::OkStatus();
  const char* text = calls_.error_string == nullptr ? nullptr : calls_.error_string(result);
  std::string message = absl::StrCat(call, " of \"", path_, "\" answered ", result,
                                     text == nullptr ? "" : absl::StrCat(" (", text, ")"));
  if (result == nvml::kNotFound) return absl::NotFoundError(message);
  if (result == nvml::kNoPermission) return absl::PermissionDeniedError(message);
  return absl::UnavailableError(message);
}

}  // namespace vrambroker::observe
