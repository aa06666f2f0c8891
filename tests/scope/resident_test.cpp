// SPDX-License-Identifier: MIT
// Windows over the resident set are compared with what the page tables hold at each step, in a child for each story: its
// high-water mark begins at what is resident.
#include <tidemark/hook/global_new.hpp>
#include <tidemark/scope/scope.hpp>
#include <tidemark/sys/process.hpp>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <initializer_list>
#include <optional>
#include <string_view>
#include <thread>
#include <vector>

#include <pthread.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "resident_support.hpp"
#include "barrier.hpp"
#include "dice.hpp"
#include "heap_block.hpp"
#include "test.hpp"

namespace meter = tidemark::meter;
using resident_window = meter::resident::window;
using tidemark::allow_peak_resident_reset;
using tidemark::process_memory;
using tidemark::process_scope;
using tidemark::reset_peak_resident;
using tidemark::window_usage;

namespace {

constexpr const char* reset_by_another = "something else reset the kernel's high-water mark";

void warm_up() {
  allow_peak_resident_reset(true);
  for (int i = 0; i < 2; ++i) {
    resident_window w;
    touch_and_unmap(page_bytes());
    static_cast<void>(w.close());
    static_cast<void>(reset_peak_resident());
    static_cast<void>(process_memory());
    static_cast<void>(pages_present());
    static_cast<void>(kernel_mark());
    static_cast<void>(coarse_resident());
    static_cast<void>(statm_resident());
    static_cast<void>(counters_error());
    static_cast<void>(highest_of_rusage());
  }
  allow_peak_resident_reset(false);
}

/// A child whose mark is what is resident, and whose code has run.
template <class F>
auto in_fresh_child(F f) {
  return in_child([&f] {
    warm_up();
    return f();
  });
}

/// Whether the bound is that of the kernel's counters alone.
bool is_tight(const window_usage& u) { return u.error_bound_bytes > 0 && u.error_bound_bytes <= counters_error(); }

bool holds_edges(const window_usage& u) { return u.peak_bytes >= u.entry_bytes && u.peak_bytes >= u.exit_bytes; }

}  // namespace

// ---- one window ----

TEST_CASE("where the mark rises in the window it is the peak, and the edges are the kernel's") {
  struct result {
    told_window told;
    std::int64_t entry, exit;
  };
  const result r = in_fresh_child([] {
    result x;
    const pages p(24 * MiB);
    x.entry = pages_present();
    resident_window w;
    p.touch();
    p.release(0, 20 * MiB);
    x.told = w.close();
    x.exit = pages_present();
    return x;
  });
  REQUIRE(r.told.is_present);
  const window_usage& u = r.told.value;
  CHECK(!u.counts_events);
  CHECK(holds_edges(u));
  CHECK(is_tight(u));
  if (has_noise) return;
  CHECK(is_near(u.entry_bytes, r.entry, counters_error() + noise));
  CHECK(is_near(u.exit_bytes, r.exit, counters_error() + noise));
  CHECK(is_near(u.net_bytes(), 4 * MiB, 2 * counters_error() + noise));
  CHECK(is_near(u.peak_growth(), 24 * MiB, 2 * counters_error() + noise));
}

TEST_CASE("below an earlier mark the peak is the higher edge, and the bound reaches up to the mark") {
  struct result {
    told_window rises, falls, so_far, rises_above;
    std::int64_t base, mark;
  };
  const result r = in_fresh_child([] {
    result x;
    x.base = pages_present();
    touch_and_unmap(32 * MiB);
    x.mark = kernel_mark();
    const pages p(40 * MiB);
    {
      resident_window w;
      p.touch(0, 12 * MiB);
      p.release(8 * MiB, 4 * MiB);
      x.rises = w.close();
    }
    {
      resident_window w;
      p.touch(8 * MiB, 8 * MiB);
      p.release(0, 16 * MiB);
      x.falls = w.close();
    }
    {
      resident_window w;
      p.touch(0, 16 * MiB);
      x.so_far = w.usage();
      p.touch();
      p.release();
      x.rises_above = w.close();
    }
    return x;
  });
  REQUIRE(r.rises.is_present);
  REQUIRE(r.falls.is_present);
  REQUIRE(r.so_far.is_present);
  REQUIRE(r.rises_above.is_present);
  CHECK(r.rises.value.peak_bytes == std::max(r.rises.value.entry_bytes, r.rises.value.exit_bytes));
  CHECK(r.falls.value.peak_bytes == std::max(r.falls.value.entry_bytes, r.falls.value.exit_bytes));
  CHECK(is_tight(r.rises_above.value));
  if (has_noise) return;
  const auto reaches = [&](const window_usage& u) { return u.peak_bytes + u.error_bound_bytes; };
  const std::int64_t slack = 2 * counters_error() + noise;
  CHECK(is_near(r.rises.value.peak_bytes, r.base + 8 * MiB, slack));
  CHECK(is_near(r.falls.value.peak_bytes, r.base + 8 * MiB, slack));
  CHECK(is_near(r.so_far.value.peak_bytes, r.base + 16 * MiB, slack));
  CHECK(is_near(r.rises_above.value.peak_bytes, r.base + 40 * MiB, slack));
  for (const told_window* t : {&r.rises, &r.falls, &r.so_far}) {
    CHECK(reaches(t->value) >= r.mark);
    CHECK(reaches(t->value) <= r.mark + counters_error() + noise);
  }
}

