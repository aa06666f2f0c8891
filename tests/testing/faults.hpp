// SPDX-License-Identifier: MIT
// Allocations that fail on purpose, under whichever hook the program includes before.
#pragma once

#include <tidemark/testing/faults.hpp>

#include <algorithm>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <locale>
#include <map>
#include <memory>
#include <memory_resource>
#include <new>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <string>
#include <unordered_map>
#include <vector>

#include <tidemark/alloc/allocator.hpp>
#include <tidemark/alloc/resource.hpp>
#include <tidemark/core/domain.hpp>
#include <tidemark/core/gate.hpp>
#include <tidemark/testing/guards.hpp>

#include "guards_support.hpp"

namespace t = tidemark::testing;
using guarded::attempt;
using guarded::can_take;
using guarded::form;
using guarded::forms;
using guarded::give_back;
using guarded::helper;
using guarded::in_child;
using guarded::is_on_the_fast_path;
using guarded::take;
using guarded::thread_now;
using guarded::try_make;
using hooked::hidden;
using hooked::launder;
using tidemark::escape;

namespace {

[[maybe_unused]] constexpr std::int64_t never = std::int64_t{1} << 40;

[[maybe_unused]] bool says(const t::verdict& v, const std::string& text) {
  return v.message.find(text) != std::string::npos;
}

/// What a function allocates undisturbed, by the thread's own account.
template <class F>
std::uint64_t allocations_of(F f) {
  const std::uint64_t before = thread_now().allocations;
  f();
  return thread_now().allocations - before;
}

/// Where f runs, how often, and what it saw fail.
struct course {
  int runs = 0;
  int failed[64] = {};  // in each run, the number of the allocation that failed; 0: none

