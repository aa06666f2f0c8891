// SPDX-License-Identifier: MIT
// The hook's numbers against a ledger kept by hand. What is compared lies between two readings without a word
// of the test library in between: its own strings are counted too.
#include <tidemark/core/ledger.hpp>
#include <tidemark/hook/global_new.hpp>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <new>
#include <thread>
#include <vector>

#include "barrier.hpp"
#include "dice.hpp"
#include "test.hpp"

using tidemark::escape;
using tidemark::process_usage;
using tidemark::self;
using tidemark::self_report;
using tidemark::thread_usage;
using tidemark::usage;

namespace {

struct block {
  void* at = nullptr;
  std::size_t bytes = 0;
  std::uint64_t form = 0;
};

/// A block that the hook has not seen, from malloc. The compiler does not know that, and so does not warn.
block unseen(std::size_t n) {
  void* volatile p = std::malloc(n);
  std::memset(p, 0, n);
  return block{p, 0, 0};
}

/// Through each of the eight operators; `escape` keeps the pair in the program.
block allocate(std::size_t n, std::uint64_t form) {
  block b{nullptr, n, form};
  switch (form) {
    case 0:
      b.at = ::operator new(n);
      break;
    case 1:
      b.at = ::operator new[](n);
      break;
    case 2:
      b.at = ::operator new(n, std::nothrow);
      break;
    case 3:
      b.at = ::operator new[](n, std::nothrow);
      break;
    case 4:
      b.at = ::operator new (n, std::align_val_t{64});
      break;
    case 5:
      b.at = ::operator new[](n, std::align_val_t{1'024});
      break;
    case 6:
      b.at = ::operator new (n, std::align_val_t{32}, std::nothrow);
      break;
    default:
      b.at = ::operator new[](n, std::align_val_t{4'096}, std::nothrow);
      break;
  }
  escape(b.at);
  return b;
}

/// Through the twelve: sized where `is_sized`.
void free(const block& b, bool is_sized) {
  // No ?: here, since clang 14 calls both sides of one between two operators delete.
  switch (2 * b.form + (is_sized ? 1 : 0)) {
    case 0:
      ::operator delete(b.at);
      break;
    case 1:
      ::operator delete(b.at, b.bytes);
      break;
    case 2:
      ::operator delete[](b.at);
      break;
    case 3:
      ::operator delete[](b.at, b.bytes);
      break;
    case 4:
      ::operator delete(b.at);
      break;
    case 5:
      ::operator delete(b.at, std::nothrow);
      break;
    case 6:
      ::operator delete[](b.at);
      break;
    case 7:
      ::operator delete[](b.at, std::nothrow);
      break;
    case 8:
      ::operator delete (b.at, std::align_val_t{64});
      break;
    case 9:
      ::operator delete (b.at, b.bytes, std::align_val_t{64});
      break;
    case 10:
      ::operator delete[](b.at, std::align_val_t{1'024});
      break;
    case 11:
      ::operator delete[](b.at, b.bytes, std::align_val_t{1'024});
      break;
    case 12:
      ::operator delete (b.at, std::align_val_t{32}, std::nothrow);
      break;
    case 13:
      ::operator delete (b.at, std::align_val_t{32});
      break;
    case 14:
      ::operator delete[](b.at, std::align_val_t{4'096}, std::nothrow);
      break;
    default:
      ::operator delete[](b.at, std::align_val_t{4'096});
      break;
  }
}

/// What was done, by hand. Nothing here allocates but what is counted.
struct hand_ledger {
  static constexpr std::size_t capacity = 500;
  block blocks[capacity];
  std::size_t held = 0;
  std::int64_t live = 0;
  std::int64_t peak = 0;
  std::uint64_t allocations = 0;
  std::uint64_t deallocations = 0;
  std::uint64_t allocated_bytes = 0;
  std::uint64_t freed_bytes = 0;

  void keep(const block& b) { blocks[held++] = b; }
  block give(dice& d) {
    std::swap(blocks[d.below(held)], blocks[held - 1]);
    return blocks[--held];
  }
  void allocate_one(dice& d) {
    const std::size_t n = d.below(20) == 0 ? d.below(300'000) : d.below(d.below(2) == 0 ? 64 : 5'000);
    keep(allocate(n, d.below(8)));
    live += static_cast<std::int64_t>(n);
    peak = std::max(peak, live);
    ++allocations;
    allocated_bytes += n;
  }
  void free_one(const block& b, dice& d) {
    free(b, d.below(2) == 0);
    live -= static_cast<std::int64_t>(b.bytes);
    ++deallocations;
    freed_bytes += b.bytes;
  }
  void step(dice& d) {
    if (held == 0 || (held < capacity && d.below(100) < 52)) {
      allocate_one(d);
    } else {
      free_one(give(d), d);
    }
  }
  void free_all(dice& d) {
    while (held > 0) free_one(give(d), d);
  }

  /// Whether `now` is `start` and these events.
  [[nodiscard]] bool explains(const usage& start, const usage& now) const {
    return now.live_bytes == start.live_bytes + live &&
           now.live_blocks == start.live_blocks + static_cast<std::int64_t>(allocations - deallocations) &&
           now.allocations == start.allocations + allocations &&
           now.deallocations == start.deallocations + deallocations &&
           now.allocated_bytes == start.allocated_bytes + allocated_bytes &&
           now.freed_bytes == start.freed_bytes + freed_bytes;
  }
};

bool has_hook() { return tidemark::hook_state() != tidemark::hook_kind::none; }

usage thread_now() { return thread_usage().value_or({}); }
usage process_now() { return process_usage().value_or({}); }

constexpr bool is_sanitizer_listening = TIDEMARK_OPT_SANITIZER_HOOKS && TIDEMARK_HAS_SANITIZER_ALLOCATOR();

}  // namespace

TEST_CASE("the hook is there and says which, and what it does not see") {
  using tidemark::hook_kind;
  CHECK(tidemark::hook_state() == (is_sanitizer_listening ? hook_kind::sanitizer : hook_kind::global_new));
  CHECK(tidemark::hook_reason().empty() == !is_sanitizer_listening);
  CHECK(thread_usage().has_value());
  CHECK(process_usage().has_value());
}

TEST_CASE("with one thread the process equals the ledger kept by hand, its peak included") {
  if (!has_hook()) return;
  static hand_ledger hand;
  dice d(1);
  tidemark::reset_process_peak();
  const usage start = process_now();
  int wrong = 0;
  for (int i = 0; i < 20'000; ++i) {
    hand.step(d);
    const usage now = process_now();
    wrong += hand.explains(start, now) && now.peak_bytes == start.live_bytes + hand.peak && now.error_bound_bytes == 0
                 ? 0
                 : 1;
  }
  hand.free_all(d);
  const usage end = process_now();
  CHECK(wrong == 0);
  CHECK(start.peak_bytes == start.live_bytes);
  CHECK(end.live_bytes == start.live_bytes);
  CHECK(end.live_blocks == start.live_blocks);
}

TEST_CASE("each thread equals its own ledger, its peak included, from its first event to its last") {
  if (!has_hook()) return;
  constexpr std::size_t threads = 6;
  static hand_ledger hands[threads];
  std::atomic<int> wrong{0};
  std::vector<std::thread> workers;
  for (std::size_t t = 0; t < threads; ++t) {
    workers.emplace_back([&, t] {
      dice d(t);
      hand_ledger& hand = hands[t];
      const usage start = thread_now();
      int mine = start.live_bytes == 0 && start.peak_bytes == 0 && start.allocations == 0 ? 0 : 1;
      for (int i = 0; i < 10'000; ++i) {
        hand.step(d);
        const usage now = thread_now();
        mine += hand.explains(start, now) && now.peak_bytes == hand.peak && now.error_bound_bytes == 0 ? 0 : 1;
      }
      hand.free_all(d);
      mine += thread_now().live_bytes == 0 ? 0 : 1;
      wrong += mine;
    });
  }
  for (std::thread& w : workers) w.join();
  CHECK(wrong == 0);
}

TEST_CASE("threads that free each other's blocks leave exact totals in the process") {
  if (!has_hook()) return;
  constexpr std::size_t threads = 8;
  static hand_ledger hands[threads];
  static std::mutex counter_mutex;
  static block counter_top[64];
  static std::size_t on_counter;
  static barrier gate(threads + 1);
  std::vector<std::thread> workers;
  for (std::size_t t = 0; t < threads; ++t) {
    workers.emplace_back([t] {
      hand_ledger& hand = hands[t];
      dice d(t + 50);
      gate.arrive_and_wait();
      gate.arrive_and_wait();
      for (int i = 0; i < 5'000; ++i) {
        hand.step(d);
        if (hand.held == 0 || d.below(3) != 0) continue;
        // Gives one away, and frees one that another gave.
        const block mine = hand.give(d);
        block taken;
        {
          const std::lock_guard<std::mutex> held(counter_mutex);
          if (on_counter == 64) taken = counter_top[--on_counter];
          counter_top[on_counter++] = mine;
        }
        if (taken.at != nullptr) hand.free_one(taken, d);
      }
      hand.free_all(d);
      gate.arrive_and_wait();
      gate.arrive_and_wait();
    });
  }
  gate.arrive_and_wait();  // all are born
  const usage start = process_now();
  gate.arrive_and_wait();
  gate.arrive_and_wait();  // all are done
  const usage end = process_now();
  hand_ledger all;
  for (const hand_ledger& h : hands) {
    all.live += h.live;
    all.allocations += h.allocations;
    all.deallocations += h.deallocations;
    all.allocated_bytes += h.allocated_bytes;
    all.freed_bytes += h.freed_bytes;
  }
  const bool right = all.explains(start, end);
  std::int64_t left = 0;
  for (std::size_t i = 0; i < on_counter; ++i) left += static_cast<std::int64_t>(counter_top[i].bytes);
  for (std::size_t i = 0; i < on_counter; ++i) free(counter_top[i], false);
  const usage cleared = process_now();
  gate.arrive_and_wait();
  for (std::thread& w : workers) w.join();
  CHECK(right);
  CHECK(end.live_bytes - start.live_bytes == left);
  CHECK(cleared.live_bytes == start.live_bytes);
  CHECK(end.error_bound_bytes >= 2 * static_cast<std::int64_t>(threads + 1) * 65'536);
}

TEST_CASE("memory that a thread leaves behind lives on, and is freed from anywhere") {
  if (!has_hook()) return;
  static block left[10];
  const usage process_start = process_now();
  const usage start = thread_now();
  std::int64_t bytes = 0;
  {
    std::thread([] {
      for (std::size_t i = 0; i < 10; ++i) left[i] = allocate(1'000 * (i + 1), i % 8);
    }).join();
  }
  for (const block& b : left) bytes += static_cast<std::int64_t>(b.bytes);
  const usage process_between = process_now();
  const usage between = thread_now();
  for (const block& b : left) free(b, true);
  const usage end = thread_now();
  const usage process_end = process_now();
  CHECK(bytes == 55'000);
  CHECK(process_between.live_bytes - process_start.live_bytes == bytes);
  CHECK(process_between.live_blocks - process_start.live_blocks == 10);
  CHECK(between.live_bytes - end.live_bytes == bytes);  // this thread's account goes down by what it did not allocate
  CHECK(end.deallocations - between.deallocations == 10);
  CHECK(process_end.live_bytes == process_start.live_bytes);
  CHECK(process_end.live_blocks == process_start.live_blocks);
  CHECK(start.peak_bytes <= end.peak_bytes);
}

TEST_CASE("a thread that takes over the account of one that is gone starts with nothing") {
  if (!has_hook()) return;
  static block left;
  std::thread([] { left = allocate(100'000, 0); }).join();
  usage first;
  std::thread([&] { first = thread_now(); }).join();
  free(left, false);
  CHECK(first.live_bytes == 0);
  CHECK(first.peak_bytes == 0);
  CHECK(first.live_blocks == 0);
  CHECK(first.allocations == 0);
  CHECK(first.deallocations == 0);
  CHECK(first.allocated_bytes == 0);
  CHECK(first.freed_bytes == 0);
}

TEST_CASE("resetting the process peak starts it at the live bytes, and disturbs no window") {
  if (!has_hook()) return;
  tidemark::reset_process_peak();
  const usage start = process_now();
  tidemark::detail::window_node* window = tidemark::detail::open_process_window();
  REQUIRE(window != nullptr);
  const block high = allocate(1'000'000, 0);
  const usage up = process_now();
  free(high, false);
  const usage down = process_now();
  tidemark::reset_process_peak();
  const usage reset = process_now();
  const block low = allocate(1'000, 0);
  const usage again = process_now();
  free(low, false);
  const tidemark::window_usage read = tidemark::detail::read_process_window(*window);
  const tidemark::window_usage closed = tidemark::detail::close_process_window(*window);
  CHECK(up.peak_bytes - start.live_bytes >= 1'000'000);
  CHECK(down.peak_bytes == up.peak_bytes);
  CHECK(reset.peak_bytes == reset.live_bytes);
  CHECK(again.peak_bytes - reset.live_bytes == 1'000);
  CHECK(reset.allocations >= up.allocations);
  for (const tidemark::window_usage& u : {read, closed}) {
    CHECK(u.peak_growth() >= 1'000'000);
    CHECK(u.largest_bytes == 1'000'000);
    CHECK(u.error_bound_bytes == 0);
  }
}

TEST_CASE("self() counts 16 bytes for every live block, every event, and every foreign free") {
  if (!has_hook()) return;
  block blocks[100];
  const self_report start = self();
  for (std::size_t i = 0; i < 100; ++i) blocks[i] = allocate(i * 37, i % 8);
  const self_report during = self();
  for (const block& b : blocks) free(b, true);
  const self_report end = self();
  free(unseen(100), false);
  const self_report foreign = self();
  ::operator delete(nullptr);
  const self_report null = self();
  CHECK(during.stamp_bytes - start.stamp_bytes == 1'600);
  CHECK(during.events - start.events == 100);
  CHECK(end.stamp_bytes == start.stamp_bytes);
  CHECK(end.events - start.events == 200);
  CHECK(end.foreign_frees == start.foreign_frees);
  CHECK(foreign.foreign_frees - end.foreign_frees == 1);
  CHECK(foreign.events == end.events);
  CHECK(foreign.stamp_bytes == end.stamp_bytes);
  CHECK(null.events == foreign.events);
  CHECK(null.foreign_frees == foreign.foreign_frees);
  CHECK(end.own_bytes == start.own_bytes);
  CHECK(end.dropped_records == 0);
}

TEST_CASE("a block smaller than a stamp that never passed the hook is foreign, and nothing before it is read") {
  if (!has_hook()) return;
  const self_report start = self();
  for (std::size_t n = 1; n < 16; ++n) free(unseen(n), false);
  CHECK(self().foreign_frees - start.foreign_frees == 15);
}

TEST_CASE("a request that cannot be met leaves no trace in the counts") {
  if (!has_hook()) return;
  const auto most = static_cast<std::size_t>(-1);
  int met = 0;
  const usage start = thread_now();
  for (std::size_t n : {most, most - 15, most / 2, most / 4}) {
    escape(&n);
    met += ::operator new(n, std::nothrow) == nullptr ? 0 : 1;
    met += ::operator new[](n, std::align_val_t{64}, std::nothrow) == nullptr ? 0 : 1;
  }
  const usage end = thread_now();
  CHECK(met == 0);
  CHECK(hand_ledger{}.explains(start, end));
  CHECK(end.peak_bytes == start.peak_bytes);
}

namespace {

/// `count` threads that are alive at one time, each with a block or two.
void short_lives(std::size_t count) {
  std::vector<std::thread> threads;
  barrier all_alive(count);
  for (std::size_t i = 0; i < count; ++i) {
    threads.emplace_back([&, i] {
      const block b = allocate(i * 100, i % 8);
      all_alive.arrive_and_wait();
      free(b, true);
    });
  }
  for (std::thread& t : threads) t.join();
}

}  // namespace

TEST_CASE(
    "2,000 threads that come and go, together or one after the other, cost no more memory than the first "
    "100") {
  const usage start = process_now();
  short_lives(100);
  const usage after_first = process_now();
  const self_report first = self();
  for (int i = 0; i < 10; ++i) short_lives(100);
  const self_report together = self();
  for (int i = 0; i < 1'000; ++i) short_lives(1);
  const self_report in_turn = self();
  const usage end = process_now();
  CHECK(together.own_bytes == first.own_bytes);
  CHECK(in_turn.own_bytes == first.own_bytes);
  CHECK(in_turn.stamp_bytes == first.stamp_bytes);
  CHECK(after_first.live_bytes == start.live_bytes);
  CHECK(end.live_bytes == start.live_bytes);
  CHECK(end.live_blocks == start.live_blocks);
  if (has_hook()) CHECK(in_turn.events - first.events >= 2 * 2'000);
}

namespace {

std::atomic<int> made[4];

template <int Kind>
struct one_of_a_kind {
  static constexpr std::uint64_t key = 1 + Kind;

  one_of_a_kind() {
    ++made[Kind];
    for (int i = 0; i < 20; ++i) std::this_thread::yield();  // the others come to the lock meanwhile
  }
  void on_fork(tidemark::detail::fork_moment) noexcept {}
};

template <int Kind>
void race_for_one() {
  using kind = one_of_a_kind<Kind>;
  CHECK(tidemark::detail::find_registry<kind>() == nullptr);
  constexpr std::size_t threads = 8;
  kind* found[threads] = {};
  std::atomic<std::size_t> ready{0};
  std::vector<std::thread> racers;
  for (std::size_t t = 0; t < threads; ++t) {
    racers.emplace_back([&, t] {
      ++ready;
      while (ready != threads) std::this_thread::yield();
      found[t] = tidemark::detail::registry<kind>();
    });
  }
  for (std::thread& r : racers) r.join();
  CHECK(found[0] != nullptr);
  for (const kind* f : found) CHECK(f == found[0]);
  CHECK(made[Kind] == 1);
  CHECK(tidemark::detail::find_registry<kind>() == found[0]);
}

}  // namespace

TEST_CASE("eight threads that race for a registry get one object, made once, and each type has its own") {
  race_for_one<0>();
  race_for_one<1>();
  race_for_one<2>();
  const void* first = tidemark::detail::registry<one_of_a_kind<0>>();
  const void* second = tidemark::detail::registry<one_of_a_kind<1>>();
  CHECK(first != second);
}

TEST_CASE("a registry is no part of the heap that is measured") {
  const usage start = thread_now();
  const void* made_now = tidemark::detail::registry<one_of_a_kind<3>>();
  const usage end = thread_now();
  CHECK(made_now != nullptr);
  CHECK(end.allocations == start.allocations);
}
