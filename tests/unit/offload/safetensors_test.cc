#include "stage_workers/offload/safetensors.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/offload/offload_test_util.h"

namespace vrambroker::offload {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// Parses a header with so many bytes of data after it.
absl::StatusOr<SafetensorsHeader> Parse(const std::string& header, int64_t data_bytes) {
  return ParseSafetensorsHeader(LengthPrefix(header.size()) + header,
                                8 + static_cast<int64_t>(header.size()) + data_bytes);
}

std::string Message(const std::string& header, int64_t data_bytes) {
  const absl::Status status = Parse(header, data_bytes).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << header;
  return std::string(status.message());
}

// A header of one tensor whose fields are given.
std::string Tensor1(const std::string& fields) { return "{\"w\":{" + fields + "}}"; }

TEST(Safetensors, ReadsTensorsInFileOrder) {
  absl::StatusOr<SafetensorsHeader> header = Parse(
      R"({"__metadata__":{"format":"pt"},
          "late":{"dtype":"BF16","shape":[2,3],"data_offsets":[4,16]},
          "early":{"dtype":"F32","shape":[],"data_offsets":[0,4]},
          "empty":{"dtype":"U8","shape":[0,9],"data_offsets":[16,16]}}    )",
      16);
  ASSERT_TRUE(header.ok()) << header.status();
  ASSERT_EQ(header->tensors.size(), 3u);
  EXPECT_EQ(header->tensors[0].name, "early");
  EXPECT_EQ(header->tensors[1].name, "late");
  EXPECT_EQ(header->tensors[1].begin, 4);
  EXPECT_EQ(header->tensors[1].bytes, 12);
  EXPECT_EQ(header->tensors[1].shape, (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(header->tensors[2].name, "empty");
  EXPECT_EQ(header->metadata.at("format"), "pt");
  EXPECT_EQ(header->data_bytes, 16);
}

TEST(Safetensors, ReadsAFileWithoutTensors) { EXPECT_TRUE(Parse("{}", 0).ok()); }

TEST(Safetensors, KnowsTheSizesOfElements) {
  EXPECT_EQ(DtypeBytes("BF16"), 2);
  EXPECT_EQ(DtypeBytes("F8_E4M3"), 1);
  EXPECT_EQ(DtypeBytes("F64"), 8);
  EXPECT_EQ(DtypeBytes("bf16"), 0);
  EXPECT_EQ(DtypeBytes(""), 0);
}

TEST(Safetensors, RefusesLengthsThatDoNotFit) {
  EXPECT_EQ(ParseSafetensorsHeader("", 0).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(ParseSafetensorsHeader("1234567", 7).status().code(),
            absl::StatusCode::kInvalidArgument);
  absl::Status status = ParseSafetensorsHeader(LengthPrefix(100'000'001) + "{}", 1 << 30).status();
  EXPECT_THAT(std::string(status.message()), HasSubstr("100000001 given"));
  status = ParseSafetensorsHeader(LengthPrefix(~uint64_t{0}) + "{}", 10).status();
  EXPECT_THAT(std::string(status.message()), HasSubstr("18446744073709551615 given"));
  status = ParseSafetensorsHeader(LengthPrefix(3) + "{}", 10).status();
  EXPECT_THAT(std::string(status.message()), HasSubstr("cut short"));
  EXPECT_THAT(Message("", 5), HasSubstr("'{'"));
}

TEST(Safetensors, RefusesWhatIsNotTheFormatsJson) {
  for (const std::string header :
       {"[]", " {}", "{", "{}x", "{\"w\":1}", "{\"w\":[]}", "{\"w\":null}",
        "{\"w\":{\"dtype\":{}}}", "{\"w\":{\"dtype\":[1]}}", "{\"w\":{\"shape\":[[1]]}}",
        "{\"w\":{\"shape\":[true]}}", "{\"w\":{\"shape\":\"U8\"}}",
        "{\"w\":{\"data_offsets\":[\"0\",\"1\"]}}", "{\"__metadata__\":{\"a\":1}}",
        "{\"__metadata__\":{\"a\":{}}}", "{\"__metadata__\":[]}", "{\"w\":{\"dtype\":null}}",
        "{\"\xff\":{}}"}) {
    Message(header, 1);
  }
  // Deep nesting ends at once, however much there is of it.
  std::string deep = "{\"w\":{\"shape\":" + std::string(1'000'000, '[');
  EXPECT_THAT(Message(deep, 0), HasSubstr("a list given"));
}

TEST(Safetensors, RefusesTensorsThatContradictThemselves) {
  const std::string dtype = "\"dtype\":\"U8\"";
  const std::string shape = "\"shape\":[4]";
  const std::string offsets = "\"data_offsets\":[0,4]";
  const auto join = [](const std::string& a, const std::string& b, const std::string& c) {
    return Tensor1(a + "," + b + "," + c);
  };
  ASSERT_TRUE(Parse(join(dtype, shape, offsets), 4).ok());
  EXPECT_THAT(Message(Tensor1(dtype + "," + shape), 4), HasSubstr("data_offsets: missing"));
  EXPECT_THAT(Message(Tensor1(dtype + "," + offsets), 4), HasSubstr("shape: missing"));
  EXPECT_THAT(Message(Tensor1(shape + "," + offsets), 4), HasSubstr("dtype: missing"));
  EXPECT_THAT(Message(join(dtype, dtype, shape), 4), HasSubstr("given twice"));
  EXPECT_THAT(Message(join(dtype, "\"extra\":\"1\"", shape), 4), HasSubstr("extra"));
  EXPECT_THAT(Message(join("\"dtype\":\"Q4\"", shape, offsets), 4),
              AllOf(HasSubstr("tensor \"w\" field dtype"), HasSubstr("Q4")));
  EXPECT_THAT(Message(join(dtype, "\"shape\":[5]", offsets), 4),
              AllOf(HasSubstr("4 bytes"), HasSubstr("need 5")));
  EXPECT_THAT(Message(join(dtype, "\"shape\":[-4]", offsets), 4), HasSubstr("-4 given"));
  EXPECT_THAT(Message(join(dtype, "\"shape\":[4.5]", offsets), 4), HasSubstr("4.5 given"));
  EXPECT_THAT(Message(join(dtype, "\"shape\":[99999999999999999999]", offsets), 4),
              HasSubstr("whole number"));
  EXPECT_THAT(Message(join(dtype, "\"shape\":[9300000000000000000]", offsets), 4),
              HasSubstr("2^63"));
  EXPECT_THAT(Message(join(dtype, "\"shape\":[4294967296,4294967296]", offsets), 4),
              HasSubstr("2^63"));
  EXPECT_THAT(Message(join(dtype, "\"shape\":[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]", offsets), 4),
              HasSubstr("more than 16"));
  EXPECT_THAT(Message(join(dtype, shape, "\"data_offsets\":[4,0]"), 4), HasSubstr("after its end"));
  EXPECT_THAT(Message(join(dtype, shape, "\"data_offsets\":[0]"), 4), HasSubstr("2 are needed"));
  EXPECT_THAT(Message(join(dtype, shape, "\"data_offsets\":[0,4,4]"), 4), HasSubstr("more than 2"));
  EXPECT_THAT(Message(join(dtype, shape, "\"data_offsets\":[0,4]") + " ", 3), HasSubstr("beyond"));
}

TEST(Safetensors, RefusesTensorsThatOverlapOrLeaveGaps) {
  const auto two = [](const std::string& first, const std::string& second) {
    return "{\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":" + first +
           "},\"b\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":" + second + "}}";
  };
  ASSERT_TRUE(Parse(two("[0,4]", "[4,8]"), 8).ok());
  EXPECT_THAT(Message(two("[0,4]", "[3,7]"), 8),
              AllOf(HasSubstr("tensor \"b\""), HasSubstr("within the tensor before")));
  EXPECT_THAT(Message(two("[0,4]", "[0,4]"), 8), HasSubstr("within the tensor before"));
  EXPECT_THAT(Message(two("[0,4]", "[5,9]"), 9), HasSubstr("gap"));
  EXPECT_THAT(Message(two("[1,5]", "[5,9]"), 9), HasSubstr("gap"));
  EXPECT_THAT(Message(two("[0,4]", "[4,8]"), 9), HasSubstr("9 bytes of data follow"));
  EXPECT_THAT(Message(two("[0,4]", "[9223372036854775803,9223372036854775807]"), 8),
              HasSubstr("gap"));
  EXPECT_THAT(Message("{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]},"
                      "\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[1,2]}}",
                      2),
              HasSubstr("given twice"));
}

