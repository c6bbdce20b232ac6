// What a program's owner should hear of its session with a broker, as lines of text: attached,
// refused, lost, running without one. Pure: the engine tells it what happened and passes the lines
// on.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace vrambroker::client {

// A component as a line shows it.
struct NoticedComponent {
  int held = 0;
  int layers = 0;
  // Layers of a use without a broker.
  int configured = 0;
};

class Notices {
 public:
  using Lines = std::vector<std::string>;
  using Components = std::map<std::string, NoticedComponent>;

  // `lock_dir` and `device` are named where no broker lives; `device` may be empty. `advice`: what
  // to look at where the broker cannot be reached at all.
  Notices(std::string address, std::string lock_dir, std::string device, std::string advice)
      : address_(std::move(address)),
        lock_dir_(std::move(lock_dir)),
        device_(std::move(device)),
        advice_(std::move(advice)) {}

  // A session is open. `refused`: the broker's words by component.
  Lines Attached(uint64_t session, uint64_t epoch, const Components& components,
                 const std::map<std::string, std::string>& refused, absl::Time now);
  // A component may be placed: said of one that was refused before.
  Lines Admitted(const std::string& component);
  // A stream ended, or could not be opened: said of a lost session, and of a first failure in a row
  // to open one. `again`: whether it will be tried again.
  Lines NotAttached(const absl::Status& status, bool again, const Components& components,
                    absl::Time now);
  // The copy of a component on the host stays pageable, and why; empty: it does not. Said where it
  // is another reason than before.
  Lines Pageable(const std::string& component, const std::string& why);
  // The device's lock is free, or is not: said when it becomes free.
  Lines BrokerLives(bool lives, const Components& components);

 private:
  const std::string address_;
  const std::string lock_dir_;
  const std::string device_;
  const std::string advice_;
  bool attached_ = false;
  bool attached_before_ = false;
  bool lives_ = true;
  uint64_t epoch_ = 0;
  absl::Time lost_at_;
  std::map<std::string, std::string> refused_;
  std::map<std::string, std::string> pageable_;
  std::string last_failure_;
};

}  // namespace vrambroker::client
