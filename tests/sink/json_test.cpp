// SPDX-License-Identifier: MIT
// What a line says, and what happens where none can be written. json_check.py reads lines with a parser of its own.
#include <tidemark/hook/global_new.hpp>
#include <tidemark/sink/json.hpp>

#include <atomic>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <tidemark/core/sink.hpp>
#include <tidemark/scope/scope.hpp>
#include <tidemark/sink/ring.hpp>

#include "records.hpp"
#include "test.hpp"

using tidemark::json_sink;
using tidemark::reading;
using tidemark::scope;
using tidemark::scope_record;

namespace {

/// The name as it stands in the line of a record of that name.
std::string name_in_line(std::string_view name) {
  scope_record r;
  r.name = std::string(name);
  const std::string line = json_sink::line(r);
  constexpr std::string_view before = R"({"type":"scope","name":")";
  const std::size_t end = line.find(R"(","path":"","file":"")");
  if (line.compare(0, before.size(), before) != 0 || end == std::string::npos) return "not a line: " + line;
  return line.substr(before.size(), end - before.size());
}

std::uint64_t dropped() { return tidemark::self().dropped_records; }

}  // namespace

TEST_CASE("a record is one line of one object with every field in its place") {
  const std::string pid = std::to_string(::getpid());
  CHECK(json_sink::line(record_by_hand()) ==
        R"({"type":"scope","name":"forward","path":"train step/forward","file":"model.cpp","line":42,"pid":)" + pid +
            R"(,"thread":4242,"depth":1,"start_ns":123456789012345,"duration_ns":1840999,"exception":false,)"
            R"("owned_bytes":640,"meters":{)"
            R"("thread_heap":{"entry_bytes":1000,"exit_bytes":900,"peak_bytes":13003343,"net_bytes":-100,)"
            R"("peak_growth_bytes":13002343,"allocations":34,"deallocations":35,"allocated_bytes":20000001,)"
            R"("freed_bytes":20000101,"largest_bytes":4096,"error_bound_bytes":0},)"
            R"("process_heap":{"entry_bytes":1000,"exit_bytes":900,"peak_bytes":13003343,"net_bytes":-100,)"
            R"("peak_growth_bytes":13002343,"allocations":1,"deallocations":35,"allocated_bytes":20000001,)"
            R"("freed_bytes":20000101,"largest_bytes":4096,"error_bound_bytes":262144},)"
            R"("kv_tokens":{"entry_bytes":7,"exit_bytes":9,"peak_bytes":12,"net_bytes":2,"peak_growth_bytes":5,)"
            R"("error_bound_bytes":0},)"
            R"("resident":{"absent":"no /proc"}}})"
            "\n");
}

TEST_CASE("a sample is one line with each figure or the reason why there is none") {
  const std::string pid = std::to_string(::getpid());
  CHECK(
      json_sink::line(sample_by_hand()) ==
      R"({"type":"sample","pid":)" + pid +
          R"(,"time_ns":5000000007,)"
          R"("heap":{"live_bytes":1000,"peak_bytes":2000,"live_blocks":3,"allocations":40,"deallocations":37,)"
          R"("allocated_bytes":50000,"freed_bytes":49000,"error_bound_bytes":64},)"
          R"("resident_bytes":{"absent":"no \"/proc\""},"limit_bytes":8000000,"limit_used_bytes":7000000,)"
          R"("limit_source":"cgroup_v2","domains":[)"
          R"({"name":"weights","external":false,"limit_bytes":100,"live_bytes":11,"peak_bytes":12,"live_blocks":1,)"
          R"("allocations":2,"deallocations":1,"allocated_bytes":22,"freed_bytes":11,"error_bound_bytes":0},)"
          R"({"name":"kv cache","external":true,"limit_bytes":30,"live_bytes":10,"peak_bytes":15,"live_blocks":1,)"
          R"("allocations":1,"deallocations":0,"allocated_bytes":10,"freed_bytes":0,"error_bound_bytes":0},)"
          R"({"name":"kv cache","external":true,"limit_bytes":{"absent":"no limit"},"live_bytes":11,"peak_bytes":17,)"
          R"("live_blocks":1,"allocations":1,"deallocations":0,"allocated_bytes":11,"freed_bytes":0,)"
          R"("error_bound_bytes":0}],"devices":[)"
          R"({"uuid":"GPU-1","name":"H200","source":"nvml","time_ns":4000000000,"total_bytes":1000,"used_bytes":501,)"
          R"("process_bytes":{"absent":"no permission: ask"}},)"
          R"({"uuid":"","name":"H200","source":"sysfs","time_ns":0,"total_bytes":2000,"used_bytes":{"absent":"timeout: 2 s"},)"
          R"("process_bytes":7}]})"
          "\n");
  CHECK(json_sink::line(tidemark::sample_record()) ==
        R"({"type":"sample","pid":)" + pid +
            R"(,"time_ns":0,"heap":{"absent":"not sampled"},)"
            R"("resident_bytes":{"absent":"not sampled"},"limit_bytes":{"absent":"not sampled"},)"
            R"("limit_used_bytes":{"absent":"not sampled"},"limit_source":"","domains":[],"devices":[]})"
            "\n");
}

