// SPDX-License-Identifier: MIT
// What malloc sees of the edges: nothing.
#include <tidemark/hook/malloc.hpp>
#include <tidemark/scope/scope.hpp>
#include <tidemark/sys/process.hpp>

#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <optional>

#include <sys/syscall.h>

#include "resident_support.hpp"
#include "test.hpp"

using resident_window = tidemark::meter::resident::window;
using resident_scope = tidemark::basic_scope<tidemark::meter::resident>;

namespace {

struct counts {
  std::uint64_t allocations = 0, deallocations = 0;
  int absent = 0;
};

counts now() {
  const tidemark::usage u = tidemark::process_usage().value_or(tidemark::usage{});
  return {u.allocations, u.deallocations, 0};
}

/// What `f` adds to the counts, of events and of what it returns.
template <class F>
counts counted(F f) {
  const counts before = now();
  const int absent = f();
  const counts after = now();
  return {after.allocations - before.allocations, after.deallocations - before.deallocations, absent};
}

int use_windows() {
  static std::optional<resident_window> windows[50];
  int absent = 0;
  for (int round = 0; round < 20; ++round) {
    for (auto& w : windows) w.emplace();
    for (auto& w : windows) absent += w->usage().has_value() ? 0 : 1;
    for (auto& w : windows) absent += w->close().has_value() ? 0 : 1;
  }
  absent += tidemark::process_memory().resident_bytes.has_value() ? 0 : 1;
  return absent;
}

}  // namespace

TEST_CASE("1,000 windows call malloc and free not once, the first one of the process included") {
  for (const bool with_reset : {false, true}) {
    CAPTURE(with_reset);
    const counts c = in_child([with_reset] {
      static_cast<void>(now());
      return counted([with_reset] {
        tidemark::allow_peak_resident_reset(with_reset);
        return use_windows();
      });
    });
    CHECK(c.allocations == 0);
    CHECK(c.deallocations == 0);
    CHECK(c.absent == 0);
  }
}

TEST_CASE("a reason is no allocation either") {
  const counts c = in_child([] {
    static_cast<void>(use_windows());
    const bool is_refused = refuse_call(SYS_openat, ENOENT);
    counts r = counted([] { return use_windows(); });
    if (!is_refused) r.absent = -1;
    return r;
  });
  CHECK(c.allocations == 0);
  CHECK(c.deallocations == 0);
  if (c.absent >= 0) CHECK(c.absent == 2'001);
}

TEST_CASE("a scope of the resident set that delivers to no sink allocates nothing after the first of its name") {
  const counts c = in_child([] {
    { const resident_scope first("again"); }
    return counted([] {
      int absent = 0;
      for (int i = 0; i < 1'000; ++i) {
        const resident_scope s("again");
        absent += s.usage().has_value() ? 0 : 1;
      }
      return absent;
    });
  });
  CHECK(c.allocations == 0);
  CHECK(c.deallocations == 0);
  CHECK(c.absent == 0);
}

TEST_CASE("what malloc gives is counted beside it") {
  const counts c = counted([] {
    void* p = std::malloc(1'000);
    tidemark::escape(p);
    std::free(p);
    return 0;
  });
  CHECK(c.allocations == 1);
  CHECK(c.deallocations == 1);
}
