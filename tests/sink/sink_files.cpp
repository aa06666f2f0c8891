// SPDX-License-Identifier: MIT
// Writes the same records through every sink that has a reader elsewhere, and as JSON lines to compare with: real
// scopes of several threads, in order and out of order, and samples and alerts with names that hold anything.
// Usage: sink_files DIRECTORY
#include <tidemark/hook/global_new.hpp>
#include <tidemark/sink/json.hpp>
#include <tidemark/sink/mprof.hpp>
#include <tidemark/sink/openmetrics.hpp>
#include <tidemark/sink/trace_event.hpp>

#include <cstddef>
#include <cstdint>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <tidemark/core/detail/os_clock.hpp>
#include <tidemark/core/sink.hpp>
#include <tidemark/scope/scope.hpp>

#include "dice.hpp"

namespace {

using tidemark::reading;
using tidemark::scope;

const std::vector<std::string> hostile = {"say \"no\"",
                                          "back\\slash",
                                          "two\nlines",
                                          "tab\tand\rreturn",
                                          "",
                                          " ",
                                          "\xFF\xFE",
                                          "\xC3\xA9\xE2\x82\xAC\xF0\x9F\x8C\x8A",
                                          "{a=\"b\"} 1",
                                          "# EOF",
                                          "</script>",
                                          "%2F/%25",
                                          std::string("a\0b", 3),
                                          "\x1b[31m\x7f",
                                          "\xE2\x80\xA8",
                                          "1;2"};

void nested(int depth) {
  const scope s("nested " + std::to_string(depth));
  const std::string block(static_cast<std::size_t>(depth) * 1'000 + 100, 'x');
  tidemark::escape(block.data());
  if (depth < 4) {
    for (int i = 0; i < 2; ++i) nested(depth + 1);
  }
}

void out_of_order(std::uint64_t seed) {
  dice roll(seed);
  std::optional<scope> open[5];
  for (int i = 0; i < 200; ++i) {
    std::optional<scope>& s = open[roll.below(5)];
    if (s) {
      s.reset();
    } else {
      s.emplace("crossing");
    }
  }
}

void deliver_samples(std::uint64_t seed) {
  dice roll(seed);
  const auto maybe = [&roll]() -> reading<std::int64_t> {
    if (roll.below(4) == 0) return reading<std::int64_t>::absent("no \"permission\"\n");
    return static_cast<std::int64_t>(roll.below(8'000'000'000));
  };
  const auto count = [&roll] { return roll.below(1'000'000); };
  for (int i = 0; i < 50; ++i) {
    tidemark::sample_record r;
    r.time_ns = tidemark::detail::os::steady_ns();
    if (roll.below(3) != 0) {
      r.heap = tidemark::usage{static_cast<std::int64_t>(roll.below(2'000'000)) - 1'000'000,
                               static_cast<std::int64_t>(count()),
                               static_cast<std::int64_t>(count()),
                               count(),
                               count(),
                               count(),
                               count(),
                               static_cast<std::int64_t>(count())};
    }
    r.resident_bytes = maybe();
    r.limit_bytes = maybe();
    r.limit_used_bytes = maybe();
    r.limit_source = "cgroup_v2";
    for (const std::string& name : hostile) {
      tidemark::usage u;
      u.live_bytes = static_cast<std::int64_t>(count());
      u.peak_bytes = u.live_bytes + 5;
      r.domains.push_back({name, u, roll.below(2) == 0 ? -1 : static_cast<std::int64_t>(count()), roll.below(2) == 0});
      if (roll.below(4) == 0) r.domains.push_back(r.domains.back());
      r.devices.push_back({name, "GPU \"H200\"\n", maybe(), maybe(), maybe(), "nvml", 0});
    }
    tidemark::detail::deliver(&tidemark::sink::on_sample, r);
    nested(3);
  }
  for (const std::string& name : hostile) {
    tidemark::alert_record alert;
    alert.name = name;
    alert.time_ns = tidemark::detail::os::steady_ns();
    alert.value_bytes = static_cast<std::int64_t>(count());
    alert.threshold_bytes = alert.value_bytes - 1;
    alert.cleared = roll.below(2) == 0;
    tidemark::detail::deliver(&tidemark::sink::on_alert, alert);
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  const std::string directory = std::string(argv[1]) + "/";
  const auto metrics = std::make_shared<tidemark::openmetrics_sink>(directory + "metrics.prom");
  std::vector<tidemark::attachment> attached;
  attached.push_back(tidemark::attach(std::make_shared<tidemark::json_sink>(directory + "records.jsonl")));
  attached.push_back(tidemark::attach(std::make_shared<tidemark::trace_event_sink>(directory + "trace.json")));
  tidemark::trace_event_options plain;
  plain.figures = false;
  attached.push_back(tidemark::attach(std::make_shared<tidemark::trace_event_sink>(directory + "plain.json", plain)));
  attached.push_back(tidemark::attach(std::make_shared<tidemark::mprof_sink>(directory + "run.dat")));
  attached.push_back(tidemark::attach(metrics));
  {
    const scope outer("nested main");
    std::vector<std::thread> workers;
    for (std::uint64_t t = 1; t <= 3; ++t) {
      workers.emplace_back([t] {
        nested(0);
        out_of_order(t);
        nested(0);
      });
    }
    for (std::thread& w : workers) w.join();
    std::optional<tidemark::process_scope> far;
    far.emplace("elsewhere");
    std::thread([&far] { far.reset(); }).join();
    for (const std::string& name : hostile) const tidemark::process_scope s(name);
    deliver_samples(7);
  }
  std::ofstream(directory + "metrics.om") << metrics->openmetrics_text();
  std::ofstream(directory + "metrics_now.prom") << metrics->prometheus_text();
  attached.clear();
  return tidemark::self().dropped_records == 0 ? 0 : 1;
}