TEST_CASE("where no devices can be had, the line says why") {
  tidemark::sample_record r;
  r.why_no_devices = "no driver";
  CHECK(json_sink::line(r).find(R"("devices":{"absent":"no driver"}})") != std::string::npos);
}

TEST_CASE("an alert is one line, and so is its end") {
  tidemark::alert_record alert = alert_by_hand();
  alert.name += " \"\n";
  const std::string line = R"({"type":"alert","name":"resident above 8 GB \"\u000a","pid":)" +
                           std::to_string(::getpid()) +
                           R"(,"time_ns":5000000008,"value_bytes":8200000000,"threshold_bytes":8000000000,"cleared":)";
  CHECK(json_sink::line(alert) == line + "false}\n");
  alert.cleared = true;
  CHECK(json_sink::line(alert) == line + "true}\n");
}

TEST_CASE("samples and alerts are written as scopes are") {
  temporary_directory directory;
  const std::string path = directory.file("records.jsonl");
  const auto attached = tidemark::attach(std::make_shared<json_sink>(path));
  tidemark::detail::deliver(&tidemark::sink::on_sample, sample_by_hand());
  tidemark::detail::deliver(&tidemark::sink::on_alert, alert_by_hand());
  CHECK(content(path) == json_sink::line(sample_by_hand()) + json_sink::line(alert_by_hand()));
}

TEST_CASE("an empty record and an exception have their line too") {
  scope_record r;
  r.left_by_exception = true;
  CHECK(json_sink::line(r) == R"({"type":"scope","name":"","path":"","file":"","line":0,"pid":)" +
                                  std::to_string(::getpid()) +
                                  R"(,"thread":0,"depth":0,"start_ns":0,"duration_ns":0,"exception":true,)"
                                  R"("owned_bytes":{"absent":"not asked"},"meters":{}})"
                                  "\n");
}

TEST_CASE("the largest and smallest numbers are written whole") {
  scope_record r;
  r.thread = 18'446'744'073'709'551'615U;
  r.start_ns = 9'223'372'036'854'775'807;
  r.duration_ns = -9'223'372'036'854'775'807 - 1;
  const std::string line = json_sink::line(r);
  CHECK(line.find(R"("thread":18446744073709551615,)") != std::string::npos);
  CHECK(line.find(R"("start_ns":9223372036854775807,)") != std::string::npos);
  CHECK(line.find(R"("duration_ns":-9223372036854775808,)") != std::string::npos);
}

