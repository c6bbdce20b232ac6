// A GET over HTTP, and the samples of a Prometheus text, for tests.
#ifndef VRAMBROKER_TESTS_HTTP_GET_H_
#define VRAMBROKER_TESTS_HTTP_GET_H_

#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <map>
#include <string>

namespace vrambroker {

// A connection to "127.0.0.1:PORT"; below 0: nobody takes it.
inline int ConnectToLoopback(const std::string& address) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(static_cast<uint16_t>(std::atoi(address.c_str() + address.rfind(':') + 1)));
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (connect(fd, reinterpret_cast<sockaddr*>(&to), sizeof(to)) == 0) return fd;
  close(fd);
  return -1;
}

// The answer, status line and headers included; empty where there is none.
inline std::string HttpGet(const std::string& address, const std::string& path) {
  const int fd = ConnectToLoopback(address);
  if (fd < 0) return "";
  const std::string request =
      "GET " + path + " HTTP/1.1\r\nHost: " + address + "\r\nConnection: close\r\n\r\n";
  std::string answer;
  char buffer[4096];
  if (send(fd, request.data(), request.size(), MSG_NOSIGNAL) ==
      static_cast<ssize_t>(request.size())) {
    for (ssize_t n; (n = recv(fd, buffer, sizeof(buffer), 0)) > 0;) {
      answer.append(buffer, static_cast<size_t>(n));
    }
  }
  close(fd);
  return answer;
}

// What follows the headers.
inline std::string BodyOf(const std::string& answer) {
  const size_t end = answer.find("\r\n\r\n");
  return end == std::string::npos ? "" : answer.substr(end + 4);
}

// By `name{label="value",...}` as it is written.
inline std::map<std::string, double> SamplesIn(const std::string& text) {
  std::map<std::string, double> samples;
  for (size_t begin = 0; begin < text.size();) {
    size_t end = text.find('\n', begin);
    if (end == std::string::npos) end = text.size();
    const std::string line = text.substr(begin, end - begin);
    const size_t space = line.rfind(' ');
    if (!line.empty() && line[0] != '#' && space != std::string::npos) {
      samples[line.substr(0, space)] = std::strtod(line.c_str() + space, nullptr);
    }
    begin = end + 1;
  }
  return samples;
}

}  // namespace vrambroker

#endif  // VRAMBROKER_TESTS_HTTP_GET_H_
