// SPDX-License-Identifier: MIT
#include <tidemark/hook/global_new.hpp>
#include <tidemark/testing/expect.hpp>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <tidemark/alloc/allocator.hpp>
#include <tidemark/alloc/resource.hpp>
#include <tidemark/scope/task.hpp>
#include <tidemark/sys/process.hpp>

#include "test.hpp"

#include "barrier.hpp"

namespace t = tidemark::testing;
using namespace tidemark::literals;
using tidemark::escape;

namespace {

/// Allocates and frees blocks of these sizes, all live at once, in this order; itself it allocates nothing.
template <std::size_t N>
void take(const std::size_t (&sizes)[N]) {
  void* blocks[N] = {};
  for (std::size_t i = 0; i < N; ++i) escape(blocks[i] = ::operator new(sizes[i]));
  for (void* b : blocks) ::operator delete(b);
}
void take_one(std::size_t n) {
  const std::size_t sizes[] = {n};
  take(sizes);
}

/// What this check itself leaves in the numbers of the thread around it: nothing.
template <class Check>
bool counts_nothing_itself(Check check) {
  const tidemark::usage before = *tidemark::thread_usage();
  check();
  const tidemark::usage after = *tidemark::thread_usage();
  return after.allocations == before.allocations && after.deallocations == before.deallocations &&
         after.live_bytes == before.live_bytes && after.peak_bytes == before.peak_bytes;
}

/// A thread that does what it is told, one thing at a time. Telling it allocates nothing on either side, and neither does waiting: a
/// hook that sees malloc would count the making of a thread.
class helper {
 public:
  helper() : thread_([this] { run(); }) {}
  ~helper() {
    job_ = nullptr;
    start_.arrive_and_wait();
    thread_.join();
  }
  template <class F>
  void run_there(F& f) {
    what_ = &f;
    job_ = [](void* p) { (*static_cast<F*>(p))(); };
    start_.arrive_and_wait();
    end_.arrive_and_wait();
  }

 private:
  void run() {
    for (;;) {
      start_.arrive_and_wait();
      if (job_ == nullptr) return;
      job_(what_);
      end_.arrive_and_wait();
    }
  }

  barrier start_{2};
  barrier end_{2};
  void* what_ = nullptr;
  void (*job_)(void*) = nullptr;
  std::thread thread_;  // last: it uses the others
};

/// Adds pages of its own to whatever is measured.
constexpr bool has_room_of_its_own = TIDEMARK_HAS_SANITIZER_ALLOCATOR();

bool says(const t::verdict& v, const std::string& text) { return v.message.find(text) != std::string::npos; }

}  // namespace

