// Keeps components at their targets between uses: under the component's lock, layer by layer,
// looking for a newer target in between.
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/cpp/engine.h"

namespace vrambroker::client {

ManagedComponent* Engine::Find(const std::string& component) const {
  const auto it = components_.find(component);
  return it == components_.end() ? nullptr : it->second;
}

std::optional<int64_t> Engine::PoolBytes() const {
  if (options_.pool == nullptr) return std::nullopt;
  return options_.pool->pool_bytes();
}

void Engine::TellHeld(const std::string& component, int held, bool copying) {
  Deliver(HeldChanged{component, held, copying, PoolBytes()});
}

void Engine::TrimNow() {
  if (options_.pool == nullptr) return;
  options_.pool->Trim();
  Deliver(PoolChanged{options_.pool->pool_bytes(), options_.pool->pinned_host_bytes()});
}

void Engine::SignalWork() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    work_ = true;
    changed_.notify_all();
  }
  const uint64_t one = 1;
  if (write(poll_fd_, &one, sizeof(one)) < 0) return;  // full: readable already
}

void Engine::RunApplier() {
  std::unique_lock<std::mutex> lock(mutex_);
  while (!stopping_) {
    changed_.wait(lock, [this] { return stopping_ || work_; });
    if (stopping_) return;
    work_ = false;
    lock.unlock();
    const bool more = ApplyOnce();
    lock.lock();
    work_ |= more;
  }
}

bool Engine::ApplyOnce() {
  uint64_t count = 0;
  const bool was_readable = read(poll_fd_, &count, sizeof(count)) > 0;
  bool more = false;
  for (const auto& [name, component] : components_) more |= ApplyTo(component, name);
  // After the releases, which go to the pool; what is about to follow them is trimmed once more.
  bool trim = false;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    trim = to_trim_;
    to_trim_ = trim && std::any_of(components_.begin(), components_.end(),
                                   [this](const auto& c) { return session_.releasing(c.first); });
  }
  if (trim && options_.pool != nullptr) {
    options_.pool->Trim();
    Deliver(PoolChanged{options_.pool->pool_bytes(), options_.pool->pinned_host_bytes()});
  }
  if (more && was_readable && !options_.apply_thread) SignalWork();
  return more;
}

// One piece of work for a component that is not in use: whoever holds its lock has work signalled
// when done.
bool Engine::ApplyTo(ManagedComponent* component, const std::string& name) {
  std::unique_lock<std::mutex> component_lock(component->lock(), std::try_to_lock);
  if (!component_lock.owns_lock()) return false;
  if (Place(component, name)) return true;
  Work work;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (stopping_) return false;
    work = session_.NextWork(name);
    if (work.kind == Work::Kind::kLoad && failed_loads_.contains(name)) return false;
  }
  switch (work.kind) {
    case Work::Kind::kNone:
      return false;
    case Work::Kind::kRelease: {
      const int before = component->held_layers();
      const absl::Status released = component->ReleaseTo(work.layers);
      TellHeld(name, component->held_layers(), false);
      return released.ok() && component->held_layers() < before;
    }
    case Work::Kind::kPin:
      return Pin(component, name);
    case Work::Kind::kLoad: {
      TellHeld(name, component->held_layers() + 1, true);
      const absl::Status loaded = component->LoadNext(work.pace);
      TellHeld(name, component->held_layers(), false);
      if (loaded.ok()) return true;
      // No obligation: given up until another target comes.
      const std::lock_guard<std::mutex> lock(mutex_);
      failed_loads_.insert(name);
      return false;
    }
  }
  return false;
}

absl::Status Engine::ReleaseAllComponents() {
  absl::Status first;
  for (const auto& [name, component] : components_) {
    const std::lock_guard<std::mutex> component_lock(component->lock());
    first.Update(component->ReleaseTo(0));
    TellHeld(name, component->held_layers(), false);
  }
  SignalWork();
  // A worker that drops layers by itself loads nothing before the report of it is answered.
  if (!WaitReported(absl::Now() + absl::Seconds(10))) {
    first.Update(absl::DeadlineExceededError("the broker has not answered the report of a reset"));
  }
  return first;
}

// Pins its copy on the host, for as long as the session still allows it. While that lasts nothing
// else is applied.
bool Engine::Pin(ManagedComponent* component, const std::string& name) {
  Deliver(PinBegins{name});
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!session_.pinning(name)) return false;
  }
  PinEnded ended{name, component->PinHostCopy(), std::nullopt};
  if (options_.pool != nullptr) ended.pinned_host_bytes = options_.pool->pinned_host_bytes();
  Notices::Lines lines;
  if (ended.status.ok()) lines = {absl::StrCat("component ", name, " is pinned")};
  Say(lines);
  Deliver(ended);
  return true;
}

// Once all that may be pinned is, says what stays pageable.
void Engine::Do(const PinsChanged&) {
  Notices::Lines lines;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (session_.pins_due()) return;
    for (const auto& [name, component] : components_) {
      const Notices::Lines one = notices_.Pageable(name, session_.WhyPageable(name));
      lines.insert(lines.end(), one.begin(), one.end());
    }
  }
  Say(lines);
}

std::string Engine::WhyPageable(const std::string& component) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return session_.WhyPageable(component);
}

// Places what has been admitted. A failure is told by WaitReady and tried again with the next
// signal.
bool Engine::Place(ManagedComponent* component, const std::string& name) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!to_place_.contains(name)) return false;
  }
  const absl::Status placed = component->PlaceFixed();
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (placed.ok()) {
      to_place_.erase(name);
      place_errors_.erase(name);
    } else {
      place_errors_[name] =
          absl::Status(placed.code(), absl::StrCat("placing ", name, ": ", placed.message()));
      changed_.notify_all();
    }
  }
  TellHeld(name, component->held_layers(), false);
  if (placed.ok()) Deliver(FixedPlaced{name});
  return placed.ok();
}

}  // namespace vrambroker::client
