// SPDX-License-Identifier: MIT
#include <tidemark/hook/global_new.hpp>
#include <tidemark/scope/scope.hpp>

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include <tidemark/scope/meter.hpp>

#include "heap_block.hpp"
#include "test.hpp"

namespace meter = tidemark::meter;
using tidemark::process_scope;
using tidemark::reading;
using tidemark::window_usage;
using process_window = meter::process_heap::window;

namespace {

window_usage read(const process_window& w) { return w.usage().value_or(window_usage{}); }
window_usage close(process_window& w) { return w.close().value_or(window_usage{}); }
tidemark::usage process() { return tidemark::process_usage().value_or(tidemark::usage{}); }

constexpr std::int64_t settle_bytes = TIDEMARK_OPT_SETTLE_BYTES;

/// Threads that wait for each other, without an allocation and without a clock.
class meeting {
 public:
  explicit meeting(int count) : count_(count) {}
  void wait() {
    std::unique_lock<std::mutex> held(lock_);
    if (++arrived_ == count_) {
      arrived_ = 0;
      ++turn_;
      all_here_.notify_all();
      return;
    }
    all_here_.wait(held, [this, turn = turn_] { return turn_ != turn; });
  }

 private:
  const int count_;
  int arrived_ = 0;
  int turn_ = 0;
  std::mutex lock_;
  std::condition_variable all_here_;
};

}  // namespace

// ---- one thread: exact ----