TEST(Safetensors, RefusesNamesThatAreTooLong) {
  const std::string rest = "\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}";
  EXPECT_TRUE(Parse("{\"" + std::string(1024, 'n') + rest, 1).ok());
  EXPECT_THAT(Message("{\"" + std::string(1025, 'n') + rest, 1), HasSubstr("1025 bytes"));
  EXPECT_THAT(Message("{\"" + rest, 1), HasSubstr("1 to 1024"));
}

// Flips, cuts and repeats parts of a good header: never a crash, never an offset outside the file.
TEST(Safetensors, SurvivesDamagedHeaders) {
  const std::string good =
      R"({"__metadata__":{"a":"b"},"x.0.w":{"dtype":"F16","shape":[2,2],"data_offsets":[0,8]},)"
      R"("x.1.w":{"dtype":"U8","shape":[8],"data_offsets":[8,16]}})";
  ASSERT_TRUE(Parse(good, 16).ok());
  uint64_t random = 1;
  const auto next = [&](uint64_t below) {
    random = random * 6364136223846793005 + 1442695040888963407;
    return (random >> 33) % below;
  };
  int good_ones = 0;
  for (int round = 0; round < 20'000; ++round) {
    std::string header = good;
    for (uint64_t change = next(4) + 1; change > 0; --change) {
      const size_t at = next(header.size());
      switch (next(4)) {
        case 0:
          header[at] = static_cast<char>(next(256));
          break;
        case 1:
          header.erase(at, next(5));
          break;
        case 2:
          header.insert(at, header.substr(next(header.size()), next(20)));
          break;
        default:
          header[at] = "0123456789{}[],:\"-"[next(18)];
      }
      if (header.empty()) header = "{";
    }
    absl::StatusOr<SafetensorsHeader> parsed = Parse(header, 16);
    if (!parsed.ok()) continue;
    ++good_ones;
    for (const Tensor& tensor : parsed->tensors) {
      ASSERT_GE(tensor.begin, 0);
      ASSERT_GE(tensor.bytes, 0);
      ASSERT_LE(tensor.begin + tensor.bytes, 16);
    }
  }
  EXPECT_GT(good_ones, 0);
}

