// SPDX-License-Identifier: MIT
#include <tidemark/hook/global_new.hpp>
#include <tidemark/sink/text.hpp>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <tidemark/core/sink.hpp>
#include <tidemark/scope/scope.hpp>

#include "records.hpp"
#include "test.hpp"

using tidemark::reading;
using tidemark::scope;
using tidemark::scope_record;
using tidemark::text_sink;
using tidemark::window_usage;

TEST_CASE("a line says the path, the time, and each meter's peak, net and allocations") {
  scope_record r = record_by_hand();
  CHECK(text_sink::line(r) ==
        "train step/forward  1.84 ms"
        "  thread_heap: peak +12.4 MiB, net -100 B, 34 allocations"
        "  process_heap: peak +12.4 MiB, net -100 B, 1 allocation (each within 256.0 KiB)"
        "  kv_tokens: peak +5 tokens, net +2 tokens"
        "  resident: absent (no /proc)"
        "  owns 640 B\n");
  r.meters.erase(r.meters.begin() + 1, r.meters.end());
  r.owned_bytes = std::int64_t{0};
  r.left_by_exception = true;
  CHECK(text_sink::line(r) ==
        "train step/forward  1.84 ms  thread_heap: peak +12.4 MiB, net -100 B, 34 allocations  left by an exception\n");
  r.left_by_exception = false;
  r.owned_bytes = reading<std::int64_t>::absent("no hook");
  r.meters[0].usage = window_usage{};
  CHECK(text_sink::line(r) == "train step/forward  1.84 ms  thread_heap: peak +0 B, net +0 B, 0 allocations\n");
}

TEST_CASE("an alert says what rose over what, and when it is over") {
  tidemark::alert_record alert = alert_by_hand();
  CHECK(text_sink::line(alert) == "alert: resident above 8 GB: 7.6 GiB, threshold 7.5 GiB\n");
  alert.cleared = true;
  alert.name = "two\nlines";
  alert.value_bytes = 1'024;
  CHECK(text_sink::line(alert) == "alert cleared: two\\nlines: 1.0 KiB, threshold 7.5 GiB\n");
  temporary_directory directory;
  const std::string path = directory.file("text");
  std::FILE* stream = std::fopen(path.c_str(), "w");
  REQUIRE(stream != nullptr);
  {
    const auto attached = tidemark::attach(std::make_shared<text_sink>(stream));
    tidemark::detail::deliver(&tidemark::sink::on_alert, alert);
    tidemark::detail::deliver(&tidemark::sink::on_sample, sample_by_hand());  // no line
  }
  std::fclose(stream);
  CHECK(content(path) == text_sink::line(alert));
}

