// SPDX-License-Identifier: MIT
// What every adaptor that feeds a domain must do, whatever its interface. A test says how blocks are got through its adaptor:
//
//   struct my_adaptor {
//     static constexpr std::size_t unit = 1;        // sizes are multiples of it
//     static constexpr std::size_t alignment = 8;   // of each block
//     class blocks {
//      public:
//       blocks(const tidemark::domain& d, test_heap& below);
//       void* allocate(std::size_t units);
//       void deallocate(void* p, std::size_t units);
//     };
//   };
//   ADAPTOR_CONFORMS(my_adaptor);
//
// Every number is compared with what the heap below has counted, or with a model.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <tidemark/core/domain.hpp>

#include "barrier.hpp"
#include "dice.hpp"
#include "test.hpp"

/// What the heap throws: nothing that an adaptor could take for an error of its own.
struct heap_is_out {};

/// The heap below an adaptor: it counts by itself, and does what a test needs of it. Threads: any.
class test_heap {
 public:
  std::function<void()> on_allocate;    ///< called before the block is made
  std::function<void()> on_deallocate;  ///< called before it is given back
  std::function<bool()> must_fail;      ///< throws `heap_is_out` where it says so

  test_heap() = default;
  test_heap(const test_heap&) = delete;
  test_heap& operator=(const test_heap&) = delete;
  ~test_heap() {
    CHECK(is_sound());
    CHECK(live_blocks() == 0);
  }

  [[nodiscard]] void* allocate(std::size_t bytes, std::size_t alignment) {
    if (on_allocate) on_allocate();
    asked_.fetch_add(1);
#if TIDEMARK_HAS_EXCEPTIONS()
    if (must_fail && must_fail()) throw heap_is_out();
    if (bytes > (SIZE_MAX >> 8)) throw std::bad_alloc();  // a sanitizer's operator would end the program
#endif
    void* p = ::operator new (bytes, std::align_val_t{alignment});
    const std::lock_guard<std::mutex> held(mutex_);
    live_bytes_ += static_cast<std::int64_t>(bytes);
    blocks_[p] = {bytes, alignment};
    return p;
  }
  void deallocate(void* p, std::size_t bytes, std::size_t alignment) noexcept {
    if (on_deallocate) on_deallocate();
    {
      const std::lock_guard<std::mutex> held(mutex_);
      const auto known = blocks_.find(p);
      if (known == blocks_.end() || known->second.bytes != bytes || known->second.alignment != alignment) {
        is_sound_ = false;  // not as it was allocated
        return;
      }
      blocks_.erase(known);
      live_bytes_ -= static_cast<std::int64_t>(bytes);
    }
    ::operator delete (p, std::align_val_t{alignment});
  }

  [[nodiscard]] std::int64_t live_bytes() const {
    const std::lock_guard<std::mutex> held(mutex_);
    return live_bytes_;
  }
  [[nodiscard]] std::int64_t live_blocks() const {
    const std::lock_guard<std::mutex> held(mutex_);
    return static_cast<std::int64_t>(blocks_.size());
  }
  /// How often it was asked for a block.
  [[nodiscard]] std::uint64_t asked() const { return asked_.load(); }
  /// Whether each block came back with the size and the alignment that it was allocated with.
  [[nodiscard]] bool is_sound() const {
    const std::lock_guard<std::mutex> held(mutex_);
    return is_sound_;
  }

 private:
  struct block {
    std::size_t bytes;
    std::size_t alignment;
  };
  mutable std::mutex mutex_;
  std::map<void*, block> blocks_;
  std::int64_t live_bytes_ = 0;
  bool is_sound_ = true;
  std::atomic<std::uint64_t> asked_{0};
};

/// Whether the domain holds what the heap below has given out.
inline bool holds_what_is_live(const tidemark::domain& d, const test_heap& below) {
  const tidemark::usage u = d.current();
  return u.live_bytes == below.live_bytes() && u.live_blocks == below.live_blocks();
}

inline bool is_same_usage(const tidemark::usage& a, const tidemark::usage& b) {
  return a.live_bytes == b.live_bytes && a.peak_bytes == b.peak_bytes && a.live_blocks == b.live_blocks &&
         a.allocations == b.allocations && a.deallocations == b.deallocations &&
         a.allocated_bytes == b.allocated_bytes && a.freed_bytes == b.freed_bytes;
}

