// Runs a program to its end in tests, for its exit status and what it says.
#ifndef VRAMBROKER_TESTS_RUN_PROGRAM_H_
#define VRAMBROKER_TESTS_RUN_PROGRAM_H_

#include <sys/wait.h>

#include <cstdio>
#include <string>
#include <vector>

namespace vrambroker {

struct ProgramEnd {
  // The exit status; -1: it did not start, or a signal ended it.
  int status = -1;
  // Standard output and standard error together.
  std::string output;
};

// `words`: NAME=VALUE settings of the environment, then the program and its arguments; none has a
// quote in it.
inline ProgramEnd RunProgram(const std::vector<std::string>& words) {
  std::string command = "exec env";
  for (const std::string& word : words) command += " '" + word + "'";
  command += " 2>&1 </dev/null";
  ProgramEnd end;
  FILE* const pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) return end;
  char buffer[4096];
  size_t bytes = 0;
  while ((bytes = fread(buffer, 1, sizeof(buffer), pipe)) > 0) end.output.append(buffer, bytes);
  const int status = pclose(pipe);
  if (status != -1 && WIFEXITED(status)) end.status = WEXITSTATUS(status);
  return end;
}

}  // namespace vrambroker

#endif  // VRAMBROKER_TESTS_RUN_PROGRAM_H_
