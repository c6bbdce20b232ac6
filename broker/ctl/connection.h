// How the commands that talk to a broker find it: the flags that they share, the channel, and what
// is said where it does not answer.
#pragma once

#include <google/protobuf/message.h>
#include <grpcpp/grpcpp.h>

#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "broker/ctl/arguments.h"
#include "client/cpp/broker_client.h"

namespace vrambroker::ctl {

// The help of the shared flags, without --timeout, whose meaning differs.
extern const char kConnectionUsage[];

struct Connection {
  std::string address;
  client::TlsFiles tls;
  // How long each answer may take.
  absl::Duration timeout;
  bool json = false;

  void SetDeadline(grpc::ClientContext* context) const;
};

// `own` and the shared flags: --address, --tls-ca, --tls-cert, --tls-key, --format, --timeout.
std::vector<FlagSpec> WithConnectionFlags(std::vector<FlagSpec> own);

// The shared flags, what is not given from the environment or as the client library has it.
// `least`: of --timeout, which is one hour at most and 5 s where it is not given. INVALID_ARGUMENT
// names the flag, the value given and what is allowed.
absl::StatusOr<Connection> TakeConnection(const Arguments& arguments, absl::Duration least);

// --NAME, a duration from `least` to `most`; `otherwise` where it is not given.
absl::StatusOr<absl::Duration> TakeDuration(const Arguments& arguments, const std::string& name,
                                            absl::Duration otherwise, absl::Duration least,
                                            absl::Duration most);

// INVALID_ARGUMENT where there are words beside the flags.
absl::Status CheckNoWords(const Arguments& arguments);

// A channel that tries again every second where the broker is away. INVALID_ARGUMENT where the TLS
// files cannot serve.
absl::StatusOr<std::shared_ptr<grpc::Channel>> Connect(const Connection& connection);

// Says on `error` that the broker did not answer as asked, and what to look at.
void TellFailure(const grpc::Status& status, const Connection& connection, std::ostream& error);
void TellFailure(const absl::Status& status, const Connection& connection, std::ostream& error);

// Says on `error` what is wrong with the arguments of a command.
void TellMisuse(const std::string& command, const absl::Status& status, std::ostream& error);

// With all fields, as the .proto names them; `lines`: one for each field, else all in one line.
// INVALID_ARGUMENT where a value has no JSON form, such as a time after the year 9999.
absl::StatusOr<std::string> JsonOf(const google::protobuf::Message& message, bool lines);

}  // namespace vrambroker::ctl
