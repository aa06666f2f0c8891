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

[[nodiscard]] inline std::vector<std::string> lines_of(std::string_view text) {
  std::vector<std::string> lines;
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    lines.emplace_back(text.substr(0, end));
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  }
  return lines;
}

/// Takes the standard error for as long as it stands, or until `text()`.
class standard_error {
 public:
  standard_error() : kept_(::dup(STDERR_FILENO)), file_(std::tmpfile()) {
    std::fflush(stderr);
    ::dup2(::fileno(file_), STDERR_FILENO);
  }
  ~standard_error() {
    give_back();
    std::fclose(file_);
  }
  standard_error(const standard_error&) = delete;
  standard_error& operator=(const standard_error&) = delete;

  /// What was said; the standard error is the program's again.
  [[nodiscard]] std::string text() {
    give_back();
    std::string said;
    char buffer[4'096];
    std::rewind(file_);
    while (const std::size_t n = std::fread(buffer, 1, sizeof buffer, file_)) said.append(buffer, n);
    return said;
  }

 private:
  void give_back() {
    if (kept_ < 0) return;
    std::fflush(stderr);
    ::dup2(kept_, STDERR_FILENO);
    ::close(kept_);
    kept_ = -1;
  }

  int kept_;
  std::FILE* file_;
};

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
