// What a broker charged, kept where it outlives the broker's process: a mapped file for each
// device. The next broker charges what it finds there until its owner attaches again or is proven
// gone.
//
// A charge is written before the answer that raises it leaves, by plain stores to shared memory: a
// process that is killed at any point leaves every entry as it was before or after a write, never
// in between. A reboot empties the card as well: a record of another boot is not read.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "broker/core/specs.h"

namespace vrambroker::observe {

// Used by one thread at a time, by the one process that holds the device's lock.
class ChargeRecord {
 public:
  // Owners that one file has room for.
  static constexpr size_t kSlots = 1024;
  static constexpr size_t kMaxNameBytes = 128;

  // "DIRECTORY/device-UUID.charges", spelt like the device's lock.
  static std::string PathOf(const std::string& directory, const std::string& uuid);
  // Opens or makes the file (0600; 384 KiB). One that is of another boot, of another version
  // or no record at all is made anew, and why() says so. PERMISSION_DENIED or FAILED_PRECONDITION,
  // naming the path, where it cannot be used; RESOURCE_EXHAUSTED where there is no room for it.
  static absl::StatusOr<std::unique_ptr<ChargeRecord>> Open(const std::string& directory,
                                                            const std::string& uuid);
  ChargeRecord(const ChargeRecord&) = delete;
  ChargeRecord& operator=(const ChargeRecord&) = delete;
  // Removes the file where nobody is on record.
  ~ChargeRecord();

  // As the file said when it was opened.
  const std::vector<core::Owner>& found() const { return found_; }
  uint64_t newest_epoch() const;
  // Empty: the file was read, or there was none.
  const std::string& why() const { return why_; }

  void PutEpoch(uint64_t epoch);
  // Replaces what is on record of owner.worker and owner.process; charge 0 forgets it.
  // INVALID_ARGUMENT for a name of more than kMaxNameBytes, RESOURCE_EXHAUSTED for the owner past
  // kSlots: neither is on record then.
  absl::Status Put(const core::Owner& owner);
  // The death of this owner can be told from now on. Nothing where it is not on record.
  void SetProvable(const std::string& worker, const core::Process& process);

 private:
  struct File;
  struct Entry;
  using Key = std::pair<std::string, core::Process>;
  ChargeRecord(std::string path, std::string uuid, ino_t inode, File* file, std::string why);
  static Key KeyOf(const std::string& worker, const core::Process& process);
  void Write(size_t slot, const core::Owner& owner);

  const std::string path_;
  const std::string uuid_;
  const ino_t inode_;  // another file may lie there by now: it is not ours to remove
  File* const file_;
  const std::string why_;
  std::vector<core::Owner> found_;
  std::map<Key, std::pair<size_t, core::Owner>> slots_;
  std::vector<size_t> free_;
};

}  // namespace vrambroker::observe