namespace conformance {

using tidemark::domain;
using tidemark::domain_options;
using tidemark::usage;

inline constexpr bool is_slow = TIDEMARK_HAS_TSAN();
inline constexpr std::size_t thread_count = 8;

template <class A>
constexpr std::int64_t bytes(std::size_t units) {
  return static_cast<std::int64_t>(units * A::unit);
}

template <class A>
domain limited(std::string name, std::size_t units, domain* parent = nullptr) {
  domain_options options;
  options.limit_bytes = bytes<A>(units);
  options.parent = parent;
  return domain(std::move(name), options);
}

/// Blocks got through an adaptor, given back at the end.
template <class A>
class holder {
 public:
  holder(const domain& d, test_heap& below) : blocks_(d, below) {}
  holder(const holder&) = delete;
  holder& operator=(const holder&) = delete;
  ~holder() {
    while (!is_empty()) free_last();
  }

  void take(std::size_t units) {
    held_.reserve(held_.size() + 1);
    void* p = blocks_.allocate(units);
    if (units > 0) std::memset(p, static_cast<int>(units & 0x7F), units * A::unit);
    held_.push_back({p, units});
  }
  [[nodiscard]] bool try_take(std::size_t units) {
#if TIDEMARK_HAS_EXCEPTIONS()
    try {
      take(units);
      return true;
    } catch (const tidemark::over_budget&) {
      return false;
    }
#else
    take(units);
    return true;
#endif
  }
  std::size_t free_last() {
    const auto [p, units] = held_.back();
    held_.pop_back();
    blocks_.deallocate(p, units);
    return units;
  }
  std::size_t free_any(dice& d) {
    std::swap(held_[d.below(held_.size())], held_.back());
    return free_last();
  }
  [[nodiscard]] bool is_empty() const { return held_.empty(); }
  [[nodiscard]] void* last() const { return held_.back().first; }
  [[nodiscard]] std::size_t last_units() const { return held_.back().second; }

 private:
  typename A::blocks blocks_;
  std::vector<std::pair<void*, std::size_t>> held_;
};

template <class F>
void in_threads(F f) {
  barrier start(thread_count);
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < thread_count; ++i) {
    threads.emplace_back([&, i] {
      start.arrive_and_wait();
      f(i);
    });
  }
  for (std::thread& t : threads) t.join();
}

}  // namespace conformance

TEST_CASE_TEMPLATE_DEFINE("an adaptor counts every block, with its size, in its domain and around it", A,
                          counts_blocks) {
  using namespace conformance;
  for (std::uint64_t trace = 0; trace < 100; ++trace) {
    CAPTURE(trace);
    dice d(trace);
    test_heap below;
    domain outer("outer");
    const domain inner("inner", domain_options{trace % 2 == 0 ? -1 : INT64_MAX, &outer, false});
    {
      holder<A> blocks(inner, below);
      std::int64_t live = 0;
      std::int64_t peak = 0;
      std::uint64_t allocations = 0;
      std::uint64_t deallocations = 0;
      outer.allocated(7);  // beside what is inside it
      for (int i = 0; i < 200; ++i) {
        if (blocks.is_empty() || d.below(100) < 55) {
          const std::size_t units = d.below(30);  // 0 is a size too
          blocks.take(units);
          live += bytes<A>(units);
          ++allocations;
        } else {
          live -= bytes<A>(blocks.free_any(d));
          ++deallocations;
        }
        peak = std::max(peak, live);
        const usage u = inner.current();
        CHECK(u.live_bytes == live);
        CHECK(u.peak_bytes == peak);
        CHECK(u.allocations == allocations);
        CHECK(u.deallocations == deallocations);
        CHECK(static_cast<std::int64_t>(u.allocated_bytes - u.freed_bytes) == live);
        CHECK(holds_what_is_live(inner, below));
        CHECK(outer.current().live_bytes == live + 7);
        CHECK(outer.current().peak_bytes == peak + 7);
      }
    }
    CHECK(inner.current().live_bytes == 0);
    CHECK(inner.current().live_blocks == 0);
    outer.freed(7);
  }
}

TEST_CASE_TEMPLATE_DEFINE("an adaptor's blocks are aligned, whatever their size", A, aligns) {
  using namespace conformance;
  test_heap below;
  const domain d("aligned");
  holder<A> blocks(d, below);
  for (std::size_t units = 0; units < 50; ++units) {
    blocks.take(units);
    CHECK(reinterpret_cast<std::uintptr_t>(blocks.last()) % A::alignment == 0);
  }
}

