// What a caller may do, and which call needs it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"

namespace vrambroker::server {

enum class Role : uint8_t {
  kWorker,  // owns components and uses them
  kDriver,  // declares pipelines and runs
  kViewer,  // looks
  kAdmin,   // looks, and drains the broker
};

// "worker", "driver", "viewer", "admin".
absl::string_view ToString(Role role);
std::optional<Role> ParseRole(absl::string_view name);

class RoleSet {
 public:
  constexpr RoleSet() = default;
  constexpr RoleSet(std::initializer_list<Role> roles) {
    for (const Role role : roles) Add(role);
  }
  static constexpr RoleSet All() {
    return {Role::kWorker, Role::kDriver, Role::kViewer, Role::kAdmin};
  }

  constexpr void Add(Role role) { bits_ |= Bit(role); }
  constexpr void Remove(Role role) { bits_ &= ~Bit(role); }
  constexpr bool Has(Role role) const { return (bits_ & Bit(role)) != 0; }
  constexpr bool HasAnyOf(RoleSet others) const { return (bits_ & others.bits_) != 0; }
  constexpr bool empty() const { return bits_ == 0; }
  friend constexpr bool operator==(RoleSet a, RoleSet b) { return a.bits_ == b.bits_; }

 private:
  static constexpr unsigned Bit(Role role) { return 1U << static_cast<unsigned>(role); }
  unsigned bits_ = 0;
};

// "worker, driver"; "none".
std::string ToString(RoleSet roles);

// The role that a URI among the subject alternative names of a certificate gives:
// "vram-broker:role/worker" and so on. Nothing for every other URI.
inline constexpr char kRoleUriPrefix[] = "vram-broker:role/";
std::optional<Role> RoleOfUri(absl::string_view uri);

}  // namespace vrambroker::server
