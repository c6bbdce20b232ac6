// A connection as the HTTP library reads and writes it, with an end to everything.
#ifndef VRAMBROKER_BROKER_PAGE_STREAM_H_
#define VRAMBROKER_BROKER_PAGE_STREAM_H_

#include <httplib.h>

#include <cstddef>
#include <string>

#include "absl/time/time.h"

namespace vrambroker::page {

// What one connection may take.
struct StreamLimits {
  // A request, with all its headers, is read within this time and this many bytes.
  absl::Duration request_time = absl::Seconds(5);
  size_t request_bytes = 16384;
  // A reader takes what is written in one piece (a whole answer, or one event) within this time.
  absl::Duration write_time = absl::Seconds(10);
};

// One request, one answer. Does not own the socket, which is non-blocking.
class BoundedStream final : public httplib::Stream {
 public:
  BoundedStream(int fd, const StreamLimits& limits);

  enum class Fault { kNone, kTooLate, kTooLong, kEnded };
  // Why there was no whole request.
  Fault fault() const { return fault_; }
  bool wrote() const { return wrote_; }
  // It has closed the connection, or its side of it.
  bool ReaderLeft() const;

  bool is_readable() const override { return fault_ == Fault::kNone; }
  bool is_writable() const override { return !broken_; }
  ssize_t read(char* to, size_t size) override;
  ssize_t write(const char* from, size_t size) override;
  void get_remote_ip_and_port(std::string& ip, int& port) const override;
  void get_local_ip_and_port(std::string& ip, int& port) const override;
  socket_t socket() const override { return fd_; }

 private:
  // False: no more comes, as fault_ says.
  bool Fill();

  const int fd_;
  const StreamLimits limits_;
  const absl::Time read_until_;
  char buffer_[4096];
  size_t begin_ = 0;
  size_t end_ = 0;
  size_t total_ = 0;
  Fault fault_ = Fault::kNone;
  bool wrote_ = false;
  bool broken_ = false;
};

}  // namespace vrambroker::page

#endif  // VRAMBROKER_BROKER_PAGE_STREAM_H_
