#include "broker/server/grpc_log.h"

#include <grpc/support/log.h>
#include <unistd.h>

#include <mutex>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/clock.h"

namespace vrambroker::server {
namespace {

LogFormat g_format = LogFormat::kText;
LogLevel g_least = LogLevel::kInfo;

LogLevel LevelOf(gpr_log_severity severity) {
  switch (severity) {
    case GPR_LOG_SEVERITY_DEBUG:
      return LogLevel::kDebug;
    case GPR_LOG_SEVERITY_INFO:
      return LogLevel::kInfo;
    case GPR_LOG_SEVERITY_ERROR:
      return LogLevel::kWarning;
  }
  return LogLevel::kWarning;
}

void Write(gpr_log_func_args* args) {
  const LogLevel level = LevelOf(args->severity);
  if (level < g_least) return;
  static std::mutex mutex;
  static LineBudget budget;
  std::lock_guard<std::mutex> lock(mutex);
  LogLine line;
  line.time = absl::Now();
  size_t held_back = 0;
  if (!budget.Pass(line.time, &held_back)) return;
  const absl::string_view file(args->file);
  line.event = "grpc";
  line.own_level = level;
  line.fields = {{"where", absl::StrCat(file.substr(file.rfind('/') + 1), ":", args->line)},
                 {"message", args->message}};
  if (held_back != 0) line.fields.emplace_back("lines_before_left_out", absl::StrCat(held_back));
  const std::string text = FormatLine(line, g_format) + "\n";
  if (write(STDERR_FILENO, text.data(), text.size()) < 0) return;  // nobody reads it
}

}  // namespace

bool LineBudget::Pass(absl::Time now, size_t* held_back) {
  if (now >= window_ends_) {
    window_ends_ = now + kWindow;
    passed_ = 0;
  }
  if (passed_ >= kLines) {
    ++held_back_;
    return false;
  }
  ++passed_;
  *held_back = held_back_;
  held_back_ = 0;
  return true;
}

void LogGrpcAs(LogFormat format, LogLevel least) {
  g_format = format;
  g_least = least;
  gpr_set_log_function(&Write);
}

}  // namespace vrambroker::server
