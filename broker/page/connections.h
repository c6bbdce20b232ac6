// Threads that serve connections, a bounded number of them.
#ifndef VRAMBROKER_BROKER_PAGE_CONNECTIONS_H_
#define VRAMBROKER_BROKER_PAGE_CONNECTIONS_H_

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

#include "broker/observe/unique_fd.h"

namespace vrambroker::page {

// A thread is made when a connection comes and none is idle, and then kept: a page that nobody
// looks at has none. Thread-safe.
class Connections {
 public:
  // `serve` reads and writes the socket; it returns soon once the socket is shut down.
  Connections(size_t bound, std::function<void(int fd)> serve)
      : bound_(bound), serve_(std::move(serve)) {}
  ~Connections() { Stop(); }

  // Takes the connection over, and closes it in the end. False: as many as may be are open (or it
  // is stopping), and the connection is left to the caller.
  bool Take(observe::UniqueFd* connection);
  // Shuts all connections down and returns when nobody serves any more.
  void Stop();

 private:
  void Run();

  const size_t bound_;
  const std::function<void(int fd)> serve_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool stopping_ = false;
  std::deque<observe::UniqueFd> waiting_;
  std::set<int> open_;
  size_t idle_ = 0;
  std::vector<std::thread> threads_;
};

}  // namespace vrambroker::page

#endif  // VRAMBROKER_BROKER_PAGE_CONNECTIONS_H_