TEST_CASE("a look at an open window sees what is resident, and the peak keeps it") {
  struct result {
    told_window high, later;
  };
  const result r = in_fresh_child([] {
    result x;
    touch_and_unmap(32 * MiB);
    const pages p(16 * MiB);
    resident_window w;
    p.touch();
    x.high = w.usage();
    p.release();
    x.later = w.close();
    return x;
  });
  REQUIRE(r.high.is_present);
  REQUIRE(r.later.is_present);
  CHECK(r.later.value.peak_bytes >= r.high.value.exit_bytes);
  if (!has_noise) CHECK(r.high.value.net_bytes() >= 16 * MiB - counters_error() - noise);
}

TEST_CASE("a second close says that the window is closed") {
  resident_window w;
  CHECK(w.close().has_value());
  CHECK(w.usage().why().find("closed") != std::string_view::npos);
  CHECK(w.close().why().find("closed") != std::string_view::npos);
}

// ---- the reset ----

TEST_CASE("nothing is reset unless it was allowed, nor once it is forbidden again") {
  struct result {
    std::int64_t high, unasked, allowed, forbidden;
    std::int64_t high_again;
  };
  const result r = in_fresh_child([] {
    result x{};
    const auto use = [] {
      resident_window outer;
      resident_window inner;
      static_cast<void>(outer.usage());
      static_cast<void>(outer.close());
      const process_scope s("scope");
      static_cast<void>(process_memory());
    };
    touch_and_unmap(24 * MiB);
    x.high = kernel_mark();
    use();
    x.unasked = kernel_mark();
    allow_peak_resident_reset(true);
    use();
    x.allowed = kernel_mark();
    allow_peak_resident_reset(false);
    touch_and_unmap(24 * MiB);
    x.high_again = kernel_mark();
    use();
    x.forbidden = kernel_mark();
    return x;
  });
  CHECK(r.unasked >= r.high);
  CHECK(r.forbidden >= r.high_again);
  if (!has_noise) CHECK(r.allowed < r.high - 24 * MiB + 2 * counters_error() + noise);
}

TEST_CASE("with the reset, nested and overlapping windows each have their own peak, exact to the kernel's counters") {
  struct result {
    std::int64_t base;
    told_window outer, inner, crossing, last;
  };
  const result r = in_fresh_child([] {
    result x;
    allow_peak_resident_reset(true);
    touch_and_unmap(48 * MiB);  // a mark that no window below reaches
    x.base = pages_present();
    std::optional<resident_window> outer(std::in_place);
    touch_and_unmap(32 * MiB);
    std::optional<resident_window> inner(std::in_place);
    touch_and_unmap(8 * MiB);
    std::optional<resident_window> crossing(std::in_place);
    touch_and_unmap(16 * MiB);
    x.inner = inner->close();
    std::optional<resident_window> last(std::in_place);
    touch_and_unmap(24 * MiB);
    x.outer = outer->close();
    touch_and_unmap(4 * MiB);
    x.last = last->close();
    x.crossing = crossing->close();
    return x;
  });
  struct expectation {
    const told_window* told;
    std::int64_t peak;
  };
  for (const expectation e :
       {expectation{&r.outer, 32 * MiB}, {&r.inner, 16 * MiB}, {&r.crossing, 24 * MiB}, {&r.last, 24 * MiB}}) {
    CAPTURE(e.peak);
    REQUIRE(e.told->is_present);
    const window_usage& u = e.told->value;
    CHECK(holds_edges(u));
    if (has_noise) continue;
    CHECK(is_tight(u));
    CHECK(is_near(u.peak_bytes, r.base + e.peak, counters_error() + noise));
  }
}

TEST_CASE("a window that opens with the reset hands what the mark knew to those that opened without") {
  struct result {
    std::int64_t base;
    told_window rose, stayed_below;
  };
  const result r = in_fresh_child([] {
    result x;
    x.base = pages_present();
    resident_window rose;
    touch_and_unmap(32 * MiB);
    resident_window stayed_below;
    touch_and_unmap(8 * MiB);
    allow_peak_resident_reset(true);
    const resident_window resets;
    touch_and_unmap(16 * MiB);
    x.rose = rose.close();
    x.stayed_below = stayed_below.close();
    return x;
  });
  REQUIRE(r.rose.is_present);
  REQUIRE(r.stayed_below.is_present);
  if (has_noise) return;
  CHECK(is_tight(r.rose.value));
  CHECK(is_near(r.rose.value.peak_bytes, r.base + 32 * MiB, counters_error() + noise));
  // 16 MiB are known; before the reset it may have been anything up to 32.
  CHECK(is_near(r.stayed_below.value.peak_bytes, r.base + 16 * MiB, counters_error() + noise));
  CHECK(is_near(r.stayed_below.value.peak_bytes + r.stayed_below.value.error_bound_bytes, r.base + 32 * MiB,
                2 * counters_error() + noise));
}

