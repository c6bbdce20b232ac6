// The page that the broker serves for people, over plain HTTP: it looks, and changes nothing.
#ifndef VRAMBROKER_BROKER_PAGE_PAGE_H_
#define VRAMBROKER_BROKER_PAGE_PAGE_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "broker/page/watchers.h"

namespace vrambroker::page {

// Where the page has its data from, each as JSON. Called from the page's threads, at most one of
// the three looks at a time; each returns within some seconds, whatever the broker does.
struct Sources {
  using Answer = absl::StatusOr<std::string>;

  // The picture now.
  std::function<Answer()> picture;
  // The last `limit` decisions after the one of that id, oldest first. 0: no lower bound.
  std::function<Answer(uint64_t after, int limit)> decisions;
  // Why this decision fell. NOT_FOUND: it is not known any more, or not yet.
  std::function<Answer(uint64_t id)> explanation;
  // Pictures go to Page::watchers() from begin to end.
  Watchers::Source watch;
};

struct Limits {
  // Watchers of /api/events; past it 503, with the reason.
  size_t watchers = 32;
  // Connections at a time, the watchers' included; past it 503.
  size_t connections = 64;
  // A request is read within this time, 16 KiB with all headers at most.
  absl::Duration request_time = absl::Seconds(5);
  // A reader that does not take an answer, or an event, within this time is cut off.
  absl::Duration write_time = absl::Seconds(10);
  // A watcher is sent a comment at least this often, so that nothing between takes the connection
  // for dead.
  absl::Duration alive = absl::Seconds(10);
  // That a watcher has left is noticed within this time; so long a new one waits for its place.
  absl::Duration notice = absl::Milliseconds(500);
};

class Page {
 public:
  // The most decisions that one request may ask for.
  static constexpr int kMaxDecisions = 4096;

  // `address` as observe::ParseHostAndPort takes it, else INVALID_ARGUMENT. FAILED_PRECONDITION
  // where it cannot be had. On a loopback address only requests to a loopback host are answered, so
  // that no site of elsewhere can have a browser read the page in its own name (DNS rebinding).
  static absl::StatusOr<std::unique_ptr<Page>> Open(const std::string& address, Sources sources,
                                                    const Limits& limits = {});
  // Ends all connections, at once.
  ~Page();

  // HOST:PORT as it is reached.
  const std::string& address() const;
  // Outlives the page where somebody keeps it.
  const std::shared_ptr<Watchers>& watchers() const;

 private:
  class Parts;
  explicit Page(std::unique_ptr<Parts> parts);

  const std::unique_ptr<Parts> parts_;
};

}  // namespace vrambroker::page

#endif  // VRAMBROKER_BROKER_PAGE_PAGE_H_
