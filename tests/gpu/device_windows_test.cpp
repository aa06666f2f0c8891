// SPDX-License-Identifier: MIT
// Windows over devices and pools, given readings one after the other. Each expected figure is worked out by hand: of a
// device the highest reading in the window, of a pool the high mark where it says something about the window.
#include <tidemark/gpu/detail/device_registry.hpp>

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>

#include <sys/wait.h>
#include <unistd.h>

#include <tidemark/gpu/meter.hpp>

#include "test.hpp"

using namespace tidemark;
using namespace tidemark::detail::driver;

namespace {

memory_figures memory_of(std::uint64_t used, std::uint64_t total = 1'000, const char* source = "nvml") {
  memory_figures f;
  f.used.set(used);
  f.total.set(total);
  f.source = source;
  return f;
}
pool_figures pool_of(std::uint64_t used, std::uint64_t mark, const void* pool = nullptr) {
  pool_figures f;
  f.used.set(used);
  f.used_peak.set(mark);
  f.pool = pool;
  return f;
}

/// A device that no other test has, and the time that readings were asked at.
struct fixture {
  fixture() {
    static int count = 0;
    node = all->find("device of test " + std::to_string(count++));
    REQUIRE(node != nullptr);
  }
  device_registry* all = tidemark::detail::registry<device_registry>();
  device_node* node;

  static std::int64_t now() { return tidemark::detail::os::steady_ns(); }
  void sample(const memory_figures& f) const { all->note(*node, f, nullptr, now()); }

  /// "entry exit peak error", or the code of the reason.
  template <class Figures>
  std::string read(const device_window& w, const Figures& f) const {
    window_usage u;
    if (const char* why = all->read(w, f, u)) return std::string(why).substr(0, std::string_view(why).find(':'));
    CHECK_FALSE(u.counts_events);
    return std::to_string(u.entry_bytes) + " " + std::to_string(u.exit_bytes) + " " + std::to_string(u.peak_bytes) +
           " " + std::to_string(u.error_bound_bytes);
  }
};

}  // namespace

// ---- devices ----

TEST_CASE_FIXTURE(fixture, "a device's peak is the highest of entry, exit and the samples between them") {
  device_window* const w = all->open(*node, memory_of(100));
  CHECK(read(*w, memory_of(100)) == "100 100 100 900");
  CHECK(read(*w, memory_of(300)) == "100 300 300 700");
  CHECK(read(*w, memory_of(40)) == "100 40 100 900");
  sample(memory_of(700));
  sample(memory_of(200));
  CHECK(read(*w, memory_of(50)) == "100 50 700 300");
  CHECK(read(*w, memory_of(1'200, 1'000)) == "100 1200 1200 0");
  all->close(*node, *w);
}

TEST_CASE_FIXTURE(fixture, "what a device has in all may be unknown; then nothing bounds the error") {
  device_window* const w = all->open(*node, memory_of(100));
  memory_figures f = memory_of(150);
  f.total.why = "not_supported: no";
  const std::string bound = std::to_string((std::numeric_limits<std::int64_t>::max)() - 150);
  CHECK(read(*w, f) == "100 150 150 " + bound);
  all->close(*node, *w);
}

TEST_CASE_FIXTURE(fixture, "a sample that was asked for before the entry tells nothing of the window") {
  const std::int64_t before = now() - 1;
  device_window* const w = all->open(*node, memory_of(100));
  all->note(*node, memory_of(700), nullptr, before);
  CHECK(read(*w, memory_of(100)) == "100 100 100 900");
  all->close(*node, *w);
}

