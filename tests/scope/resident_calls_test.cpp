// SPDX-License-Identifier: MIT
// A program without a hook header: the resident set needs none. Its system calls are counted from outside, by a tracer.
#include <tidemark/scope/scope.hpp>
#include <tidemark/sys/process.hpp>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <fcntl.h>
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../sys/resident_support.hpp"
#include "test.hpp"

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

#if !TIDEMARK_HAS_SANITIZER_ALLOCATOR() && defined(PTRACE_GET_SYSCALL_INFO)

namespace {

struct traced_call {
  std::uint64_t number, flags;  // the flags of an openat()
};
using traced_part = std::vector<traced_call>;

/// Between the parts of what is traced.
void next_part() { ::syscall(SYS_getppid); }

/// The system calls of each part of `f`, in a child. Empty where the system traces no one.
template <class F>
std::vector<traced_part> traced(F f) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(60);
    if (::ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) != 0) ::_exit(3);
    ::raise(SIGSTOP);
    f();
    ::_exit(0);
  }
  std::vector<traced_part> parts(1);
  int status = 0;
  const auto wait = [&] { return ::waitpid(child, &status, 0) == child && WIFSTOPPED(status); };
  if (!wait()) return {};
  ::ptrace(PTRACE_SETOPTIONS, child, nullptr, PTRACE_O_TRACESYSGOOD | PTRACE_O_EXITKILL);
  for (;;) {
    ::ptrace(PTRACE_SYSCALL, child, nullptr, nullptr);
    if (!wait()) break;
    if (WSTOPSIG(status) != (SIGTRAP | 0x80)) continue;
    __ptrace_syscall_info info = {};
    if (::ptrace(PTRACE_GET_SYSCALL_INFO, child, sizeof info, &info) <= 0) {
      ::ptrace(PTRACE_KILL, child, nullptr, nullptr);
      while (wait()) {
      }
      return {};
    }
    if (info.op != PTRACE_SYSCALL_INFO_ENTRY) continue;
    if (info.entry.nr == SYS_getppid) {
      parts.emplace_back();
    } else {
      parts.back().push_back({info.entry.nr, info.entry.args[2]});
    }
  }
  CHECK(status == 0);
  return parts;
}

std::ptrdiff_t count(const traced_part& part, std::uint64_t number) {
  std::ptrdiff_t n = 0;
  for (const traced_call& c : part) n += c.number == number ? 1 : 0;
  return n;
}

std::string names(const traced_part& part) {
  std::string all;
  for (const traced_call& c : part) {
    all += c.number == SYS_openat  ? "openat "
           : c.number == SYS_read  ? "read "
           : c.number == SYS_write ? "write "
           : c.number == SYS_close ? "close "
                                   : std::to_string(c.number) + " ";
  }
  return all;
}

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
  const std::size_t expected[18] = {0, 3, 3, 3, 0, 3 * 64, 3, 3, 3, 0, 9, 3, 3, 3, 3, 0, 0, 0};
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
  CHECK(parts[16].size() <= 12);
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
