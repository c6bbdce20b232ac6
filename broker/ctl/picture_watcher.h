// The broker's picture as it changes, across breaks of the connection.
#pragma once

#include <grpcpp/grpcpp.h>

#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>

#include "absl/time/time.h"
#include "vrambroker/v1/admin.grpc.pb.h"

namespace vrambroker::ctl {

// Reads WatchPicture on a thread of its own; where the broker goes away it tries again every
// second. Pictures that nobody has taken when the next comes are passed over.
class PictureWatcher {
 public:
  struct News {
    // The newest. Null: none since the last time.
    std::shared_ptr<const v1::Picture> picture;
    absl::Time received;
    // OK: nothing is known to be wrong; else how the last try ended.
    grpc::Status status;
    // It does not try again: the broker refuses.
    bool over = false;
  };

  // `min_interval`: from one picture to the next, at least.
  PictureWatcher(std::shared_ptr<grpc::Channel> channel, absl::Duration min_interval);
  ~PictureWatcher();
  PictureWatcher(const PictureWatcher&) = delete;
  PictureWatcher& operator=(const PictureWatcher&) = delete;

  // To poll: readable from each piece of news until it is taken.
  int fd() const { return event_; }
  News Take();

 private:
  void Run();
  grpc::Status WatchOnce();
  // `picture`: null where the stream has ended with `status`.
  void Tell(std::shared_ptr<const v1::Picture> picture, const grpc::Status& status, bool over);

  const std::shared_ptr<grpc::Channel> channel_;
  const absl::Duration min_interval_;
  const int event_;
  std::mutex mutex_;
  std::condition_variable stopped_;
  bool stop_ = false;
  grpc::ClientContext* context_ = nullptr;  // of the open stream
  News news_;
  std::thread thread_;
};

}  // namespace vrambroker::ctl
