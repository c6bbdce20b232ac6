// What is answered to which request, but for the events.
#ifndef VRAMBROKER_BROKER_PAGE_ROUTES_H_
#define VRAMBROKER_BROKER_PAGE_ROUTES_H_

#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "broker/page/page.h"

namespace vrambroker::page {

struct Question {
  // Without the query, decoded.
  std::string path;
  std::map<std::string, std::string> query;
};

struct Reply {
  int status = 200;
  std::string type;
  std::string body;
  // Of a 405.
  std::string allow;
};

inline constexpr char kEventsPath[] = "/api/events";

// INVALID_ARGUMENT names a key of the query that the path does not know, or that comes twice.
// `target`: path and query as they were sent; of those that come twice with one value the library
// has left one in `query`.
// `target`: path and query as they were sent; of a key that comes twice with one value the library
// has left one in `query`.
absl::StatusOr<Question> ToQuestion(const std::string& path,
                                    const std::vector<std::pair<std::string, std::string>>& query,
                                    absl::string_view target);

// INVALID_ARGUMENT unless there is none, or one of 0 to kMaxContentLength: what a request brings
// along is not read.
inline constexpr int64_t kMaxContentLength = 16384;
absl::Status CheckContentLength(const std::vector<std::string>& values);

// As plain text, with the status of HTTP that stands for it.
Reply ToReply(const absl::Status& status);

// INVALID_ARGUMENT where the Host header of a request to a loopback address is not one of a
// loopback: 127.x.x.x, [::1] or localhost, with any port (it may have been forwarded).
absl::Status CheckLoopbackHost(absl::string_view host);

// Thread-safe.
class Routes {
 public:
  explicit Routes(Sources sources) : sources_(std::move(sources)) {}

  // Of any path but kEventsPath. Looks at the broker one at a time.
  Reply Answer(const Question& question) const;

 private:
  const Sources sources_;
  mutable std::mutex looking_;
};

}  // namespace vrambroker::page

#endif  // VRAMBROKER_BROKER_PAGE_ROUTES_H_
