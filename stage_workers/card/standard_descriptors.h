// What a program does before anything else. To be put into the .preinit_array of the program.
#pragma once

#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace vrambroker::card {

// Opens /dev/null where standard input, output or error is closed: its number would be given to the
// next file that is opened, a card's or a lock's, and what is printed would go there. Runs before
// the libraries begin, some of which open files; a sanitizer is not there yet.
__attribute__((no_sanitize("address", "thread", "undefined"))) inline void
OpenStandardDescriptors() {
  long descriptor = 0;
  do {
    descriptor = syscall(SYS_openat, AT_FDCWD, "/dev/null", O_RDWR);
  } while (descriptor >= 0 && descriptor <= 2);
  if (descriptor > 2) syscall(SYS_close, descriptor);
}

}  // namespace vrambroker::card