TEST_CASE_TEMPLATE_DEFINE("an adaptor counts after it has allocated and before it frees", A, orders_events) {
  using namespace conformance;
  for (const std::int64_t limit : {std::int64_t{-1}, bytes<A>(100)}) {
    CAPTURE(limit);
    test_heap below;
    domain d("ordered", domain_options{limit, nullptr, false});
    holder<A> blocks(d, below);
    blocks.take(10);
    usage at_allocation;
    usage at_free;
    bool is_room_given_away = false;
    below.on_allocate = [&] {
      at_allocation = d.current();
      if (limit >= 0) is_room_given_away = d.try_allocated(limit - bytes<A>(10 + 20) + 1);
    };
    below.on_deallocate = [&] { at_free = d.current(); };
    blocks.take(20);
    CHECK(at_allocation.live_bytes == bytes<A>(10));
    CHECK(at_allocation.peak_bytes == bytes<A>(10));
    CHECK(at_allocation.live_blocks == 1);
    CHECK(!is_room_given_away);
    CHECK(d.current().live_bytes == bytes<A>(30));
    CHECK(blocks.free_last() == 20);
    CHECK(at_free.live_bytes == bytes<A>(10));
    CHECK(at_free.live_blocks == 1);
    below.on_allocate = below.on_deallocate = nullptr;
  }
}

TEST_CASE_TEMPLATE_DEFINE("an adaptor's blocks may outlive every handle of their domain", A, outlives_handle) {
  using namespace conformance;
  test_heap below;
  auto d = std::make_unique<domain>("outlived", domain_options{-1, nullptr, false});
  tidemark::detail::domain_node& node = d->node();
  {
    holder<A> blocks(*d, below);
    blocks.take(5);
    d.reset();
    blocks.take(6);
    CHECK(node.current().live_bytes == bytes<A>(11));
    const auto all = tidemark::domains();
    CHECK(std::any_of(all.begin(), all.end(), [&](const domain& one) { return &one.node() == &node; }));
  }
  CHECK(node.current().live_bytes == 0);
  const auto all = tidemark::domains();
  CHECK(std::none_of(all.begin(), all.end(), [&](const domain& one) { return &one.node() == &node; }));
}

TEST_CASE_TEMPLATE_DEFINE("an adaptor tells who listens that its domain, or one around it, is near its limit", A,
                          tells_near) {
  using namespace conformance;
  test_heap below;
  domain outer = limited<A>("near outer", 100);
  domain inner("near inner", domain_options{-1, &outer, false});
  holder<A> blocks(inner, below);
  std::vector<std::int64_t> told;
  outer.on_near_limit(0.5, [&](const tidemark::near_limit& n) { told.push_back(n.live_bytes); });
  blocks.take(49);
  CHECK(told.empty());
  blocks.take(1);
  blocks.take(10);
  CHECK(told == std::vector<std::int64_t>{bytes<A>(50)});
  blocks.free_last();
  blocks.free_last();
  blocks.take(51);
  CHECK(told == std::vector<std::int64_t>{bytes<A>(50), bytes<A>(100)});
}

