// SPDX-License-Identifier: MIT
// What becomes a slice, and that the file is whole at any time. trace_event_check.py reads a trace with a parser of its own.
#include <tidemark/hook/global_new.hpp>
#include <tidemark/sink/trace_event.hpp>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <tidemark/core/sink.hpp>
#include <tidemark/scope/scope.hpp>

#include "dice.hpp"
#include "records.hpp"
#include "test.hpp"

using tidemark::reading;
using tidemark::sample_record;
using tidemark::scope;
using tidemark::scope_record;
using tidemark::trace_event_sink;
using tidemark::detail::slices;
using tidemark::detail::thread_slices;

namespace {

constexpr std::string_view ending = "\n]}\n";

int count_of(std::string_view text, std::string_view part) {
  int n = 0;
  for (std::size_t at = text.find(part); at != std::string_view::npos; at = text.find(part, at + part.size())) ++n;
  return n;
}

/// Whether the text begins and ends as a trace does, and has a comma after each event but the last.
bool is_whole(const std::string& text) {
  if (text.rfind(R"({"displayTimeUnit":"ms","otherData":{"writer":"tidemark )", 0) != 0) return false;
  if (text.size() < ending.size() || text.substr(text.size() - ending.size()) != ending) return false;
  if (count_of(text, "]}\n") != 1) return false;
  const std::vector<std::string> lines = lines_of(text);
  for (std::size_t i = 1; i + 1 < lines.size(); ++i) {
    const bool is_last = i + 2 == lines.size();
    if (lines[i].rfind(R"({"ph":")", 0) != 0) return false;
    if (lines[i].substr(lines[i].size() - (is_last ? 1 : 2)) != (is_last ? "}" : "},")) return false;
  }
  return true;
}

struct span {
  std::int64_t start;
  std::int64_t end;
  int depth = 0;
};

bool overlap(const span& a, const span& b) {
  return (a.start < b.start && b.start < a.end && a.end < b.end) ||
         (b.start < a.start && a.start < b.end && b.end < a.end);
}

scope_record scope_from(std::int64_t start_ns, std::int64_t end_ns, std::string_view name) {
  scope_record r;
  r.name = r.path = std::string(name);
  r.thread = tidemark::detail::os::thread_id();
  r.start_ns = start_ns;
  r.duration_ns = end_ns - start_ns;
  return r;
}

/// Files are no longer than that while it stands.
class file_limit {
 public:
  explicit file_limit(rlim_t bytes) {
    ::getrlimit(RLIMIT_FSIZE, &before_);
    set(bytes);
  }
  ~file_limit() { ::setrlimit(RLIMIT_FSIZE, &before_); }
  file_limit(const file_limit&) = delete;
  file_limit& operator=(const file_limit&) = delete;
  void set(rlim_t bytes) const {
    const rlimit limit{bytes, before_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &limit);
  }

 private:
  rlimit before_ = {};
};

}  // namespace

// ---- what is a slice ----

TEST_CASE("whatever is told, no two slices of a thread overlap without nesting") {
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    CAPTURE(seed);
    dice roll(seed);
    thread_slices all((std::numeric_limits<std::int64_t>::min)());
    std::vector<span> taken;
    int wrong = 0;
    for (int i = 0; i < 120; ++i) {
      const auto start = static_cast<std::int64_t>(roll.below(60)) - 10;
      const span s{start, start + static_cast<std::int64_t>(roll.below(30)) - 1, static_cast<int>(roll.below(4))};
      if (!all.add(s.start, s.end, s.depth)) continue;
      for (const span& t : taken) wrong += overlap(s, t) ? 1 : 0;
      wrong += s.end < s.start ? 1 : 0;
      taken.push_back(s);
    }
    CHECK(wrong == 0);
    CHECK(!taken.empty());
  }
}

TEST_CASE("scopes that end in the reverse order of their beginning are all slices, in memory of their depth") {
  for (std::uint64_t seed = 1; seed <= 100; ++seed) {
    CAPTURE(seed);
    dice roll(seed);
    thread_slices all((std::numeric_limits<std::int64_t>::min)());
    std::vector<std::int64_t> open;
    std::int64_t now = 0;
    int refused = 0;
    std::size_t most_open = 0;
    std::size_t most_kept = 0;
    for (int i = 0; i < 5'000; ++i) {
      now += static_cast<std::int64_t>(roll.below(3));
      if (open.empty() || (open.size() < 12 && roll.below(2) == 0)) {
        open.push_back(now);
      } else {
        refused += all.add(open.back(), now, static_cast<int>(open.size()) - 1) ? 0 : 1;
        open.pop_back();
      }
      most_open = open.size() > most_open ? open.size() : most_open;
      most_kept = all.kept() > most_kept ? all.kept() : most_kept;
    }
    CHECK(refused == 0);
    CHECK(most_kept <= 64);
    CHECK(most_open == 12);
  }
}

TEST_CASE("of scopes that overlap, the first to end is a slice and the other is none") {
  thread_slices all(0);
  CHECK(all.add(10, 20, 0));
  CHECK_FALSE(all.add(15, 25, 1));
  CHECK(all.add(20, 30, 0));  // begins where the first ends
  CHECK(all.add(10, 40, 0));  // around both
  CHECK_FALSE(all.add(39, 50, 0));
  CHECK_FALSE(all.add(-1, 60, 0));  // began before anything is known
  CHECK(all.add(0, 60, 0));
  CHECK_FALSE(all.add(70, 65, 0));
  CHECK_FALSE(all.add(50, 55, 0));  // not told as it ended
}

TEST_CASE("a scope around the last of many neighbours is a slice") {
  thread_slices all(0);
  CHECK(all.add(1, 2, 0));  // "load"
  for (std::int64_t step = 10; step < 1'000; step += 2) CHECK(all.add(step, step + 1, 1));
  CHECK(all.kept() <= 64);
  CHECK(all.add(5, 1'001, 0));  // "epoch", begun after the load and before the steps
}

TEST_CASE("what is kept of a thread grows with the depth of its scopes and not with their number") {
  thread_slices all(0);
  std::int64_t now = 0;
  std::size_t most_kept = 0;
  int refused = 0;
  const auto leaf = [&](int depth) {
    refused += all.add(now, now + 1, depth) ? 0 : 1;
    now += 2;
    most_kept = all.kept() > most_kept ? all.kept() : most_kept;
  };
  // Every scope has a leaf before and after the next one in it.
  for (int round = 0; round < 3; ++round) {
    std::vector<std::int64_t> open;
    for (int depth = 0; depth < 500; ++depth) {
      leaf(depth);
      leaf(depth);
      open.push_back(now++);
    }
    for (int depth = 499; depth >= 0; --depth) {
      refused += all.add(open[static_cast<std::size_t>(depth)], now++, depth) ? 0 : 1;
      leaf(depth);
    }
  }
  CHECK(refused == 0);
  CHECK(most_kept <= 2 * 501);
}

TEST_CASE("of many threads the quiet ones are forgotten, and what began before that is no slice") {
  slices all(8);
  for (std::uint64_t t = 1; t <= 1'000; ++t) {
    CHECK(all.add(t, static_cast<std::int64_t>(10 * t), static_cast<std::int64_t>(10 * t + 5), 0));
    CHECK(all.threads() <= 8);
  }
  CHECK(all.is_new(1));
  CHECK_FALSE(all.is_new(1'000));
  CHECK_FALSE(all.add(1, 10, 20'000, 0));
  CHECK(all.add(1'000, 10'000, 20'000, 0));
}

// ---- the file ----

TEST_CASE("the file is a whole trace as soon as the sink is made, and after each record") {
  temporary_directory directory;
  const std::string path = directory.file("trace.json");
  const auto sink = std::make_shared<trace_event_sink>(path);
  CHECK(is_whole(content(path)));
  CHECK(lines_of(content(path)).size() == 3);
  const auto attached = tidemark::attach(sink);
  for (int i = 0; i < 20; ++i) {
    { const scope s("step"); }
    CHECK(is_whole(content(path)));
    CHECK(count_of(content(path), R"({"ph":"X","name":"step",)") == i + 1);
  }
}

TEST_CASE("a scope is a slice in microseconds with its path and figures, or without them") {
  temporary_directory directory;
  const std::string path = directory.file("trace.json");
  const std::string plain = directory.file("plain.json");
  scope_record r = record_by_hand();
  r.thread = tidemark::detail::os::thread_id();
  r.left_by_exception = true;
  trace_event_sink(path).on_scope(r);
  trace_event_sink(plain, {false}).on_scope(r);
  const std::string ids =
      R"("pid":)" + std::to_string(::getpid()) + R"(,"cat":"scope","tid":)" + std::to_string(r.thread);
  const std::string slice = R"({"ph":"X","name":"forward",)" + ids + R"(,"ts":123456789012.345,"dur":1840.999)";
  CHECK(lines_of(content(plain)).at(3) == slice + "}");
  CHECK(
      lines_of(content(path))
          .at(3)
          .rfind(
              slice +
                  R"(,"args":{"path":"train step/forward","exception":true,"owned_bytes":640,"thread_heap":{"entry_bytes":1000,)",
              0) == 0);
  CHECK(count_of(content(path), R"("resident":{"absent":"no /proc"}}})") == 1);
  CHECK(count_of(content(path), R"("kv_tokens":{"entry_bytes":7,"exit_bytes":9,"peak_bytes":12,"net_bytes":2,)"
                                R"("peak_growth_bytes":5,"error_bound_bytes":0})") == 1);
}

TEST_CASE("a scope that overlaps, or ended on another thread, is a pair with a number of its own") {
  temporary_directory directory;
  const std::string path = directory.file("trace.json");
  const auto attached = tidemark::attach(std::make_shared<trace_event_sink>(path));
  std::optional<scope> first;
  std::optional<scope> second;
  std::optional<scope> far;
  first.emplace("first");
  second.emplace("second");
  first.reset();
  second.reset();
  far.emplace("elsewhere");
  std::thread([&far] { far.reset(); }).join();
  const std::string text = content(path);
  CHECK(is_whole(text));
  CHECK(count_of(text, R"({"ph":"X","name":"first",)") == 1);
  CHECK(count_of(text, R"("name":"second")") == 2);
  CHECK(count_of(text, R"("name":"elsewhere")") == 2);
  for (const std::string_view phase : {"b", "e"}) {
    const std::string begin = R"({"ph":")" + std::string(phase) + R"(","name":)";
    CHECK(count_of(text, begin + R"("second","pid":)" + std::to_string(::getpid()) + R"(,"cat":"scope","id":1,)") == 1);
    CHECK(count_of(text, begin + R"("elsewhere","pid":)" + std::to_string(::getpid()) + R"(,"cat":"scope","id":2,)") ==
          1);
  }
}

TEST_CASE("a sample is counters of what it has, and an alert an instant") {
  temporary_directory directory;
  const std::string path = directory.file("trace.json");
  {
    trace_event_sink sink(path);
    sink.on_sample(sample_by_hand());
    sink.on_sample(sample_record());
    sink.on_alert(alert_by_hand());
  }
  const std::string text = content(path);
  const std::string pid = R"(","pid":)" + std::to_string(::getpid()) + R"(,"ts":5000000.007,"args":{)";
  CHECK(is_whole(text));
  CHECK(count_of(text, R"({"ph":"C","name":"heap)" + pid + R"("live_bytes":1000}})") == 1);
  CHECK(count_of(text, R"({"ph":"C","name":"limit)" + pid + R"("bytes":8000000}})") == 1);
  CHECK(count_of(text, R"("name":"heap")") == 1);
  CHECK(count_of(text, R"("name":"resident")") == 0);  // absent in both
  CHECK(count_of(text, R"({"ph":"C","name":"domain kv cache)" + pid + R"("live_bytes":21}})") == 1);
  CHECK(count_of(text, R"({"ph":"C","name":"device GPU-1 used","pid":)" + std::to_string(::getpid()) +
                           R"(,"ts":4000000.000,"args":{"bytes":501}})") == 1);  // when the device was asked
  CHECK(count_of(text, R"({"ph":"C","name":"device H200 of this process)" + pid + R"("bytes":7}})") == 1);
  CHECK(count_of(text, R"("name":"device GPU-1 of this process")") == 0);
  CHECK(count_of(text, R"({"ph":"i","name":"resident above 8 GB","pid":)" + std::to_string(::getpid()) +
                           R"(,"cat":"alert","s":"p","tid":)") == 1);
  CHECK(count_of(text, R"("args":{"value_bytes":8200000000,"threshold_bytes":8000000000,"cleared":false}})") == 1);
}

TEST_CASE("a thread is named once, as the system names it") {
  temporary_directory directory;
  const std::string path = directory.file("trace.json");
  const auto attached = tidemark::attach(std::make_shared<trace_event_sink>(path));
  std::thread([] {
    ::pthread_setname_np(::pthread_self(), "loader \"7\"");
    for (int i = 0; i < 5; ++i) const scope s("load");
  }).join();
  CHECK(count_of(content(path), R"("args":{"name":"loader \"7\""}})") == 1);
}

TEST_CASE("8 threads write at once and each event is whole") {
  temporary_directory directory;
  const std::string path = directory.file("trace.json");
  {
    const auto attached = tidemark::attach(std::make_shared<trace_event_sink>(path));
    std::vector<std::thread> workers;
    for (int t = 0; t < 8; ++t) {
      workers.emplace_back([] {
        for (int i = 0; i < 100; ++i) const scope s("busy");
      });
    }
    for (std::thread& w : workers) w.join();
  }
  const std::string text = content(path);
  CHECK(is_whole(text));
  CHECK(count_of(text, R"({"ph":"X","name":"busy",)") == 800);
}

TEST_CASE("what the file held before is gone, also where it was longer") {
  temporary_directory directory;
  const std::string path = directory.file("trace.json");
  for (const int scopes : {50, 1}) {
    const auto attached = tidemark::attach(std::make_shared<trace_event_sink>(path));
    for (int i = 0; i < scopes; ++i) const scope s("run");
    CHECK(count_of(content(path), R"("name":"run")") == scopes);
  }
  CHECK(is_whole(content(path)));
}

TEST_CASE("a fork child writes a file of its own, and the parent goes on with its") {
  temporary_directory directory;
  const std::string path = directory.file("trace.json");
  const auto attached = tidemark::attach(std::make_shared<trace_event_sink>(path));
  { const scope s("before"); }
  const pid_t child = ::fork();
  if (child == 0) {
    { const scope s("in the child"); }
    ::_exit(0);
  }
  int status = -1;
  ::waitpid(child, &status, 0);
  CHECK(status == 0);
  { const scope s("after"); }
  const std::string of_child = content(directory.file("trace." + std::to_string(child) + ".json"));
  CHECK(is_whole(content(path)));
  CHECK(is_whole(of_child));
  CHECK(count_of(content(path), R"("ph":"X")") == 2);
  CHECK(count_of(content(path), R"("pid":)" + std::to_string(child)) == 0);
  CHECK(count_of(of_child, R"("ph":"X")") == 1);
  CHECK(count_of(of_child, R"("pid":)" + std::to_string(child)) >= 2);
}

TEST_CASE("a file that another sink has open gets the process id in its name") {
  temporary_directory directory;
  const std::string path = directory.file("runs.1/trace");  // a dot in the folder is none of the name
  ::mkdir((directory.path() + "/runs.1").c_str(), 0777);
  const std::string other = directory.file("runs.1/trace." + std::to_string(::getpid()));
  {
    trace_event_sink first(path);
    trace_event_sink second(path);
    first.on_scope(scope_from(1, 2, "first"));
    second.on_scope(scope_from(1, 2, "second"));
  }
  CHECK(count_of(content(path), R"("name":"first")") == 1);
  CHECK(count_of(content(other), R"("name":"second")") == 1);
  CHECK(is_whole(content(path)));
  CHECK(is_whole(content(other)));
  { trace_event_sink third(path); }
  CHECK(lines_of(content(path)).size() == 3);
  ::unlink(path.c_str());
  ::unlink(other.c_str());
  ::rmdir((directory.path() + "/runs.1").c_str());
}

// ---- failures ----

TEST_CASE(
    "where the disk is full in the middle of an event, the trace is as before, the record counted, and later ones go "
    "on") {
  temporary_directory directory;
  const std::string path = directory.file("trace.json");
  trace_event_sink sink(path);
  sink.on_scope(scope_from(1, 2, "kept"));
  const std::string before = content(path);
  const std::uint64_t dropped = tidemark::self().dropped_records;
  standard_error captured;
  {
    const file_limit limit(0);
    for (rlim_t more = 0; more < 60; ++more) {
      limit.set(before.size() + more);
      sink.on_scope(scope_from(3, 4, "lost"));
      if (content(path) != before) break;
    }
  }
  const std::string said = captured.text();
  CHECK(content(path) == before);
  CHECK(tidemark::self().dropped_records - dropped == 60);
  CHECK(said ==
        "tidemark: trace_event_sink cannot write to '" + path +
            "': File too large; its records are dropped while that lasts (counted in self().dropped_records)\n");
  sink.on_scope(scope_from(5, 6, "later"));
  CHECK(is_whole(content(path)));
  CHECK(count_of(content(path), R"("name":"later")") == 1);
  CHECK(count_of(content(path), R"("name":"lost")") == 0);
}

TEST_CASE("a disk that is full from the start leaves an empty file, and a trace once there is room") {
  temporary_directory directory;
  const std::string path = directory.file("trace.json");
  const standard_error silenced;
  std::optional<file_limit> limit(std::in_place, 20);
  trace_event_sink sink(path);
  sink.on_scope(scope_from(1, 2, "lost"));
  CHECK(content(path).empty());
  limit.reset();
  sink.on_scope(scope_from(3, 4, "kept"));
  CHECK(is_whole(content(path)));
  CHECK(count_of(content(path), R"("name":"kept")") == 1);
}

TEST_CASE(
    "what cannot be opened is said once with its reason, and each record counted; devices and pipes stay what they "
    "are") {
  temporary_directory directory;
  const std::string pipe = directory.file("pipe");
  REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);
  struct row {
    std::string path;
    std::string_view reason;
  };
  for (const row& r : {row{directory.path() + "/missing/trace.json", "No such file or directory"},
                       row{directory.path(), "Is a directory"}, row{"", "No such file or directory"},
                       row{"/dev/null", "Illegal seek"}, row{pipe, "No such device or address"}}) {
    const std::uint64_t before = tidemark::self().dropped_records;
    standard_error captured;
    {
      const auto attached = tidemark::attach(std::make_shared<trace_event_sink>(r.path));
      for (int i = 0; i < 3; ++i) const scope s("measured");
    }
    const std::string said = captured.text();
    CAPTURE(said);
    CHECK(tidemark::self().dropped_records - before == 3);
    CHECK(lines_of(said).size() == 1);
    CHECK(said.rfind("tidemark: trace_event_sink cannot write to '" + r.path + "': " + std::string(r.reason), 0) == 0);
  }
}

TEST_CASE("what the sink keeps is not in the user's numbers, however long it runs") {
  temporary_directory directory;
  const std::string path = directory.file("a trace with a long name, longer than a small string.json");
  const auto live = [] { return tidemark::thread_usage().value_or(tidemark::usage{}); };
  alignas(trace_event_sink) unsigned char place[sizeof(trace_event_sink)];
  { const scope warm("step"); }
  const tidemark::usage before = live();
  auto* sink = new (place) trace_event_sink(path);
  {
    const auto attached = tidemark::attach(std::shared_ptr<tidemark::sink>(std::shared_ptr<tidemark::sink>(), sink));
    for (int i = 0; i < 200; ++i) const scope warm("step");
  }
  const std::uint64_t own = tidemark::self().own_bytes;
  {
    const auto attached = tidemark::attach(std::shared_ptr<tidemark::sink>(std::shared_ptr<tidemark::sink>(), sink));
    for (int i = 0; i < 2'000; ++i) const scope s("step");
  }
  const std::uint64_t own_later = tidemark::self().own_bytes;
  sink->~trace_event_sink();
  const tidemark::usage after = live();
  CHECK(after.live_bytes == before.live_bytes);
  CHECK(after.live_blocks == before.live_blocks);
  CHECK(own_later <= own);
}
