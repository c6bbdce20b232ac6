// What a channel to the broker is secured with.
#pragma once

#include <grpcpp/grpcpp.h>

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "client/cpp/broker_client.h"

namespace vrambroker::client {

// The files as given; those that are empty as $VRAM_BROKER_TLS_CA, $VRAM_BROKER_TLS_CERT and
// $VRAM_BROKER_TLS_KEY say.
TlsFiles WithEnvironment(TlsFiles files);

// For a broker at `address`: none for a Unix socket, whose peers the kernel knows, and where no
// file is given; else TLS. Files that are renewed serve new connections within ten seconds; while
// they are broken, new connections fail. INVALID_ARGUMENT where only some of the files are given,
// or one cannot be read or is no PEM file, or the key is not that of the first certificate or wants
// a password.
absl::StatusOr<std::shared_ptr<grpc::ChannelCredentials>> MakeCredentials(
    const std::string& address, const TlsFiles& files);

// What to look at where a broker at `address` cannot be reached with these files: one sentence.
std::string WhyUnreachable(const std::string& address, const TlsFiles& files);

}  // namespace vrambroker::client