TEST_CASE_TEMPLATE_DEFINE("an adaptor fed by 8 threads in turn knows its peak exactly", A, peaks_exactly) {
  using namespace conformance;
  test_heap below;
  domain outer("turns outer");
  const domain limited_inner = limited<A>("turns limited", 1'000'000, &outer);
  const domain inner("turns", domain_options{-1, &outer, false});
  std::mutex turns;
  std::int64_t live = 0;
  std::int64_t peak = 0;
  bool is_exact = true;
  in_threads([&](std::size_t self) {
    dice d(self);
    holder<A> blocks(self % 2 == 0 ? inner : limited_inner, below);
    for (int i = 0; i < (is_slow ? 200 : 3'000); ++i) {
      const std::lock_guard<std::mutex> turn(turns);
      if (blocks.is_empty() || d.below(100) < 52) {
        const std::size_t units = d.below(200);
        blocks.take(units);
        live += bytes<A>(units);
        peak = std::max(peak, live);
      } else {
        live -= bytes<A>(blocks.free_any(d));
      }
      const usage u = outer.current();
      is_exact = is_exact && u.live_bytes == live && u.peak_bytes == peak && holds_what_is_live(outer, below);
    }
    const std::lock_guard<std::mutex> turn(turns);
    while (!blocks.is_empty()) live -= bytes<A>(blocks.free_last());
  });
  CHECK(is_exact);
  CHECK(live == 0);
  CHECK(outer.current().live_bytes == 0);
  CHECK(outer.current().peak_bytes == peak);
}

TEST_CASE_TEMPLATE_DEFINE("an adaptor fed by 8 threads at a time loses nothing", A, loses_nothing) {
  using namespace conformance;
  test_heap below;
  const domain d("at a time");
  std::atomic<std::int64_t> most_seen{0};
  std::atomic<std::uint64_t> allocations{0};
  std::atomic<std::int64_t> sum_of_peaks{0};
  in_threads([&](std::size_t self) {
    dice dice_of(self);
    holder<A> blocks(d, below);
    std::int64_t live = 0;
    std::int64_t peak = 0;
    for (int i = 0; i < (is_slow ? 200 : 3'000); ++i) {
      if (blocks.is_empty() || dice_of.below(2) == 0) {
        const std::size_t units = dice_of.below(200);
        blocks.take(units);
        live += bytes<A>(units);
        peak = std::max(peak, live);
        allocations.fetch_add(1);
      } else {
        live -= bytes<A>(blocks.free_any(dice_of));
      }
      const std::int64_t now = d.current().live_bytes;
      std::int64_t most = most_seen.load();
      while (now > most && !most_seen.compare_exchange_weak(most, now)) {
      }
    }
    sum_of_peaks.fetch_add(peak);
  });
  const usage u = d.current();
  CHECK(u.live_bytes == 0);
  CHECK(u.allocations == allocations.load());
  CHECK(u.deallocations == allocations.load());
  CHECK(u.peak_bytes >= most_seen.load());
  CHECK(u.peak_bytes <= sum_of_peaks.load());
}

#if TIDEMARK_HAS_EXCEPTIONS()

TEST_CASE_TEMPLATE_DEFINE("an adaptor allows exactly the limit, and what it refuses never reaches the heap below", A,
                          keeps_limit) {
  using namespace conformance;
  test_heap below;
  domain outer = limited<A>("limit outer", 60);
  const domain inner = limited<A>("limit inner", 50, &outer);
  holder<A> blocks(inner, below);
  CHECK(!blocks.try_take(51));
  CHECK(blocks.try_take(30));
  CHECK(!blocks.try_take(21));
  CHECK(blocks.try_take(20));
  const usage full = inner.current();
  const usage outer_full = outer.current();
  const std::uint64_t asked = below.asked();
  CHECK(!blocks.try_take(1));
  CHECK_THROWS_AS(blocks.take(1), std::bad_alloc);
  CHECK(below.asked() == asked);
  CHECK(is_same_usage(inner.current(), full));
  CHECK(is_same_usage(outer.current(), outer_full));
  CHECK(blocks.try_take(0));
  CHECK(blocks.free_last() == 0);
  CHECK(blocks.free_last() == 20);
  CHECK(blocks.try_take(20));
  CHECK(blocks.free_last() == 20);
  outer.allocated(bytes<A>(30));
  try {
    blocks.take(1);
    CHECK(false);
  } catch (const tidemark::over_budget& e) {
    CHECK(e.limit_bytes() == bytes<A>(60));
    CHECK(e.live_bytes() == bytes<A>(60));
    CHECK(e.requested_bytes() == bytes<A>(1));
    CHECK(std::string(e.what()).find("\"limit outer\"") != std::string::npos);
  }
  CHECK(inner.current().live_bytes == bytes<A>(30));
}

TEST_CASE_TEMPLATE_DEFINE("an adaptor counts nothing of what the heap below refuses, and passes its exception on", A,
                          rolls_back) {
  using namespace conformance;
  for (const std::int64_t limit : {std::int64_t{-1}, bytes<A>(100)}) {
    CAPTURE(limit);
    test_heap below;
    const domain outer("rolled back outer", domain_options{limit, nullptr, false});
    domain parent = outer;
    const domain inner("rolled back", domain_options{-1, &parent, false});
    holder<A> blocks(inner, below);
    blocks.take(40);
    const usage before = inner.current();
    const usage outer_before = outer.current();
    below.must_fail = [] { return true; };
    const int failures = is_slow ? 2'000 : limit < 0 ? 5'000 : 40'000;
    int refused = 0;
    for (int i = 0; i < failures; ++i) {
      try {
        blocks.take(static_cast<std::size_t>(i % 61));
      } catch (const heap_is_out&) {
        ++refused;
      }
    }
    CHECK(refused == failures);
    CHECK(is_same_usage(inner.current(), before));
    CHECK(is_same_usage(outer.current(), outer_before));
    below.must_fail = nullptr;
    CHECK(blocks.try_take(60));
    CHECK(blocks.try_take(1) == (limit < 0));
  }
}

TEST_CASE_TEMPLATE_DEFINE("8 threads over one limit and a heap that often fails: never above it, and no room is lost",
                          A, races) {
  using namespace conformance;
  constexpr std::size_t limit = 1'009;
  test_heap below;
  domain outer = limited<A>("raced outer", limit);
  const domain left("raced left", domain_options{-1, &outer, false});
  const domain right = limited<A>("raced right", limit, &outer);
  std::atomic<std::int64_t> held{0};  // no more than what the domain holds at the same moment
  std::atomic<bool> is_exceeded{false};
  std::atomic<std::uint64_t> turn{0};
  std::atomic<bool> is_failing{true};
  below.must_fail = [&] { return is_failing.load() && turn.fetch_add(1) % 3 == 0; };
  std::vector<std::unique_ptr<holder<A>>> holders;
  for (std::size_t i = 0; i < thread_count; ++i) {
    holders.push_back(std::make_unique<holder<A>>(i % 2 == 0 ? left : right, below));
  }
  in_threads([&](std::size_t self) {
    dice d(self);
    holder<A>& blocks = *holders[self];
    for (int i = 0; i < (is_slow ? 200 : 3'000); ++i) {
      const std::size_t units = 1 + d.below(97);
      try {
        if (blocks.try_take(units)) {
          if (held.fetch_add(bytes<A>(units)) + bytes<A>(units) > bytes<A>(limit)) is_exceeded.store(true);
        } else {
          for (std::uint64_t back = d.below(4); back > 0 && !blocks.is_empty(); --back) {
            held.fetch_sub(bytes<A>(blocks.last_units()));
            blocks.free_last();
          }
        }
      } catch (const heap_is_out&) {
      }
      if (outer.current().live_bytes > bytes<A>(limit)) is_exceeded.store(true);
    }
  });
  CHECK(!is_exceeded.load());
  CHECK(holds_what_is_live(outer, below));
  is_failing.store(false);
  in_threads([&](std::size_t self) {
    while (outer.current().live_bytes <= bytes<A>(limit) && holders[self]->try_take(1)) {
    }
  });
  CHECK(outer.current().live_bytes == bytes<A>(limit));
  CHECK(outer.current().peak_bytes == bytes<A>(limit));
  CHECK(holds_what_is_live(outer, below));
  holders.clear();
  CHECK(outer.current().live_bytes == 0);
  CHECK(left.current().live_blocks == 0);
  CHECK(right.current().live_blocks == 0);
}

TEST_CASE_TEMPLATE_DEFINE("an adaptor answers a request that no heap can serve with bad_alloc, and counts nothing", A,
                          refuses_huge) {
  using namespace conformance;
  for (const std::int64_t limit : {std::int64_t{-1}, INT64_MAX}) {
    CAPTURE(limit);
    test_heap below;
    const domain d("huge", domain_options{limit, nullptr, false});
    typename A::blocks blocks(d, below);
    constexpr std::size_t most = (std::numeric_limits<std::size_t>::max)();
    for (const std::size_t bytes_asked : {most, most - A::unit, most / 2 + 1, most / 2 - 4 * A::unit, most / 4 * 3}) {
      CAPTURE(bytes_asked);
      for (const std::size_t units : {bytes_asked / A::unit, bytes_asked}) {
        CHECK_THROWS_AS(static_cast<void>(blocks.allocate(units)), std::bad_alloc);
        CHECK(is_same_usage(d.current(), usage{}));
        CHECK(holds_what_is_live(d, below));
      }
    }
    void* p = blocks.allocate(1);
    CHECK(d.current().live_bytes == bytes<A>(1));
    blocks.deallocate(p, 1);
  }
}

  #define ADAPTOR_CONFORMS_WITH_EXCEPTIONS(A)  \
    TEST_CASE_TEMPLATE_INVOKE(keeps_limit, A); \
    TEST_CASE_TEMPLATE_INVOKE(rolls_back, A);  \
    TEST_CASE_TEMPLATE_INVOKE(races, A);       \
    TEST_CASE_TEMPLATE_INVOKE(refuses_huge, A)
#else
  #define ADAPTOR_CONFORMS_WITH_EXCEPTIONS(A) static_assert(A::unit > 0)
#endif

/// The whole suite, for one adaptor. A macro: doctest registers by macros.
#define ADAPTOR_CONFORMS(A)                      \
  TEST_CASE_TEMPLATE_INVOKE(counts_blocks, A);   \
  TEST_CASE_TEMPLATE_INVOKE(aligns, A);          \
  TEST_CASE_TEMPLATE_INVOKE(orders_events, A);   \
  TEST_CASE_TEMPLATE_INVOKE(outlives_handle, A); \
  TEST_CASE_TEMPLATE_INVOKE(tells_near, A);      \
  TEST_CASE_TEMPLATE_INVOKE(peaks_exactly, A);   \
  TEST_CASE_TEMPLATE_INVOKE(loses_nothing, A);   \
  ADAPTOR_CONFORMS_WITH_EXCEPTIONS(A)
