// SPDX-License-Identifier: MIT
// A program without a hook header: the resident set needs none. Its system calls are counted from outside, by a tracer.
#include <tidemark/scope/scope.hpp>
#include <tidemark/sys/process.hpp>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "resident_support.hpp"
#include "test.hpp"
#include "traced_calls.hpp"

namespace meter = tidemark::meter;
using resident_window = meter::resident::window;
using resident_scope = tidemark::basic_scope<meter::resident>;

TEST_CASE("without a hook a scope of the resident set alone works, and one of the heap beside it does not hinder it") {
  REQUIRE(tidemark::hook_state() == tidemark::hook_kind::none);
  resident_scope s("alone");
  const pages p(8 * MiB);
  p.touch();
  const auto so_far = s.usage();
  const tidemark::scope_record r = s.close();
  REQUIRE(so_far.has_value());
  CHECK(so_far->exit_bytes >= so_far->entry_bytes);
  REQUIRE(r.meters.size() == 1);
  CHECK(r.meters[0].meter == "resident");
  CHECK(r.meters[0].unit == "bytes");
  REQUIRE(r.meters[0].usage.has_value());
  CHECK(!r.meters[0].usage->counts_events);
  CHECK(r.meters[0].usage->allocations == 0);
  if (!has_noise) CHECK(r.meters[0].usage->net_bytes() >= 8 * MiB - 2 * counters_error());
  CHECK(s.usage().why().find("closed") != std::string_view::npos);

  tidemark::process_scope both("both");
  const tidemark::scope_record mixed = both.close();
  CHECK(!mixed.meters.at(0).usage.has_value());
  CHECK(mixed.meters.at(1).usage.has_value());
}

// ---- system calls ----

#if CAN_TRACE_CALLS()

namespace {

bool opens_to_write(const traced_part& part) {
  for (const traced_call& c : part) {
    if (c.number == SYS_openat && (c.flags & O_ACCMODE) != O_RDONLY) return true;
  }
  return false;
}

bool is_clean(const traced_part& part) {
  for (const traced_call& c : part) {
    if (c.number == SYS_openat && (c.flags & O_CLOEXEC) == 0) return false;
  }
  return count(part, SYS_openat) == count(part, SYS_close);
}

}  // namespace

TEST_CASE("an edge is three system calls, nine at an entry with the reset, however many windows are open") {
  const std::vector<traced_part> parts = traced([] {
    static std::optional<resident_window> w;
    static std::optional<resident_window> others[64];
    w.emplace();
    w.reset();
    next_part();  // 1
    w.emplace();
    next_part();  // 2
    static_cast<void>(w->usage());
    next_part();  // 3
    static_cast<void>(w->close());
    next_part();  // 4
    w.reset();
    next_part();  // 5: 64 entries
    for (auto& o : others) o.emplace();
    next_part();  // 6
    w.emplace();
    next_part();  // 7
    static_cast<void>(w->close());
    next_part();  // 8
    static_cast<void>(tidemark::process_memory());
    next_part();  // 9
    tidemark::allow_peak_resident_reset(true);
    next_part();  // 10
    w.emplace();
    next_part();  // 11
    static_cast<void>(w->usage());
    next_part();  // 12
    static_cast<void>(w->close());
    next_part();  // 13
    static_cast<void>(tidemark::process_memory());
    next_part();  // 14
    tidemark::allow_peak_resident_reset(false);
    w.emplace();
    next_part();  // 15
    for (auto& o : others) o.reset();
    next_part();  // 16
    static_cast<void>(tidemark::reset_peak_resident());
    next_part();  // 17
  });
  if (parts.size() != 18) MESSAGE("left out: no process may be traced here");
  if (parts.size() != 18) return;
  const std::size_t expected[18] = {0, 3, 3, 3, 0, 3 * 64, 3, 3, 4, 0, 9, 3, 3, 4, 3, 0, 0, 0};
  for (std::size_t i = 0; i < 16; ++i) {
    CAPTURE(i);
    CAPTURE(names(parts[i]));
    CHECK(is_clean(parts[i]));
    // The first window of a process makes its places, and asks how many CPUs there are.
    if (i > 0) CHECK(parts[i].size() <= expected[i]);
    CHECK(opens_to_write(parts[i]) == (i == 10));
    CHECK(count(parts[i], SYS_write) == (i == 10 ? 1 : 0));
  }
  CHECK(parts[0].size() < 60);
  CAPTURE(names(parts[16]));
  CHECK(is_clean(parts[16]));
  CHECK(count(parts[16], SYS_write) == 1);
  CHECK(parts[16].size() <= 13);
}

TEST_CASE("a look at another process is no more than seven system calls") {
  const std::vector<traced_part> parts = traced([] {
    static_cast<void>(tidemark::process_memory(1));
    next_part();
    static_cast<void>(tidemark::process_memory(1));
    next_part();
  });
  if (parts.size() != 3) return;
  CAPTURE(names(parts[1]));
  CHECK(is_clean(parts[1]));
  CHECK(parts[1].size() <= 7);
  CHECK(parts[1].size() > 3);
}

TEST_CASE("where the kernel refuses the reset, an entry is no more than nine system calls") {
  const std::vector<traced_part> parts = traced([] {
    static std::optional<resident_window> w;
    w.emplace();
    w.reset();
    tidemark::allow_peak_resident_reset(true);
    const bool is_refused = refuse_call(SYS_openat, EACCES, true);
    next_part();
    w.emplace();
    next_part();
    static_cast<void>(w->close());
    next_part();
    if (!is_refused) ::_exit(3);
  });
  if (parts.size() != 4) return;
  CAPTURE(names(parts[1]));
  CHECK(parts[1].size() <= 9);
  CHECK(count(parts[1], SYS_write) == 0);
  CAPTURE(names(parts[2]));
  CHECK(parts[2].size() <= 3);
}

#endif
