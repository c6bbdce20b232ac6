#include "broker/server/roles.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace vrambroker::server {
namespace {

constexpr Role kRoles[] = {Role::kWorker, Role::kDriver, Role::kViewer, Role::kAdmin};

}  // namespace

absl::string_view ToString(Role role) {
  switch (role) {
    case Role::kWorker:
      return "worker";
    case Role::kDriver:
      return "driver";
    case Role::kViewer:
      return "viewer";
    case Role::kAdmin:
      return "admin";
  }
  return "unknown";
}

std::optional<Role> ParseRole(absl::string_view name) {
  for (const Role role : kRoles) {
    if (name == ToString(role)) return role;
  }
  return std::nullopt;
}

std::string ToString(RoleSet roles) {
  std::string text;
  for (const Role role : kRoles) {
    if (roles.Has(role)) absl::StrAppend(&text, text.empty() ? "" : ", ", ToString(role));
  }
  return text.empty() ? "none" : text;
}

std::optional<Role> RoleOfUri(absl::string_view uri) {
  if (!absl::ConsumePrefix(&uri, kRoleUriPrefix)) return std::nullopt;
  return ParseRole(uri);
}

}  // namespace vrambroker::server