TEST_CASE("names are escaped where JSON asks for it and kept where it does not") {
  CHECK(name_in_line("") == "");
  CHECK(name_in_line("plain / name") == "plain / name");
  CHECK(name_in_line(R"(say "no" \ yes)") == R"(say \"no\" \\ yes)");
  CHECK(name_in_line(R"("")") == R"(\"\")");
  CHECK(name_in_line(R"(\)") == R"(\\)");
  CHECK(name_in_line("a\nb\r\tc") == R"(a\u000ab\u000d\u0009c)");
  CHECK(name_in_line(std::string_view("a\0b", 3)) == R"(a\u0000b)");
  CHECK(name_in_line("\x1b[31m\x7f") == R"(\u001b[31m\u007f)");
  CHECK(name_in_line("\xC3\xA9 \xE2\x82\xAC \xF0\x9F\x8C\x8A") == "\xC3\xA9 \xE2\x82\xAC \xF0\x9F\x8C\x8A");
}

TEST_CASE("each byte that is no UTF-8 becomes one U+FFFD") {
  struct row {
    std::string_view name;
    std::size_t bad;
    std::string_view good;
  };
  for (const row& r : {
           row{"\x80", 1, ""},
           row{"\xC0\x80", 2, ""},          // overlong NUL
           row{"\xC1\xBF", 2, ""},          // overlong
           row{"\xE0\x9F\xBF", 3, ""},      // overlong
           row{"\xF0\x8F\xBF\xBF", 4, ""},  // overlong
           row{"\xED\xA0\x80", 3, ""},      // the first surrogate
           row{"\xED\xBF\xBF", 3, ""},      // the last
           row{"\xF4\x90\x80\x80", 4, ""},  // beyond U+10FFFF
           row{"\xF5\x80\x80\x80", 4, ""},
           row{"\xFE\xFF", 2, ""},
           row{"\xC3", 1, ""},  // cut short
           row{"\xE2\x82", 2, ""},
           row{"\xF0\x9F\x8C", 3, ""},
           row{"\xE2\x82"
               "A",
               2, "A"},
           row{"\xF0\x9F\x8C\xC3\xA9", 3, "\xC3\xA9"},
           row{"\xED\x9F\xBF", 0, "\xED\x9F\xBF"},          // just below the surrogates
           row{"\xEE\x80\x80", 0, "\xEE\x80\x80"},          // just above
           row{"\xF4\x8F\xBF\xBF", 0, "\xF4\x8F\xBF\xBF"},  // U+10FFFF
           row{"\xEF\xBF\xBD", 0, "\xEF\xBF\xBD"},          // U+FFFD itself
       }) {
    std::string expected;
    for (std::size_t i = 0; i < r.bad; ++i) expected += "\xEF\xBF\xBD";
    expected += r.good;
    CAPTURE(r.name);
    CHECK(name_in_line(r.name) == expected);
  }
}

