#include "broker/ctl/connection.h"

#include <google/protobuf/util/json_util.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "broker/ctl/printable.h"
#include "client/cpp/credentials.h"

namespace vrambroker::ctl {
namespace {

constexpr absl::Duration kLongestTimeout = absl::Hours(1);
constexpr absl::Duration kReconnect = absl::Seconds(1);

void Tell(bool unavailable, const std::string& message, const Connection& connection,
          std::ostream& error) {
  error << "vramctl: the broker at " << connection.address << ": " << Printable(message) << "\n";
  if (!unavailable) return;
  error << "vramctl: " << client::WhyUnreachable(connection.address, connection.tls)
        << " --address gives another place\n";
}

}  // namespace

const char kConnectionUsage[] =
    "  --address=unix:PATH|HOST:PORT  the broker; default: $VRAM_BROKER_ADDRESS, else\n"
    "                                 /run/vram-broker/broker.sock where that exists, else\n"
    "                                 $XDG_RUNTIME_DIR/vram-broker/broker.sock\n"
    "  --tls-ca=FILE --tls-cert=FILE --tls-key=FILE\n"
    "                                 for TCP, in PEM form: the CA of the broker's certificate,\n"
    "                                 the certificate to show, its key; default:\n"
    "                                 $VRAM_BROKER_TLS_CA, $VRAM_BROKER_TLS_CERT,\n"
    "                                 $VRAM_BROKER_TLS_KEY\n"
    "  --format=table|json            default: table\n";

void Connection::SetDeadline(grpc::ClientContext* context) const {
  context->set_deadline(absl::ToChronoTime(absl::Now() + timeout));
}

std::vector<FlagSpec> WithConnectionFlags(std::vector<FlagSpec> own) {
  own.push_back({"address"});
  for (const char* file : {"tls-ca", "tls-cert", "tls-key"}) {
    own.push_back({file, true, false, kFileValue});
  }
  own.push_back({"format", true, false, "table|json"});
  own.push_back({"timeout"});
  return own;
}

absl::StatusOr<absl::Duration> TakeDuration(const Arguments& arguments, const std::string& name,
                                            absl::Duration otherwise, absl::Duration least,
                                            absl::Duration most) {
  if (!arguments.Has(name)) return otherwise;
  const std::string given = arguments.Get(name, "");
  absl::Duration duration;
  if (absl::ParseDuration(given, &duration) && duration >= least && duration <= most &&
      duration > absl::ZeroDuration()) {
    return duration;
  }
  const std::string allowed = least > absl::ZeroDuration()
                                  ? absl::StrCat(absl::FormatDuration(least), " or more")
                                  : "a duration above 0";
  return absl::InvalidArgumentError(absl::StrCat(
      "--", name, ": ", given.empty() ? "''" : given, " given, ", allowed, " is allowed, ",
      absl::FormatDuration(most), " at most, such as ", absl::FormatDuration(otherwise)));
}

absl::StatusOr<Connection> TakeConnection(const Arguments& arguments, absl::Duration least) {
  Connection connection;
  connection.address = arguments.Get("address", "");
  if (connection.address.empty()) connection.address = client::DefaultAddress();
  connection.tls = client::WithEnvironment(
      {arguments.Get("tls-ca", ""), arguments.Get("tls-cert", ""), arguments.Get("tls-key", "")});
  const std::string format = arguments.Get("format", "table");
  if (format != "table" && format != "json") {
    return absl::InvalidArgumentError(
        absl::StrCat("--format: '", format, "' given, table or json is allowed"));
  }
  connection.json = format == "json";
  const auto timeout = TakeDuration(arguments, "timeout", absl::Seconds(5), least, kLongestTimeout);
  if (!timeout.ok()) return timeout.status();
  connection.timeout = *timeout;
  return connection;
}

absl::Status CheckNoWords(const Arguments& arguments) {
  if (arguments.words().empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("'", arguments.words()[0], "' is not known: no argument goes there"));
}

absl::StatusOr<std::shared_ptr<grpc::Channel>> Connect(const Connection& connection) {
  const auto credentials = client::MakeCredentials(connection.address, connection.tls);
  if (!credentials.ok()) return credentials.status();
  grpc::ChannelArguments arguments;
  const int milliseconds = static_cast<int>(absl::ToInt64Milliseconds(kReconnect));
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, milliseconds);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, milliseconds);
  return grpc::CreateCustomChannel(connection.address, *credentials, arguments);
}

void TellFailure(const grpc::Status& status, const Connection& connection, std::ostream& error) {
  Tell(status.error_code() == grpc::StatusCode::UNAVAILABLE, status.error_message(), connection,
       error);
}

void TellFailure(const absl::Status& status, const Connection& connection, std::ostream& error) {
  Tell(absl::IsUnavailable(status), std::string(status.message()), connection, error);
}

void TellMisuse(const std::string& command, const absl::Status& status, std::ostream& error) {
  error << "vramctl: " << status.message() << "; vramctl " << command << " --help says more\n";
}

absl::StatusOr<std::string> JsonOf(const google::protobuf::Message& message, bool lines) {
  google::protobuf::util::JsonPrintOptions options;
  options.add_whitespace = lines;
  options.always_print_primitive_fields = true;
  options.preserve_proto_field_names = true;
  std::string json;
  const auto status = google::protobuf::util::MessageToJsonString(message, &json, options);
  if (status.ok()) return json + "\n";
  return absl::InvalidArgumentError(
      absl::StrCat("the answer cannot be shown as JSON: ",
                   absl::string_view(status.message().data(), status.message().size())));
}

}  // namespace vrambroker::ctl