TEST(SafetensorsFile, NamesTheFileInItsErrors) {
  TestFolder folder;
  const std::string path = folder.File("broken.safetensors");
  EXPECT_EQ(SafetensorsFile::Open(path).status().code(), absl::StatusCode::kNotFound);
  WriteFile(path, "short");
  absl::Status status = SafetensorsFile::Open(path).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr(path));
  WriteFile(path, LengthPrefix(2) + "[]");
  status = SafetensorsFile::Open(path).status();
  EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr(path), HasSubstr("'{'")));
  EXPECT_EQ(SafetensorsFile::Open(folder.path()).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(SafetensorsFile, WhatIsWrittenStaysInTheProcess) {
  TestFolder folder;
  std::shared_ptr<SafetensorsFile> file = MakeFile(folder.File("w.safetensors"), {{"w", 100}});
  const Tensor& tensor = file->header().tensors[0];
  const char before = file->Data(tensor)[7];
  file->Data(tensor)[7] = static_cast<char>(before + 1);
  absl::StatusOr<std::shared_ptr<SafetensorsFile>> again =
      SafetensorsFile::Open(folder.File("w.safetensors"));
  ASSERT_TRUE(again.ok());
  EXPECT_EQ((*again)->Data(tensor)[7], before);
}

}  // namespace
}  // namespace vrambroker::offload