TEST_CASE_FIXTURE(fixture, "readings of two sources never meet in one window") {
  device_window* const w = all->open(*node, memory_of(100));
  sample(memory_of(700, 1'000, "cuda"));
  CHECK(read(*w, memory_of(50)) == "100 50 100 900");
  CHECK(read(*w, memory_of(50, 1'000, "cuda")) == "source_changed");
  CHECK(read(*w, memory_of(60)) == "100 60 100 900");
  all->close(*node, *w);
}

TEST_CASE_FIXTURE(fixture, "a sample that failed or lacks the figure raises nothing") {
  device_window* const w = all->open(*node, memory_of(100));
  all->note(*node, memory_of(900), "timeout: late", now());
  memory_figures lacks = memory_of(900);
  lacks.used.why = "not_supported: no";
  sample(lacks);
  CHECK(read(*w, memory_of(50)) == "100 50 100 900");
  all->close(*node, *w);
}

TEST_CASE_FIXTURE(fixture, "windows of one device end in any order, and a sample reaches those that are open") {
  device_window* const a = all->open(*node, memory_of(10));
  device_window* const b = all->open(*node, memory_of(20));
  device_window* const c = all->open(*node, memory_of(30));
  sample(memory_of(100));
  all->close(*node, *b);
  sample(memory_of(200));
  CHECK(read(*a, memory_of(1)) == "10 1 200 800");
  all->close(*node, *a);
  sample(memory_of(300));
  CHECK(read(*c, memory_of(1)) == "30 1 300 700");
  device_window* const d = all->open(*node, memory_of(40));
  CHECK(read(*d, memory_of(41)) == "40 41 41 959");
  all->close(*node, *c);
  sample(memory_of(400));
  CHECK(read(*d, memory_of(1)) == "40 1 400 600");
  all->close(*node, *d);
  CHECK(node->newest == nullptr);
}

TEST_CASE_FIXTURE(fixture, "the last reading is given again while it is recent, its reason too") {
  memory_figures f;
  const char* why = nullptr;
  CHECK_FALSE(all->recent(*node, 0, f, why));
  all->note(*node, memory_of(5), nullptr, 1'000);
  REQUIRE(all->recent(*node, 1'000, f, why));
  CHECK(f.used.value == 5);
  CHECK_FALSE(all->recent(*node, 1'001, f, why));
  all->note(*node, memory_of(6), nullptr, 900);  // an older question, answered late
  REQUIRE(all->recent(*node, 1'000, f, why));
  CHECK(f.used.value == 5);
  all->note(*node, memory_figures(), "timeout: late", 1'100);
  REQUIRE(all->recent(*node, 1'100, f, why));
  CHECK(std::string_view(why) == "timeout: late");
}

TEST_CASE_FIXTURE(fixture, "a child of fork() asks for itself") {
  sample(memory_of(5));
  memory_figures f;
  const char* why = nullptr;
  REQUIRE(all->recent(*node, 0, f, why));
  const pid_t child = ::fork();
  if (child == 0) ::_exit(all->recent(*node, 0, f, why) ? 1 : 0);
  int status = 1;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(status == 0);
  CHECK(all->recent(*node, 0, f, why));
}

// ---- pools ----

TEST_CASE_FIXTURE(fixture, "a pool's mark that rose in the window is its peak, exactly") {
  device_window* const w = all->open(*node, pool_of(100, 500));
  CHECK(read(*w, pool_of(200, 800)) == "100 200 800 0");
  all->close(*node, *w);
}

TEST_CASE_FIXTURE(fixture, "below an earlier mark the peak is the higher edge, and the error reaches up to the mark") {
  device_window* const w = all->open(*node, pool_of(100, 500));
  CHECK(read(*w, pool_of(300, 500)) == "100 300 300 200");
  CHECK(read(*w, pool_of(50, 500)) == "100 50 100 400");
  CHECK(read(*w, pool_of(500, 500)) == "100 500 500 0");
  sample(memory_of(900));  // another account
  CHECK(read(*w, pool_of(50, 500)) == "100 50 100 400");
  all->close(*node, *w);
}

TEST_CASE_FIXTURE(fixture, "a reset that goes through the library loses nothing, and makes what follows exact") {
  device_window* const low = all->open(*node, pool_of(100, 500));
  all->note_reset(*node, pool_of(200, 500), pool_of(200, 200));
  CHECK(read(*low, pool_of(150, 200)) == "100 150 200 300");  // the mark starts where the window is
  CHECK(read(*low, pool_of(150, 350)) == "100 150 350 150");  // before the reset it may have been 500
  device_window* const high = all->open(*node, pool_of(150, 350));
  all->note_reset(*node, pool_of(150, 700), pool_of(150, 150));
  CHECK(read(*high, pool_of(10, 150)) == "150 10 700 0");
  CHECK(read(*low, pool_of(10, 150)) == "100 10 700 0");
  CHECK(read(*low, pool_of(10, 900)) == "100 10 900 0");
  all->close(*node, *low);
  all->close(*node, *high);
}

TEST_CASE_FIXTURE(fixture, "a mark that fell was reset by someone else, and a pool that was replaced is another") {
  const int one = 0;
  const int two = 0;
  device_window* const w = all->open(*node, pool_of(100, 500, &one));
  CHECK(read(*w, pool_of(100, 499, &one)) == "mark_reset");
  CHECK(read(*w, pool_of(100, 500, &two)) == "source_changed");
  all->note_reset(*node, pool_of(100, 400, &one), pool_of(100, 100, &one));
  CHECK(read(*w, pool_of(100, 900, &one)) == "mark_reset");  // what was lost does not come back
  all->close(*node, *w);
}

// ---- names ----

TEST_CASE("a meter is named after its ordinal") {
  CHECK(std::string_view(meter::device<>::name) == "device:0");
  CHECK(std::string_view(meter::device<7>::name) == "device:7");
  CHECK(std::string_view(meter::device<120>::name) == "device:120");
  CHECK(std::string_view(meter::device<2'147'483'647>::name) == "device:2147483647");
  CHECK(std::string_view(meter::device_pool<>::name) == "device_pool:0");
  CHECK(std::string_view(meter::device_pool<15>::name) == "device_pool:15");
}
