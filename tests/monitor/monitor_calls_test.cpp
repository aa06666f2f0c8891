// SPDX-License-Identifier: MIT
// What a sample costs, counted: system calls by a tracer, allocations by operators of this program's own.
#include <tidemark/monitor/monitor.hpp>

#include <cstddef>
#include <cstdlib>
#include <memory>
#include <new>
#include <vector>

#include <tidemark/core/domain.hpp>

#include "monitor_support.hpp"
#include "test.hpp"
#include "traced_calls.hpp"

namespace {
int allocations = 0;
}  // namespace

TIDEMARK_NOINLINE void* operator new(std::size_t n) {
  ++allocations;
  if (void* p = std::malloc(n)) return p;
  std::abort();
}
TIDEMARK_NOINLINE void operator delete(void* p) noexcept { std::free(p); }
TIDEMARK_NOINLINE void operator delete(void* p, std::size_t) noexcept { std::free(p); }

using namespace tidemark;

TEST_CASE("a sample allocates nothing once it has taken some") {
  std::vector<std::unique_ptr<domain>> domains;
  for (int i = 0; i < 50; ++i) domains.push_back(std::make_unique<domain>("domain " + std::to_string(i)));
  monitor m(by_hand());
  m.alert_when(resident_above(std::int64_t{1} << 50));
  m.alert_when(growth_above(std::int64_t{1} << 50, std::chrono::seconds(1)));
  m.alert_when(above_fraction_of_limit(1));
  for (int i = 0; i < 3; ++i) m.check();
  const int before = allocations;
  for (int i = 0; i < 200; ++i) m.check();
  CHECK(allocations == before);
}

#if defined(CAN_TRACE_CALLS)

TEST_CASE("a sample makes twelve system calls at most, and never reads a list of mappings") {
  const std::vector<traced_part> parts = traced([] {
    domain d("one");
    monitor m(by_hand());
    m.alert_when(above_fraction_of_limit(1));
    for (int i = 0; i < 60; ++i) {
      next_part();
      m.check();
    }
    next_part();
  });
  if (parts.empty()) return;  // this system lets no one trace
  REQUIRE(parts.size() == 62);
  for (std::size_t i = 1; i <= 60; ++i) {
    CAPTURE(names(parts[i]));
    CHECK(parts[i].size() <= 12);
    CHECK(count(parts[i], SYS_openat) >= 2);  // at least the resident set, and what is used of a limit
    CHECK(count(parts[i], SYS_openat) == count(parts[i], SYS_close));
  }
}

#endif
