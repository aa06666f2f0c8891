// SPDX-License-Identifier: MIT
// What a line says. mprof_check.py has mprof itself read a file.
#include <tidemark/hook/global_new.hpp>
#include <tidemark/sink/mprof.hpp>

#include <clocale>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <tidemark/core/record.hpp>

#include "records.hpp"
#include "test.hpp"

using tidemark::mprof_sink;
using tidemark::reading;
using tidemark::sample_record;
using tidemark::scope_record;
using tidemark::usage;
using tidemark::window_usage;

namespace {

constexpr std::int64_t mebibyte = 1'048'576;

std::int64_t clock_ns(clockid_t id) {
  timespec t = {};
  ::clock_gettime(id, &t);
  return std::int64_t{t.tv_sec} * 1'000'000'000 + t.tv_nsec;
}

std::vector<std::string> words_of(std::string_view line) {
  std::vector<std::string> words(1);
  for (const char c : line) {
    if (c == ' ') {
      words.emplace_back();
    } else {
      words.back() += c;
    }
  }
  return words;
}

/// The lines after the first.
std::vector<std::string> lines_in(const std::string& path) {
  std::vector<std::string> lines = lines_of(content(path));
  if (!lines.empty()) lines.erase(lines.begin());
  return lines;
}

/// The line without its times.
std::string without_times(std::string_view line) {
  std::string out;
  const std::vector<std::string> words = words_of(line);
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (words[i].size() > 14 && words[i].find('.') == words[i].size() - 5) continue;  // 10 digits, a point and 4
    out += (out.empty() ? "" : " ") + words[i];
  }
  return out;
}

sample_record sample_of(reading<std::int64_t> resident, reading<usage> heap) {
  sample_record r;
  r.time_ns = clock_ns(CLOCK_MONOTONIC);
  r.resident_bytes = std::move(resident);
  r.heap = std::move(heap);
  return r;
}

usage live(std::int64_t bytes) {
  usage u;
  u.live_bytes = bytes;
  return u;
}

scope_record scope_with(std::string_view meter, std::int64_t entry, std::int64_t exit) {
  scope_record r;
  r.path = "step";
  r.start_ns = clock_ns(CLOCK_MONOTONIC);
  window_usage u;
  u.entry_bytes = entry;
  u.exit_bytes = exit;
  r.meters.push_back({meter, u, "bytes"});
  return r;
}

const auto none = reading<std::int64_t>::absent("not sampled");
const auto no_heap = reading<usage>::absent("no heap hook");

}  // namespace

TEST_CASE("a file begins with the command line, also where another sink appends to it") {
  temporary_directory directory;
  const std::string path = directory.file("run.dat");
  for (int round = 0; round < 2; ++round) {
    mprof_sink sink(path);
    sink.on_sample(sample_of(mebibyte, no_heap));
  }
  const std::vector<std::string> lines = lines_of(content(path));
  CHECK(lines.size() == 3);
  CHECK(lines.at(0).rfind("CMDLINE ", 0) == 0);
  const std::string program = content("/proc/self/cmdline").c_str();  // up to the first zero
  CHECK(lines.at(0).find(program) != std::string::npos);
}

TEST_CASE("a sample is a line of MiB and of Unix time, with a point in every locale") {
  temporary_directory directory;
  const std::string path = directory.file("run.dat");
  for (const char* locale : {"de_DE.UTF-8", "de_DE", "fr_FR.UTF-8", "C.UTF-8"}) {
    if (std::setlocale(LC_ALL, locale) != nullptr) break;
  }
  const std::int64_t before = clock_ns(CLOCK_REALTIME);
  mprof_sink sink(path);
  sink.on_sample(sample_of(123'456'789, live(5)));
  sink.on_sample(sample_of(mebibyte - 1, live(5)));
  sink.on_sample(sample_of(0, live(5)));
  const std::int64_t after = clock_ns(CLOCK_REALTIME);
  std::setlocale(LC_ALL, "C");
  const std::vector<std::string> lines = lines_in(path);
  CHECK(lines.size() == 3);
  CHECK(without_times(lines.at(0)) == "MEM 117.737568");  // 123456789 / 1048576 = 117.73756885...
  CHECK(without_times(lines.at(1)) == "MEM 0.999999");
  CHECK(without_times(lines.at(2)) == "MEM 0.000000");
  const double at = std::strtod(words_of(lines.at(0)).at(2).c_str(), nullptr);
  CHECK(at >= static_cast<double>(before) / 1e9 - 0.001);
  CHECK(at <= static_cast<double>(after) / 1e9 + 0.001);
}

TEST_CASE("a file keeps to the figure of its first sample") {
  temporary_directory directory;
  const std::string resident = directory.file("resident.dat");
  const std::string heap = directory.file("heap.dat");
  mprof_sink first(resident);
  first.on_sample(sample_of(none, no_heap));
  first.on_sample(sample_of(2 * mebibyte, live(mebibyte)));
  first.on_sample(sample_of(none, live(mebibyte)));
  first.on_sample(sample_of(3 * mebibyte, no_heap));
  mprof_sink second(heap);
  second.on_sample(sample_of(none, live(-mebibyte)));
  second.on_sample(sample_of(2 * mebibyte, no_heap));
  second.on_sample(sample_of(2 * mebibyte, live(mebibyte / 2)));
  const auto told = [](const std::string& path) {
    std::string all;
    for (const std::string& line : lines_in(path)) all += without_times(line) + "\n";
    return all;
  };
  CHECK(told(resident) == "MEM 2.000000\nMEM 3.000000\n");
  CHECK(told(heap) == "MEM -1.000000\nMEM 0.500000\n");
}

