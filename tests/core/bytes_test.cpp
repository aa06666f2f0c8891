// SPDX-License-Identifier: MIT
#include <tidemark/core/bytes.hpp>

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>

#include "test.hpp"

using namespace tidemark::literals;

TEST_CASE("literals count in powers of 1,024 and of 1,000") {
  static_assert(4_KiB == 4'096);
  static_assert(64_MiB == 67'108'864);
  static_assert(2_GiB == 2'147'483'648);
  static_assert(1_KB == 1'000 && 1_MB == 1'000'000 && 1_GB == 1'000'000'000 && 7_B == 7);
}

TEST_CASE("format_bytes keeps one rounded decimal and carries into the next unit") {
  struct row {
    std::int64_t bytes;
    std::string_view text;
  };
  for (const row r : {row{0, "0 B"}, row{512, "512 B"}, row{1'023, "1023 B"}, row{1'024, "1.0 KiB"},
                      row{-3'072, "-3.0 KiB"}, row{1'075, "1.0 KiB"}, row{1'076, "1.1 KiB"}, row{1'048'524, "1023.9 KiB"},
                      row{1'048'525, "1.0 MiB"}, row{1'048'575, "1.0 MiB"}, row{13'002'343, "12.4 MiB"},
                      row{(std::numeric_limits<std::int64_t>::max)(), "8.0 EiB"},
                      row{(std::numeric_limits<std::int64_t>::min)(), "-8.0 EiB"}}) {
    CHECK(tidemark::format_bytes(r.bytes) == r.text);
  }
}

TEST_CASE("parse_bytes reads what people write") {
  struct row {
    std::string_view text;
    std::int64_t bytes;
  };
  for (const row r : {row{"4096", 4'096}, row{"24 MiB", 24_MiB}, row{"1.5GB", 1'500'000'000}, row{" 7 b ", 7},
                      row{"-3.0 KiB", -3'072}, row{"+1kb", 1'000}, row{".5 KiB", 512}, row{"1. KiB", 1'024},
                      row{"0.1 GiB", 107'374'182}, row{"0.5 B", 1}, row{"2.25tib", 2'473'901'162'496},
                      row{"9223372036854775807", (std::numeric_limits<std::int64_t>::max)()}}) {
    CAPTURE(r.text);
    const auto read = tidemark::parse_bytes(r.text);
    CHECK(read.has_value());
    CHECK(read.value_or(-1) == r.bytes);
  }
}

TEST_CASE("parse_bytes says what is wrong with the rest") {
  for (const std::string_view text : {"", "   ", "MiB", ".", "-", "--1", "1.5 XiB", "12 k", "1,5 GB", "1e3", "0x10",
                                      "9223372036854775808", "9000000000 GiB", "8388608 TiB", "1 2"}) {
    CAPTURE(text);
    const auto read = tidemark::parse_bytes(text);
    CHECK(!read.has_value());
    CHECK(read.why().substr(0, 13) == "no byte count");
  }
}

TEST_CASE("what format_bytes writes parse_bytes reads back within half of its last digit") {
  std::uint64_t seed = 1;
  for (int i = 0; i < 10'000; ++i) {
    seed = seed * 6'364'136'223'846'793'005U + 1'442'695'040'888'963'407U;
    const auto bytes = static_cast<std::int64_t>(seed >> (seed % 41 + 20));  // below 2^44: parse_bytes knows up to TiB
    const std::string text = tidemark::format_bytes(bytes);
    const std::int64_t read = tidemark::parse_bytes(text).value_or(-1);
    std::int64_t unit = 1;
    while (bytes >= unit * 1'024) unit *= 1'024;
    CAPTURE(text);
    CHECK(read - bytes <= unit / 10);
    CHECK(bytes - read <= unit / 10);
  }
}