TEST_CASE("reset_peak_resident() changes no window") {
  struct result {
    std::int64_t base, answer;
    told_window rose, below, exact;
  };
  for (const bool with_reset : {false, true}) {
    CAPTURE(with_reset);
    const result r = in_fresh_child([with_reset] {
      result x;
      x.base = pages_present();
      allow_peak_resident_reset(with_reset);
      resident_window rose;
      touch_and_unmap(32 * MiB);
      resident_window below;
      touch_and_unmap(8 * MiB);
      x.answer = reset_peak_resident().value_or(-1);
      touch_and_unmap(4 * MiB);
      x.below = below.close();
      static_cast<void>(reset_peak_resident());
      x.rose = rose.close();
      return x;
    });
    REQUIRE(r.rose.is_present);
    REQUIRE(r.below.is_present);
    if (has_noise) continue;
    CHECK(is_near(r.answer, r.base, 2 * counters_error() + noise));
    CHECK(is_tight(r.rose.value));
    CHECK(is_near(r.rose.value.peak_bytes, r.base + 32 * MiB, counters_error() + noise));
    const window_usage& below = r.below.value;
    CHECK(is_near(below.peak_bytes, r.base + 8 * MiB, below.error_bound_bytes + noise));
    if (with_reset) CHECK(is_tight(below));
    if (!with_reset) CHECK(below.peak_bytes + below.error_bound_bytes >= r.base + 32 * MiB - counters_error());
  }
}

TEST_CASE("the life's peak outlives the resets of windows") {
  struct result {
    std::int64_t base, before, inside, after, restarted;
  };
  const result r = in_fresh_child([] {
    result x{};
    const auto peak = [] { return process_memory().peak_resident_bytes.value_or(-1); };
    static_cast<void>(reset_peak_resident());
    x.base = pages_present();
    touch_and_unmap(24 * MiB);
    x.before = peak();
    allow_peak_resident_reset(true);
    {
      const resident_window w;
      touch_and_unmap(4 * MiB);
      x.inside = peak();
    }
    x.after = peak();
    static_cast<void>(reset_peak_resident());
    {
      const resident_window w;
      touch_and_unmap(4 * MiB);
    }
    x.restarted = peak();
    return x;
  });
  CHECK(r.inside >= r.before);
  CHECK(r.after >= r.before);
  if (has_noise) return;
  CHECK(is_near(r.before, r.base + 24 * MiB, counters_error() + noise));
  CHECK(r.after <= r.before + noise);
  CHECK(is_near(r.restarted, r.base + 4 * MiB, counters_error() + noise));
}

// ---- random traces ----

#if !TIDEMARK_HAS_SANITIZER_ALLOCATOR()  // whose shadow is resident too

namespace {

enum class resets { never, at_each_window, now_and_then };

struct trace_result {
  int closed = 0, tight = 0, absent = 0, wrong_sum = 0, wrong_edge = 0, below_edge = 0, wrong_peak = 0, wide = 0,
      wrong_life = 0;
  std::int64_t worst = 0;  // how far a true peak was outside of what was told
};

/// A process that maps, touches and releases, and the windows over it. The truth is what the page tables hold after each
/// step: within a step memory only rises or only falls.
class resident_trace {
 public:
  resident_trace(std::uint64_t seed, resets when) : dice_(seed), when_(when) {}

  trace_result run() {
    allow_peak_resident_reset(may_reset_ = when_ == resets::at_each_window);
    static_cast<void>(reset_peak_resident());
    base_ = now_ = life_peak_ = highest_ = pages_present();
    for (int step = 0; step < 70; ++step) {
      const std::uint64_t x = dice_.below(100);
      if (x < 25) {
        touch(dice_.below(area_count), std::int64_t{1} + static_cast<std::int64_t>(dice_.below(6)));
      } else if (x < 50) {
        release(dice_.below(area_count));
      } else if (x < 75) {
        open(windows_[dice_.below(window_count)]);
      } else if (x < 90) {
        look(windows_[dice_.below(window_count)], true);
      } else if (x < 94) {
        look(windows_[dice_.below(window_count)], false);
      } else if (x < 97) {
        check_life();
        if (when_ == resets::now_and_then) restart_life();
      } else if (when_ == resets::now_and_then) {
        allow_peak_resident_reset(may_reset_ = !may_reset_);
      }
    }
    for (window& w : windows_) look(w, true);
    check_life();
    return result_;
  }

 private:
  static constexpr std::size_t area_count = 4;
  static constexpr std::size_t window_count = 6;

  struct area {
    std::optional<pages> mapped;
    std::int64_t touched = 0;
  };
  struct window {
    std::optional<resident_window> opened;
    std::int64_t entry = 0, peak = 0;
    std::int64_t mark_before = 0;  // what the kernel's mark may have been at the entry
    bool is_exact = false;
  };

