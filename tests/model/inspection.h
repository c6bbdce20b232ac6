// Into what the core and the client keep to themselves: copies that go their own ways, and the
// digest of all that decides what comes. A field that is added to either and not told of here does
// not compile, or where that cannot be, shows in the exploration as two states that are taken for
// one and go on differently. No component here wishes to pin host memory: what that adds is left
// out.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "broker/core/machine.h"
#include "client/cpp/session.h"
#include "tests/model/digest.h"

namespace vrambroker::core {

struct Session;
struct Component;
struct Device;
struct WaitingUse;
struct RequestRecord;

class MachineInspection {
 public:
  // How the outside names what the machine knows by numbers of the shell.
  struct Names {
    // Whether a request id can still come, or is known elsewhere.
    std::function<bool(const std::string&)> matters;
    // Who made a call, and which of its calls it is.
    std::function<std::pair<int, uint64_t>(CallId)> call;
  };

  static std::unique_ptr<Machine> Copy(const Machine& machine);
  // Another that goes on from what is on record.
  static std::unique_ptr<Machine> Next(const Machine& machine, Epoch epoch,
                                       std::vector<Owner> recorded);
  static void Tell(const Machine& machine, const Names& names, model::Digest* digest);

  static absl::Time WakeAt(const Machine& machine);
  // What the process is charged; nothing where it is not known.
  static std::optional<Bytes> Charge(const Machine& machine, const Process& process);
  static Ledger LedgerOf(const Machine& machine);
  // Whether a component in use is asked to have less than its use was granted.
  static bool RevokesARunningUse(const Machine& machine);

 private:
  static void Tell(const Device& device, const Config& config, model::Digest* digest);
  static void Tell(const Session& session, const Config& config, const Names& names,
                   model::Digest* digest);
  static void Tell(const Component& component, int owner, const Config& config,
                   model::Digest* digest);
  static void Tell(const WaitingUse& waiting, int owner, const Config& config, const Names& names,
                   model::Digest* digest);
};

}  // namespace vrambroker::core

namespace vrambroker::client {

class SessionInspection {
 public:
  static void Tell(const Session& session, int owner, model::Digest* digest);
  static absl::Time WakeAt(const Session& session) { return session.wake_at_; }
  // Request ids that it may still send, or hear of.
  static std::vector<std::string> Requests(const Session& session);
};

}  // namespace vrambroker::client

namespace vrambroker::model {

// Of messages on their way.
void Tell(const v1::Snapshot& snapshot, int owner, Digest* digest);
void Tell(const v1::Target& target, int owner, Digest* digest);

}  // namespace vrambroker::model
