// What a program does before it opens anything.
#pragma once

#include <fcntl.h>
#include <unistd.h>

namespace vrambroker::card {

// Opens /dev/null where standard input, output or error is closed: its number would be given to the
// next file that is opened, a card's or a lock's, and what is printed would go there.
inline void OpenStandardDescriptors() {
  for (int descriptor = open("/dev/null", O_RDWR); descriptor >= 0; descriptor = dup(descriptor)) {
    if (descriptor <= 2) continue;
    close(descriptor);
    return;
  }
}

}  // namespace vrambroker::card
