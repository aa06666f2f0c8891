// SPDX-License-Identifier: MIT
// Who shrinks, by how much and when, on samples made by hand; and under a real limit.
#include <tidemark/monitor/pressure.hpp>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <sys/mman.h>
#include <sys/resource.h>

#include <tidemark/hook/global_new.hpp>
#include <tidemark/monitor/monitor.hpp>

#include "barrier.hpp"
#include "monitor_support.hpp"
#include "resident_support.hpp"
#include "standard_error.hpp"
#include "test.hpp"

using namespace tidemark;

namespace {

struct cache {
  std::int64_t held = 0;
  std::vector<std::int64_t> asked = {};
  struct figures {
    std::int64_t bytes;
  };
  [[nodiscard]] figures stats() const { return {held}; }
  void shrink_to(std::int64_t bytes) {
    asked.push_back(bytes);
    held = bytes < held ? bytes : held;
  }
};

/// Cannot tell its size.
struct closed_cache {
  std::vector<std::int64_t> asked = {};
  void shrink_to(std::int64_t bytes) { asked.push_back(bytes); }
};

void see(std::int64_t used, std::int64_t limit = 1'000) {
  sample_record s = sample_at(0, 0);
  s.limit_bytes = limit;
  s.limit_used_bytes = used;
  detail::relieve_pressure(s);
}

}  // namespace

TEST_CASE("what is in excess of the target is given back, and no more") {
  cache c{500};
  const attachment relief = shrink_on_pressure(c);
  see(900);
  CHECK(c.asked.empty());
  see(901);
  CHECK(c.asked == std::vector<std::int64_t>{500 - 101});
  see(899);
  CHECK(c.asked.size() == 1);
}

TEST_CASE("several give back what the others have not") {
  cache a{60};
  cache b{500};
  cache untouched{500};
  pressure_options keep;
  keep.keep_bytes = 20;
  const attachment one = shrink_on_pressure(a, keep);
  const attachment two = shrink_on_pressure(b);
  const attachment three = shrink_on_pressure(untouched);
  see(1'000);  // 200 too much: 40 from the first, which keeps 20
  CHECK(a.held == 20);
  CHECK(b.held == 500 - 160);
  CHECK(untouched.asked.empty());
  see(1'000);
  CHECK(a.held == 20);
  CHECK(a.asked.size() == 1);  // it has nothing to give
  CHECK(b.held == 340 - 200);
}

TEST_CASE("what cannot tell its size is halved until the pressure is over") {
  closed_cache c;
  pressure_options o;
  o.full_bytes = 1'000;
  o.keep_bytes = 200;
  const attachment relief = shrink_on_pressure(c, o);
  for (int i = 0; i < 5; ++i) see(950);
  CHECK(c.asked == std::vector<std::int64_t>{500, 250, 200});
  see(850);  // neither
  see(950);
  CHECK(c.asked.size() == 3);
  see(800);  // over
  see(950);
  CHECK(c.asked.back() == 500);
}

TEST_CASE("nobody is asked after the end, or where nothing is known") {
  cache c{500};
  {
    const attachment relief = shrink_on_pressure(c);
    sample_record s = sample_at(0, 0);
    detail::relieve_pressure(s);
    s.limit_bytes = 1'000;
    detail::relieve_pressure(s);
    CHECK(c.asked.empty());
  }
  see(1'000);
  CHECK(c.asked.empty());
}

TEST_CASE("who gives back on pressure makes no records of scopes") {
  cache c{500};
  const attachment relief = shrink_on_pressure(c);
  CHECK(!detail::has_sinks());
}

TEST_CASE("the end of an attachment waits for a call that runs") {
  struct slow {
    barrier& inside;
    std::atomic<bool> is_left{false};
    [[nodiscard]] static std::int64_t bytes() { return 100; }
    void shrink_to(std::int64_t) {
      inside.arrive_and_wait();
      for (int i = 0; i < 1'000; ++i) std::this_thread::yield();
      is_left = true;
    }
  };
  barrier inside(2);
  slow s{inside};
  attachment relief = shrink_on_pressure(s);
  std::thread other([] { see(1'000); });
  inside.arrive_and_wait();
  relief.detach();
  CHECK(s.is_left);
  other.join();
}

TEST_CASE("what is wrong with the options is said") {
#if TIDEMARK_HAS_EXCEPTIONS()
  cache c;
  closed_cache unsized;
  const auto with = [&](double above, double target, std::int64_t keep) {
    pressure_options o;
    o.above_fraction = above;
    o.target_fraction = target;
    o.keep_bytes = keep;
    static_cast<void>(shrink_on_pressure(c, o));
  };
  CHECK_THROWS_AS(with(0.8, 0.9, 0), std::invalid_argument);
  CHECK_THROWS_AS(with(1.1, 0.9, 0), std::invalid_argument);
  CHECK_THROWS_AS(with(0.9, 0, 0), std::invalid_argument);
  CHECK_THROWS_AS(with(0.9, 0.8, -1), std::invalid_argument);
  CHECK_THROWS_AS(static_cast<void>(shrink_on_pressure(unsized)), std::invalid_argument);
  struct failing {
    [[nodiscard]] static std::int64_t bytes() { return 100; }
    static void shrink_to(std::int64_t) { throw std::runtime_error("it is pinned"); }
  };
  failing f;
  const attachment relief = shrink_on_pressure(f);
  standard_error said;
  see(1'000);
  CHECK(said.text().find("it is pinned") != std::string::npos);
#endif
}

TEST_CASE("under a real limit a monitor's check shrinks what holds too much") {
  if (has_noise) return;  // a sanitizer maps more than any limit
  struct result {
    std::int64_t limit, used, left;
    bool is_rlimit;
  };
  const result r = in_child([] {
    struct mapped_cache {
      std::int64_t held = 96 * MiB;
      char* place =
          static_cast<char*>(::mmap(nullptr, 96 * MiB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
      [[nodiscard]] std::int64_t bytes() const { return held; }
      void shrink_to(std::int64_t n) {
        n = n / page_bytes() * page_bytes();
        ::munmap(place + n, static_cast<std::size_t>(held - n));
        held = n;
      }
    } cache;
    const std::int64_t virtual_bytes = kernel_line("/proc/self/status", "VmSize:");
    const rlimit limit{static_cast<rlim_t>(virtual_bytes + 2 * MiB), RLIM_INFINITY};
    ::setrlimit(RLIMIT_AS, &limit);
    const attachment relief = shrink_on_pressure(cache);
    monitor m(by_hand());
    m.check();
    const memory_limit_reading after = memory_limit();
    return result{after.limit_bytes.value_or(-1), after.used_bytes.value_or(-1), cache.held,
                  after.source == limit_source::rlimit_as};
  });
  CHECK(r.is_rlimit);
  CHECK(r.used <= r.limit * 8 / 10 + MiB);
  CHECK(r.used >= r.limit * 8 / 10 - 4 * MiB);
  CHECK(r.left < 96 * MiB);
}
