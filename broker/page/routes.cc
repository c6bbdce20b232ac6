#include "broker/page/routes.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "broker/observe/host_and_port.h"
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

// As text of one line, whatever was sent: control characters and what is no ASCII in words.
std::string Shown(absl::string_view text) {
  constexpr size_t kMost = 80;
  return absl::CHexEscape(text.substr(0, kMost));
}

absl::Status GivenTwice(absl::string_view key) {
  return absl::InvalidArgumentError(absl::StrCat(Shown(key), ": given twice, once is allowed"));
}

// What the page itself puts into its address, and what the answers are asked with.
std::vector<std::string> KeysOf(const std::string& path) {
  if (path == "/") return {"device", "from", "to"};
  if (path == "/api/decisions") return {"after", "limit"};
  if (path == "/api/explain") return {"id"};
  return {};
}

// The number of that name; absent: `otherwise`.
template <typename Number>
absl::StatusOr<Number> NumberIn(const Question& question, const char* name, Number otherwise,
                                Number low, Number high) {
  const auto found = question.query.find(name);
  if (found == question.query.end()) return otherwise;
  Number value = 0;
  if (absl::SimpleAtoi(found->second, &value) && value >= low && value <= high) return value;
  return absl::InvalidArgumentError(absl::StrCat(name, ": '", Shown(found->second), "' given, ",
                                                 low, " to ", high, " is allowed"));
}

Reply NotFound(absl::string_view path) {
  return ToReply(absl::NotFoundError(
      absl::StrCat("nothing is at ", Shown(path),
                   "; there are /, /api/picture, /api/decisions?after=ID&limit=NUMBER, "
                   "/api/explain?id=ID and /api/events")));
}

}  // namespace

absl::StatusOr<Question> ToQuestion(const std::string& path,
                                    const std::vector<std::pair<std::string, std::string>>& query,
                                    absl::string_view target) {
  const std::vector<std::string> keys = KeysOf(path);
  Question question{path, {}};
  for (const auto& [key, value] : query) {
    if (std::find(keys.begin(), keys.end(), key) == keys.end()) {
      return absl::InvalidArgumentError(
          absl::StrCat("'", Shown(key), "' is no key of the query here; ",
                       keys.empty() ? "none is allowed" : absl::StrJoin(keys, ", "),
                       keys.empty()       ? ""
                       : keys.size() == 1 ? " is allowed"
                                          : " are allowed"));
    }
    if (!question.query.emplace(key, value).second) return GivenTwice(key);
  }
  const size_t mark = target.find('?');
  if (mark == absl::string_view::npos) return question;
  std::set<absl::string_view> sent;
  for (const absl::string_view one : absl::StrSplit(target.substr(mark + 1), '&')) {
    if (!sent.insert(one).second) return GivenTwice(one.substr(0, one.find('=')));
  }
  return question;
}

absl::Status CheckContentLength(const std::vector<std::string>& values) {
  if (values.empty()) return absl::OkStatus();
  int64_t length = 0;
  const std::string& one = values.front();
  const bool digits = !one.empty() && std::all_of(one.begin(), one.end(), absl::ascii_isdigit);
  if (values.size() == 1 && digits && absl::SimpleAtoi(one, &length) &&
      length <= kMaxContentLength) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "Content-Length: ",
      values.size() > 1 ? "given more than once" : absl::StrCat("'", Shown(one), "' given"),
      ", one of 0 to ", kMaxContentLength, " is allowed"));
}

Reply ToReply(const absl::Status& status) {
  return {HttpStatusOf(status), kText, absl::StrCat(status.message(), "\n"), ""};
}

absl::Status CheckLoopbackHost(absl::string_view host) {
  auto split = observe::SplitHostAndPort(host);
  if (!split.has_value()) split = observe::SplitHostAndPort(absl::StrCat(host, ":80"));
  if (split.has_value() && observe::IsLoopbackHost(split->host)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "Host: '", Shown(host),
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
