#include "client/cpp/host_memory.h"

#include <sys/stat.h>

#include <cstdint>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"

namespace vrambroker::client {
namespace {

// Lines of /proc that are looked at, and groups on the path up: far more than there are.
constexpr int kMostLines = 256;
constexpr size_t kMostGroups = 64;
// The contract's bound of bytes, 64 TiB: limits from there on bound nothing.
constexpr int64_t kMostBytes = int64_t{1} << 46;

std::vector<std::string> Lines(const std::string& path) {
  std::vector<std::string> lines;
  std::ifstream file(path);
  std::string line;
  while (lines.size() < kMostLines && std::getline(file, line)) lines.push_back(line);
  return lines;
}

// "MemTotal:       24683652 kB". 0: not known.
int64_t MachineMemory(const std::string& root) {
  for (const std::string& line : Lines(root + "/proc/meminfo")) {
    const std::vector<absl::string_view> words = absl::StrSplit(line, ' ', absl::SkipEmpty());
    int64_t kib = 0;
    if (words.size() < 2 || words[0] != "MemTotal:") continue;
    if (absl::SimpleAtoi(words[1], &kib) && kib > 0 && kib < kMostBytes / 1024) return kib * 1024;
  }
  return 0;
}

// Where groups of a hierarchy are, which of them is this process's, and what the file with the
// limit is called.
struct Hierarchy {
  std::string mount;
  std::string path;  // "/" and what follows
  const char* limit = nullptr;
};

// Of "4:memory:/a/b" and "0::/a/b", both where both are there.
std::vector<Hierarchy> Hierarchies(const std::string& root) {
  std::vector<Hierarchy> found;
  for (const std::string& line : Lines(root + "/proc/self/cgroup")) {
    const std::vector<std::string> parts = absl::StrSplit(line, absl::MaxSplits(':', 2));
    if (parts.size() != 3 || parts[2].empty() || parts[2][0] != '/') continue;
    if (parts[1].empty()) {
      found.push_back({root + "/sys/fs/cgroup", parts[2], "memory.max"});
      continue;
    }
    for (absl::string_view controller : absl::StrSplit(parts[1], ',')) {
      if (controller != "memory") continue;
      found.push_back({root + "/sys/fs/cgroup/memory", parts[2], "memory.limit_in_bytes"});
    }
  }
  return found;
}

bool IsFolder(const std::string& path) {
  struct stat status {};
  return stat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode);
}

// The folders of the process's group and those that contain it, the innermost first. In a container
// the path may be the machine's, of which nothing is there: what is mounted is then the group
// itself.
std::vector<std::string> Groups(const Hierarchy& hierarchy) {
  std::string path = hierarchy.path == "/" ? "" : hierarchy.path;
  if (path.find("/..") != std::string::npos || !IsFolder(hierarchy.mount + path)) path.clear();
  std::vector<std::string> groups;
  while (!path.empty() && groups.size() < kMostGroups) {
    groups.push_back(hierarchy.mount + path);
    path.resize(path.rfind('/'));
  }
  groups.push_back(hierarchy.mount);
  return groups;
}

// 0: none, or not known.
int64_t LimitOf(const std::string& group, const char* file) {
  const std::vector<std::string> lines = Lines(absl::StrCat(group, "/", file));
  int64_t bytes = 0;
  if (lines.empty() || !absl::SimpleAtoi(absl::StripAsciiWhitespace(lines[0]), &bytes)) return 0;
  return bytes > 0 && bytes < kMostBytes ? bytes : 0;
}

std::string DomainOf(const std::string& group) {
  struct stat status {};
  if (stat(group.c_str(), &status) != 0) return "";
  return absl::StrCat("cgroup:", status.st_ino);
}

}  // namespace

v1::HostMemory ReadHostMemory(const std::string& root) {
  v1::HostMemory memory;
  memory.set_limit_bytes(MachineMemory(root));
  for (const Hierarchy& hierarchy : Hierarchies(root)) {
    for (const std::string& group : Groups(hierarchy)) {
      const int64_t limit = LimitOf(group, hierarchy.limit);
      if (limit == 0) continue;
      const bool in_a_group = !memory.domain().empty();
      if (memory.limit_bytes() > 0 && limit > memory.limit_bytes()) continue;
      if (limit == memory.limit_bytes() && !in_a_group) continue;  // the machine is outermost
      memory.set_limit_bytes(limit);
      memory.set_domain(DomainOf(group));
    }
  }
  return memory;
}

}  // namespace vrambroker::client
