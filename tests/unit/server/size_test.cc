#include "broker/server/size.h"

#include <gtest/gtest.h>

namespace vrambroker::server {
namespace {

TEST(ParseBytes, TakesNumbersWithAndWithoutUnits) {
  EXPECT_EQ(ParseBytes("24GiB").value(), int64_t{24} << 30);
  EXPECT_EQ(ParseBytes("31.4GiB").value(), 33715493273);
  EXPECT_EQ(ParseBytes("512MiB").value(), 536870912);
  EXPECT_EQ(ParseBytes("1.5 KiB").value(), 1536);
  EXPECT_EQ(ParseBytes("1000000").value(), 1000000);
  EXPECT_EQ(ParseBytes("2GB").value(), 2000000000);
  EXPECT_EQ(ParseBytes(" 7B ").value(), 7);
  EXPECT_EQ(ParseBytes("0").value(), 0);
  EXPECT_EQ(ParseBytes("64TiB").value(), kMaxBytes);
}

TEST(ParseBytes, RefusesWhatIsNoSize) {
  for (const char* text :
       {"", "GiB", "-1", "1e9", "24gib", "24 Gi", "1..5GiB", "65TiB", "nan", "1GiB2"}) {
    const auto parsed = ParseBytes(text);
    EXPECT_EQ(parsed.status().code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_NE(parsed.status().message().find("0 to 64TiB"), absl::string_view::npos) << text;
  }
}

TEST(ParsePositiveDuration, TakesOnlyDocumentedRange) {
  EXPECT_EQ(ParsePositiveDuration("250ms").value(), absl::Milliseconds(250));
  EXPECT_EQ(ParsePositiveDuration("1m30s").value(), absl::Seconds(90));
  EXPECT_EQ(ParsePositiveDuration("0").value(), absl::ZeroDuration());
  for (const char* text : {"", "1", "-1s", "inf", "721h"}) {
    EXPECT_FALSE(ParsePositiveDuration(text).ok()) << text;
  }
}

TEST(ParseRate, TakesPositiveFiniteNumbers) {
  EXPECT_EQ(ParseRate("29.9e9").value(), 29.9e9);
  for (const char* text : {"", "0", "-1", "inf", "nan", "fast"}) {
    EXPECT_FALSE(ParseRate(text).ok()) << text;
  }
}

}  // namespace
}  // namespace vrambroker::server