TEST_CASE("with one thread a process window is exact and equals the thread's") {
  tidemark::basic_scope<meter::process_heap, meter::thread_heap> s("alone");
  heap_block kept(10'000);
  { heap_block b(1'000'000); }
  for (int i = 0; i < 200; ++i) { heap_block b(3'000); }
  const auto r = s.close();
  for (const char* name : {"process_heap", "thread_heap"}) {
    const window_usage u = usage_in(r, name);
    CHECK(u.net_bytes() == 10'000);
    CHECK(u.peak_growth() == 1'010'000);
    CHECK(u.allocations == 202);
    CHECK(u.deallocations == 201);
    CHECK(u.allocated_bytes == 1'610'000);
    CHECK(u.freed_bytes == 1'600'000);
    CHECK(u.largest_bytes == 1'000'000);
    CHECK(u.error_bound_bytes == 0);
  }
  CHECK(process().error_bound_bytes == 0);
}

TEST_CASE("a window is exact again when other threads have come and gone before it") {
  for (int round = 0; round < 3; ++round) {
    heap_block from_another;
    std::vector<std::thread> threads;
    for (std::size_t t = 0; t < 4; ++t) {
      threads.emplace_back([t, &from_another] {
        heap_block b(50'000 + t);
        if (t == 0) from_another = std::move(b);
      });
    }
    for (std::thread& t : threads) t.join();
    process_window w;
    from_another.free();
    { heap_block b(123'456); }
    const heap_block kept(7);
    const window_usage u = close(w);
    CHECK(u.error_bound_bytes == 0);
    CHECK(u.net_bytes() == 7 - 50'000);
    CHECK(u.peak_growth() == 123'456 - 50'000);
    CHECK(u.allocations == 2);
    CHECK(u.largest_bytes == 123'456);
  }
}

TEST_CASE("nested and out-of-order process windows of one thread agree with brute force") {
  struct model_window {
    std::optional<process_window> window;
    std::int64_t entry = 0, peak = 0;
    std::uint64_t allocations = 0, largest = 0;
  };
  constexpr std::size_t window_count = 6;
  constexpr std::size_t block_count = 30;
  model_window windows[window_count];
  heap_block blocks[block_count];
  std::int64_t live = 0;
  int closed = 0;
  for (std::uint64_t trace = 0; trace < 300; ++trace) {
    random_numbers random(trace);
    const std::int64_t offset = process().live_bytes - live;
    int wrong = 0;
    for (int step = 0; step < 80; ++step) {
      model_window& w = windows[random.below(window_count)];
      heap_block& b = blocks[random.below(block_count)];
      if (random.below(5) == 0 && trace + 1 < 300 && step < 70) {
        if (!w.window.has_value()) {
          w.window.emplace();
          w.entry = w.peak = live;
          w.allocations = w.largest = 0;
        } else {
          const window_usage u = close(*w.window);
          w.window.reset();
          wrong += u.entry_bytes == w.entry + offset && u.exit_bytes == live + offset && u.peak_bytes == w.peak + offset &&
                           u.allocations == w.allocations && u.largest_bytes == w.largest && u.error_bound_bytes == 0
                       ? 0
                       : 1;
          ++closed;
        }
      } else if (b.is_live()) {
        live -= static_cast<std::int64_t>(b.size());
        b.free();
      } else {
        const std::size_t n = random.below(6) == 0 ? 50'000 + random.below(100'000) : random.below(4'000);
        b = heap_block(n);
        live += static_cast<std::int64_t>(n);
        for (model_window& open : windows) {
          ++open.allocations;
          if (n > open.largest) open.largest = n;
          if (live > open.peak) open.peak = live;
        }
      }
    }
    // Those left open see what the test's own checks allocate, so they end here.
    for (model_window& w : windows) w.window.reset();
    CAPTURE(trace);
    CHECK(wrong == 0);
  }
  CHECK(closed > 1'000);
}

// ---- several threads: within the bound ----

namespace {

/// What really happened. Threads take turns, in the same order on every run, so that each event is entered as it happens.
class truth {
 public:
  struct window {
    std::optional<process_window> opened;
    std::int64_t entry = 0, peak = 0;
    std::uint64_t allocations = 0, deallocations = 0, allocated_bytes = 0, freed_bytes = 0, largest = 0;
    std::size_t opened_by = 0;
  };
  static constexpr std::size_t window_count = 6;
  static constexpr std::size_t block_count = 96;

  truth(std::size_t threads, bool only_others_free) : threads_(threads), only_others_free_(only_others_free) {}

  /// What one of the threads does, from the first to the last turn.
  void run(std::size_t thread) {
    std::unique_lock<std::mutex> held(lock_);
    for (;;) {
      mine_[thread].wait(held, [this, thread] { return turn_ == thread || turns_left_ == 0; });
      if (turns_left_ == 0) return;
      for (std::size_t left = 1 + random_.below(12); left > 0; --left) step(thread);
      turn_ = random_.below(threads_);
      if (--turns_left_ > 0) {
        mine_[turn_].notify_one();
      } else {
        for (std::condition_variable& each : mine_) each.notify_one();
      }
    }
  }

  /// An allocation, a free, or the opening or closing of a window.
  void step(std::size_t thread) {
    window& w = windows_[random_.below(window_count)];
    const std::size_t b = random_.below(block_count);
    if (random_.below(16) == 0) {
      w.opened.has_value() ? end(w, thread) : begin(w, thread);
    } else if (!blocks_[b].is_live()) {
      // Small steps fill what a thread may hold back; a few are larger than that.
      const std::size_t n = random_.below(20) == 0 ? 60'000 + random_.below(200'000) : random_.below(9'000);
      blocks_[b] = heap_block(n);
      allocated_by_[b] = thread;
      live_ += static_cast<std::int64_t>(n);
      for (window& open : windows_) {
        ++open.allocations;
        open.allocated_bytes += n;
        if (n > open.largest) open.largest = n;
        if (live_ > open.peak) open.peak = live_;
      }
    } else if (!only_others_free_ || (allocated_by_[b] + 1) % threads_ == thread) {
      const auto n = static_cast<std::int64_t>(blocks_[b].size());
      blocks_[b].free();
      live_ -= n;
      for (window& open : windows_) {
        ++open.deallocations;
        open.freed_bytes += static_cast<std::uint64_t>(n);
      }
    }
  }

  void begin(window& w, std::size_t thread) {
    w.opened.emplace();
    w.entry = w.peak = live_;
    w.allocations = w.deallocations = w.allocated_bytes = w.freed_bytes = w.largest = 0;
    w.opened_by = thread;
  }
  void end(window& w, std::size_t thread) {
    const window_usage u = close(*w.opened);
    w.opened.reset();
    const std::int64_t bound = u.error_bound_bytes;
    const auto is_near = [bound](std::int64_t a, std::int64_t b) { return std::llabs(a - b) <= bound; };
    ++closed_;
    closed_elsewhere_ += w.opened_by != thread ? 1 : 0;
    if (bound > highest_bound_) highest_bound_ = bound;
    wrong_balance_ += is_near(u.entry_bytes - offset_, w.entry) && is_near(u.exit_bytes - offset_, live_) ? 0 : 1;
    wrong_peak_ += is_near(u.peak_bytes - offset_, w.peak) && u.peak_bytes >= u.entry_bytes && u.peak_bytes >= u.exit_bytes
                       ? 0
                       : 1;
    wrong_counts_ += u.allocations == w.allocations && u.deallocations == w.deallocations &&
                             u.allocated_bytes == w.allocated_bytes && u.freed_bytes == w.freed_bytes
                         ? 0
                         : 1;
    // One that its thread has not settled yet may be from before the window. It led from at most so much below zero to at
    // most so much above it.
    const auto held_back = static_cast<std::uint64_t>(2 * settle_bytes);
    wrong_largest_ += u.largest_bytes == w.largest || (u.largest_bytes > w.largest && u.largest_bytes <= held_back) ? 0 : 1;
  }
  void end_all() {
    for (window& w : windows_) {
      if (w.opened.has_value()) end(w, w.opened_by);
    }
    for (heap_block& b : blocks_) {
      if (b.is_live()) b.free();
    }
  }

  void starts_at(std::int64_t live_bytes) { offset_ = live_bytes; }

  void check() const {
    const auto threads = static_cast<std::int64_t>(threads_);
    CHECK(closed_ > 100);
    CHECK(closed_elsewhere_ > 50);
    CHECK(wrong_balance_ == 0);
    CHECK(wrong_peak_ == 0);
    CHECK(wrong_counts_ == 0);
    CHECK(wrong_largest_ == 0);
    // The main thread waits, its slot in use.
    CHECK(highest_bound_ == 2 * (threads + 1) * settle_bytes);
  }

 private:
  static constexpr std::size_t most_threads = 8;

  const std::size_t threads_;
  const bool only_others_free_;
  random_numbers random_{1};
  std::mutex lock_;
  std::condition_variable mine_[most_threads];
  std::size_t turn_ = 0;
  int turns_left_ = 1'500;
  window windows_[window_count];
  heap_block blocks_[block_count];
  std::size_t allocated_by_[block_count] = {};
  std::int64_t live_ = 0;
  std::int64_t offset_ = 0;
  int closed_ = 0, closed_elsewhere_ = 0;
  int wrong_balance_ = 0, wrong_peak_ = 0, wrong_counts_ = 0, wrong_largest_ = 0;
  std::int64_t highest_bound_ = 0;
};

void compare_with_truth(std::size_t thread_count, bool only_others_free) {
  truth t(thread_count, only_others_free);
  meeting all(static_cast<int>(thread_count) + 1);
  {
    std::vector<std::thread> threads;
    for (std::size_t i = 0; i < thread_count; ++i) {
      threads.emplace_back([&t, &all, i] {
        { const heap_block first(1); }  // it has a slot from here on
        all.wait();
        all.wait();
        t.run(i);
        all.wait();
        all.wait();
      });
    }
    all.wait();
    t.starts_at(process().live_bytes);  // nobody allocates now, so that the sum of all threads is right
    all.wait();
    all.wait();
    t.end_all();
    all.wait();
    for (std::thread& thread : threads) thread.join();
  }
  t.check();
}

}  // namespace

TEST_CASE("with 2 to 8 threads that allocate and free, overlapping process windows stay within their bound") {
  for (std::size_t threads = 2; threads <= 8; threads += 2) compare_with_truth(threads, false);
}

TEST_CASE("process windows stay within their bound when every block is freed by another thread") {
  for (std::size_t threads = 2; threads <= 8; threads += 3) compare_with_truth(threads, true);
}

TEST_CASE("with threads that allocate at the same time a window has every event and its peak within the bound") {
  constexpr std::size_t thread_count = 4;
  constexpr int rounds = 2'000;
  meeting all(thread_count + 1);
  std::vector<std::thread> threads;
  for (std::size_t t = 0; t < thread_count; ++t) {
    threads.emplace_back([&all] {
      { const heap_block first(1); }
      all.wait();  // all have begun
      all.wait();  // the window is open
      {
        const heap_block held(1'000'000);
        all.wait();  // all hold theirs
        for (int i = 0; i < rounds; ++i) {
          heap_block a(100);
          heap_block b(3'000);
        }
        all.wait();  // none let go yet
      }
      all.wait();  // all have let go
      all.wait();  // the window is closed
    });
  }
  all.wait();
  process_window w;
  all.wait();
  all.wait();
  const window_usage between = read(w);  // while they run
  all.wait();
  all.wait();
  const window_usage u = close(w);
  all.wait();
  for (std::thread& t : threads) t.join();
  const std::int64_t bound = u.error_bound_bytes;
  const std::int64_t count = thread_count;
  CHECK(bound == 2 * (count + 1) * settle_bytes);
  CHECK(u.net_bytes() >= -bound);
  CHECK(u.net_bytes() <= bound);
  CHECK(u.peak_growth() >= count * 1'000'000 - bound);
  CHECK(u.peak_growth() <= count * 1'003'100 + bound);
  CHECK(u.allocations == thread_count * (2 * rounds + 1));
  CHECK(u.deallocations == u.allocations);
  CHECK(u.allocated_bytes == thread_count * (1'000'000 + rounds * std::uint64_t{3'100}));
  CHECK(u.freed_bytes == u.allocated_bytes);
  CHECK(u.largest_bytes == 1'000'000);
  CHECK(between.net_bytes() >= count * 1'000'000 - bound);
  CHECK(between.net_bytes() <= count * 1'003'100 + bound);
}

TEST_CASE("a window that opens after its threads' peak does not have that peak") {
  // Each worker goes up and down before the window opens and settles only afterwards.
  constexpr std::size_t thread_count = 3;
  meeting all(thread_count + 1);
  std::vector<std::thread> threads;
  for (std::size_t t = 0; t < thread_count; ++t) {
    threads.emplace_back([&all] {
      { const heap_block high(10'000'000); }
      { const heap_block first(60'000); }
      all.wait();
      all.wait();
      { const heap_block second(70'000); }  // settles
      all.wait();
      all.wait();
    });
  }
  all.wait();
  process_window w;
  all.wait();
  all.wait();
  const window_usage u = close(w);
  all.wait();
  for (std::thread& t : threads) t.join();
  CHECK(u.peak_growth() >= 70'000 - u.error_bound_bytes);
  CHECK(u.peak_growth() <= 3 * 70'000 + u.error_bound_bytes);
  CHECK(u.largest_bytes == 70'000);
}

TEST_CASE("the largest block of a window is never larger than all that was allocated in it") {
  heap_block first(60'000);
  meeting all(2);
  std::thread worker([&] {
    first.free();
    { const heap_block before(120'000); }  // from below zero to above it: nothing settles
    all.wait();
    all.wait();
  });
  all.wait();
  process_window w;
  { const heap_block b(10); }
  const window_usage u = close(w);
  all.wait();
  worker.join();
  CHECK(u.allocated_bytes == 10);
  CHECK(u.largest_bytes == 10);
}

// ---- who opens, who closes ----

TEST_CASE("a window opened on one thread is read and closed on another") {
  auto w = std::make_unique<process_window>();
  auto s = std::make_unique<process_scope>("handed over");
  heap_block kept(2'000'000);
  window_usage far;
  tidemark::scope_record r;
  std::thread([&] {
    kept.free();
    const heap_block brief(3'000'000);
    far = close(*w);
    CHECK(!w->usage().has_value());
    r = s->close();
  }).join();
  for (const window_usage& u : {far, usage_in(r, "process_heap")}) {
    CHECK(u.error_bound_bytes == 4 * settle_bytes);
    CHECK(u.net_bytes() >= 3'000'000 - u.error_bound_bytes);
    CHECK(u.net_bytes() <= 3'000'000 + u.error_bound_bytes);
    CHECK(u.largest_bytes == 3'000'000);
  }
  // Whose opener has ended.
  std::unique_ptr<process_window> orphan;
  std::thread([&orphan] { orphan = std::make_unique<process_window>(); }).join();
  { heap_block b(5'000'000); }
  const window_usage u = close(*orphan);
  CHECK(u.peak_growth() >= 5'000'000 - u.error_bound_bytes);
  CHECK(u.largest_bytes == 5'000'000);
}

TEST_CASE("a process window ends once, and is dropped unread without a trace") {
  heap_block b(10);
  for (int i = 0; i < 1'000; ++i) {
    process_window dropped;
  }
  process_window w;
  b.free();
  CHECK(close(w).net_bytes() == -10);
  CHECK(!w.close().has_value());
  CHECK(!w.usage().has_value());
  CHECK(w.close().why() == "no window: it is closed, or memory ran out");
}

// ---- the peak of the process ----

TEST_CASE("resetting the peak of the process disturbs no open window") {
  tidemark::basic_scope<meter::process_heap, meter::thread_heap> s("open while reset");
  process_window w;
  { heap_block b(4'000'000); }
  const tidemark::usage before = process();
  tidemark::reset_process_peak();
  const tidemark::usage after = process();
  { heap_block b(1'000); }
  const tidemark::usage later = process();
  const window_usage u = close(w);
  const auto r = s.close();
  CHECK(before.peak_bytes >= before.live_bytes + 4'000'000);
  CHECK(after.peak_bytes == after.live_bytes);
  CHECK(after.allocations == before.allocations);
  CHECK(later.peak_bytes == after.live_bytes + 1'000);
  CHECK(u.peak_growth() == 4'000'000);
  CHECK(u.largest_bytes == 4'000'000);
  CHECK(u.allocations == 2);
  CHECK(usage_in(r, "process_heap").peak_growth() == 4'000'000);
  CHECK(usage_in(r, "thread_heap").peak_growth() == 4'000'000);
}

TEST_CASE("the peak of the process is never below its live bytes nor below what was live at one time") {
  tidemark::reset_process_peak();
  const std::int64_t live = process().live_bytes;
  const heap_block kept(100);
  { heap_block b(900); }
  const tidemark::usage u = process();
  CHECK(u.live_bytes == live + 100);
  CHECK(u.peak_bytes == live + 1'000);
}
