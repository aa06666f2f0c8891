// SPDX-License-Identifier: MIT
#include <tidemark/hook/global_new.hpp>
#include <tidemark/scope/measure.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include <tidemark/core/sink.hpp>
#include <tidemark/scope/meter.hpp>
#include <tidemark/sink/ring.hpp>

#include "heap_block.hpp"
#include "test.hpp"

namespace meter = tidemark::meter;
using tidemark::measure;
using tidemark::monitored;
using tidemark::reading;
using tidemark::scope_record;
using tidemark::window_usage;

namespace {

struct recorder {
  std::shared_ptr<tidemark::ring_sink> ring = std::make_shared<tidemark::ring_sink>(100'000);
  tidemark::attachment attached = tidemark::attach(ring);
};

window_usage heap_of(const reading<window_usage>& r) {
  window_usage none;
  none.error_bound_bytes = -1;
  return r.value_or(none);
}

void take_and_give(std::size_t n) { const heap_block b(n); }

/// A result that can be neither copied nor moved.
struct pinned {
  explicit pinned(int v) : value(v) {}
  pinned(const pinned&) = delete;
  pinned& operator=(const pinned&) = delete;
  ~pinned() = default;
  int value;
};

/// A result that is an aggregate, whose members must not be taken for the measurement's.
struct aggregate {
  int first, second;
};

}  // namespace

// ---- measure ----

namespace {
struct model {
  int bias = 1;
  int forward(int n) const { return n + bias; }
};
}  // namespace

TEST_CASE("members are called as std::invoke calls them") {
  const model m;
  CHECK(tidemark::measure(&model::forward, m, 1).result == 2);
  CHECK(tidemark::measure(&model::bias, m).result == 1);
  CHECK(tidemark::monitored("forward", &model::forward)(m, 2) == 3);
}

TEST_CASE("measure says what a call without a result took") {
  const auto m = measure([] {
    const heap_block b(300);
    take_and_give(1'000);
  });
  const window_usage u = heap_of(m.usage);
  CHECK(u.peak_growth() == 1'300);
  CHECK(u.net_bytes() == 0);
  CHECK(u.allocations == 2);
  CHECK(u.deallocations == 2);
  CHECK(u.largest_bytes == 1'000);
  CHECK(u.error_bound_bytes == 0);
  CHECK(m.duration_ns >= 0);
}

TEST_CASE("a callable runs once, with its arguments forwarded") {
  int runs = 0;
  auto owned = std::make_unique<int>(7);
  const int* address = owned.get();
  std::string text = "kept";
  const auto m = measure(
      [&runs, address](std::unique_ptr<int> taken, std::string& changed, const std::string& read, int n) {
        ++runs;
        changed += '!';
        return std::make_pair(taken.get() == address, static_cast<int>(read.size()) + n);
      },
      std::move(owned), text, "four", 5);
  CHECK(runs == 1);
  CHECK(m.result.first);
  CHECK(m.result.second == 9);
  CHECK(text == "kept!");
  CHECK(owned == nullptr);
}

TEST_CASE("what a result holds counts as live at the exit") {
  const auto m = measure([] { return std::vector<char>(5'000); });
  CHECK(m.result.size() == 5'000);
  CHECK(heap_of(m.usage).net_bytes() == 5'000);
  CHECK(heap_of(m.usage).allocations == 1);
}

TEST_CASE("a result may be a value, a reference, only movable, or not movable at all") {
  int x = 3;
  auto by_reference = measure([&x]() -> int& { return x; });
  by_reference.result = 4;
  CHECK(x == 4);
  CHECK(&by_reference.result == &x);
  const auto by_const_reference = measure([&x]() -> const int& { return x; });
  CHECK(&by_const_reference.result == &x);
  auto by_rvalue = measure([&x]() -> int&& { return std::move(x); });
  CHECK(&by_rvalue.result == &x);
  auto only_movable = measure([] { return std::make_unique<int>(8); });
  const std::unique_ptr<int> taken = std::move(only_movable.result);
  CHECK(*taken == 8);
  const auto not_movable = measure([] { return pinned(9); });
  CHECK(not_movable.result.value == 9);
  const auto whole = measure([] { return aggregate{1, 2}; });
  CHECK(whole.result.first == 1);
  CHECK(whole.result.second == 2);
  CHECK(measure([] { return true; }).result);
}

TEST_CASE("measure calls functions, pointers, functors and rvalue-only callables as they are") {
  CHECK(heap_of(measure(take_and_give, std::size_t{50}).usage).allocated_bytes == 50);
  CHECK(heap_of(measure(&take_and_give, std::size_t{60}).usage).allocated_bytes == 60);
  const std::function<int(int)> twice = [](int n) { return 2 * n; };
  CHECK(measure(twice, 21).result == 42);
  struct once {
    int operator()() && { return 1; }
    int operator()() & { return 2; }
    int operator()() const& { return 3; }
  };
  once f;
  CHECK(measure(once{}).result == 1);
  CHECK(measure(f).result == 2);
  CHECK(measure(std::as_const(f)).result == 3);
}

TEST_CASE("measurements nest, and the outer one includes the inner") {
  std::int64_t inner_peak = 0;
  const auto outer = measure([&inner_peak] {
    const heap_block b(100);
    inner_peak = heap_of(measure(take_and_give, std::size_t{900}).usage).peak_growth();
  });
  CHECK(inner_peak == 900);
  CHECK(heap_of(outer.usage).peak_growth() == 1'000);
}

TEST_CASE("several meters read the same call, the first of them as usage") {
  const auto m = measure<meter::process_heap, meter::thread_heap>([] { return heap_block(70'000); });
  CHECK(m.result.size() == 70'000);
  static_assert(std::tuple_size_v<decltype(m.usages)> == 2);
  CHECK(heap_of(m.usage).net_bytes() == 70'000);
  CHECK(heap_of(m.usage).error_bound_bytes == 0);
  CHECK(heap_of(std::get<0>(m.usages)).net_bytes() == 70'000);
  CHECK(heap_of(std::get<1>(m.usages)).allocated_bytes == 70'000);
  CHECK(heap_of(measure<meter::process_heap>([] { take_and_give(10); }).usage).allocations == 1);
}

TEST_CASE("measure emits no record and opens no path") {
  const recorder records;
  std::string path;
  static_cast<void>(measure([&path] { path = tidemark::scope("inside").close().path; }));
  CHECK(path == "inside");
  CHECK(records.ring->scopes().size() == 1);
}

TEST_CASE("measure itself allocates nothing") {
  const tidemark::usage before = this_threads_usage();
  for (int i = 0; i < 100; ++i) {
    const auto m = measure([i] { return i; });
    tidemark::escape(&m);
  }
  CHECK(this_threads_usage().allocations == before.allocations);
}

#if TIDEMARK_HAS_EXCEPTIONS()
TEST_CASE("an exception passes through measure and leaves nothing open") {
  tidemark::scope outer("around");
  int caught = 0;
  for (int i = 0; i < 20; ++i) {
    try {
      static_cast<void>(measure<meter::thread_heap, meter::process_heap>([] {
        const heap_block b(500);
        throw 5;
      }));
    } catch (int n) {
      caught += n;
    }
  }
  const window_usage u = usage_in(outer.close());
  CHECK(caught == 100);
  CHECK(u.allocations == 20);
  CHECK(u.peak_growth() == 500);
  CHECK(u.net_bytes() == 0);
}
#endif

// ---- monitored ----

namespace {

/// Every way of being called gives another answer.
struct overloaded {
  int calls = 0;
  int operator()(int) { return ++calls; }
  int operator()(int) const { return -1; }
  std::string operator()(std::string_view text) const { return std::string(text); }
  int& operator()(int& x, char) const { return x; }
  int operator()(int&& x, char) const { return x + 1'000; }
};

int free_function(int n) { return n + 1; }

}  // namespace

TEST_CASE("each call of a monitored callable is one record, with its path, its place and its numbers") {
  const recorder records;
  const std::uint32_t line = __LINE__ + 1;
  auto train_epoch = monitored("train_epoch", [](std::size_t n) { return heap_block(n); });
  CHECK(records.ring->scopes().empty());
  const heap_block first = train_epoch(std::size_t{100});
  {
    const tidemark::scope outer("main");
    const heap_block second = train_epoch(std::size_t{200});
  }
  const std::vector<scope_record> all = records.ring->scopes();
  CHECK(all.size() == 3);
  CHECK(all.at(0).path == "train_epoch");
  CHECK(usage_in(all.at(0)).net_bytes() == 100);
  CHECK(all.at(0).where.line() == line);
  CHECK(std::string_view(all.at(0).where.file_name()) == __FILE__);
  CHECK(all.at(1).path == "main/train_epoch");
  CHECK(all.at(1).name == "train_epoch");
  CHECK(usage_in(all.at(1)).net_bytes() == 200);
}

TEST_CASE("a monitored callable behaves as what it wraps, const and mutable, by value and by reference") {
  auto m = monitored("overloads", overloaded{});
  const auto& c = m;
  int x = 5;
  CHECK(m(1) == 1);
  CHECK(m(1) == 2);
  CHECK(c(1) == -1);
  CHECK(m(std::string_view("text")) == "text");
  CHECK(&m(x, 'c') == &x);
  CHECK(m(7, 'c') == 1'007);
  static_assert(std::is_same_v<decltype(m(x, 'c')), int&>);
  static_assert(std::is_same_v<decltype(m(7, 'c')), int>);

  int counted = 0;
  auto counter = monitored("mutable", [counted]() mutable { return ++counted; });
  CHECK(counter() == 1);
  CHECK(counter() == 2);
  CHECK(counted == 0);
  using counter_type = decltype(counter);
  static_assert(std::is_invocable_v<counter_type&>);
  static_assert(!std::is_invocable_v<const counter_type&>);
  static_assert(!std::is_invocable_v<counter_type&, int>);
  static_assert(!std::is_invocable_v<decltype(m)&, std::nullptr_t*>);

  CHECK(monitored("function", free_function)(1) == 2);
  CHECK(monitored("pointer", &free_function)(2) == 3);
  const std::function<int(int)> erased = monitored("erased", free_function);
  CHECK(erased(3) == 4);
}

TEST_CASE("a monitored callable takes what only moves and gives back what cannot") {
  auto m = monitored("moves", [kept = std::make_unique<int>(4)](std::unique_ptr<int> given) {
    return std::make_unique<int>(*kept + *given);
  });
  CHECK(*m(std::make_unique<int>(3)) == 7);
  auto moved = std::move(m);
  CHECK(*moved(std::make_unique<int>(6)) == 10);
  const auto p = monitored("pinned", [](int n) { return pinned(n); });
  const pinned result = p(2);
  CHECK(result.value == 2);
  int hits = 0;
  const auto nothing = monitored("nothing", [&hits] { ++hits; });
  static_assert(std::is_void_v<decltype(nothing())>);
  nothing();
  CHECK(hits == 1);
}

TEST_CASE("a copy of a monitored callable has its own state and the same name") {
  const recorder records;
  auto m = monitored(std::string("a name that dies ") + "at once", overloaded{});
  CHECK(m(0) == 1);
  auto copy = m;
  CHECK(copy(0) == 2);
  CHECK(copy(0) == 3);
  CHECK(m(0) == 2);
  const auto all = records.ring->scopes();
  CHECK(all.size() == 4);
  for (const scope_record& r : all) CHECK(r.name == "a name that dies at once");
}

TEST_CASE("a monitored callable that calls itself is a path as deep") {
  const recorder records;
  std::function<int(int)> down;
  down = monitored("down", [&down](int n) { return n == 0 ? 0 : 1 + down(n - 1); });
  CHECK(down(3) == 3);
  const auto all = records.ring->scopes();
  CHECK(all.size() == 4);
  CHECK(all.at(0).path == "down/down/down/down");
  CHECK(all.at(0).depth == 3);
  CHECK(all.at(3).path == "down");
}

TEST_CASE("threads share a monitored callable and each call is measured on its own thread") {
  const recorder records;
  const auto work = monitored("work", [](std::size_t n) { take_and_give(n); });
  std::vector<std::thread> threads;
  for (std::size_t t = 1; t <= 4; ++t) {
    threads.emplace_back([&work, t] {
      for (int i = 0; i < 250; ++i) work(t * 1'000);
    });
  }
  for (std::thread& t : threads) t.join();
  const auto all = records.ring->scopes();
  CHECK(all.size() == 1'000);
  std::uint64_t bytes = 0;
  int wrong = 0;
  for (const scope_record& r : all) {
    const window_usage u = usage_in(r);
    bytes += u.allocated_bytes;
    wrong += u.allocations == 1 && u.peak_growth() == static_cast<std::int64_t>(u.allocated_bytes) &&
                     r.path == "work" && r.depth == 0
                 ? 0
                 : 1;
  }
  CHECK(wrong == 0);
  CHECK(bytes == 250 * (1'000 + 2'000 + 3'000 + 4'000));
}

TEST_CASE("other meters watch a monitored callable when they are named") {
  const recorder records;
  monitored<meter::process_heap, meter::thread_heap>("both", take_and_give)(std::size_t{123});
  const auto all = records.ring->scopes();
  CHECK(all.size() == 1);
  CHECK(all.at(0).meters.size() == 2);
  CHECK(all.at(0).meters.at(0).meter == "process_heap");
  CHECK(usage_in(all.at(0)).allocated_bytes == 123);
}

#if TIDEMARK_HAS_EXCEPTIONS()
TEST_CASE("an exception passes through a monitored callable and its record says so") {
  const recorder records;
  const auto fails = monitored("fails", [](int n) {
    if (n > 0) throw n;
    return n;
  });
  int caught = 0;
  try {
    fails(4);
  } catch (int n) {
    caught = n;
  }
  CHECK(caught == 4);
  CHECK(fails(0) == 0);
  const auto all = records.ring->scopes();
  CHECK(all.size() == 2);
  CHECK(all.at(0).left_by_exception);
  CHECK(!all.at(1).left_by_exception);
}
#endif
