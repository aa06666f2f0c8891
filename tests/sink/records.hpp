// SPDX-License-Identifier: MIT
// What the tests of sinks share: a directory of their own, what was said on the standard error, and records made by hand.
#pragma once

#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include <fcntl.h>
#include <unistd.h>

#include <tidemark/core/location.hpp>
#include <tidemark/core/reading.hpp>
#include <tidemark/core/record.hpp>
#include <tidemark/core/usage.hpp>

#include "files.hpp"
#include "standard_error.hpp"

[[nodiscard]] inline std::vector<std::string> lines_of(std::string_view text) {
  std::vector<std::string> lines;
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    lines.emplace_back(text.substr(0, end));
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  }
  return lines;
}

/// A record with a value in every field, each one different.
[[nodiscard]] inline tidemark::scope_record record_by_hand() {
  using tidemark::reading;
  using tidemark::window_usage;
  window_usage heap;
  heap.entry_bytes = 1'000;
  heap.exit_bytes = 900;
  heap.peak_bytes = 13'003'343;
  heap.allocations = 34;
  heap.deallocations = 35;
  heap.allocated_bytes = 20'000'001;
  heap.freed_bytes = 20'000'101;
  heap.largest_bytes = 4'096;
  window_usage process = heap;
  process.allocations = 1;
  process.error_bound_bytes = 262'144;
  window_usage tokens;
  tokens.entry_bytes = 7;
  tokens.exit_bytes = 9;
  tokens.peak_bytes = 12;
  tokens.counts_events = false;
  tidemark::scope_record r;
  r.name = "forward";
  r.path = "train step/forward";
  r.where = tidemark::location::current("model.cpp", 42, "forward");
  r.thread = 4'242;
  r.depth = 1;
  r.start_ns = 123'456'789'012'345;
  r.duration_ns = 1'840'999;
  r.owned_bytes = std::int64_t{640};
  r.meters.push_back({"thread_heap", heap, "bytes"});
  r.meters.push_back({"process_heap", process, "bytes"});
  r.meters.push_back({"kv_tokens", tokens, "tokens"});
  r.meters.push_back({"resident", reading<window_usage>::absent("no /proc"), "bytes"});
  return r;
}

/// A sample with domains that share a name, devices of which one has no uuid, and the resident set absent.
[[nodiscard]] inline tidemark::sample_record sample_by_hand() {
  using tidemark::reading;
  using tidemark::usage;
  tidemark::sample_record r;
  r.time_ns = 5'000'000'007;
  r.heap = usage{1'000, 2'000, 3, 40, 37, 50'000, 49'000, 64};
  r.resident_bytes = reading<std::int64_t>::absent("no \"/proc\"");
  r.limit_bytes = std::int64_t{8'000'000};
  r.limit_used_bytes = std::int64_t{7'000'000};
  r.limit_source = "cgroup_v2";
  r.domains.push_back({"weights", usage{11, 12, 1, 2, 1, 22, 11, 0}, 100, false});
  r.domains.push_back({"kv cache", usage{10, 15, 1, 1, 0, 10, 0, 0}, 30, true});
  r.domains.push_back({"kv cache", usage{11, 17, 1, 1, 0, 11, 0, 0}, -1, true});
  r.devices.push_back({"GPU-1", "H200", std::int64_t{1'000}, std::int64_t{501},
                       reading<std::int64_t>::absent("no permission: ask"), "nvml", 4'000'000'000});
  r.devices.push_back(
      {"", "H200", std::int64_t{2'000}, reading<std::int64_t>::absent("timeout: 2 s"), std::int64_t{7}, "sysfs", 0});
  return r;
}

[[nodiscard]] inline tidemark::alert_record alert_by_hand() {
  tidemark::alert_record r;
  r.name = "resident above 8 GB";
  r.value_bytes = 8'200'000'000;
  r.threshold_bytes = 8'000'000'000;
  r.time_ns = 5'000'000'008;
  return r;
}
