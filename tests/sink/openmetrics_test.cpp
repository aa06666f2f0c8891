// SPDX-License-Identifier: MIT
// What a metrics page says, and where it is written. openmetrics_check.py reads pages with the parsers of others.
#include <tidemark/hook/global_new.hpp>
#include <tidemark/sink/openmetrics.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <tidemark/core/sink.hpp>
#include <tidemark/scope/scope.hpp>

#include "records.hpp"
#include "test.hpp"

using tidemark::metrics_format;
using tidemark::openmetrics_options;
using tidemark::openmetrics_sink;
using tidemark::reading;
using tidemark::sample_record;
using tidemark::scope;
using tidemark::scope_record;

namespace {

/// The lines with values, without those about the library itself.
std::vector<std::string> values_in(const std::string& text) {
  std::vector<std::string> found;
  for (const std::string& line : lines_of(text)) {
    bool is_value = line.rfind('#', 0) != 0;
    for (const char* own : {"tidemark_build_info", "tidemark_own_", "tidemark_stamp_", "tidemark_dropped_",
                            "tidemark_foreign_", "tidemark_label_"}) {
      is_value = is_value && line.rfind(own, 0) != 0;
    }
    if (is_value) found.push_back(line);
  }
  return found;
}

/// The value on the line that begins so; empty where there is none.
std::string value_of(const std::string& text, const std::string& name) {
  for (const std::string& line : lines_of(text)) {
    if (line.rfind(name + ' ', 0) == 0) return line.substr(name.size() + 1);
  }
  return {};
}

bool has(const std::string& text, std::string_view part) { return text.find(part) != std::string::npos; }

scope_record scope_of(std::string_view path, std::int64_t peak_growth, std::int64_t duration_ns) {
  scope_record r;
  r.path = std::string(path);
  r.duration_ns = duration_ns;
  tidemark::window_usage u;
  u.entry_bytes = 1'000;
  u.peak_bytes = 1'000 + peak_growth;
  r.meters.push_back({"thread_heap", u, "bytes"});
  return r;
}

}  // namespace

TEST_CASE("each figure of a sample is there under its name, and what is absent is not") {
  openmetrics_sink sink;
  sink.on_sample(sample_by_hand());
  const std::vector<std::string> expected = {
      "tidemark_heap_live_bytes 1000",
      "tidemark_heap_peak_bytes 2000",
      "tidemark_heap_error_bound_bytes 64",
      "tidemark_heap_live_blocks 3",
      "tidemark_heap_allocated_bytes_total 50000",
      "tidemark_heap_freed_bytes_total 49000",
      "tidemark_heap_allocations_total 40",
      "tidemark_heap_deallocations_total 37",
      "tidemark_memory_limit_bytes{source=\"cgroup_v2\"} 8000000",
      "tidemark_memory_limit_used_bytes{source=\"cgroup_v2\"} 7000000",
      "tidemark_domain_live_bytes{domain=\"weights\"} 11",
      "tidemark_domain_live_bytes{domain=\"kv cache\"} 21",
      "tidemark_domain_peak_bytes{domain=\"weights\"} 12",
      "tidemark_domain_limit_bytes{domain=\"weights\"} 100",
      "tidemark_device_total_bytes{device=\"GPU-1\",name=\"H200\"} 1000",
      "tidemark_device_total_bytes{device=\"H200\",name=\"H200\"} 2000",
      "tidemark_device_used_bytes{device=\"GPU-1\",name=\"H200\"} 501",
      "tidemark_device_process_bytes{device=\"H200\",name=\"H200\"} 7",
  };
  CHECK(values_in(sink.openmetrics_text()) == expected);
  CHECK(values_in(sink.prometheus_text()) == expected);
}

TEST_CASE("before the first sample, and after one that knows nothing, there is nothing of the process") {
  openmetrics_sink sink;
  CHECK(values_in(sink.openmetrics_text()).empty());
  CHECK(has(sink.openmetrics_text(), "tidemark_build_info{version=\"0.1.0\"} 1\n"));
  sink.on_sample(sample_by_hand());
  sink.on_sample(sample_record());
  CHECK(values_in(sink.openmetrics_text()).empty());
  CHECK_FALSE(has(sink.openmetrics_text(), "tidemark_heap"));
}

