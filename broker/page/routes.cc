#include "broker/page/routes.h"

#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "broker/page/assets.h"

namespace vrambroker::page {
namespace {

constexpr char kText[] = "text/plain; charset=utf-8";
constexpr char kJson[] = "application/json; charset=utf-8";
constexpr int kDefaultDecisions = 100;

absl::string_view TypeOf(absl::string_view path) {
  if (absl::EndsWith(path, ".html")) return "text/html; charset=utf-8";
  if (absl::EndsWith(path, ".css")) return "text/css; charset=utf-8";
  if (absl::EndsWith(path, ".svg")) return "image/svg+xml";
  return "text/javascript; charset=utf-8";
}

int HttpStatusOf(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kInvalidArgument:
      return 400;
    case absl::StatusCode::kNotFound:
      return 404;
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kResourceExhausted:
    case absl::StatusCode::kDeadlineExceeded:
      return 503;
    default:
      return 500;
  }
}

Reply ToReply(Sources::Answer answer) {
  if (!answer.ok()) return page::ToReply(answer.status());
  return {200, kJson, *std::move(answer), ""};
}

// The number of that name; absent: `otherwise`.
template <typename Number>
absl::StatusOr<Number> NumberIn(const Question& question, const char* name, Number otherwise,
                                Number low, Number high) {
  const auto found = question.query.find(name);
  if (found == question.query.end()) return otherwise;
  Number value = 0;
  if (absl::SimpleAtoi(found->second, &value) && value >= low && value <= high) return value;
  return absl::InvalidArgumentError(absl::StrCat(name, ": '", found->second.substr(0, 40),
                                                 "' given, ", low, " to ", high, " is allowed"));
}

Reply NotFound(absl::string_view path) {
  return ToReply(absl::NotFoundError(
      absl::StrCat("nothing is at ", path.substr(0, 80),
                   "; there are /, /api/picture, /api/decisions?after=ID&limit=NUMBER, "
                   "/api/explain?id=ID and /api/events")));
}

// Four numbers of 0 to 255 that begin with 127.
bool IsIpv4Loopback(absl::string_view host) {
  const std::vector<std::string> parts = absl::StrSplit(host, '.');
  if (parts.size() != 4 || parts[0] != "127") return false;
  for (const std::string& part : parts) {
    int number = -1;
    if (!absl::SimpleAtoi(part, &number) || number < 0 || number > 255) return false;
  }
  return true;
}

}  // namespace

Reply ToReply(const absl::Status& status) {
  return {HttpStatusOf(status), kText, absl::StrCat(status.message(), "\n"), ""};
}

absl::Status CheckLoopbackHost(absl::string_view host) {
  absl::string_view name = host;
  int port = 0;
  const size_t colon = host.rfind(':');
  if (colon != absl::string_view::npos && !absl::EndsWith(host, "]")) {
    if (!absl::SimpleAtoi(host.substr(colon + 1), &port) || port < 0 || port > 65535) port = -1;
    name = host.substr(0, colon);
  }
  if (port >= 0 &&
      (absl::EqualsIgnoreCase(name, "localhost") || name == "[::1]" || IsIpv4Loopback(name))) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "Host: '", host.substr(0, 80),
      "' given, localhost, 127.x.x.x and [::1] are allowed: this page is served to its own machine "
      "only; --page-address=HOST:PORT serves it at another address"));
}

Reply Routes::Answer(const Question& question) const {
  const std::string& path = question.path;
  if (const Asset* asset = FindAsset(path == "/" ? "/page.html" : path)) {
    return {200, std::string(TypeOf(asset->path)), std::string(asset->content), ""};
  }
  if (path == "/api/picture") {
    std::lock_guard<std::mutex> lock(looking_);
    return ToReply(sources_.picture());
  }
  if (path == "/api/decisions") {
    const auto after = NumberIn<uint64_t>(question, "after", 0, 0, ~uint64_t{0});
    if (!after.ok()) return ToReply(after.status());
    const auto limit = NumberIn<int>(question, "limit", kDefaultDecisions, 1, Page::kMaxDecisions);
    if (!limit.ok()) return ToReply(limit.status());
    std::lock_guard<std::mutex> lock(looking_);
    return ToReply(sources_.decisions(*after, *limit));
  }
  if (path == "/api/explain") {
    const auto id = NumberIn<uint64_t>(question, "id", 0, 1, ~uint64_t{0});
    if (!id.ok()) return ToReply(id.status());
    if (*id == 0) return ToReply(absl::InvalidArgumentError("id: the id of a decision is needed"));
    std::lock_guard<std::mutex> lock(looking_);
    return ToReply(sources_.explanation(*id));
  }
  return NotFound(path);
}

}  // namespace vrambroker::page
