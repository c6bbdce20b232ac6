// Which call needs which role: the whole of it, in one table.
#pragma once

#include <string_view>

#include "broker/server/roles.h"

namespace vrambroker::server {

struct MethodRoles {
  // SERVICE.METHOD, as the contract names them.
  std::string_view method;
  // One of these is enough.
  RoleSet any_of;
};

// Health and reflection are not here: whoever has a connection may ask them.
inline constexpr MethodRoles kMethodRoles[] = {
    {"VramBroker.Attach", {Role::kWorker, Role::kDriver}},
    {"VramBroker.UpdateComponents", {Role::kWorker}},
    {"VramBroker.BeginUse", {Role::kWorker}},
    {"VramBroker.EndUse", {Role::kWorker}},
    {"VramBroker.ReportResidency", {Role::kWorker}},
    {"VramBroker.DeclarePipeline", {Role::kDriver}},
    {"VramBroker.DeclareRun", {Role::kDriver}},
    {"VramBroker.FinishRun", {Role::kDriver}},
    {"BrokerAdmin.GetPicture", {Role::kViewer, Role::kAdmin}},
    {"BrokerAdmin.WatchPicture", {Role::kViewer, Role::kAdmin}},
    {"BrokerAdmin.ListDecisions", {Role::kViewer, Role::kAdmin}},
    {"BrokerAdmin.WatchDecisions", {Role::kViewer, Role::kAdmin}},
    {"BrokerAdmin.ExplainDecision", {Role::kViewer, Role::kAdmin}},
    {"BrokerAdmin.ListRuns", {Role::kViewer, Role::kAdmin}},
    {"BrokerAdmin.Drain", {Role::kAdmin}},
};

// An attach that brings components, whatever the call itself needs.
inline constexpr MethodRoles kAttachWithComponents = {"VramBroker.Attach with components",
                                                      {Role::kWorker}};

// The entry of a method; one that is not in the table does not compile.
consteval MethodRoles Method(std::string_view name) {
  for (const MethodRoles& entry : kMethodRoles) {
    if (entry.method == name) return entry;
  }
  throw "no entry in kMethodRoles";
}

}  // namespace vrambroker::server
