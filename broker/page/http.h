// HTTP on one connection, by the library, as far as this page needs it.
#ifndef VRAMBROKER_BROKER_PAGE_HTTP_H_
#define VRAMBROKER_BROKER_PAGE_HTTP_H_

#include <httplib.h>

#include <memory>

#include "broker/page/page.h"
#include "broker/page/routes.h"
#include "broker/page/stream.h"

namespace vrambroker::page {

// Thread-safe. Of the library it takes the reading of requests and the writing of answers; it
// neither listens nor has threads.
class Http : private httplib::Server {
 public:
  // `loopback`: the address is one, and requests must be to one. All but the limits outlive it.
  Http(const Routes* routes, std::shared_ptr<Watchers> watchers, const Limits& limits,
       bool loopback);
  ~Http() override { svr_sock_ = INVALID_SOCKET; }

  // One request of a non-blocking socket, and its answer.
  void Serve(int fd);
  // Answers 503 without reading, and without waiting.
  static void Refuse(int fd);

 private:
  void Answer(const httplib::Request& request, httplib::Response* response) const;
  absl::Status Check(const httplib::Request& request) const;
  void SendEvents(const httplib::Request& request, httplib::Response* response) const;

  const Routes* const routes_;
  const std::shared_ptr<Watchers> watchers_;
  const Limits limits_;
  const bool loopback_;
};

}  // namespace vrambroker::page

#endif  // VRAMBROKER_BROKER_PAGE_HTTP_H_
