#include "broker/page/connections.h"

#include <sys/socket.h>

#include <utility>

namespace vrambroker::page {

bool Connections::Take(observe::UniqueFd* connection) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (stopping_ || open_.size() + waiting_.size() >= bound_) return false;
  waiting_.push_back(std::move(*connection));
  if (idle_ < waiting_.size()) threads_.emplace_back([this] { Run(); });
  changed_.notify_one();
  return true;
}

void Connections::Run() {
  std::unique_lock<std::mutex> lock(mutex_);
  while (true) {
    ++idle_;
    changed_.wait(lock, [this] { return stopping_ || !waiting_.empty(); });
    --idle_;
    if (stopping_) return;
    observe::UniqueFd connection = std::move(waiting_.front());
    waiting_.pop_front();
    open_.insert(connection.get());
    lock.unlock();
    serve_(connection.get());
    lock.lock();
    // Closed after it has left the list: Stop() shuts down no number that is somebody else's.
    open_.erase(connection.get());
  }
}

void Connections::Stop() {
  std::vector<std::thread> threads;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    stopping_ = true;
    waiting_.clear();
    for (const int fd : open_) shutdown(fd, SHUT_RDWR);
    threads.swap(threads_);
    changed_.notify_all();
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace vrambroker::page