TEST_CASE("a scope is a bracket between its own figures, else those of the latest sample, else no line") {
  temporary_directory directory;
  const std::string path = directory.file("run.dat");
  const std::string heap = directory.file("heap.dat");
  mprof_sink sink(path);
  sink.on_scope(scope_with("thread_heap", 1, 2));
  CHECK(lines_in(path).empty());
  sink.on_scope(scope_with("resident", mebibyte, 2 * mebibyte));
  sink.on_sample(sample_of(7 * mebibyte, no_heap));
  sink.on_scope(scope_with("process_heap", mebibyte, 2 * mebibyte));
  mprof_sink other(heap);
  other.on_scope(scope_with("process_heap", mebibyte, 3 * mebibyte));
  other.on_sample(sample_of(none, live(9 * mebibyte)));
  other.on_scope(scope_with("resident", mebibyte, 2 * mebibyte));
  CHECK(without_times(lines_in(path).at(0)) == "FUNC step 1.000000 2.000000 0");
  CHECK(without_times(lines_in(path).at(2)) == "FUNC step 7.000000 7.000000 0");
  CHECK(without_times(lines_in(heap).at(0)) == "FUNC step 1.000000 3.000000 0");
  CHECK(without_times(lines_in(heap).at(2)) == "FUNC step 9.000000 9.000000 0");
}

TEST_CASE("a scope's times are its beginning and its end") {
  temporary_directory directory;
  const std::string path = directory.file("run.dat");
  mprof_sink sink(path);
  scope_record r = scope_with("resident", 0, 0);
  r.duration_ns = 2'500'000'000;
  r.depth = 3;
  sink.on_scope(r);
  const std::vector<std::string> words = words_of(lines_in(path).at(0));
  CHECK(words.size() == 7);
  const double begin = std::strtod(words.at(3).c_str(), nullptr);
  const double end = std::strtod(words.at(5).c_str(), nullptr);
  CHECK(end - begin > 2.4998);
  CHECK(end - begin < 2.5002);
  CHECK(words.at(6) == "3");
}

TEST_CASE("any name is one word") {
  temporary_directory directory;
  const std::string path = directory.file("run.dat");
  mprof_sink sink(path);
  for (const char* name : {"train step/for ward", "", " ", "a\nb\r\tc", "\xC3\xA9\xFF"}) {
    scope_record r = scope_with("resident", 0, 0);
    r.path = name;
    sink.on_scope(r);
  }
  std::string all;
  for (const std::string& line : lines_in(path))
    all += words_of(line).at(1) + " " + std::to_string(words_of(line).size()) + "\n";
  CHECK(all == "train_step/for_ward 7\n(unnamed) 7\n_ 7\na_b__c 7\n\xC3\xA9\xEF\xBF\xBD 7\n");
}

TEST_CASE("a fork child's samples are a child's, and its scopes are left out") {
  temporary_directory directory;
  const std::string path = directory.file("run.dat");
  mprof_sink sink(path);
  sink.on_sample(sample_of(mebibyte, no_heap));
  const pid_t child = ::fork();
  if (child == 0) {
    sink.on_sample(sample_of(5 * mebibyte, no_heap));
    sink.on_scope(scope_with("resident", 0, 0));
    ::_exit(0);
  }
  int status = -1;
  ::waitpid(child, &status, 0);
  CHECK(status == 0);
  const std::vector<std::string> lines = lines_in(path);
  CHECK(lines.size() == 2);
  CHECK(without_times(lines.at(1)) == "CHLD " + std::to_string(child) + " 5.000000");
}

TEST_CASE("what cannot be written is said once, and each record counted") {
  const std::uint64_t before = tidemark::self().dropped_records;
  standard_error captured;
  {
    mprof_sink sink("/dev/full");
    for (int i = 0; i < 3; ++i) sink.on_sample(sample_of(mebibyte, no_heap));
  }
  const std::string said = captured.text();
  CHECK(tidemark::self().dropped_records - before == 3);
  CHECK(lines_of(said).size() == 1);
  CHECK(said.rfind("tidemark: mprof_sink cannot write to '/dev/full': No space left on device", 0) == 0);
}

TEST_CASE("what the sink keeps is not in the user's numbers") {
  temporary_directory directory;
  const std::string path = directory.file("a name that is longer than a small string.dat");
  const auto live_now = [] { return tidemark::thread_usage().value_or(usage{}); };
  alignas(mprof_sink) unsigned char place[sizeof(mprof_sink)];
  const usage before = live_now();
  auto* sink = new (place) mprof_sink(path);
  const usage held = live_now();
  sink->~mprof_sink();
  CHECK(held.allocations == before.allocations);
  CHECK(live_now().live_bytes == before.live_bytes);
}
