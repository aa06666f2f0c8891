// SPDX-License-Identifier: MIT
// With TIDEMARK_OPT_DISABLE a monitor, its alerts, dumps and reports do nothing, and the system is asked all the same.
#define TIDEMARK_OPT_DISABLE 1
#include <tidemark/tidemark.hpp>

#include <chrono>
#include <cstdint>
#include <memory>
#include <new>

#include <signal.h>

#include "resident_support.hpp"
#include "standard_error.hpp"
#include "test.hpp"

using namespace tidemark;

TEST_CASE("a disabled monitor has no thread, takes no sample and raises nothing") {
  const std::int64_t threads = kernel_line("/proc/self/status", "Threads:");
  monitor_options o;
  o.interval = std::chrono::microseconds(100);
  monitor m(o);
  bool is_told = false;
  m.alert_when(resident_above(0), [&](const alert_record&) { is_told = true; });
  m.check();
  m.restart();
  CHECK(!is_told);
  CHECK(kernel_line("/proc/self/status", "Threads:") == threads);
  CHECK(m.growth().verdict == growth_verdict::cannot_tell);
}

TEST_CASE("disabled, nothing is shrunk, dumped or reported") {
  struct cache {
    [[nodiscard]] static std::int64_t bytes() { return 100; }
    void shrink_to(std::int64_t) { is_asked = true; }
    bool is_asked = false;
  } c;
  const attachment relief = shrink_on_pressure(c);
  sample_record s;
  s.limit_bytes = 100;
  s.limit_used_bytes = 100;
  detail::relieve_pressure(s);
  CHECK(!c.is_asked);
  struct sigaction before = {};
  struct sigaction after = {};
  ::sigaction(SIGUSR1, nullptr, &before);
  dump_on_signal(SIGUSR1);
  ::sigaction(SIGUSR1, nullptr, &after);
  const bool is_untouched = after.sa_handler == before.sa_handler;
  CHECK(is_untouched);
  standard_error said;
  report_on_out_of_memory();
  domain d("limited", {10});
  CHECK(!d.try_allocated(11));
#if TIDEMARK_HAS_EXCEPTIONS()
  CHECK_THROWS_AS(d.allocated(11), over_budget);
#endif
  CHECK(said.text().empty());
}

TEST_CASE("disabled, the system is asked all the same") {
  CHECK(process_memory().resident_bytes.has_value());
  CHECK(memory_limit().limit_bytes.has_value());
  const memory_report r = where_is_my_memory();
  CHECK(r.resident_bytes.value() > 0);
  REQUIRE(!r.requested.empty());
  CHECK(r.requested[0].bytes.why() == "disabled");
}