TEST_CASE("each check holds at its limit and fails one below") {
  const auto f = [] { take({1'000, 300, 24}); };
  CHECK(t::peak_at_most(1'324, f));
  CHECK_FALSE(t::peak_at_most(1'323, f));
  CHECK(t::allocations_exactly(3, f));
  CHECK_FALSE(t::allocations_exactly(2, f));
  CHECK_FALSE(t::allocations_exactly(4, f));
  CHECK(t::allocations_at_most(3, f));
  CHECK(t::allocations_at_most(4, f));
  CHECK_FALSE(t::allocations_at_most(2, f));
  CHECK(t::allocated_bytes_at_most(1'324, f));
  CHECK_FALSE(t::allocated_bytes_at_most(1'323, f));
  CHECK_FALSE(t::no_allocations(f));
  CHECK(t::no_allocations([] {}));
  CHECK(t::allocations_exactly(0, [] {}));
  CHECK(t::peak_at_most(0, [] {}));
  CHECK(t::no_leak(f));
}

TEST_CASE("the peak is above the entry, and what was live before does not matter") {
  void* before = ::operator new(100'000);
  CHECK(t::peak_at_most(50, [] { take_one(50); }));
  // Freeing first makes room below the entry.
  const auto swap_for = [&](std::size_t n) {
    return [&before, n] {
      ::operator delete(before);
      escape(before = ::operator new(n));
    };
  };
  CHECK(t::peak_at_most(10, swap_for(100'010)));
  CHECK_FALSE(t::peak_at_most(10, swap_for(100'021)));
  ::operator delete(before);
}

TEST_CASE("a verdict has the figures of the window") {
  void* kept = nullptr;
  const t::verdict v = t::peak_at_most(10, [&] {
    escape(kept = ::operator new(700));
    take({2'000, 60});
  });
  ::operator delete(kept);
  CHECK_FALSE(v.ok);
  CHECK_FALSE(static_cast<bool>(v));
  CHECK(v.usage.peak_growth() == 2'760);
  CHECK(v.usage.net_bytes() == 700);
  CHECK(v.usage.allocations == 3);
  CHECK(v.usage.deallocations == 2);
  CHECK(v.usage.allocated_bytes == 2'760);
  CHECK(v.usage.freed_bytes == 2'060);
  CHECK(v.usage.largest_bytes == 2'000);
  CHECK(v.usage.error_bound_bytes == 0);
}

TEST_CASE("a message names the line, what was expected and measured, entry, peak, exit and the largest allocation") {
  const auto f = [] { take({70'000, 3'000}); };
  const std::uint32_t line = __LINE__ + 1;
  const t::verdict v = t::peak_at_most(64_KiB, f);
  const std::string entry = std::to_string(v.usage.entry_bytes);
  CAPTURE(v.message);
  CHECK(v.message.find("expect_test.cpp:" + std::to_string(line) + ": the peak is too high\n") != std::string::npos);
  CHECK(says(v, "\n  expected    a peak of at most 64.0 KiB (65,536 bytes) above the entry\n"));
  CHECK(says(v, "\n  measured    71.3 KiB (73,000 bytes) above the entry, 7.3 KiB (7,464 bytes) too much\n"));
  CHECK(says(v, "\n  entry       "));
  CHECK(says(v, "\n  peak        "));
  CHECK(says(v, ", 71.3 KiB (73,000 bytes) above the entry\n"));
  CHECK(says(v, "\n  exit        "));
  CHECK(says(v, "\n  largest     68.4 KiB (70,000 bytes) in one allocation, the largest\n"));
  CHECK(says(v, "\n  counted     2 allocations, 71.3 KiB (73,000 bytes); 2 deallocations, 71.3 KiB (73,000 bytes)\n"));
  CHECK(says(v, "this thread"));
}

TEST_CASE("singular and plural, and sizes below a kibibyte, are said as people say them") {
  CHECK(says(t::no_allocations([] { take_one(1); }), "measured    1 allocation, 1 byte together"));
  CHECK(says(t::allocations_at_most(1, [] { take({1, 1}); }), "expected    at most 1 allocation\n"));
  std::vector<void*> kept;
  kept.reserve(2);
  CHECK(says(t::no_leak([&] { escape(kept.emplace_back(::operator new(8))); }),
             "measured    1 block and 8 bytes more than before"));
  for (void* p : kept) ::operator delete(p);
}

TEST_CASE("the callable runs once, and twice where it must be warm") {
  int runs = 0;
  const auto f = [&] { ++runs; };
  const auto runs_of = [&](auto check) {
    runs = 0;
    static_cast<void>(check());
    return runs;
  };
  CHECK(runs_of([&] { return t::peak_at_most(0, f); }) == 1);
  CHECK(runs_of([&] { return t::no_allocations(f); }) == 1);
  CHECK(runs_of([&] { return t::allocations_exactly(0, f); }) == 1);
  CHECK(runs_of([&] { return t::allocations_at_most(0, f); }) == 1);
  CHECK(runs_of([&] { return t::allocated_bytes_at_most(0, f); }) == 1);
  CHECK(runs_of([&] { return t::resident_growth_at_most(1_GiB, f); }) == 1);
  CHECK(runs_of([&] { return t::no_leak(f); }) == 2);
}

TEST_CASE("what the callable returns is dropped before the exit") {
  const auto f = [] { return std::vector<char>(500); };
  CHECK(t::no_leak(f));
  const t::verdict v = t::peak_at_most(500, f);
  CHECK(v.ok);
  CHECK(v.usage.net_bytes() == 0);
}

TEST_CASE("a callable that only moves, or is called through a reference, is taken as it is") {
  struct once {
    std::vector<int> held = std::vector<int>(3);
    once() = default;
    once(once&&) = default;
    once(const once&) = delete;
    void operator()() { held.assign(3, 1); }
  };
  CHECK(t::no_allocations(once()));
  once kept;
  CHECK(t::no_allocations(kept));
  CHECK(kept.held[0] == 1);
}

// ---- leaks ----

TEST_CASE("what is made at the first run only is no leak, what is made at each is") {
  std::vector<char> cache;
  CHECK(t::no_leak([&] {
    if (cache.empty()) cache.assign(1'000, 'x');
    take_one(100);
  }));
  std::vector<void*> kept;
  kept.reserve(10);
  const t::verdict v = t::no_leak([&] { escape(kept.emplace_back(::operator new(8))); });
  CHECK_FALSE(v.ok);
  CHECK(v.usage.net_bytes() == 8);
  for (void* p : kept) ::operator delete(p);
}

TEST_CASE("one block for another of the same size is no leak; blocks or bytes alone are") {
  void* held = ::operator new(64);
  CHECK(t::no_leak([&] {
    ::operator delete(held);
    escape(held = ::operator new(64));
  }));
  // The same bytes in more blocks.
  void* parts[2] = {};
  int run = 0;
  const t::verdict more = t::no_leak([&] {
    if (run++ == 0) return;
    ::operator delete(held);
    held = nullptr;
    escape(parts[0] = ::operator new(32));
    escape(parts[1] = ::operator new(32));
  });
  CHECK_FALSE(more.ok);
  CHECK(says(more, "1 block and 0 bytes more than before"));
  for (void* p : parts) ::operator delete(p);
}

TEST_CASE("a run that frees more than it allocates could hide a leak, and is told") {
  void* older[2] = {::operator new(100), ::operator new(100)};
  int run = 0;
  const t::verdict v = t::no_leak([&] { ::operator delete(older[run++]); });
  CHECK_FALSE(v.ok);
  CHECK(says(v, "frees more than it allocates"));
  CHECK(says(v, "-1 block and -100 bytes"));
}

// ---- threads ----

TEST_CASE("another thread's allocations never fail a check of this thread, and one of the process sees them") {
  helper other;
  auto work = [] { take({5'000, 5'000}); };
  const auto f = [&] { other.run_there(work); };
  CHECK(t::no_allocations(f));
  CHECK(t::peak_at_most(0, f, t::extent::thread));
  const t::verdict v = t::no_allocations(f, t::extent::process);
  CHECK_FALSE(v.ok);
  CHECK(v.usage.allocations == 2);
  CHECK(v.usage.allocated_bytes == 10'000);
  CHECK(says(v, "the whole process"));
  CHECK(t::allocations_exactly(2, f, t::extent::process));
  CHECK_FALSE(t::allocated_bytes_at_most(9'999, f, t::extent::process));
  CHECK(t::no_leak(f, t::extent::process));
}

TEST_CASE("a check of a task sees those that joined, and nobody else") {
  tidemark::task_scope task("task");
  helper member;
  helper stranger;
  std::optional<tidemark::join_task> joined;
  auto join = [&] { joined.emplace(task.token()); };
  member.run_there(join);
  auto small = [] { take_one(3'000); };
  auto large = [] { take_one(1'000'000); };
  const auto f = [&] {
    member.run_there(small);
    stranger.run_there(large);
  };
  const tidemark::task_token token = task.token();
  CHECK(t::allocations_exactly(1, f, token));
  CHECK(t::allocated_bytes_at_most(3'000, f, token));
  CHECK_FALSE(t::allocated_bytes_at_most(2'999, f, token));
  CHECK(t::no_leak(f, token));
  CHECK(t::no_allocations(f));
  CHECK(says(t::no_allocations(f, token), "the threads of the task"));
  auto leave = [&] { joined.reset(); };
  member.run_there(leave);
}

TEST_CASE("a check of a task that is over, or of none, fails and says so") {
  tidemark::task_token token;
  CHECK_FALSE(t::no_allocations([] {}, token));
  {
    tidemark::task_scope task("over");
    token = task.token();
    CHECK(t::no_allocations([] {}, token));
    const t::verdict v = t::peak_at_most(
        100, [&] { static_cast<void>(task.close()); }, token);
    CHECK_FALSE(v.ok);
    CHECK(says(v, "the task is over"));
    CHECK_FALSE(v.usage.counts_events);
  }
  CHECK_FALSE(t::peak_at_most(
      100, [] {}, token));
}

TEST_CASE("a peak of several threads holds only where it must be low enough") {
  // More than one thread has been counted by now, so that the process's figures carry a bound.
  helper other;
  auto work = [] { take_one(1'000'000); };
  const auto f = [&] { other.run_there(work); };
  const t::verdict far = t::peak_at_most(100_MiB, f, t::extent::process);
  CHECK(far.ok);
  REQUIRE(far.usage.error_bound_bytes > 0);
  const t::verdict near = t::peak_at_most(1'000'100, f, t::extent::process);
  CHECK_FALSE(near.ok);
  CHECK(says(near, "the peak may be too high"));
  CHECK(says(near, "TIDEMARK_OPT_SETTLE_BYTES=0"));
  CHECK(t::peak_at_most(1'000'000 + 2 * far.usage.error_bound_bytes + 70'000, f, t::extent::process));
}

// ---- domains, which need no hook ----

TEST_CASE("a check of a domain sees what is fed to it, from whatever thread") {
  const tidemark::domain weights("weights");
  tidemark::domain other("other");
  const auto f = [&] {
    std::vector<float, tidemark::allocator<float>> v(250, 0.0F, weights);
    escape(v.data());
    std::vector<float, tidemark::allocator<float>> w(9'000, 0.0F, other);
    escape(w.data());
  };
  CHECK(t::peak_at_most(1'000, f, weights));
  CHECK_FALSE(t::peak_at_most(999, f, weights));
  CHECK(t::allocations_exactly(1, f, weights));
  CHECK(t::no_leak(f, weights));
  CHECK(says(t::no_allocations(f, weights), "domain 'weights'"));
  CHECK_FALSE(t::no_leak([&] { other.allocated(8); }, other));
}

TEST_CASE("checks nest, and count nothing of their own") {
  CHECK(counts_nothing_itself([] {
    REQUIRE(t::no_allocations([] {
      static_cast<void>(t::no_allocations([] {}).ok);
      static_cast<void>(t::peak_at_most(0, [] {}).ok);
      static_cast<void>(t::no_growth([] {}, {10, 1, 0}).ok);
      static_cast<void>(t::no_allocations([] {}, t::extent::process).ok);
      static_cast<void>(t::resident_growth_at_most(1_GiB, [] {}).ok);
    }));
  }));
  const t::verdict outer = t::allocations_exactly(2, [] {
    const t::verdict inner = t::no_allocations([] { take_one(5); });  // fails, with a message
    if (inner.ok) std::abort();
    take_one(7);
  });
  CHECK(outer.ok);
}

TEST_CASE("a check inside quiet fails, since it would see nothing") {
  const tidemark::quiet hidden;
  const t::verdict v = t::no_allocations([] { take_one(10); });
  CHECK_FALSE(v.ok);
  CHECK(says(v, "tidemark::quiet is open on this thread"));
}

TEST_CASE("a body that leaves a quiet open hides what comes after, and is not passed") {
  const auto leaves_hidden = [](auto check) {
    std::optional<tidemark::quiet> left;
    const t::verdict v = check([&] {
      take_one(8);
      if (!left) left.emplace();
    });
    left.reset();
    return !v.ok && says(v, "tidemark::quiet is open on this thread");
  };
  CHECK(leaves_hidden([](auto f) { return t::no_leak(f); }));
  CHECK(leaves_hidden([](auto f) { return t::no_growth(f); }));
  CHECK(leaves_hidden([](auto f) { return t::peak_at_most(1'000, f); }));
  if (tidemark::hook_state() == tidemark::hook_kind::sanitizer) return;  // nothing can be refused there, and that is said first
  CHECK(leaves_hidden([](auto f) -> t::verdict { return t::for_each_allocation_failure(f); }));
}

TEST_CASE("what is allocated in quiet within a check is not counted") {
  CHECK(t::no_allocations([] {
    const tidemark::quiet hidden;
    take_one(1'000);
  }));
}

// ---- the resident set ----

TEST_CASE("touched pages are resident growth, and untouched ones are not") {
  const auto touch = [](std::size_t bytes) {
    std::vector<char> pages(bytes);  // filled with zeros: touched
    escape(pages.data());
  };
  const auto f = [&] { touch(48 << 20); };
  CHECK_FALSE(t::resident_growth_at_most(24_MiB, f));
  if (!has_room_of_its_own) {
    CHECK(t::resident_growth_at_most(100_MiB, f));
    CHECK(t::resident_growth_at_most(24_MiB, [] { take_one(std::size_t{200} << 20); }));
  }
  const t::verdict v = t::resident_growth_at_most(0, f);
  CHECK(says(v, "the resident set of the whole process"));
  CHECK_FALSE(v.usage.counts_events);
  CHECK_FALSE(says(v, "largest"));
}

// ---- bad input, and exceptions ----

#if TIDEMARK_HAS_EXCEPTIONS()
TEST_CASE("a negative limit is an error that names the check and the value, and the callable does not run") {
  int runs = 0;
  const auto f = [&] { ++runs; };
  const auto refuses = [&](auto check, const std::string& name) {
    try {
      check();
    } catch (const std::invalid_argument& e) {
      return std::string(e.what()).find(name + ": the limit is negative: -5") != std::string::npos;
    }
    return false;
  };
  CHECK(refuses([&] { return t::peak_at_most(-5, f).ok; }, "peak_at_most"));
  CHECK(refuses([&] { return t::allocations_exactly(-5, f).ok; }, "allocations_exactly"));
  CHECK(refuses([&] { return t::allocations_at_most(-5, f).ok; }, "allocations_at_most"));
  CHECK(refuses([&] { return t::allocated_bytes_at_most(-5, f).ok; }, "allocated_bytes_at_most"));
  CHECK(refuses([&] { return t::resident_growth_at_most(-5, f).ok; }, "resident_growth_at_most"));
  CHECK(runs == 0);
}

TEST_CASE("an exception passes through, and leaves no window open") {
  for (const t::extent& over : {t::extent::thread, t::extent::process}) {
    CHECK_THROWS_AS(static_cast<void>(t::peak_at_most(
                                          10, [] { throw std::runtime_error("x"); }, over)
                                          .ok),
                    std::runtime_error);
    CHECK_THROWS_AS(static_cast<void>(t::no_leak([] { throw 7; }, over).ok), int);
    CHECK_THROWS_AS(static_cast<void>(t::no_growth([] { throw 7; }, {}, over).ok), int);
  }
  CHECK(t::no_allocations([] {}));
}
#endif

TEST_CASE("the largest limit there is holds for everything") {
  CHECK(t::peak_at_most(INT64_MAX, [] { take_one(100); }));
  CHECK(t::allocations_at_most(INT64_MAX, [] { take_one(100); }));
  CHECK(t::allocated_bytes_at_most(INT64_MAX, [] { take_one(100); }));
}