TEST_CASE("a name of 10,000 characters is whole") {
  const std::string name(10'000, '"');
  std::string expected;
  for (std::size_t i = 0; i < name.size(); ++i) expected += "\\\"";
  CHECK(name_in_line(name) == expected);
}

TEST_CASE("file names, meter names and reasons are escaped as well") {
  scope_record r;
  r.where = tidemark::location::current("C:\\model\n.cpp", 1, "f");
  r.owned_bytes = reading<std::int64_t>::absent("not \"today\"");
  r.meters.push_back({"my \"meter\"", reading<tidemark::window_usage>::absent("because\n"), "bytes"});
  const std::string line = json_sink::line(r);
  CHECK(line.find(R"("file":"C:\\model\u000a.cpp")") != std::string::npos);
  CHECK(line.find(R"("owned_bytes":{"absent":"not \"today\""})") != std::string::npos);
  CHECK(line.find(R"("meters":{"my \"meter\"":{"absent":"because\u000a"}})") != std::string::npos);
}

// ---- files ----

TEST_CASE("every scope appends one line to the file, by path and by stream") {
  temporary_directory directory;
  const std::string path = directory.file("records.jsonl");
  const std::string by_stream = directory.file("stream.jsonl");
  std::FILE* stream = std::fopen(by_stream.c_str(), "w");
  REQUIRE(stream != nullptr);
  for (int round = 0; round < 2; ++round) {
    const auto first = tidemark::attach(std::make_shared<json_sink>(path));
    const auto second = tidemark::attach(std::make_shared<json_sink>(stream));
    const scope outer("outer");
    const scope inner("inner");
  }
  std::fclose(stream);
  const std::vector<std::string> lines = lines_of(content(path));
  CHECK(lines.size() == 4);
  CHECK(lines == lines_of(content(by_stream)));
  CHECK(lines.at(0).find(R"("path":"outer/inner")") != std::string::npos);
  CHECK(lines.at(3).find(R"("path":"outer")") != std::string::npos);
}

TEST_CASE("lines of 8 threads do not mix") {
  constexpr int threads = 8;
  constexpr int scopes = 200;
  temporary_directory directory;
  const std::string path = directory.file("threads.jsonl");
  {
    const auto attached = tidemark::attach(std::make_shared<json_sink>(path));
    std::vector<std::thread> workers;
    for (int t = 0; t < threads; ++t) {
      workers.emplace_back([t] {
        const std::string name(static_cast<std::size_t>(t) * 30 + 1, static_cast<char>('a' + t));
        for (int i = 0; i < scopes; ++i) const scope s(name);
      });
    }
    for (std::thread& w : workers) w.join();
  }
  int whole = 0;
  const std::vector<std::string> lines = lines_of(content(path));
  for (const std::string& line : lines) {
    const std::size_t from = line.find(R"("path":")") + 8;
    const std::string name = line.substr(from, line.find('"', from) - from);
    whole += line.compare(0, 16, R"({"type":"scope",)") == 0 && line.substr(line.size() - 3) == "}}}" &&
                     name == std::string(name.size(), name.front()) &&
                     name.size() == static_cast<std::size_t>(name.front() - 'a') * 30 + 1
                 ? 1
                 : 0;
  }
  CHECK(lines.size() == threads * scopes);
  CHECK(whole == threads * scopes);
}

TEST_CASE("a fork child's line carries the child's pid, and repeats none of the parent's") {
  temporary_directory directory;
  const std::string path = directory.file("forked.jsonl");
  const auto attached = tidemark::attach(std::make_shared<json_sink>(path));
  { const scope s("parent"); }
  std::fflush(nullptr);  // the child has nothing to repeat
  const pid_t child = ::fork();
  if (child == 0) {
    { const scope s("child"); }
    ::_exit(0);
  }
  int status = -1;
  ::waitpid(child, &status, 0);
  CHECK(status == 0);
  const std::vector<std::string> lines = lines_of(content(path));
  CHECK(lines.size() == 2);
  CHECK(lines.at(0).find("\"pid\":" + std::to_string(::getpid()) + ",") != std::string::npos);
  CHECK(lines.at(1).find("\"pid\":" + std::to_string(child) + ",") != std::string::npos);
  CHECK(lines.at(1).find(R"("path":"child")") != std::string::npos);
}

TEST_CASE("what the sink keeps is not in the user's numbers") {
  const std::string path = "/dev/null";
  const std::string missing = "/a directory that is not there, with a long name/records.jsonl";
  const standard_error silenced;
  // Copies that the parameters take over, and the sinks' own memory, are the caller's.
  const auto live = [] { return tidemark::thread_usage().value_or(tidemark::usage{}); };
  std::string given[] = {path, missing};
  const tidemark::usage before = live();
  alignas(json_sink) unsigned char place[2][sizeof(json_sink)];
  auto* first = new (place[0]) json_sink(std::move(given[0]));
  auto* second = new (place[1]) json_sink(std::move(given[1]));
  const tidemark::usage made = live();
  first->~json_sink();
  second->~json_sink();
  // The strings that were given are gone with the constructors.
  CHECK(made.live_bytes - before.live_bytes <= 0);
  CHECK(made.live_blocks - before.live_blocks <= 0);
}

// ---- failures ----

namespace {

/// Attaches a sink that cannot write next to one that can, closes scopes, and gives what was said.
std::string said_while_failing(const std::function<std::shared_ptr<tidemark::sink>()>& make) {
  standard_error captured;
  const std::uint64_t before = dropped();
  const auto ring = std::make_shared<tidemark::ring_sink>(16);
  std::size_t kept = 0;
  {
    const auto failing = tidemark::attach(make());
    const auto working = tidemark::attach(ring);
    for (int i = 0; i < 5; ++i) const scope s("measured");
    kept = ring->scopes().size();
  }
  std::string said = captured.text();
  CHECK(dropped() - before == 5);
  CHECK(kept == 5);
  return said;
}

void check_one_line(const std::string& said, std::string_view path, std::string_view reason) {
  CAPTURE(said);
  CHECK(lines_of(said).size() == 1);
  CHECK(said.find("tidemark: json_sink cannot write to ") == 0);
  CHECK(said.find(path) != std::string::npos);
  CHECK(said.find(reason) != std::string::npos);
  CHECK(said.find("self().dropped_records") != std::string::npos);
  CHECK(said.back() == '\n');
}

}  // namespace

TEST_CASE("a path that cannot be written is said once with its reason, its records are counted, other sinks go on") {
  temporary_directory directory;
  const std::string plain = directory.file("plain");
  std::fclose(std::fopen(plain.c_str(), "w"));
  struct row {
    std::string path;
    std::string_view reason;
  };
  std::vector<row> rows = {{directory.path() + "/missing/records.jsonl", "No such file or directory"},
                           {directory.path(), "Is a directory"},
                           {plain + "/below a file", "Not a directory"},
                           {"", "No such file or directory"},
                           {"/dev/full", "No space left on device"}};
  if (::geteuid() != 0) rows.push_back({"/proc/version", "Permission denied"});
  for (const row& r : rows) {
    const std::string said = said_while_failing([&r] { return std::make_shared<json_sink>(r.path); });
    check_one_line(said, "'" + r.path + "'", r.reason);
  }
}

TEST_CASE("a path with any bytes is still one line, and a long one does not push its reason out") {
  const std::string newline = "/no such\ndirectory\x1b/records.jsonl";
  const std::string said = said_while_failing([&] { return std::make_shared<json_sink>(newline); });
  check_one_line(said, "records.jsonl", "No such file or directory");
  CHECK(said.find('\x1b') == std::string::npos);
  std::string deep;
  for (int i = 0; i < 30; ++i) deep += "/no such directory, and a long name for it";
  check_one_line(said_while_failing([&] { return std::make_shared<json_sink>(deep); }), "/no such directory",
                 "No such file or directory");
}

TEST_CASE("a full disk and a closed pipe under a stream are said once as well") {
  std::FILE* full = std::fopen("/dev/full", "w");
  REQUIRE(full != nullptr);
  check_one_line(said_while_failing([full] { return std::make_shared<json_sink>(full); }), "the stream",
                 "No space left on device");
  std::fclose(full);

  int ends[2] = {-1, -1};
  REQUIRE(::pipe2(ends, O_CLOEXEC) == 0);
  ::close(ends[0]);
  std::FILE* broken = ::fdopen(ends[1], "w");
  check_one_line(said_while_failing([broken] { return std::make_shared<json_sink>(broken); }), "the stream",
                 "Broken pipe");
  std::fclose(broken);

  check_one_line(said_while_failing([] { return std::make_shared<json_sink>(static_cast<std::FILE*>(nullptr)); }),
                 "the stream", "Bad file descriptor");
}

TEST_CASE("8 threads that fail at the same time say it once and count each record") {
  standard_error captured;
  const std::uint64_t before = dropped();
  {
    const auto failing = tidemark::attach(std::make_shared<json_sink>(std::string("/dev/full")));
    std::vector<std::thread> threads;
    for (int t = 0; t < 8; ++t) {
      threads.emplace_back([] {
        for (int i = 0; i < 50; ++i) const scope s("measured");
      });
    }
    for (std::thread& t : threads) t.join();
  }
  const std::string said = captured.text();
  check_one_line(said, "'/dev/full'", "No space left on device");
  CHECK(dropped() - before == 400);
}
