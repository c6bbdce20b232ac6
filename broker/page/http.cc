#include "broker/page/http.h"

#include <sys/socket.h>

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"

namespace vrambroker::page {
namespace {

// Of every answer. The page runs its own files and asks nobody but this broker.
const httplib::Headers& SafeHeaders() {
  static const httplib::Headers headers = {
      {"Content-Security-Policy",
       "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src "
       "'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"},
      {"X-Content-Type-Options", "nosniff"},
      {"X-Frame-Options", "DENY"},
      {"Referrer-Policy", "no-referrer"},
      {"Cross-Origin-Resource-Policy", "same-origin"},
      {"Cross-Origin-Opener-Policy", "same-origin"},
      {"Cache-Control", "no-store"},
  };
  return headers;
}

std::string BareAnswer(absl::string_view status, absl::string_view why) {
  return absl::StrCat("HTTP/1.1 ", status,
                      "\r\nContent-Type: text/plain; charset=utf-8\r\nConnection: close\r\n"
                      "X-Content-Type-Options: nosniff\r\nContent-Length: ",
                      why.size(), "\r\n\r\n", why);
}

void SendBare(int fd, absl::string_view status, absl::string_view why) {
  const std::string answer = BareAnswer(status, why);
  // A socket that has no room for so little is closed without an answer.
  (void)!send(fd, answer.data(), answer.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
}

// What the library could not read as a request.
void AnswerFault(int fd, BoundedStream::Fault fault) {
  if (fault == BoundedStream::Fault::kTooLong) {
    SendBare(fd, "431 Request Header Fields Too Large", "a request of at most 16 KiB is allowed\n");
  } else if (fault == BoundedStream::Fault::kTooLate) {
    SendBare(fd, "408 Request Timeout", "no whole request came in time\n");
  }
}

// So that an answer is not lost with what was sent and not read: the reader sees its end first.
void EndInPeace(int fd) {
  shutdown(fd, SHUT_WR);
  char rest[4096];
  for (int i = 0; i < 16 && recv(fd, rest, sizeof(rest), MSG_DONTWAIT) > 0; ++i) {
  }
}

// A line that readers of events pass over.
constexpr char kComment[] = ": the broker is there\n\n";

void Fill(const Reply& reply, httplib::Response* response) {
  response->status = reply.status;
  if (!reply.allow.empty()) response->set_header("Allow", reply.allow);
  response->set_content(reply.body, reply.type);
}

}  // namespace

Http::Http(const Routes* routes, std::shared_ptr<Watchers> watchers, const Limits& limits,
           bool loopback)
    : routes_(routes), watchers_(std::move(watchers)), limits_(limits), loopback_(loopback) {
  // The library takes a server without a socket for one that is shutting down; nothing is done
  // with this number.
  svr_sock_ = 0;
  set_default_headers(SafeHeaders());
  set_pre_routing_handler([this](const httplib::Request& request, httplib::Response& response) {
    Answer(request, &response);
    return HandlerResponse::Handled;
  });
}

absl::Status Http::Check(const httplib::Request& request) const {
  if (request.get_header_value_count("Host") != 1) {
    return absl::InvalidArgumentError("Host: one such header is needed");
  }
  if (loopback_) {
    if (absl::Status status = CheckLoopbackHost(request.get_header_value("Host")); !status.ok()) {
      return status;
    }
  }
  std::vector<std::string> lengths;
  const auto [first, last] = request.headers.equal_range("Content-Length");
  for (auto it = first; it != last; ++it) lengths.push_back(it->second);
  return CheckContentLength(lengths);
}

void Http::Answer(const httplib::Request& request, httplib::Response* response) const {
  if (absl::Status status = Check(request); !status.ok()) {
    Fill(ToReply(status), response);
    return;
  }
  if (request.method != "GET" && request.method != "HEAD") {
    Fill({405, "text/plain; charset=utf-8", "GET and HEAD are allowed: this page changes nothing\n",
          "GET, HEAD"},
         response);
    return;
  }
  const absl::StatusOr<Question> question =
      ToQuestion(request.path, {request.params.begin(), request.params.end()}, request.target);
  if (!question.ok()) {
    Fill(ToReply(question.status()), response);
  } else if (request.path != kEventsPath) {
    Fill(routes_->Answer(*question), response);
  } else if (request.method == "HEAD") {
    Fill({200, "text/event-stream", "", ""}, response);
  } else {
    SendEvents(request, response);
  }
}

void Http::SendEvents(const httplib::Request& request, httplib::Response* response) const {
  auto added = watchers_->Add(2 * limits_.notice);
  if (!added.ok()) {
    response->set_header("Retry-After", "5");
    Fill(ToReply(added.status()), response);
    return;
  }
  const std::shared_ptr<Watchers::Watch> watch = *std::move(added);
  response->status = 200;
  response->set_chunked_content_provider(
      "text/event-stream", [this, watch, is_there = request.progress, quiet_since = absl::Now()](
                               size_t, httplib::DataSink& sink) mutable {
        const FramePtr frame = watch->Next(limits_.notice);
        if (watch->closed() || !is_there(0, 0)) {
          sink.done();
          return true;
        }
        const absl::Time now = absl::Now();
        if (frame == nullptr && now < quiet_since + limits_.alive) return true;
        quiet_since = now;
        const std::string event =
            frame == nullptr ? kComment
                             : absl::StrCat("event: picture\ndata: ", frame->text(), "\n\n");
        return sink.write(event.data(), event.size());
      });
}

void Http::Serve(int fd) {
  StreamLimits stream_limits;
  stream_limits.request_time = limits_.request_time;
  stream_limits.write_time = limits_.write_time;
  BoundedStream stream(fd, stream_limits);
  bool closed = false;
  // Parts of files and compressed ones are not worth what they cost here. The library leaves
  // `progress` to clients; here it says whether the reader is still there.
  process_request(stream, true, closed, [&stream](httplib::Request& request) {
    request.ranges.clear();
    request.headers.erase("Accept-Encoding");
    request.progress = [&stream](uint64_t, uint64_t) { return !stream.ReaderLeft(); };
  });
  if (!stream.wrote()) AnswerFault(fd, stream.fault());
  EndInPeace(fd);
}

void Http::Refuse(int fd) {
  SendBare(fd, "503 Service Unavailable",
           "as many connections are open as may be; try again in some seconds\n");
  EndInPeace(fd);
}

}  // namespace vrambroker::page