TEST_CASE("a duration has three digits and a unit") {
  struct row {
    std::int64_t ns;
    std::string_view text;
  };
  for (const row& r : {row{0, "0 ns"}, row{1, "1 ns"}, row{999, "999 ns"}, row{1'000, "1.00 us"}, row{1'999, "1.99 us"},
                       row{12'345, "12.3 us"}, row{123'456, "123 us"}, row{999'999, "999 us"},
                       row{1'000'000, "1.00 ms"}, row{59'900'000, "59.9 ms"}, row{1'000'000'000, "1.00 s"},
                       row{61'000'000'000, "61.0 s"}, row{3'600'000'000'000, "3600 s"}}) {
    scope_record record;
    record.path = "p";
    record.duration_ns = r.ns;
    CHECK(text_sink::line(record) == "p  " + std::string(r.text) + "\n");
  }
}

TEST_CASE("a name with any bytes is one line that a terminal can show") {
  scope_record r;
  for (int c = 0; c < 256; ++c) r.path += static_cast<char>(c);
  const std::string line = text_sink::line(r);
  CHECK(line.find('\n') == line.size() - 1);
  int controls = 0;
  for (const char c : line.substr(0, line.size() - 1)) {
    const auto u = static_cast<unsigned char>(c);
    controls += u < 0x20 || u == 0x7F ? 1 : 0;
  }
  CHECK(controls == 0);
  r.path = "a\nb\t\x1b[0m \xC3\xA9 \xC3";
  CHECK(text_sink::line(r) == "a\\nb\\x09\\x1b[0m \xC3\xA9 \xEF\xBF\xBD  0 ns\n");
  r.path = "p";
  r.meters.push_back({"my\nmeter", reading<window_usage>::absent("why\nnot"), "bytes"});
  window_usage tokens;
  tokens.counts_events = false;
  r.meters.push_back({"tokens", tokens, "to\nkens"});
  CHECK(text_sink::line(r) == "p  0 ns  my\\nmeter: absent (why\\nnot)  tokens: peak +0 to\\nkens, net +0 to\\nkens\n");
}

TEST_CASE("a scope writes its line to the stream, after what the stream holds, and the stream stays the caller's") {
  temporary_directory directory;
  const std::string path = directory.file("text");
  std::FILE* stream = std::fopen(path.c_str(), "w");
  REQUIRE(stream != nullptr);
  std::fputs("held\n", stream);
  {
    const auto attached = tidemark::attach(std::make_shared<text_sink>(stream));
    const scope outer("outer");
    const scope inner("inner");
  }
  std::fputs("still open\n", stream);
  std::fclose(stream);
  const std::vector<std::string> lines = lines_of(content(path));
  CHECK(lines.size() == 4);
  CHECK(lines.at(0) == "held");
  CHECK(lines.at(1).find("outer/inner  ") == 0);
  CHECK(lines.at(2).find("outer  ") == 0);
  CHECK(lines.at(2).find("  thread_heap: peak +0 B, net +0 B, 0 allocations") != std::string::npos);
  CHECK(lines.at(3) == "still open");
}

TEST_CASE("without a stream the line goes to the standard error") {
  standard_error captured;
  {
    const auto attached = tidemark::attach(std::make_shared<text_sink>());
    const scope s("to stderr");
  }
  const std::string said = captured.text();
  CHECK(said.find("to stderr  ") == 0);
  CHECK(lines_of(said).size() == 1);
}

TEST_CASE("lines of 8 threads do not mix") {
  temporary_directory directory;
  const std::string path = directory.file("threads");
  std::FILE* stream = std::fopen(path.c_str(), "a");
  REQUIRE(stream != nullptr);
  {
    const auto attached = tidemark::attach(std::make_shared<text_sink>(stream));
    std::vector<std::thread> threads;
    for (int t = 0; t < 8; ++t) {
      threads.emplace_back([t] {
        const std::string name(static_cast<std::size_t>(t) * 25 + 1, static_cast<char>('a' + t));
        for (int i = 0; i < 200; ++i) const scope s(name);
      });
    }
    for (std::thread& t : threads) t.join();
  }
  std::fclose(stream);
  int whole = 0;
  const std::vector<std::string> lines = lines_of(content(path));
  for (const std::string& line : lines) {
    const std::string name = line.substr(0, line.find(' '));
    const auto length = static_cast<std::size_t>(line.front() - 'a') * 25 + 1;
    whole += name == std::string(length, line.front()) && line.find(" allocations") == line.size() - 12 ? 1 : 0;
  }
  CHECK(lines.size() == 1'600);
  CHECK(whole == 1'600);
}

TEST_CASE("a full disk is said once, and each record counted") {
  std::FILE* full = std::fopen("/dev/full", "w");
  REQUIRE(full != nullptr);
  const std::uint64_t before = tidemark::self().dropped_records;
  standard_error captured;
  {
    const auto attached = tidemark::attach(std::make_shared<text_sink>(full));
    for (int i = 0; i < 3; ++i) const scope s("measured");
  }
  const std::string said = captured.text();
  CHECK(tidemark::self().dropped_records - before == 3);
  CHECK(said.find("tidemark: text_sink cannot write to the stream: No space left on device") == 0);
  CHECK(lines_of(said).size() == 1);
  std::fclose(full);
}
