// What the client library needs of a component to keep it at its target. The offload path
// implements it; so can any program that owns layers on a device.
#pragma once

#include <mutex>

#include "absl/status/status.h"
#include "vrambroker/v1/types.pb.h"

namespace vrambroker::client {

// A component's layers on its device. Everything but Describe() and lock() is called with the lock
// held, by the thread that runs the use or by the one that applies targets, never by both at once.
class ManagedComponent {
 public:
  virtual ~ManagedComponent() = default;

  // Name, device, layers in keep order, fixed and window bytes, lifetime. Constant.
  virtual v1::Component Describe() const = 0;

  // The component's lock. A use holds it from BeginUse's answer to the end of EndUse; targets are
  // applied under it between uses.
  virtual std::mutex& lock() = 0;

  // Layers allocated on the device now, copies in flight included: 0 to all.
  virtual int held_layers() const = 0;

  // Whether the fixed bytes (and a permanent component's layers) are on the device.
  virtual bool fixed_placed() const = 0;

  // Places the fixed bytes, and all layers of a permanent component. Called once, after admission.
  virtual absl::Status PlaceFixed() = 0;

  // Frees window and activation to the allocator, at the end of a use and before the broker hears
  // of it. The resident set stays as it is.
  virtual void FreeNeeds() = 0;

  // Releases layers from the end of the keep order until at most `layers` are held.
  virtual absl::Status ReleaseTo(int layers) = 0;

  // Loads the next layer in keep order onto the device at no more than `pace` bytes a second (0:
  // the link's own rate) and returns once it is there. An error leaves held_layers() true.
  virtual absl::Status LoadNext(double pace) = 0;

  // Pins the copy of its layers on the host: the pin_host_bytes of Describe(), where those are
  // above 0. Called once, between uses, when the broker allows it or no broker lives, and never
  // before. An error: it was refused, and the copy serves as it is.
  virtual absl::Status PinHostCopy() {
    return absl::UnimplementedError("its copy on the host cannot be pinned");
  }
};

// The allocator that the components of a worker share.
class ManagedPool {
 public:
  virtual ~ManagedPool() = default;
  // Device bytes kept without use. Safe from any thread.
  virtual int64_t pool_bytes() const = 0;
  // Gives them back to the device. Safe from any thread.
  virtual void Trim() = 0;
  // Host bytes pinned. Safe from any thread.
  virtual int64_t pinned_host_bytes() const = 0;
};

}  // namespace vrambroker::client