  void touch(std::size_t i, std::int64_t mib) {
    area& a = areas_[i];
    if (!a.mapped) a.mapped.emplace(6 * MiB);
    a.mapped->touch(0, mib * MiB);
    a.touched = std::max(a.touched, mib * MiB);
    measure();
  }
  void release(std::size_t i) {
    area& a = areas_[i];
    if (!a.mapped) return;
    if (dice_.below(2) == 0) {
      a.mapped.reset();
      a.touched = 0;
    } else {
      a.touched = std::min(a.touched, static_cast<std::int64_t>(dice_.below(4)) * MiB);
      a.mapped->release(a.touched, 6 * MiB - a.touched);
    }
    measure();
  }
  void measure() {
    now_ = pages_present();
    std::int64_t sum = base_;
    for (const area& a : areas_) sum += a.touched;
    // Page tables apart, which are no part of it, the process does nothing else that is large.
    result_.wrong_sum += is_near(now_, sum, 512 * 1'024) ? 0 : 1;
    for (window& w : windows_) w.peak = std::max(w.peak, now_);
    life_peak_ = std::max(life_peak_, now_);
    highest_ = std::max(highest_, now_);
  }

  void open(window& w) {
    if (w.opened) return;
    w.opened.emplace();
    w.entry = w.peak = now_;
    w.mark_before = highest_;
    w.is_exact = may_reset_;
  }
  void look(window& w, bool is_last) {
    if (!w.opened) return;
    const told_window told = is_last ? w.opened->close() : w.opened->usage();
    if (is_last) w.opened.reset();
    ++result_.closed;
    if (!told.is_present) {
      ++result_.absent;
      return;
    }
    const window_usage& u = told.value;
    const std::int64_t edge_error = std::min(u.error_bound_bytes, counters_error()) + noise;
    result_.wrong_edge +=
        is_near(u.entry_bytes, w.entry, edge_error) && is_near(u.exit_bytes, now_, edge_error) ? 0 : 1;
    result_.below_edge += holds_edges(u) ? 0 : 1;
    const std::int64_t off = std::llabs(u.peak_bytes - w.peak) - u.error_bound_bytes;
    result_.worst = std::max(result_.worst, off);
    result_.wrong_peak += off <= noise ? 0 : 1;
    // Exact where the mark was reset at the entry, and where it clearly rose; never further than up to the mark.
    const bool has_risen = w.peak > w.mark_before + 2 * counters_error() + noise;
    result_.tight += is_tight(u) ? 1 : 0;
    result_.wide +=
        (!(w.is_exact || has_risen) || is_tight(u)) &&
                u.peak_bytes + u.error_bound_bytes <= std::max(highest_, w.peak) + 2 * counters_error() + noise
            ? 0
            : 1;
  }
  void check_life() {
    const auto m = process_memory();
    const std::int64_t resident = m.resident_bytes.value_or(-1);
    const std::int64_t peak = m.peak_resident_bytes.value_or(-1);
    result_.wrong_life +=
        is_near(resident, now_, counters_error() + noise) && is_near(peak, life_peak_, counters_error() + noise) ? 0
                                                                                                                 : 1;
  }
  void restart_life() {
    static_cast<void>(reset_peak_resident());
    life_peak_ = now_;
  }

  dice dice_;
  resets when_;
  bool may_reset_ = false;
  std::int64_t base_ = 0, now_ = 0, life_peak_ = 0, highest_ = 0;
  area areas_[area_count];
  window windows_[window_count];
  trace_result result_;
};

void check_traces(resets when) {
  int tight = 0;
  int closed = 0;
  for (std::uint64_t seed = 0; seed < 6; ++seed) {
    CAPTURE(seed);
    const trace_result r = in_fresh_child([seed, when] { return resident_trace(seed, when).run(); });
    CAPTURE(r.worst);
    CHECK(r.absent == 0);
    CHECK(r.wrong_sum == 0);
    CHECK(r.wrong_edge == 0);
    CHECK(r.below_edge == 0);
    CHECK(r.wrong_peak == 0);
    CHECK(r.wide == 0);
    CHECK(r.wrong_life == 0);
    closed += r.closed;
    tight += r.tight;
  }
  CHECK(closed > 40);
  CHECK((when == resets::at_each_window ? tight == closed : tight > 10));
}

}  // namespace

TEST_CASE("in random traces without a reset the true peak is within the bound of what is told") {
  check_traces(resets::never);
}

TEST_CASE("in random traces with a reset at each entry the bound is the kernel's counters alone") {
  check_traces(resets::at_each_window);
}

TEST_CASE("in random traces where resets come and go the true peak is within the bound of what is told") {
  check_traces(resets::now_and_then);
}

// ---- the kernel's counters ----

namespace {

bool move_to(int cpu) {
  cpu_set_t only;
  CPU_ZERO(&only);
  CPU_SET(static_cast<std::size_t>(cpu), &only);
  return ::sched_setaffinity(0, sizeof only, &only) == 0;
}

/// The anonymous and the shared pages of this process, brought to where every CPU holds back as many as it may.
class held_back {
 public:
  /// False where the kernel does not count like this.
  bool by_touching() {
    return on_every_cpu([this](const pages& p) {
      // One more is handed over with all the CPU held; from there it holds back again.
      for (std::int64_t i = 0; i < 2 * counter_batch(); ++i) {
        const std::int64_t before = coarse_resident();
        touch_one(p);
        if (coarse_resident() == before) continue;
        for (std::int64_t left = counter_batch() - 1; left > 0; --left) touch_one(p);
        return true;
      }
      return false;
    });
  }
  /// The same below zero: more than there is appears to be.
  bool by_releasing() {
    return on_every_cpu([this](const pages& p) {
      p.touch();
      next_ = 0;
      for (std::int64_t i = 0; i < 2 * counter_batch(); ++i) {
        const std::int64_t before = coarse_resident();
        release_one(p);
        if (coarse_resident() == before) continue;
        for (std::int64_t left = counter_batch() - 1; left > 0; --left) release_one(p);
        return true;
      }
      return false;
    });
  }

 private:
  template <class F>
  bool on_every_cpu(F f) {
    cpu_set_t allowed;
    if (::sched_getaffinity(0, sizeof allowed, &allowed) != 0) return false;
    bool is_held = true;
    for (int cpu = 0; cpu < 16; ++cpu) {
      if (!CPU_ISSET(static_cast<std::size_t>(cpu), &allowed) || !move_to(cpu)) continue;
      for (const int sharing : {MAP_PRIVATE, MAP_SHARED}) {
        // Never unmapped: that would be an event too.
        const pages& p = *new pages(4 * counter_batch() * page_bytes(), sharing);
        p.touch(0, page_bytes());  // brings the page table
        next_ = 1;
        is_held = is_held && f(p);
      }
    }
    move_to(0);
    return is_held;
  }
  void touch_one(const pages& p) { p.touch(next_++ * page_bytes(), page_bytes()); }
  void release_one(const pages& p) { p.release(next_++ * page_bytes(), page_bytes()); }

