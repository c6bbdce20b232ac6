// What is answered to which request, but for the events.
#ifndef VRAMBROKER_BROKER_PAGE_ROUTES_H_
#define VRAMBROKER_BROKER_PAGE_ROUTES_H_

#include <map>
#include <mutex>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "broker/page/page.h"

namespace vrambroker::page {

struct Question {
  std::string method;
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
