// Changes to a message by its fields, so that it stays one: names and numbers that mean something
// to a broker, bounds and what is next to them.
#pragma once

#include <google/protobuf/message.h>

#include <random>

namespace vrambroker::fuzz {

// One field somewhere in the message is set, changed, added to or taken away.
void Mutate(google::protobuf::Message* message, std::minstd_rand* random);

}  // namespace vrambroker::fuzz