  std::int64_t next_ = 0;
};

struct held_result {
  bool was_possible = false;
  std::int64_t held_back = 0, entry = 0, peak = 0;
  told_window told;
};

void check_held(const held_result& r) {
  if (!r.was_possible) MESSAGE("left out: this kernel counts in another way");
  if (!r.was_possible) return;
  CAPTURE(r.held_back);
  CAPTURE(r.told.why);
  CAPTURE(r.told.value.error_bound_bytes);
  CHECK(r.told.is_present);
  CHECK(is_near(r.told.value.entry_bytes, r.entry, r.told.value.error_bound_bytes));
  CHECK(is_near(r.told.value.peak_bytes, r.peak, r.told.value.error_bound_bytes));
}

}  // namespace

TEST_CASE("the bound covers what every CPU holds back of every counter") {
  // The figure is worked out by hand: three counters, each off by less than a batch on each CPU.
  const told_window w = in_fresh_child([] {
    resident_window risen;
    touch_and_unmap(2 * counters_error() + MiB);
    return told_window(risen.close());
  });
  REQUIRE(w.is_present);
  CHECK(w.value.error_bound_bytes >= 3 * page_bytes() * cpu_count() * (counter_batch() - 1));
  CHECK(w.value.error_bound_bytes <= counters_error());

  // The mark of a window that the reset made exact.
  for (const bool with_reset : {true, false}) {
    CAPTURE(with_reset);
    check_held(in_fresh_child([with_reset] {
      held_result r;
      const pages most(8 * MiB);
      held_back counters;
      allow_peak_resident_reset(with_reset);
      r.entry = pages_present();
      resident_window measured;
      most.touch();
      r.was_possible = counters.by_touching();
      r.peak = pages_present();
      r.held_back = r.peak - coarse_resident();
      most.release();
      r.told = measured.close();
      return r;
    }));
  }
}

TEST_CASE("a mark that falls by what the CPUs hold back was reset by nobody") {
  check_held(in_fresh_child([] {
    held_result r;
    const pages most(8 * MiB);
    held_back counters;
    r.entry = pages_present();
    resident_window w;
    most.touch();
    r.was_possible = counters.by_touching();
    r.peak = pages_present();
    r.held_back = r.peak - coarse_resident();
    static_cast<void>(w.usage());
    most.release();
    r.told = w.close();
    return r;
  }));
}

namespace {

bool is_mapped(const char* page) {
  unsigned char state = 0;
  return ::mincore(const_cast<char*>(page), 1, &state) == 0 && (state & 1U) != 0;
}

struct release_result {
  bool was_possible = false;  // all of it was touched while the release was under way
  std::int64_t highest = 0;
  told_window high, last;
};

/// The kernel raises its mark where a release begins. What another thread touches from then on, until something is really
/// released, is resident but leaves no mark.
release_result read_during_release(bool with_reset) {
  release_result r;
  const std::int64_t extra_bytes = 2 * counters_error() + 2 * MiB;
  // Page tables that hold zero pages, which do not count, and take long to walk; what counts comes last.
  constexpr std::int64_t tables = 6'000;
  const std::int64_t table_reach = page_bytes() * page_bytes() / 8;
  const auto size = static_cast<std::size_t>((tables + 1) * table_reach);
  void* p = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (p == MAP_FAILED) return r;
  ::madvise(p, size, MADV_NOHUGEPAGE);
  char* const first = static_cast<char*>(p);
  char* const last = first + (tables + 1) * table_reach - page_bytes();
  for (std::int64_t i = 0; i < tables; ++i) static_cast<void>(*static_cast<volatile char*>(first + i * table_reach));
  for (int i = 0; i < 256; ++i) *static_cast<volatile char*>(last - i * page_bytes()) = 1;
  const pages extra(extra_bytes);

  allow_peak_resident_reset(with_reset);
  std::atomic<bool> is_over{false};
  barrier start(2);
  std::thread releasing([&] {
    start.arrive_and_wait();
    ::madvise(p, size, MADV_DONTNEED);
    is_over.store(true);
  });
  resident_window w;
  r.highest = pages_present() + extra_bytes;
  start.arrive_and_wait();
  while (is_mapped(first)) {
  }
  extra.touch();
  r.high = w.usage();
  r.was_possible = !is_over.load() && is_mapped(last);
  releasing.join();
  extra.release();
  r.last = w.close();
  ::munmap(p, size);
  return r;
}

}  // namespace

TEST_CASE("a mark that forgets what was touched while another thread releases was reset by nobody") {
  for (const bool with_reset : {false, true}) {
    CAPTURE(with_reset);
    release_result r;
    if (counters_error() < 16 * MiB) {
      for (int i = 0; i < 8 && !r.was_possible; ++i) {
        r = in_fresh_child([with_reset] { return read_during_release(with_reset); });
      }
    }
    if (!r.was_possible) MESSAGE("left out: no reading fell into the release");
    if (!r.was_possible) continue;
    CAPTURE(r.last.why);
    REQUIRE(r.high.is_present);
    CHECK(is_near(r.high.value.exit_bytes, r.highest, counters_error() + noise));
    CHECK(r.last.is_present);
    CHECK(is_near(r.last.value.peak_bytes, r.highest, counters_error() + noise));
  }
}

TEST_CASE("with the reset the bound is the counters' alone, also where they are above what is resident") {
  struct result {
    bool was_possible = false;
    std::int64_t too_much = 0;
    told_window told, usual;
  };
  const result r = in_fresh_child([] {
    result x;
    allow_peak_resident_reset(true);
    x.usual = resident_window().close();
    held_back counters;
    x.was_possible = counters.by_releasing();
    x.too_much = coarse_resident() - pages_present();
    resident_window w;
    x.told = w.close();
    return x;
  });
  if (!r.was_possible) MESSAGE("left out: this kernel counts in another way");
  if (!r.was_possible) return;
  CAPTURE(r.too_much);
  REQUIRE(r.told.is_present);
  REQUIRE(r.usual.is_present);
  CHECK(r.told.value.error_bound_bytes == r.usual.value.error_bound_bytes);
}

#endif

// ---- what may be refused ----

namespace {

struct scope_result {
  bool was_possible = false;
  told_window resident, heap, later_resident;
  std::int64_t mark_before = 0, mark_after = 0;
  told_bytes life;
};

/// A process scope in a process that `spoil` has changed.
template <class F>
scope_result scope_after(F spoil) {
  return in_fresh_child([&spoil] {
    scope_result x;
    allow_peak_resident_reset(true);
    touch_and_unmap(4 * MiB);
    x.mark_before = kernel_mark();
    x.was_possible = spoil();
    {
      process_scope s("scope");
      { const heap_block b(1'000'000); }
      const heap_block kept(5'000);
      const tidemark::scope_record r = s.close();
      x.heap = r.meters.at(0).usage;
      x.resident = r.meters.at(1).usage;
    }
    x.life = process_memory().resident_bytes;
    x.mark_after = kernel_mark();
    allow_peak_resident_reset(false);
    x.later_resident = resident_window().close();
    return x;
  });
}

void check_heap(const scope_result& r) {
  REQUIRE(r.heap.is_present);
  CHECK(r.heap.value.net_bytes() == 5'000);
  CHECK(r.heap.value.peak_growth() == 1'000'000);
  CHECK(r.heap.value.allocations == 2);
}

}  // namespace

TEST_CASE("where the kernel refuses the reset, the resident set is absent for that reason and the heap is right") {
  const auto check = [](const scope_result& r, const char* why) {
    if (!r.was_possible) MESSAGE("left out: this system cannot refuse it");
    if (!r.was_possible) return;
    CAPTURE(why);
    CAPTURE(r.resident.why);
    CHECK(r.resident.says(why));
    CHECK(r.resident.says("reset"));
    CHECK(r.mark_after >= r.mark_before);
    CHECK(r.life.is_present);
    CHECK(r.later_resident.is_present);
    check_heap(r);
  };
  check(scope_after(drop_rights), "clear_refs may not be written");
  check(scope_after([] { return refuse_call(SYS_openat, EACCES, true); }), "clear_refs may not be written");
  check(scope_after([] { return refuse_call(SYS_openat, ENOENT, true); }), "there is no ");
  check(scope_after([] { return refuse_call(SYS_write, EPERM); }), "writing 5");
}

TEST_CASE("where nothing can be read, the resident set is absent for that reason and the heap is right") {
  const auto check = [](const scope_result& r, const char* why) {
    if (!r.was_possible) MESSAGE("left out: this system cannot refuse it");
    if (!r.was_possible) return;
    CAPTURE(r.resident.why);
    CHECK(r.resident.says(why));
    CHECK(r.life.says(why));
    CHECK(r.later_resident.says(why));
    check_heap(r);
  };
  check(scope_after([] { return refuse_call(SYS_openat, ENOENT); }), "is /proc mounted?");
  check(scope_after([] { return refuse_call(SYS_read, EIO); }), "status cannot be read");
  check(scope_after([] {
          rlimit none{};
          return ::getrlimit(RLIMIT_NOFILE, &none) == 0 && (none.rlim_cur = 0, ::setrlimit(RLIMIT_NOFILE, &none)) == 0;
        }),
        "no file descriptor is left");
}

TEST_CASE("a window that opened while something could be read is absent where its end cannot be read") {
  struct result {
    bool was_possible = false;
    told_window told;
  };
  const result r = in_fresh_child([] {
    result x;
    resident_window w;
    x.was_possible = refuse_call(SYS_openat, ENOENT);
    x.told = w.close();
    return x;
  });
  if (r.was_possible) CHECK(r.told.says("is /proc mounted?"));
}

TEST_CASE("a reset by someone else is said, of every window that was open, and of none that opens later") {
  struct result {
    bool was_possible = false;
    told_window outer_so_far, outer, inner, later;
    std::int64_t base = 0;
  };
  for (const bool with_reset : {false, true}) {
    CAPTURE(with_reset);
    const result r = in_fresh_child([with_reset] {
      result x;
      allow_peak_resident_reset(with_reset);
      resident_window outer;
      touch_and_unmap(24 * MiB);
      static_cast<void>(outer.usage());
      std::optional<resident_window> inner(std::in_place);
      touch_and_unmap(16 * MiB);
      static_cast<void>(inner->usage());
      x.was_possible = reset_kernel_mark();
      x.outer_so_far = outer.usage();
      touch_and_unmap(32 * MiB);
      x.inner = inner->close();
      inner.reset();
      x.base = pages_present();
      // In the place of the one that closed.
      resident_window later;
      touch_and_unmap(40 * MiB);
      x.later = later.close();
      x.outer = outer.close();
      return x;
    });
    if (!r.was_possible) MESSAGE("left out: the mark cannot be reset here");
    if (!r.was_possible || has_noise) return;
    CHECK(r.outer_so_far.says(reset_by_another));
    CHECK(r.outer.says(reset_by_another));
    CHECK(r.inner.says(reset_by_another));
    REQUIRE(r.later.is_present);
    CHECK(is_tight(r.later.value));
    CHECK(is_near(r.later.value.peak_bytes, r.base + 40 * MiB, counters_error() + noise));
  }
}

TEST_CASE("another's reset is not taken for one of the library's own, nor the other way round") {
  struct result {
    bool was_possible = false;
    told_window told;
    std::int64_t base = 0;
  };
  const result r = in_fresh_child([] {
    result x;
    touch_and_unmap(24 * MiB);
    static_cast<void>(process_memory());
    x.was_possible = reset_kernel_mark();  // no window is open
    x.base = pages_present();
    resident_window w;
    touch_and_unmap(8 * MiB);
    allow_peak_resident_reset(true);
    for (int i = 0; i < 5; ++i) {
      const resident_window inner;
      touch_and_unmap(2 * MiB);
      static_cast<void>(reset_peak_resident());
    }
    x.told = w.close();
    return x;
  });
  if (!r.was_possible) MESSAGE("left out: the mark cannot be reset here");
  if (!r.was_possible) return;
  CAPTURE(r.told.why);
  REQUIRE(r.told.is_present);
  if (!has_noise) CHECK(is_near(r.told.value.peak_bytes, r.base + 8 * MiB, counters_error() + noise));
}

// ---- fork ----

TEST_CASE("a window that a fork crosses is absent in the child, with the reason, and right in the parent") {
  struct child_result {
    told_window so_far, inherited, own, scope_resident;
    told_window scope_heap;
    std::int64_t base = 0;
  };
  struct result {
    child_result child;
    told_window parent;
    std::int64_t base = 0;
  };
  for (const bool with_reset : {false, true}) {
    CAPTURE(with_reset);
    const result r = in_fresh_child([with_reset] {
      result x;
      allow_peak_resident_reset(with_reset);
      x.base = pages_present();
      resident_window w;
      process_scope s("crossed");
      const heap_block kept(3'000);
      touch_and_unmap(24 * MiB);
      x.child = in_child([&] {
        child_result c;
        c.so_far = w.usage();
        {
          resident_window warm;
          static_cast<void>(warm.close());
        }
        c.base = pages_present();
        resident_window own;
        touch_and_unmap(8 * MiB);
        c.own = own.close();
        c.inherited = w.close();
        const tidemark::scope_record record = s.close();
        c.scope_heap = record.meters.at(0).usage;
        c.scope_resident = record.meters.at(1).usage;
        return c;
      });
      touch_and_unmap(16 * MiB);
      x.parent = w.close();
      return x;
    });
    CHECK(r.child.so_far.says("fork"));
    CHECK(r.child.inherited.says("fork"));
    CHECK(r.child.scope_resident.says("fork"));
    REQUIRE(r.child.scope_heap.is_present);
    CHECK(r.child.scope_heap.value.net_bytes() == 3'000);
    REQUIRE(r.child.own.is_present);
    REQUIRE(r.parent.is_present);
    if (has_noise) continue;
    CHECK(is_tight(r.child.own.value));
    CHECK(is_near(r.child.own.value.peak_bytes, r.child.base + 8 * MiB, counters_error() + noise));
    CHECK(is_near(r.parent.value.peak_bytes, r.base + 24 * MiB, counters_error() + noise));
  }
}

#if !TIDEMARK_HAS_TSAN()  // whose runtime does not follow a fork of several threads

TEST_CASE("a fork waits for an edge that another thread is in, and the child opens windows at once") {
  std::atomic<bool> is_over{false};
  barrier start(2);
  std::thread other([&] {
    start.arrive_and_wait();
    while (!is_over.load()) {
      static_cast<void>(resident_window().close());
      touch_and_unmap(8 * page_bytes());
    }
  });
  start.arrive_and_wait();
  int right = 0;
  for (int i = 0; i < 6; ++i) {
    right += in_child([] {
      resident_window w;
      return w.close().has_value();
    })
                 ? 1
                 : 0;
  }
  is_over.store(true);
  other.join();
  CHECK(right == 6);
}

#endif

// ---- what stays as it is ----

TEST_CASE("an edge leaves errno as it was, also where the answer is a reason") {
  struct result {
    bool is_kept[8] = {};
  };
  const result r = in_fresh_child([] {
    result x;
    int i = 0;
    const auto keeps = [&](auto f) {
      errno = 12'345;
      f();
      x.is_kept[i++] = errno == 12'345;
    };
    std::optional<resident_window> w;
    keeps([&] { w.emplace(); });
    keeps([&] { static_cast<void>(w->usage()); });
    keeps([&] { static_cast<void>(w->close()); });
    allow_peak_resident_reset(true);
    keeps([&] { w.emplace(); });
    refuse_call(SYS_openat, EACCES, true);
    keeps([&] { w.emplace(); });
    keeps([&] { static_cast<void>(w->close()); });
    refuse_call(SYS_openat, ENOENT);
    keeps([&] { w.emplace(); });
    keeps([&] { static_cast<void>(w->close()); });
    return x;
  });
  for (const bool is_kept : r.is_kept) CHECK(is_kept);
}

namespace {

// A frame of its own: ASan takes what a cancelled one leaves behind for an error.
[[gnu::noinline]] bool has_edges() {
  resident_window w;
  const bool is_open = w.usage().has_value();
  return w.close().has_value() && is_open;
}

}  // namespace

TEST_CASE("a thread that is to be cancelled ends after the edge, not in it") {
  struct result {
    bool was_present = false, was_cancelled = false;
  };
  const result r = in_fresh_child([] {
    static result x;
    allow_peak_resident_reset(true);
    pthread_t t;
    const auto body = [](void*) -> void* {
      ::pthread_cancel(::pthread_self());
      x.was_present = has_edges();
      ::pthread_testcancel();
      return nullptr;
    };
    void* end = nullptr;
    if (::pthread_create(&t, nullptr, body, nullptr) == 0) ::pthread_join(t, &end);
    x.was_cancelled = end == PTHREAD_CANCELED;
    return x;
  });
  CHECK(r.was_present);
  CHECK(r.was_cancelled);
}

TEST_CASE("opening, reading and closing 1,000 windows allocates nothing, and no memory is lost") {
  struct result {
    std::uint64_t allocations[3] = {}, own_bytes[3] = {};
    std::int64_t live[3] = {};
    int absent = 0;
  };
  for (const bool with_reset : {false, true}) {
    CAPTURE(with_reset);
    const result r = in_fresh_child([with_reset] {
      result x;
      allow_peak_resident_reset(with_reset);
      static std::optional<resident_window> windows[100];
      for (int round = 0; round < 3; ++round) {
        x.allocations[round] = tidemark::process_usage().value_or(tidemark::usage{}).allocations;
        x.live[round] = tidemark::process_usage().value_or(tidemark::usage{}).live_bytes;
        for (int i = 0; i < 4; ++i) {
          for (auto& w : windows) w.emplace();
          for (auto& w : windows) x.absent += w->usage().has_value() ? 0 : 1;
          for (auto& w : windows) x.absent += w->close().has_value() ? 0 : 1;
        }
        x.own_bytes[round] = tidemark::self().own_bytes;
      }
      return x;
    });
    CHECK(r.absent == 0);
    CHECK(r.allocations[2] == r.allocations[0]);
    CHECK(r.live[2] == r.live[0]);
    CHECK(r.own_bytes[2] == r.own_bytes[0]);
  }
}

// ---- threads ----

TEST_CASE("windows of 4 threads at once are present and their peaks are above their edges") {
  constexpr int rounds = TIDEMARK_HAS_TSAN() ? 30 : 60;
  for (const bool with_reset : {false, true}) {
    CAPTURE(with_reset);
    allow_peak_resident_reset(with_reset);
    barrier start(4);
    std::atomic<int> absent{0};
    std::atomic<int> below{0};
    std::vector<std::thread> threads;
    for (std::size_t t = 0; t < 4; ++t) {
      threads.emplace_back([&, t] {
        dice d(t);
        const pages p(MiB);
        std::optional<resident_window> windows[3];
        start.arrive_and_wait();
        for (int i = 0; i < rounds; ++i) {
          auto& w = windows[d.below(3)];
          if (!w) {
            w.emplace();
          } else {
            const told_window told = d.below(3) == 0 ? w->usage() : w->close();
            w.reset();
            absent.fetch_add(told.is_present ? 0 : 1);
            below.fetch_add(told.is_present && !holds_edges(told.value) ? 1 : 0);
          }
          p.touch(0, static_cast<std::int64_t>(d.below(16)) * 64 * 1'024);
          if (d.below(2) == 0) p.release();
          if (d.below(16) == 0) static_cast<void>(process_memory());
        }
      });
    }
    for (std::thread& t : threads) t.join();
    CHECK(absent.load() == 0);
    CHECK(below.load() == 0);
    CHECK(resident_window().close().has_value());
  }
  allow_peak_resident_reset(false);
}

TEST_CASE("a window ends on any thread") {
  struct result {
    told_window told;
    std::int64_t base = 0;
  };
  const result r = in_fresh_child([] {
    std::thread([] {}).join();
    result x;
    x.base = pages_present();
    process_scope s("travels");
    std::thread([&] {
      touch_and_unmap(16 * MiB);
      x.told = s.close().meters.at(1).usage;
    }).join();
    return x;
  });
  REQUIRE(r.told.is_present);
  if (!has_noise) CHECK(is_near(r.told.value.peak_bytes, r.base + 16 * MiB, counters_error() + noise));
}

// ---- the record ----

TEST_CASE("a process scope's record has the heap and the resident set, in bytes, and no events of the latter") {
  CHECK(!meter::resident::counts_events);
  process_scope s("both");
  const auto so_far = s.usage<meter::resident>();
  REQUIRE(so_far.has_value());
  CHECK(!so_far->counts_events);
  const tidemark::scope_record r = s.close();
  REQUIRE(r.meters.size() == 2);
  CHECK(r.meters[0].meter == "process_heap");
  CHECK(r.meters[1].meter == "resident");
  CHECK(r.meters[1].unit == "bytes");
  REQUIRE(r.meters[1].usage.has_value());
  CHECK(!r.meters[1].usage->counts_events);
  CHECK(r.meters[0].usage->counts_events);
  CHECK(r.find("resident") == &r.meters[1]);
  CHECK(s.usage<meter::resident>().why().find("closed") != std::string_view::npos);
}
