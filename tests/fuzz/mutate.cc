#include "tests/fuzz/mutate.h"

#include <cmath>
#include <cstdint>
#include <iterator>
#include <limits>
#include <string>

namespace vrambroker::fuzz {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

constexpr int64_t kMiB = 1 << 20;
constexpr int64_t kMaxBytes = int64_t{1} << 46;
constexpr int64_t kIntegers[] = {0,
                                 1,
                                 2,
                                 3,
                                 4,
                                 5,
                                 8,
                                 64,
                                 65,
                                 4096,
                                 4097,
                                 1000000,
                                 1000001,
                                 kMiB,
                                 8 * kMiB,
                                 64 * kMiB,
                                 kMaxBytes,
                                 kMaxBytes + 1,
                                 -1,
                                 -100,
                                 std::numeric_limits<int32_t>::max(),
                                 int64_t{1} << 62,
                                 std::numeric_limits<int64_t>::max(),
                                 std::numeric_limits<int64_t>::min()};
const double kAmounts[] = {0,   1e-9,  0.5,          3,
                           1e6, 1e9,   1e15,         1e16,
                           -1,  1e300, std::nan(""), std::numeric_limits<double>::infinity()};
// Names of the seeds, request ids, and what is no name.
const char* const kTexts[] = {"",    "w",     "v",     "d",     "x",   "y",        "z",
                              "w/x", "b1",    "b2",    "b3",    "e1",  "e2",       "p",
                              "q",   "GPU-0", "GPU-1", "a/b/c", "a b", "\x01\xff", "1024x1024"};

size_t Below(std::minstd_rand* random, size_t bound) { return (*random)() % bound; }

template <typename Values>
auto OneOf(const Values& values, std::minstd_rand* random) {
  return values[Below(random, std::size(values))];
}

// Of a singular field, or of the element at `index` of a repeated one; -1: a new one.
template <typename Value, typename Set, typename Add, typename SetAt>
void Put(Value value, bool repeated, int index, Set set, Add add, SetAt set_at) {
  if (!repeated) {
    set(value);
  } else if (index < 0) {
    add(value);
  } else {
    set_at(index, value);
  }
}

#define VRAM_FUZZ_PUT(Type, value)                               \
  Put(                                                           \
      value, field->is_repeated(), index,                        \
      [&](auto v) { reflection->Set##Type(message, field, v); }, \
      [&](auto v) { reflection->Add##Type(message, field, v); }, \
      [&](int at, auto v) { reflection->SetRepeated##Type(message, field, at, v); })

void PutValue(Message* message, const FieldDescriptor* field, int index, std::minstd_rand* random) {
  const Reflection* reflection = message->GetReflection();
  const int64_t integer = OneOf(kIntegers, random);
  switch (field->cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32:
      return VRAM_FUZZ_PUT(Int32, static_cast<int32_t>(integer));
    case FieldDescriptor::CPPTYPE_INT64:
      return VRAM_FUZZ_PUT(Int64, integer);
    case FieldDescriptor::CPPTYPE_UINT32:
      return VRAM_FUZZ_PUT(UInt32, static_cast<uint32_t>(integer));
    case FieldDescriptor::CPPTYPE_UINT64:
      return VRAM_FUZZ_PUT(UInt64, static_cast<uint64_t>(integer));
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return VRAM_FUZZ_PUT(Double, OneOf(kAmounts, random));
    case FieldDescriptor::CPPTYPE_FLOAT:
      return VRAM_FUZZ_PUT(Float, static_cast<float>(OneOf(kAmounts, random)));
    case FieldDescriptor::CPPTYPE_BOOL:
      return VRAM_FUZZ_PUT(Bool, integer % 2 == 0);
    case FieldDescriptor::CPPTYPE_ENUM:
      return VRAM_FUZZ_PUT(EnumValue, static_cast<int>(Below(random, 4)));
    case FieldDescriptor::CPPTYPE_STRING: {
      std::string text = OneOf(kTexts, random);
      if (Below(random, 20) == 0) text.assign(60 + Below(random, 80), 'n');
      return VRAM_FUZZ_PUT(String, text);
    }
    case FieldDescriptor::CPPTYPE_MESSAGE:
      if (field->is_repeated() && index < 0) {
        Message* added = reflection->AddMessage(message, field);
        const int before = reflection->FieldSize(*message, field) - 1;
        if (before > 0) {
          added->CopyFrom(reflection->GetRepeatedMessage(
              *message, field, static_cast<int>(Below(random, static_cast<size_t>(before)))));
        }
        return Mutate(added, random);
      }
      return Mutate(field->is_repeated() ? reflection->MutableRepeatedMessage(message, field, index)
                                         : reflection->MutableMessage(message, field),
                    random);
  }
}

#undef VRAM_FUZZ_PUT

}  // namespace

void Mutate(Message* message, std::minstd_rand* random) {
  const auto* descriptor = message->GetDescriptor();
  if (descriptor->field_count() == 0) return;
  const FieldDescriptor* field = descriptor->field(
      static_cast<int>(Below(random, static_cast<size_t>(descriptor->field_count()))));
  const Reflection* reflection = message->GetReflection();
  if (!field->is_repeated()) {
    if (Below(random, 8) == 0) return reflection->ClearField(message, field);
    return PutValue(message, field, -1, random);
  }
  const int size = reflection->FieldSize(*message, field);
  if (size == 0 || Below(random, 3) == 0) return PutValue(message, field, -1, random);
  if (Below(random, 4) == 0) return reflection->RemoveLast(message, field);
  PutValue(message, field, static_cast<int>(Below(random, static_cast<size_t>(size))), random);
}

}  // namespace vrambroker::fuzz
