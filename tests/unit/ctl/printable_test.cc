#include "broker/ctl/printable.h"

#include <gtest/gtest.h>

namespace vrambroker::ctl {
namespace {

TEST(PrintableTest, WhatIsPrintableStays) {
  EXPECT_EQ(Printable(""), "");
  EXPECT_EQ(Printable("a \"quoted\" \\ path"), "a \"quoted\" \\ path");
  EXPECT_EQ(Printable("\xc3\xa4 \xe2\x82\xac \xf0\x9f\x98\x80"),
            "\xc3\xa4 \xe2\x82\xac \xf0\x9f\x98\x80");
}

TEST(PrintableTest, ControlCharactersAreSpeltOut) {
  EXPECT_EQ(Printable("a\nb\x1b[2J\x7f"), "a\\x0ab\\x1b[2J\\x7f");
  EXPECT_EQ(Printable("\xc2\x9b"
                      "31m"),
            "\\xc2\\x9b31m")
      << "U+009B begins an order, as ESC [ does";
  EXPECT_EQ(Printable(absl::string_view("\0", 1)), "\\x00");
}

TEST(PrintableTest, BytesOfNoCharacterAreSpeltOut) {
  EXPECT_EQ(Printable("\xff"), "\\xff");
  EXPECT_EQ(Printable("\xe2\x82"), "\\xe2\\x82") << "cut";
  EXPECT_EQ(Printable("\xc0\x80"), "\\xc0\\x80") << "longer than needed";
  EXPECT_EQ(Printable("\xed\xa0\x80"), "\\xed\\xa0\\x80") << "a surrogate";
  EXPECT_EQ(Printable("\xf4\x90\x80\x80"), "\\xf4\\x90\\x80\\x80") << "above U+10FFFF";
}

TEST(PrintableAsciiTest, OneByteIsOneColumn) {
  EXPECT_EQ(PrintableAscii("te-0/dit"), "te-0/dit");
  EXPECT_EQ(PrintableAscii("\xc3\xa4\t"), "\\xc3\\xa4\\x09");
}

TEST(ShortenedTest, LeavesOutTheMiddle) {
  EXPECT_EQ(Shortened("worker/component", 16), "worker/component");
  EXPECT_EQ(Shortened("worker/component", 10), "work..nent");
  EXPECT_EQ(Shortened("worker/component", 9), "work..ent");
  EXPECT_EQ(Shortened("abcde", 4), "a..e");
}

}  // namespace
}  // namespace vrambroker::ctl
