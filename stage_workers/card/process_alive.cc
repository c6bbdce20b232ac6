#include "stage_workers/card/process_alive.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace vrambroker::card {

uint64_t ProcessStartTicks(pid_t pid) {
  char path[48];
  std::snprintf(path, sizeof(path), "/proc/%d/stat", static_cast<int>(pid));
  const int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return 0;
  char text[1024];
  const ssize_t size = read(fd, text, sizeof(text) - 1);
  close(fd);
  if (size <= 0) return 0;
  text[size] = '\0';
  // The command's name, in parentheses, may hold anything; the fields after it are numbers: the
  // state is the 3rd, the start time the 22nd.
  const char* field = std::strrchr(text, ')');
  if (field == nullptr || field[1] != ' ') return 0;
  field += 2;
  if (*field == 'Z' || *field == 'X') return 0;
  for (int i = 3; i < 22; ++i) {
    field = std::strchr(field, ' ');
    if (field == nullptr) return 0;
    ++field;
  }
  return std::strtoull(field, nullptr, 10);
}

}  // namespace vrambroker::card