  void note(int number) {
    if (runs < 64) failed[runs] = number;
  }
};

#if TIDEMARK_HAS_EXCEPTIONS()
template <class Error, class F>
bool throws(F f, const char* text = "") {
  try {
    f();
  } catch (const Error& e) {
    return std::string(e.what()).find(text) != std::string::npos;
  } catch (...) {
  }
  return false;
}

/// Every way to throw an exception, once or more often.
void throw_about() {
  try {
    throw 1;
  } catch (int) {
  }
  try {
    try {
      throw 2;
    } catch (int) {
      throw;
    }
  } catch (int) {
  }
  const std::exception_ptr made = std::make_exception_ptr(3);
  for (int i = 0; i < 2; ++i) {
    try {
      std::rethrow_exception(made);
    } catch (int) {
    }
  }
  struct outer {};
  try {
    try {
      throw 4;
    } catch (int) {
      std::throw_with_nested(outer());
    }
  } catch (const std::nested_exception& e) {
    try {
      e.rethrow_nested();
    } catch (int) {
    }
  }
  struct large {
    char bytes[5'000] = {};
  };
  try {
    throw large();
  } catch (const large&) {
  }
}

/// Blocks that a test leaks on purpose; freed when it has seen them.
struct lost_blocks {
  void* at[16] = {};
  std::size_t count = 0;

  void* keep(void* p) { return at[count++] = p; }
  ~lost_blocks() {
    for (void* p : at) ::operator delete(p);
  }
};

/// Leaks what it allocated first, if the second allocation fails.
struct careless {
  explicit careless(lost_blocks& lost) : first(new char[24]) {
    lost.keep(first);
    second = new char[48];
    --lost.count;
    lost.at[lost.count] = nullptr;
  }
  ~careless() {
    delete[] first;
    delete[] second;
  }
  careless(const careless&) = delete;
  careless& operator=(const careless&) = delete;
  char* first;
  char* second = nullptr;
};
#endif

}  // namespace

// ---- one fault ----

TEST_CASE("of every function exactly the nth to the last of the count fail, as that function says it") {
  for (const form& f : forms) {
    if (!f.may_fail()) continue;
    for (int nth = 1; nth <= 4; ++nth) {
      for (int count = 1; count <= 3; ++count) {
        int wrong = 0;
        int unlike = 0;
        std::uint64_t figures[3] = {};
        const tidemark::usage before = thread_now();
        {
          const t::fail_allocation fault(nth, count);
          for (int i = 1; i <= 6; ++i) {
            const attempt a = try_make(f, 100 + static_cast<std::size_t>(i));
            if ((a.p == nullptr) != (i >= nth && i < nth + count)) ++wrong;
            if (!a.said_so_rightly) ++unlike;
            if (a.p != nullptr) give_back(a.p);
          }
          figures[0] = fault.requests();
          figures[1] = fault.failures();
          figures[2] = fault.failed_bytes();
        }
        const tidemark::usage after = thread_now();
        INFO(doctest::String(f.name));
        CAPTURE(nth);
        CAPTURE(count);
        CHECK(wrong == 0);
        CHECK(unlike == 0);
        CHECK(figures[0] == 6);
        CHECK(figures[1] == static_cast<std::uint64_t>(count));
        CHECK(figures[2] == f.counted(100 + static_cast<std::size_t>(nth)));
        CHECK(after.live_bytes == before.live_bytes);
        CHECK(is_on_the_fast_path());
      }
    }
  }
}

TEST_CASE("a random trace of all functions fails where a count kept by hand says") {
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    hooked::dice dice(seed);
    const auto nth = static_cast<std::int64_t>(dice.below(40) + 1);
    const auto count = static_cast<std::int64_t>(dice.below(30) + 1);
    std::int64_t asked = 0;
    std::uint64_t failures = 0, first_bytes = 0, figures[3] = {};
    int wrong = 0;
    {
      const t::fail_allocation fault(nth, count);
      for (int i = 0; i < 60; ++i) {
        const form& f = forms[dice.below(forms.size())];
        if (!f.may_fail()) continue;
        const std::size_t n = dice.below(5'000);
        const bool must_fail = ++asked >= nth && asked - nth < count;
        const attempt a = try_make(f, n);
        if ((a.p == nullptr) != must_fail) ++wrong;
        if (must_fail && failures++ == 0) first_bytes = f.counted(n);
        if (a.p != nullptr) give_back(a.p);
      }
      figures[0] = fault.requests();
      figures[1] = fault.failures();
      figures[2] = fault.failed_bytes();
    }
    CAPTURE(seed);
    CHECK(wrong == 0);
    CHECK(figures[0] == static_cast<std::uint64_t>(asked));
    CHECK(figures[1] == failures);
    CHECK(figures[2] == first_bytes);
  }
}

TEST_CASE("the largest numbers there are wait for ever, or fail for ever") {
  bool steps[2] = {};
  {
    const t::fail_allocation fault(INT64_MAX, INT64_MAX);
    steps[0] = can_take(10) && fault.failures() == 0;
  }
  {
    const t::fail_allocation fault(2, INT64_MAX);
    steps[1] = can_take(10) && !can_take(10) && !can_take(0) && fault.failures() == 2;
  }
  CHECK(steps[0]);
  CHECK(steps[1]);
}

TEST_CASE("what is freed, what quiet hides and what another thread allocates is not counted") {
  helper other;
  void* p = take(100);
  std::uint64_t requests = 9;
  bool is_free_there = false;
  bool is_free_here = false;
  {
    const t::fail_allocation fault(1);
    give_back(p);
    other.run_there([&] { is_free_there = can_take(100); });
    {
      const tidemark::quiet hidden_here;
      is_free_here = can_take(100);
    }
    requests = fault.requests();
  }
  CHECK(requests == 0);
  CHECK(is_free_there);
  CHECK(is_free_here);
}

TEST_CASE("a new-handler's second try succeeds, and what the handler allocates is counted for itself") {
  static std::uint64_t handled;
  for (const form& f : forms) {
    if (!f.is_new()) continue;
    handled = 0;
    attempt a;
    std::uint64_t requests = 0, failures = 0;
    {
      const guarded::handler_guard handler([] {
        ++handled;
        give_back(take(10));
      });
      const t::fail_allocation fault(2);
      give_back(take(1));
      a = try_make(f, 100);
      requests = fault.requests();
      failures = fault.failures();
    }
    if (a.p != nullptr) give_back(a.p);
    INFO(doctest::String(f.name));
    CHECK(a.p != nullptr);
    CHECK(handled == 1);
    CHECK(requests == 3);
    CHECK(failures == 1);
  }
}

TEST_CASE("a fault and a limit in each other: what the inner refuses the outer is not asked") {
  bool steps[2] = {};
  {
    const t::heap_limit limit(100);
    const t::fail_allocation fault(1);
    steps[0] = !can_take(1'000) && fault.failures() == 1 && limit.refusals() == 0;
  }
  {
    const t::fail_allocation fault(1);
    const t::heap_limit limit(100);
    steps[1] = !can_take(1'000) && fault.requests() == 0 && !can_take(10) && fault.failures() == 1;
  }
  CHECK(steps[0]);
  CHECK(steps[1]);
}

#if TIDEMARK_HAS_EXCEPTIONS()
TEST_CASE("a second fault on this thread is an error whatever both are over, and the first goes on as before") {
  const tidemark::domain d("nested");
  bool all = true;
  for (const bool outer_is_of_domain : {false, true}) {
    for (const bool inner_is_of_domain : {false, true}) {
      tidemark::allocator<char> from(d);
      int failed = 0;
      {
        const t::fail_allocation fault(3, 1, outer_is_of_domain ? t::extent(d) : t::extent::thread);
        for (int i = 1; i <= 4; ++i) {
          bool is_error = false;
          {
            const t::allow_allocations none;
            const tidemark::quiet hidden_here;
            is_error = throws<std::logic_error>(
                [&] { const t::fail_allocation second(1, 1, inner_is_of_domain ? t::extent(d) : t::extent::thread); },
                "another one is open");
          }
          all = all && is_error;
          try {
            from.deallocate(from.allocate(10), 10);
          } catch (const std::bad_alloc&) {
            failed = i;
          }
        }
        all = all && fault.requests() == 4 && fault.failures() == 1 && fault.failed_bytes() == 10;
      }
      all = all && failed == 3 && is_on_the_fast_path();
    }
  }
  CHECK(all);
}

TEST_CASE("numbers below 1, the process and a task are errors, and nothing is open afterwards") {
  const tidemark::domain d("none");
  const tidemark::task_token no_task{};
  CHECK(throws<std::invalid_argument>([] { const t::fail_allocation fault(0); }, "counted from 1"));
  CHECK(throws<std::invalid_argument>([] { const t::fail_allocation fault(-1); }, "counted from 1"));
  CHECK(throws<std::invalid_argument>([] { const t::fail_allocation fault(1, 0); }, "at least 1"));
  CHECK(throws<std::invalid_argument>([&] { const t::fail_allocation fault(INT64_MIN, 1, d); }));
  CHECK(throws<std::invalid_argument>([] { const t::fail_allocation fault(1, 1, t::extent::process); }, "no order"));
  CHECK(throws<std::invalid_argument>([&] { const t::fail_allocation fault(1, 1, no_task); }, "no order"));
  CHECK(is_on_the_fast_path());
  CHECK(can_take(10));
}

TEST_CASE("exception objects are never counted and never fail, in whatever way they are thrown") {
  std::uint64_t requests = 9, after_strings = 0, failures = 9;
  {
    const t::fail_allocation fault(1, never);
    throw_about();
    requests = fault.requests();
    failures = fault.failures();
  }
  {
    const t::fail_allocation fault(never);
    try {
      throw std::runtime_error("a text that is longer than what a string holds in itself");
    } catch (const std::exception&) {
    }
    after_strings = fault.requests();
  }
  CHECK(requests == 0);
  CHECK(failures == 0);
  CHECK(after_strings == 1);  // what an exception allocates for its text is the program's
}

TEST_CASE("what fails while an exception is on its way does not end the program") {
  int caught = 0;
  for (int nth = 1; nth <= 4; ++nth) {
    const t::fail_allocation fault(nth);
    try {
      throw std::runtime_error("a text that is longer than what a string holds in itself");
    } catch (const std::bad_alloc&) {
      ++caught;
    } catch (const std::runtime_error&) {
    }
  }
  CHECK(caught == 1);
}

// ---- layers and domains ----

TEST_CASE("an allocation through any number of layers is one point, and fails as one") {
  const tidemark::domain a("a");
  const tidemark::domain b("b");
  tidemark::resource low(b, std::pmr::new_delete_resource());
  tidemark::resource middle(a, &low);
  tidemark::resource high(b, &middle);
  const auto by_resources = [&] { escape(std::pmr::vector<int>(10, 0, &high).data()); };
  const auto by_allocator = [&] { escape(std::vector<int, tidemark::allocator<int>>(10, 0, a).data()); };
  const auto by_arena = [&] {
    std::pmr::monotonic_buffer_resource arena(1'000, &high);
    std::pmr::vector<int> v(10, 0, &arena);
    std::pmr::vector<int> w(20, 0, &arena);
    escape(v.data());
    escape(w.data());
  };
  struct {
    std::uint64_t requests, failures;
  } seen[3] = {};
  int caught = 0;
  const auto run = [&](int i, auto& f) {
    {
      const t::fail_allocation fault(never);
      f();
      seen[i].requests = fault.requests();
    }
    const t::fail_allocation fault(1);
    try {
      f();
    } catch (const std::bad_alloc&) {
      ++caught;
    }
    seen[i].failures = fault.failures();
  };
  run(0, by_resources);
  run(1, by_allocator);
  run(2, by_arena);
  for (const auto& s : seen) {
    CHECK(s.requests == 1);
    CHECK(s.failures == 1);
  }
  CHECK(caught == 3);
  CHECK(a.current().live_bytes == 0);
  CHECK(b.current().live_bytes == 0);
  CHECK(is_on_the_fast_path());
}

TEST_CASE("a fault over a domain counts its own in whatever layer they are, and each once") {
  const tidemark::domain a("over a");
  const tidemark::domain b("under it");
  tidemark::resource low(b, std::pmr::new_delete_resource());
  tidemark::resource middle(a, &low);
  tidemark::resource high(b, &middle);
  const auto requests_of = [](const tidemark::domain& d, std::pmr::memory_resource& r) {
    const t::fail_allocation fault(never, 1, d);
    for (int i = 0; i < 3; ++i) r.deallocate(r.allocate(10), 10);
    return fault.requests();
  };
  CHECK(requests_of(b, low) == 3);
  CHECK(requests_of(a, middle) == 3);
  CHECK(requests_of(b, middle) == 3);  // below a layer that is another domain's
  CHECK(requests_of(a, high) == 3);
  CHECK(requests_of(b, high) == 3);  // twice on the way
  CHECK(requests_of(a, low) == 0);
}

TEST_CASE("a fault in the middle of layers rolls the domains above it back") {
  const tidemark::domain a("above", {1'000, nullptr});
  const tidemark::domain b("below", {1'000, nullptr});
  tidemark::resource low(b);
  tidemark::resource high(a, &low);
  bool is_refused = false;
  {
    const t::fail_allocation fault(1, 1, b);
    try {
      high.deallocate(high.allocate(600), 600);
    } catch (const std::bad_alloc&) {
      is_refused = true;
    }
  }
  CHECK(is_refused);
  CHECK(a.current().live_bytes == 0);
  CHECK(b.current().live_bytes == 0);
  void* p = high.allocate(1'000);  // nothing is held back
  high.deallocate(p, 1'000);
}

// ---- each in turn ----

TEST_CASE("as many points are tried as the function allocates, each once, in order, between two undisturbed runs") {
  for (int n = 0; n <= 20; n += 4) {
    course c;
    const t::failure_report r = t::for_each_allocation_failure([&] {
      int failed = 0;
      for (int i = 1; i <= n; ++i) {
        try {
          ::operator delete(launder(::operator new(hidden(static_cast<std::size_t>(i)))));
        } catch (const std::bad_alloc&) {
          failed = i;
        }
      }
      c.note(failed);
      ++c.runs;
    });
    CHECK(r.ok);
    CHECK(r.points == static_cast<std::uint64_t>(n));
    CHECK(r.number == 0);
    CHECK(c.runs == n + 2);
    for (int run = 0; run < c.runs; ++run) CHECK(c.failed[run] == (run <= n ? run : 0));
    CHECK(is_on_the_fast_path());
  }
}

TEST_CASE("the points of code over the standard library are its allocations, and it survives them") {
  const auto map_of_strings = [] {
    std::map<int, std::string> m;
    for (int i = 0; i < 5; ++i) m.emplace(i, std::string(100, 'x'));
    const std::map<int, std::string> copy = m;
    escape(&copy);
  };
  const auto vector_of_shared = [] {
    std::vector<std::shared_ptr<std::string>> v;
    for (int i = 0; i < 10; ++i) v.push_back(std::make_shared<std::string>(50, 'y'));
    std::shared_ptr<int> with_deleter(new int(1), [](const int* p) { delete p; });
    v.erase(v.begin());
  };
  const auto hash_map = [] {
    std::unordered_map<std::string, std::vector<int>> m;
    for (int i = 0; i < 30; ++i) m[std::string(40, static_cast<char>('a' + i % 26)) + std::to_string(i)].assign(3, i);
  };
  const auto function = [] {
    struct {
      char bytes[64] = {};
    } held;
    const std::function<int()> f = [held] { return static_cast<int>(held.bytes[0]); };
    const std::function<int()> g = f;
    escape(&g);
    static_cast<void>(g());
  };
  const auto check = [](auto f) {
    f();
    const std::uint64_t expected = allocations_of(f);
    const t::failure_report r = t::for_each_allocation_failure(f);
    INFO(r.message);
    CHECK(r.ok);
    CHECK(r.points == expected);
    CHECK(expected > 0);
  };
  check(map_of_strings);
  check(vector_of_shared);
  check(hash_map);
  check(function);
}

TEST_CASE("what streams, locales and stable_sort swallow is no fault") {
  const t::failure_report streams = t::for_each_allocation_failure([] {
    std::ostringstream out;
    for (int i = 0; i < 50; ++i) out << "a line of some length, number " << i << '\n';
    std::istringstream in(out.str());
    std::string word;
    while (in >> word) escape(word.data());
  });
  INFO(streams.message);
  CHECK(streams.ok);
  CHECK(streams.points > 3);
  const t::failure_report sort = t::for_each_allocation_failure([] {
    std::vector<int> v(500);
    for (std::size_t i = 0; i < v.size(); ++i) v[i] = static_cast<int>(i * 7'919 % 500);
    std::stable_sort(v.begin(), v.end());
    if (!std::is_sorted(v.begin(), v.end())) throw 1;
  });
  INFO(sort.message);
  CHECK(sort.ok);
  CHECK(sort.points == 2);
  const t::failure_report locale = t::for_each_allocation_failure([] {
    std::ostringstream out;
    out.imbue(std::locale(std::locale::classic(), std::locale("C"), std::locale::numeric));
    out << 1.5 << true;
  });
  INFO(locale.message);
  CHECK(locale.ok);
  CHECK(locale.points > 0);
}

TEST_CASE(
    "a constructor that throws and leaks is found with the number, the size and what is left, wherever it stands") {
  for (std::uint64_t before = 0; before < 4; ++before) {
    lost_blocks lost;
    const t::failure_report r = t::for_each_allocation_failure([before, &lost] {
      for (std::uint64_t i = 0; i < before; ++i) ::operator delete(launder(::operator new(hidden(8))));
      const careless c(lost);
      escape(&c);
    });
    CHECK_FALSE(r.ok);
    CHECK(r.number == before + 2);
    CHECK(r.bytes == 48);
    CHECK(r.points == before + 2);
    CHECK(says(r, "1 block"));
    CHECK(says(r, "24 bytes"));
    CHECK(says(r, "fail_allocation fault(" + std::to_string(before + 2) + ")"));
    CHECK(r.usage.allocations - r.usage.deallocations == 1);
    CHECK(is_on_the_fast_path());
  }
}

TEST_CASE("what an error path makes once is no leak, and what every run leaves is told as such") {
  static char* once = nullptr;
  const t::failure_report lazy = t::for_each_allocation_failure([] {
    try {
      escape(std::vector<int>(10).data());
    } catch (const std::bad_alloc&) {
      if (once == nullptr) once = new char[100];
    }
  });
  const bool was_made = once != nullptr;
  delete[] once;
  CHECK(was_made);
  CHECK(lazy.ok);
  CHECK(lazy.points == 1);

  void* left[64] = {};
  std::size_t count = 0;
  const t::failure_report leaky = t::for_each_allocation_failure([&] {
    left[count++] = ::operator new(30);
    escape(std::vector<int>(10).data());
  });
  for (void* p : left) ::operator delete(p);
  CHECK_FALSE(leaky.ok);
  CHECK(leaky.number == 0);
  CHECK(says(leaky, "even where nothing fails"));
}

TEST_CASE("what comes out but bad_alloc is named with the failure before it; what derives from bad_alloc is none") {
  struct of_ours : std::bad_alloc {};
  const auto throwing = [](auto what) {
    return t::for_each_allocation_failure([what] {
      try {
        ::operator delete(launder(::operator new(hidden(16))));
        ::operator delete(launder(::operator new(hidden(32))));
      } catch (const std::bad_alloc&) {
        throw what;
      }
    });
  };
  const t::failure_report text = throwing(std::runtime_error("no room for the index"));
  CHECK_FALSE(text.ok);
  CHECK(text.number == 1);
  CHECK(text.bytes == 16);
  CHECK(says(text, "no room for the index"));
  const t::failure_report number = throwing(7);
  CHECK_FALSE(number.ok);
  CHECK(number.number == 1);
  CHECK(says(number, "no std::exception"));
  CHECK(throwing(of_ours()).ok);
  CHECK(throwing(std::bad_array_new_length()).ok);
  CHECK(is_on_the_fast_path());
}

TEST_CASE("a state that does not hold after a failure is named with it, and the check may allocate") {
  int state = 0;
  int checks = 0;
  const t::failure_report r = t::for_each_allocation_failure(
      [&] {
        state = 0;
        ::operator delete(launder(::operator new(hidden(16))));
        state = 1;
        ::operator delete(launder(::operator new(hidden(32))));
        state = 0;
      },
      [&] {
        ++checks;
        return std::string(100, 'x').size() == 100 && state == 0;
      });
  CHECK_FALSE(r.ok);
  CHECK(r.number == 2);
  CHECK(r.bytes == 32);
  CHECK(checks == 3);
  CHECK(says(r, "what the caller checks does not hold afterwards"));

  const t::failure_report good =
      t::for_each_allocation_failure([] { ::operator delete(::operator new(hidden(16), std::nothrow)); },
                                     [] { return !std::string(100, 'x').empty(); });
  CHECK(good.ok);
  CHECK(good.points == 1);

  int calls = 0;
  const t::failure_report at_once = t::for_each_allocation_failure([&] { ++calls; }, [] { return false; });
  CHECK_FALSE(at_once.ok);
  CHECK(at_once.number == 0);
  CHECK(calls == 1);
  CHECK(says(at_once, "even where nothing fails"));
}

TEST_CASE("what f throws where nothing failed passes through, in the first run and in a later one") {
  struct of_its_own : std::exception {  // allocates nothing
    [[nodiscard]] const char* what() const noexcept override { return "of its own"; }
  };
  for (const int at : {1, 2, 4}) {
    int runs = 0;
    const bool is_out = throws<of_its_own>(
        [&] {
          static_cast<void>(t::for_each_allocation_failure([&] {
                              if (++runs == at) throw of_its_own();
                              ::operator delete(::operator new(hidden(8), std::nothrow));
                              ::operator delete(::operator new(hidden(8), std::nothrow));
                            }).ok);
        },
        "of its own");
    CAPTURE(at);
    CHECK(is_out);
    CHECK(runs == at);
    CHECK(is_on_the_fast_path());
    CHECK(can_take(10));
  }
  CHECK(throws<std::runtime_error>([] {
    static_cast<void>(
        t::for_each_allocation_failure([] {}, []() -> bool { throw std::runtime_error("of the check"); }).ok);
  }));
  CHECK(is_on_the_fast_path());
}

TEST_CASE("inside a fault there are no runs of failures, and the fault goes on") {
  bool is_error = false;
  bool steps[2] = {};
  {
    const t::fail_allocation fault(3);
    is_error = throws<std::logic_error>([] { static_cast<void>(t::for_each_allocation_failure([] {}).ok); });
    const std::uint64_t so_far = fault.requests();
    steps[0] = so_far < 3;
    for (std::uint64_t i = so_far; i < 2; ++i) static_cast<void>(can_take(1));
    steps[1] = !can_take(1) && can_take(1);
  }
  CHECK(is_error);
  CHECK(steps[0]);
  CHECK(steps[1]);
}

TEST_CASE("what f returns is dropped before its run is judged, and f may be one that only moves") {
  const t::failure_report kept = t::for_each_allocation_failure([] {
    std::vector<int> v(100);
    escape(v.data());
    return v;
  });
  CHECK(kept.ok);
  CHECK(kept.points == 1);
  auto only = std::make_unique<int>(5);
  CHECK(t::for_each_allocation_failure([held = std::move(only)] { escape(std::make_unique<int>(*held).get()); }).ok);
}

TEST_CASE("the runs count nothing of their own") {
  const tidemark::usage before = thread_now();
  bool is_ok = false;
  {
    const t::failure_report r =
        t::for_each_allocation_failure([] { ::operator delete(::operator new(hidden(50), std::nothrow)); });
    is_ok = r.ok;
  }
  const tidemark::usage after = thread_now();
  CHECK(is_ok);
  CHECK(after.allocations - before.allocations == 2);  // of three runs one had it refused
  CHECK(after.live_bytes == before.live_bytes);
}

TEST_CASE("over a domain the points are what is fed to it") {
  const tidemark::domain d("points");
  const auto f = [&] {
    std::vector<int, tidemark::allocator<int>> v(d);
    for (int i = 0; i < 5; ++i) v.push_back(i);  // 1, 2, 4, 8
    const std::string elsewhere(100, 'x');
    escape(elsewhere.data());
  };
  const t::failure_report r = t::for_each_allocation_failure(f, d);
  INFO(r.message);
  CHECK(r.ok);
  CHECK(r.points == 4);
  lost_blocks lost;
  const t::failure_report leak = t::for_each_allocation_failure(
      [&] {
        tidemark::allocator<char> from(d);
        char* first = from.allocate(70);
        lost.keep(first);
        char* second = from.allocate(30);  // the first is lost where this fails
        lost.at[--lost.count] = nullptr;
        from.deallocate(second, 30);
        from.deallocate(first, 70);
      },
      d);
  CHECK_FALSE(leak.ok);
  CHECK(leak.number == 2);
  CHECK(leak.bytes == 30);
  CHECK(says(leak, "70 bytes"));
}

// ---- the end of the program ----

TEST_CASE("where std::terminate is called the failure is said, and the handler from before is called") {
  struct bad_at_its_end {
    ~bad_at_its_end() { ::operator delete(launder(::operator new(hidden(77)))); }
  };
  const auto in_noexcept = []() noexcept { ::operator delete(launder(::operator new(hidden(66)))); };
  const auto in_destructor = [] {
    const bad_at_its_end b;
    escape(&b);
  };
  const auto run = [](auto f, bool has_handler) {
    return in_child([f, has_handler] {
      if (has_handler) std::set_terminate([] { ::_exit(43); });
      static_cast<void>(t::for_each_allocation_failure([f] {
                          ::operator delete(launder(::operator new(hidden(5))));
                          f();
                        }).ok);
      return 0;
    });
  };
  for (const bool has_handler : {true, false}) {
    const auto a = run(in_noexcept, has_handler);
    const auto b = run(in_destructor, has_handler);
    CAPTURE(has_handler);
    CHECK(a.status == (has_handler ? 43 : -1));
    CHECK(b.status == (has_handler ? 43 : -1));
    CHECK(a.signal == (has_handler ? 0 : SIGABRT));
    CHECK(b.signal == (has_handler ? 0 : SIGABRT));
    CHECK(a.says("allocation 2 (66 bytes)"));
    CHECK(b.says("allocation 2 (77 bytes)"));
  }
  const auto uncaught = in_child([] {
    std::set_terminate([] { ::_exit(44); });
    const t::fail_allocation fault(1);
    [&]() noexcept { escape(std::vector<int>(9).data()); }();
    return 0;
  });
  CHECK(uncaught.status == 44);
  CHECK(uncaught.says("allocation 1 (36 bytes)"));
}

TEST_CASE("a program that ends by std::terminate for another reason says nothing of failures") {
  const auto e = in_child([] {
    { const t::fail_allocation fault(1); }
    std::set_terminate([] { ::_exit(45); });
    const t::fail_allocation waiting(1'000);
    std::terminate();
    return 0;
  });
  CHECK(e.status == 45);
  CHECK_FALSE(e.says("made to fail"));
}

TEST_CASE("a handler that is set between two faults is called, and may call the one before") {
  static std::terminate_handler older;
  const auto e = in_child([] {
    std::set_terminate([] { ::_exit(46); });
    { const t::fail_allocation fault(1); }
    older = std::set_terminate([] { older(); });
    const t::fail_allocation fault(1);
    [&]() noexcept { escape(std::vector<int>(9).data()); }();
    return 0;
  });
  CHECK(e.signal + e.status != 0);
  CHECK(e.says("allocation 1 (36 bytes)"));
}
#else

TEST_CASE("without exceptions the runs try what returns null") {
  int runs = 0;
  const t::failure_report r = t::for_each_allocation_failure([&] {
    ++runs;
    give_back(take(10));
    give_back(take(20));
  });
  CHECK(r.ok);
  CHECK(r.points == 2);
  CHECK(runs == 4);
}

#endif

TEST_CASE("where the first run alone allocates nothing was tried, and so nothing is survived") {
  std::map<int, int> cache;
  const t::failure_report r = t::for_each_allocation_failure([&] { cache[1] = 2; });
  CHECK_FALSE(r.ok);
  CHECK(r.points == 0);
  CHECK(r.message.find("the first run made 1 allocation, and the next made none") != std::string::npos);
}

TEST_CASE("inside quiet nothing could be made to fail, and so nothing is survived") {
  const tidemark::quiet hidden;
  const t::failure_report r = t::for_each_allocation_failure([] { escape(std::make_unique<int>(1).get()); });
  CHECK_FALSE(r.ok);
  CHECK(r.message.find("tidemark::quiet is open on this thread") != std::string::npos);
}