TEST_CASE("the two forms say the same in their own ways") {
  openmetrics_sink sink;
  sink.on_sample(sample_by_hand());
  const std::string open = sink.openmetrics_text();
  const std::string old = sink.prometheus_text();
  CHECK(has(open,
            "# TYPE tidemark_heap_freed_bytes counter\n# UNIT tidemark_heap_freed_bytes bytes\n"
            "# HELP tidemark_heap_freed_bytes Bytes ever freed.\ntidemark_heap_freed_bytes_total 49000\n"));
  CHECK(has(old,
            "# TYPE tidemark_heap_freed_bytes_total counter\n"
            "# HELP tidemark_heap_freed_bytes_total Bytes ever freed.\ntidemark_heap_freed_bytes_total 49000\n"));
  CHECK(open.substr(open.size() - 7) == "\n# EOF\n");
  CHECK_FALSE(has(old, "EOF"));
  CHECK_FALSE(has(old, "UNIT"));
}

TEST_CASE("scopes are added up by path, with the highest of each meter that counts bytes") {
  openmetrics_sink sink;
  sink.on_scope(scope_of("a/b", 10, 1'500'000'000));
  sink.on_scope(scope_of("a/b", 30, 2));
  sink.on_scope(scope_of("a/b", 20, 1));
  scope_record r = scope_of("", 5, 7);
  r.meters.push_back({"kv_tokens", tidemark::window_usage{}, "tokens"});
  r.meters.push_back({"resident", reading<tidemark::window_usage>::absent("no /proc"), "bytes"});
  sink.on_scope(r);
  const std::vector<std::string> expected = {
      "tidemark_scope_calls_total{path=\"\"} 1",
      "tidemark_scope_calls_total{path=\"a/b\"} 3",
      "tidemark_scope_duration_seconds_total{path=\"\"} 0.000000007",
      "tidemark_scope_duration_seconds_total{path=\"a/b\"} 1.500000003",
      "tidemark_scope_peak_growth_bytes{path=\"\",meter=\"thread_heap\"} 5",
      "tidemark_scope_peak_growth_bytes{path=\"a/b\",meter=\"thread_heap\"} 30",
  };
  CHECK(values_in(sink.openmetrics_text()) == expected);
}

TEST_CASE("an alert is active until it clears") {
  openmetrics_sink sink;
  tidemark::alert_record alert = alert_by_hand();
  sink.on_alert(alert);
  CHECK(value_of(sink.openmetrics_text(), "tidemark_alert_active{alert=\"resident above 8 GB\"}") == "1");
  alert.cleared = true;
  sink.on_alert(alert);
  CHECK(value_of(sink.openmetrics_text(), "tidemark_alert_active{alert=\"resident above 8 GB\"}") == "0");
}

TEST_CASE("a label holds any name, in one line") {
  openmetrics_sink sink;
  sink.on_scope(scope_of("say \"no\" \\ and\nyes\r\t\x1b \xC3\xA9 \xFF", 1, 1));
  CHECK(value_of(sink.prometheus_text(),
                 "tidemark_scope_calls_total{path=\"say \\\"no\\\" \\\\ and\\nyes\\\\x0d\\\\x09\\\\x1b "
                 "\xC3\xA9 \xEF\xBF\xBD\"}") == "1");
}

TEST_CASE("names that become the same in a label are one series") {
  openmetrics_sink sink;
  sink.on_scope(scope_of("\xFF", 3, 1));
  sink.on_scope(scope_of("\xFE", 2, 1));
  sample_record r;
  r.domains.push_back({"\xFF", tidemark::usage{1, 1, 0, 0, 0, 0, 0, 0}, -1, false});
  r.domains.push_back({"\xFE", tidemark::usage{2, 2, 0, 0, 0, 0, 0, 0}, -1, false});
  for (int i = 0; i < 3; ++i) {
    r.devices.push_back(
        {"", "GPU", std::int64_t{i}, reading<std::int64_t>::absent(""), reading<std::int64_t>::absent(""), "", 0});
  }
  sink.on_sample(r);
  const std::string text = sink.openmetrics_text();
  CHECK(value_of(text, "tidemark_scope_calls_total{path=\"\xEF\xBF\xBD\"}") == "2");
  CHECK(value_of(text, "tidemark_domain_live_bytes{domain=\"\xEF\xBF\xBD\"}") == "3");
  CHECK(value_of(text, "tidemark_device_total_bytes{device=\"GPU (3)\",name=\"GPU\"}") == "2");
  std::map<std::string, int> seen;
  for (const std::string& line : lines_of(text)) ++seen[line.substr(0, line.rfind(' '))];
  for (const auto& line : seen) {
    CAPTURE(line.first);
    CHECK((line.second == 1 || line.first.rfind("#", 0) == 0));
  }
}

TEST_CASE("of many label values the first stay, the rest is left out and counted") {
  openmetrics_options options;
  options.max_label_values = 3;
  openmetrics_sink sink(options);
  for (int round = 0; round < 2; ++round) {
    for (int i = 0; i < 10; ++i) sink.on_scope(scope_of("path " + std::to_string(i), 1, 1));
  }
  sample_record r;
  const std::vector<std::string> names = {"d0", "d1", "d2", "d3", "d4"};
  for (const std::string& name : names) r.domains.push_back({name, tidemark::usage{}, -1, false});
  sink.on_sample(r);
  r.domains.erase(r.domains.begin());  // another may not come in its place
  sink.on_sample(r);
  for (int i = 0; i < 5; ++i) {
    tidemark::alert_record alert;
    alert.name = std::to_string(i);
    sink.on_alert(alert);
  }
  const std::string text = sink.openmetrics_text();
  const auto dropped = [&text](const std::string& label) {
    return value_of(text, "tidemark_label_values_dropped_total{label=\"" + label + "\"}");
  };
  CHECK(value_of(text, "tidemark_scope_calls_total{path=\"path 2\"}") == "2");
  CHECK_FALSE(has(text, "path 3"));
  CHECK(has(text, "tidemark_domain_live_bytes{domain=\"d1\"}"));
  CHECK(has(text, "tidemark_domain_live_bytes{domain=\"d2\"}"));
  CHECK_FALSE(has(text, "\"d0\""));
  CHECK_FALSE(has(text, "\"d3\""));
  CHECK(dropped("path") == "14");
  CHECK(dropped("domain") == "4");
  CHECK(dropped("alert") == "2");
  CHECK(dropped("device") == "0");
}

TEST_CASE("text may be asked for while samples and scopes come") {
  openmetrics_sink sink;
  std::atomic<bool> stop{false};
  std::thread sampler([&] {
    for (int i = 0; i < 300; ++i) sink.on_sample(sample_by_hand());
    stop = true;
  });
  std::thread closer([&] {
    for (int i = 0; i < 300; ++i) sink.on_scope(scope_of("busy", i, 1));
  });
  int wrong = 0;
  while (!stop) {
    const std::string text = sink.openmetrics_text();
    wrong += text.substr(text.size() - 7) == "\n# EOF\n" ? 0 : 1;
  }
  sampler.join();
  closer.join();
  CHECK(wrong == 0);
  CHECK(value_of(sink.openmetrics_text(), "tidemark_scope_calls_total{path=\"busy\"}") == "300");
}

// ---- the file ----

TEST_CASE("a file is written at each sample and alert, in the form that its name asks for or the option says") {
  temporary_directory directory;
  struct row {
    const char* name;
    metrics_format format;
    bool is_openmetrics;
  };
  for (const row& r : {row{"app.prom", metrics_format::by_name, false}, row{"app.om", metrics_format::by_name, true},
                       row{"prom", metrics_format::by_name, true}, row{"b.prom", metrics_format::openmetrics, true},
                       row{"c", metrics_format::prometheus, false}}) {
    CAPTURE(r.name);
    const std::string path = directory.file(r.name);
    openmetrics_options options;
    options.format = r.format;
    openmetrics_sink sink(path, options);
    CHECK(::access(path.c_str(), F_OK) != 0);
    sink.on_sample(sample_by_hand());
    const std::string text = content(path);
    CHECK(value_of(text, "tidemark_heap_live_bytes") == "1000");
    CHECK(has(text, "# EOF\n") == r.is_openmetrics);
    sink.on_alert(alert_by_hand());
    CHECK(has(content(path), "tidemark_alert_active"));
    sink.on_sample(sample_record());
    CHECK_FALSE(has(content(path), "tidemark_heap_live_bytes"));
  }
  CHECK(::access((directory.path() + "/.tidemark.new").c_str(), F_OK) != 0);
}

TEST_CASE("a reader never finds a part") {
  temporary_directory directory;
  const std::string path = directory.file("app.om");
  openmetrics_sink sink(path);
  for (int i = 0; i < 100; ++i) sink.on_scope(scope_of("path " + std::to_string(i), 1, 1));
  sink.on_sample(sample_record());
  std::atomic<bool> stop{false};
  std::thread writer([&] {
    for (int i = 0; i < 100; ++i) sink.on_sample(sample_record());
    stop = true;
  });
  int wrong = 0;
  while (!stop) {
    const std::string text = content(path);
    wrong += text.size() > 7 && text.substr(text.size() - 7) == "\n# EOF\n" ? 0 : 1;
  }
  writer.join();
  CHECK(wrong == 0);
}

TEST_CASE("a fork child begins anew, in a file of its own") {
  temporary_directory directory;
  const std::string path = directory.file("app.prom");
  openmetrics_sink sink(path);
  sink.on_scope(scope_of("of the parent", 1, 1));
  sink.on_sample(sample_by_hand());
  const std::string before = content(path);
  const pid_t child = ::fork();
  if (child == 0) {
    const bool is_empty = values_in(sink.openmetrics_text()).empty();
    sink.on_scope(scope_of("of the child", 1, 1));
    sink.on_sample(sample_record());
    ::_exit(is_empty ? 0 : 1);
  }
  int status = -1;
  ::waitpid(child, &status, 0);
  CHECK(status == 0);
  const std::string of_child = content(directory.file("app." + std::to_string(child) + ".prom"));
  CHECK(content(path) == before);
  CHECK(has(of_child, "of the child"));
  CHECK_FALSE(has(of_child, "of the parent"));
  CHECK(has(sink.openmetrics_text(), "of the parent"));
}

TEST_CASE("a link is followed, and the mode of the file stays") {
  temporary_directory directory;
  const std::string link = directory.file("link.prom");
  const std::string path = directory.file("behind.prom");
  { const std::ofstream old(path); }
  REQUIRE(::chmod(path.c_str(), 0640) == 0);
  REQUIRE(::symlink("behind.prom", link.c_str()) == 0);
  openmetrics_sink sink(link);
  sink.on_sample(sample_by_hand());
  struct stat found = {};
  CHECK(::lstat(link.c_str(), &found) == 0);
  CHECK(S_ISLNK(found.st_mode));
  CHECK(::stat(path.c_str(), &found) == 0);
  CHECK((found.st_mode & 0777) == 0640);
  CHECK(value_of(content(path), "tidemark_heap_live_bytes") == "1000");
}

TEST_CASE("what cannot be written is said once with its reason, and each record counted; a pipe stays one") {
  temporary_directory directory;
  const std::string pipe = directory.file("pipe");
  REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);
  struct row {
    std::string path;
    std::string_view reason;
  };
  for (const row& r : {row{directory.path() + "/missing/app.prom", "No such file or directory"},
                       row{directory.path(), "Is a directory"}, row{pipe, "Invalid argument"}}) {
    const std::uint64_t before = tidemark::self().dropped_records;
    standard_error captured;
    openmetrics_sink sink(r.path);
    for (int i = 0; i < 3; ++i) sink.on_sample(sample_by_hand());
    const std::string said = captured.text();
    CAPTURE(said);
    CHECK(tidemark::self().dropped_records - before == 3);
    CHECK(lines_of(said).size() == 1);
    CHECK(said.rfind("tidemark: openmetrics_sink cannot write to '" + r.path + "': " + std::string(r.reason), 0) == 0);
    CHECK(value_of(sink.openmetrics_text(), "tidemark_heap_live_bytes") == "1000");
  }
  struct stat found = {};
  CHECK(::stat(pipe.c_str(), &found) == 0);
  CHECK(S_ISFIFO(found.st_mode));
}

TEST_CASE("what the sink keeps, and its text, is not in the user's numbers") {
  temporary_directory directory;
  const std::string path = directory.file("a name that is longer than a small string.prom");
  const auto live = [] { return tidemark::thread_usage().value_or(tidemark::usage{}); };
  alignas(openmetrics_sink) unsigned char place[sizeof(openmetrics_sink)];
  { const scope warm("step with a name that is longer than a small string"); }
  const sample_record sample = sample_by_hand();
  const tidemark::usage before = live();
  auto* sink = new (place) openmetrics_sink(path);
  {
    const auto attached = tidemark::attach(std::shared_ptr<tidemark::sink>(std::shared_ptr<tidemark::sink>(), sink));
    for (int i = 0; i < 10; ++i) const scope s("step with a name that is longer than a small string");
    tidemark::detail::deliver(&tidemark::sink::on_sample, sample);
  }
  const tidemark::usage held = live();
  { const std::string text = sink->openmetrics_text(); }
  const tidemark::usage asked = live();
  sink->~openmetrics_sink();
  CHECK(held.allocations == before.allocations);
  CHECK(asked.allocations == before.allocations);
  CHECK(live().live_bytes == before.live_bytes);
  CHECK(!content(path).empty());
}
