// SPDX-License-Identifier: MIT
// What holds of the 20 operators, however the hook learns the size of a block. Each file that includes this compiles the
// hook in another mode.
#pragma once

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <memory>
#include <new>
#include <string>
#include <thread>
#include <vector>

#if TIDEMARK_HAS_POSIX()
  #include <sys/resource.h>
#endif

#include <tidemark/core/bytes.hpp>
#include <tidemark/core/ledger.hpp>
#include <tidemark/scope/meter.hpp>

#include "blocks.hpp"
#include "hooked.hpp"
#include "test.hpp"

// clang declares the sized forms only with -fsized-deallocation.
void operator delete(void*, std::size_t) noexcept;
void operator delete[](void*, std::size_t) noexcept;
void operator delete(void*, std::size_t, std::align_val_t) noexcept;
void operator delete[](void*, std::size_t, std::align_val_t) noexcept;

namespace operators {

using namespace tidemark::literals;
using hooked::counts;
using hooked::fill;
using hooked::fill_all;
using hooked::foreign_free;
using hooked::foreign_malloc;
using hooked::hidden;
using hooked::is_aligned;
using hooked::is_all_filled;
using hooked::is_filled;
using hooked::is_same;
using hooked::launder;

struct new_form {
  const char* name;
  bool is_nothrow;
  bool is_aligned;
  void* (*make)(std::size_t n, std::size_t alignment);
};

inline constexpr new_form new_forms[] = {
    {"new", false, false, [](std::size_t n, std::size_t) { return ::operator new(n); }},
    {"new[]", false, false, [](std::size_t n, std::size_t) { return ::operator new[](n); }},
    {"new nothrow", true, false, [](std::size_t n, std::size_t) { return ::operator new(n, std::nothrow); }},
    {"new[] nothrow", true, false, [](std::size_t n, std::size_t) { return ::operator new[](n, std::nothrow); }},
    {"new align", false, true, [](std::size_t n, std::size_t a) { return ::operator new (n, std::align_val_t{a}); }},
    {"new[] align", false, true, [](std::size_t n, std::size_t a) { return ::operator new[](n, std::align_val_t{a}); }},
    {"new align nothrow", true, true,
     [](std::size_t n, std::size_t a) { return ::operator new (n, std::align_val_t{a}, std::nothrow); }},
    {"new[] align nothrow", true, true,
     [](std::size_t n, std::size_t a) { return ::operator new[](n, std::align_val_t{a}, std::nothrow); }},
};

struct delete_form {
  const char* name;
  void (*free)(void* p, std::size_t n, std::size_t alignment);
};

// The pointer is laundered: each of these is called with blocks of every `new`, which compilers warn about.
inline constexpr delete_form delete_forms[] = {
    {"delete", [](void* p, std::size_t, std::size_t) { ::operator delete(launder(p)); }},
    {"delete[]", [](void* p, std::size_t, std::size_t) { ::operator delete[](launder(p)); }},
    {"delete sized", [](void* p, std::size_t n, std::size_t) { ::operator delete(launder(p), n); }},
    {"delete[] sized", [](void* p, std::size_t n, std::size_t) { ::operator delete[](launder(p), n); }},
    {"delete nothrow", [](void* p, std::size_t, std::size_t) { ::operator delete(launder(p), std::nothrow); }},
    {"delete[] nothrow", [](void* p, std::size_t, std::size_t) { ::operator delete[](launder(p), std::nothrow); }},
    {"delete align", [](void* p, std::size_t, std::size_t a) { ::operator delete (launder(p), std::align_val_t{a}); }},
    {"delete[] align",
     [](void* p, std::size_t, std::size_t a) { ::operator delete[](launder(p), std::align_val_t{a}); }},
    {"delete sized align",
     [](void* p, std::size_t n, std::size_t a) { ::operator delete (launder(p), n, std::align_val_t{a}); }},
    {"delete[] sized align",
     [](void* p, std::size_t n, std::size_t a) { ::operator delete[](launder(p), n, std::align_val_t{a}); }},
    {"delete align nothrow",
     [](void* p, std::size_t, std::size_t a) { ::operator delete (launder(p), std::align_val_t{a}, std::nothrow); }},
    {"delete[] align nothrow",
     [](void* p, std::size_t, std::size_t a) { ::operator delete[](launder(p), std::align_val_t{a}, std::nothrow); }},
};

inline constexpr std::size_t new_form_count = sizeof new_forms / sizeof new_forms[0];
inline constexpr std::size_t delete_form_count = sizeof delete_forms / sizeof delete_forms[0];
static_assert(new_form_count == 8 && delete_form_count == 12);

inline constexpr std::size_t default_alignment = __STDCPP_DEFAULT_NEW_ALIGNMENT__;

/// What must hold of a group of blocks, one from each `new` that takes this alignment, alive together.
struct group_result {
  bool is_not_null = true;
  bool is_unique = true;
  bool is_aligned = true;
  bool keeps_contents = true;
  bool births_are_exact = true;
  bool deaths_are_exact = true;
  std::int64_t blocks = 0;
  tidemark::window_usage window;
};

inline group_result try_group(std::size_t n, std::size_t alignment, std::size_t first_delete) {
  group_result r;
  void* blocks[new_form_count] = {};
  tidemark::meter::thread_heap::window window;
  for (std::size_t i = 0; i < new_form_count; ++i) {
    if (!new_forms[i].is_aligned && alignment != default_alignment) continue;
    const counts before;
    blocks[i] = new_forms[i].make(hidden(n), alignment);
    r.births_are_exact &= has_moved(before, counts(), static_cast<std::int64_t>(n), 1);
    r.is_not_null &= blocks[i] != nullptr;
    r.is_aligned &= is_aligned(blocks[i], alignment);
    for (std::size_t j = 0; j < i; ++j) r.is_unique &= blocks[i] != blocks[j];
    fill(blocks[i], n, static_cast<int>('a' + i));
    ++r.blocks;
  }
  for (std::size_t i = 0; i < new_form_count; ++i) {
    if (blocks[i] == nullptr) continue;
    r.keeps_contents &= is_filled(blocks[i], n, static_cast<int>('a' + i));
    const counts before;
    delete_forms[(first_delete + i) % delete_form_count].free(blocks[i], n, alignment);
    r.deaths_are_exact &= has_moved(before, counts(), -static_cast<std::int64_t>(n), -1);
  }
  r.window = window.close().value();
  return r;
}

inline void check_group(std::size_t n, std::size_t alignment, std::size_t first_delete) {
  const group_result r = try_group(n, alignment, first_delete);
  CAPTURE(n);
  CAPTURE(alignment);
  CHECK(r.is_not_null);
  CHECK(r.is_unique);
  CHECK(r.is_aligned);
  CHECK(r.keeps_contents);
  CHECK(r.births_are_exact);
  CHECK(r.deaths_are_exact);
  const auto bytes = static_cast<std::int64_t>(n);
  CHECK(r.window.entry_bytes == r.window.exit_bytes);
  CHECK(r.window.peak_growth() == r.blocks * bytes);
  CHECK(r.window.largest_bytes == n);
  CHECK(r.window.allocations == static_cast<std::uint64_t>(r.blocks));
  CHECK(r.window.deallocations == static_cast<std::uint64_t>(r.blocks));
  CHECK(r.window.allocated_bytes == static_cast<std::uint64_t>(r.blocks * bytes));
  CHECK(r.window.freed_bytes == static_cast<std::uint64_t>(r.blocks * bytes));
}

// More than the address space has, or more than n + 16 can say.
inline constexpr std::size_t impossible_sizes[] = {
    (std::numeric_limits<std::size_t>::max)(), (std::numeric_limits<std::size_t>::max)() - 15,
    (std::numeric_limits<std::size_t>::max)() - 16,
    static_cast<std::size_t>((std::numeric_limits<std::ptrdiff_t>::max)())};

/// Null where it says that there is no memory, in its own way.
inline void* try_make(const new_form& form, std::size_t n, std::size_t alignment) {
#if TIDEMARK_HAS_EXCEPTIONS()
  try {
    return launder(form.make(hidden(n), alignment));
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
#else
  return form.is_nothrow ? launder(form.make(hidden(n), alignment)) : nullptr;
#endif
}

/// No block was counted. Where malloc is counted too, an exception was one for a while.
inline bool has_left_no_trace(const counts& before, const counts& after, bool may_have_thrown) {
  const bool is_exception_counted = may_have_thrown && tidemark::hook_state() == tidemark::hook_kind::malloc_family;
  return is_exception_counted ? has_moved(before, after, 0, 0) : is_same(before, after);
}

/// Sets the new-handler for as long as it lives.
class handler_guard {
 public:
  explicit handler_guard(std::new_handler h) : old_(std::set_new_handler(h)) {}
  ~handler_guard() { std::set_new_handler(old_); }
  handler_guard(const handler_guard&) = delete;
  handler_guard& operator=(const handler_guard&) = delete;

 private:
  std::new_handler old_;
};

inline int handler_calls = 0;
inline int handler_patience = 0;
inline void* reserve = nullptr;

inline void give_up_after_a_while() {
  if (++handler_calls == handler_patience) std::set_new_handler(nullptr);
}

inline void free_the_reserve() {
  ++handler_calls;
  if (reserve == nullptr) std::set_new_handler(nullptr);
  ::operator delete(launder(reserve));
  reserve = nullptr;
}

struct alignas(64) cache_line {
  unsigned char bytes[64];
};

/// Has a destructor, so that arrays of it carry their length in front.
struct with_destructor {
  std::uint64_t value = 7;
  ~with_destructor() { tidemark::escape(this); }
};

struct alignas(128) aligned_with_destructor {
  unsigned char bytes[128] = {};
  ~aligned_with_destructor() { tidemark::escape(this); }
};

}  // namespace operators

namespace operators {

inline const std::int64_t bound_before_threads = tidemark::process_usage()->error_bound_bytes;

}  // namespace operators

TEST_CASE("the hook says what it is and that it sees everything it promises") {
  CHECK(tidemark::hook_reason() == "");
  CHECK(tidemark::thread_usage().has_value());
  CHECK(tidemark::process_usage().has_value());
  CHECK(operators::bound_before_threads == 0);
}

TEST_CASE("every new and every delete count a block of any size and alignment exactly, and keep its contents") {
  using namespace operators;
  std::size_t first_delete = 0;
  for (const std::size_t n : {0UL,     1UL,     7UL,      8UL,      9UL,      15UL,      16UL,     17UL,    23UL,
                              24UL,    25UL,    39UL,     40UL,     41UL,     1'000UL,   1'016UL,  1'017UL, 4'095UL,
                              4'096UL, 4'097UL, 65'535UL, 65'536UL, 65'537UL, 100'000UL, 131'072UL}) {
    for (std::size_t alignment = 1; alignment <= 1'048'576; alignment *= 2) check_group(n, alignment, first_delete++);
  }
}

TEST_CASE("a block that is a mapping of its own is counted like any other") {
  using namespace operators;
  std::size_t first_delete = 0;
  for (const std::size_t alignment : {1UL, 16UL, 4'096UL, 1'048'576UL}) {
    check_group(static_cast<std::size_t>(40_MiB), alignment, first_delete += 5);
  }
}

TEST_CASE("every byte of a mapped block is the user's") {
  using namespace operators;
  const auto n = static_cast<std::size_t>(40_MiB);
  for (const new_form& form : {new_forms[0], new_forms[4]}) {
    const counts before;
    void* p = form.make(hidden(n), 4'096);
    fill_all(p, n, 'x');
    const bool is_kept = is_all_filled(p, n, 'x');
    ::operator delete(launder(p));
    CAPTURE(form.name);
    CHECK(is_kept);
    CHECK(has_moved(before, counts(), 0, 0));
  }
}

TEST_CASE("whichever delete a compiler chooses frees the blocks of every new") {
  using namespace operators;
  for (const new_form& form : new_forms) {
    for (const delete_form& del : delete_forms) {
      const counts before;
      void* p = form.make(hidden(100), 64);
      fill(p, 100, 'x');
      del.free(p, 100, 64);
      const counts after;
      CAPTURE(form.name);
      CAPTURE(del.name);
      CHECK(has_moved(before, after, 0, 0));
      CHECK(after.self.events == before.self.events + 2);
    }
  }
}

TEST_CASE("deleting a null pointer is no event") {
  using namespace operators;
  for (const delete_form& del : delete_forms) {
    const counts before;
    del.free(nullptr, 0, 16);
    const counts after;
    CHECK(is_same(before, after));
    CHECK(after.self.foreign_frees == before.self.foreign_frees);
  }
}

TEST_CASE("blocks of zero bytes are unique, are no null pointers, and count as blocks of no bytes") {
  using namespace operators;
  constexpr std::size_t many = 100;
  void* blocks[many] = {};
  bool is_unique = true;
  const counts before;
  for (std::size_t i = 0; i < many; ++i) {
    blocks[i] = new_forms[i % new_form_count].make(hidden(0), 16);
    is_unique &= blocks[i] != nullptr;
    for (std::size_t j = 0; j < i; ++j) is_unique &= blocks[i] != blocks[j];
  }
  const counts between;
  for (void* p : blocks) ::operator delete(launder(p));
  const counts after;
  CHECK(is_unique);
  CHECK(has_moved(before, between, 0, many));
  CHECK(has_moved(before, after, 0, 0));
}

TEST_CASE("sizes that cannot be had are out of memory, and leave no trace in the counts") {
  using namespace operators;
  for (const std::size_t n : impossible_sizes) {
    for (const new_form& form : new_forms) {
      const counts before;
      void* p = try_make(form, n, 64);
      const counts after;
      CAPTURE(n);
      CAPTURE(form.name);
      CHECK(p == nullptr);
      CHECK(has_left_no_trace(before, after, !form.is_nothrow));
    }
  }
}

TEST_CASE("out of memory asks the new-handler again until it gives up") {
  using namespace operators;
  for (const std::size_t n : impossible_sizes) {
    for (const new_form& form : new_forms) {
      if (!TIDEMARK_HAS_EXCEPTIONS() && !form.is_nothrow) continue;
      handler_calls = 0;
      handler_patience = 5;
      const counts before;
      void* p = nullptr;
      {
        const handler_guard guard(give_up_after_a_while);
        p = try_make(form, n, 64);
      }
      const counts after;
      CAPTURE(form.name);
      CHECK(p == nullptr);
      CHECK(handler_calls == handler_patience);
      CHECK(has_left_no_trace(before, after, !form.is_nothrow));
    }
  }
}

// The sanitizers map terabytes, so that no limit on the address space can be set.
#if TIDEMARK_HAS_LINUX() && !TIDEMARK_HAS_ASAN() && !TIDEMARK_HAS_TSAN() && !TIDEMARK_HAS_MSAN()

namespace operators {

/// For as long as it lives, the process may map that much more than it has.
class address_space_limit {
 public:
  explicit address_space_limit(std::int64_t more_bytes) {
    getrlimit(RLIMIT_AS, &old_);
    rlimit lowered = old_;
    lowered.rlim_cur = static_cast<rlim_t>(mapped_bytes() + more_bytes);
    is_set_ = setrlimit(RLIMIT_AS, &lowered) == 0;
  }
  ~address_space_limit() { setrlimit(RLIMIT_AS, &old_); }
  address_space_limit(const address_space_limit&) = delete;
  address_space_limit& operator=(const address_space_limit&) = delete;

  [[nodiscard]] bool is_set() const { return is_set_; }

 private:
  // The first number of statm, in pages.
  static std::int64_t mapped_bytes() {
    char text[64] = {};
    std::FILE* f = std::fopen("/proc/self/statm", "r");
    if (f == nullptr) return 0;
    const std::size_t read = std::fread(text, 1, sizeof text - 1, f);
    std::fclose(f);
    return read == 0 ? 0 : std::strtoll(text, nullptr, 10) * 4'096;
  }

  rlimit old_{};
  bool is_set_ = false;
};

}  // namespace operators

TEST_CASE("a new-handler that frees a reserve lets the allocation succeed") {
  using namespace operators;
  for (const new_form& form : new_forms) {
    if (!TIDEMARK_HAS_EXCEPTIONS() && !form.is_nothrow) continue;
    handler_calls = 0;
    const counts before;
    reserve = ::operator new(static_cast<std::size_t>(128_MiB));
    tidemark::escape(reserve);
    void* p = nullptr;
    bool is_limited = false;
    {
      const address_space_limit limit(16_MiB);
      is_limited = limit.is_set();
      const handler_guard guard(free_the_reserve);
      p = try_make(form, static_cast<std::size_t>(100_MiB), 64);
    }
    const counts between;
    ::operator delete(launder(p));
    ::operator delete(launder(reserve));
    reserve = nullptr;
    const counts after;
    CAPTURE(form.name);
    REQUIRE(is_limited);
    CHECK(p != nullptr);
    CHECK(handler_calls == 1);
    CHECK(has_moved(before, between, 100_MiB, 1));
    CHECK(has_moved(before, after, 0, 0));
  }
}

#endif

#if TIDEMARK_HAS_EXCEPTIONS()

namespace operators {

struct other_error {};

struct throws_at_third {
  static inline int made = 0;
  std::uint64_t value = 0;
  throws_at_third() {
    if (++made == 3) throw other_error();
  }
  ~throws_at_third() { tidemark::escape(this); }
};

struct alignas(256) aligned_and_throws {
  unsigned char bytes[256] = {};
  aligned_and_throws() { throw other_error(); }
};

struct throws {
  std::uint64_t value[9] = {};
  throws() { throw other_error(); }
};

/// Whether `f` throws a `T`.
template <class T, class F>
bool does_throw(F f) {
  try {
    f();
  } catch (const T&) {
    return true;
  }
  return false;
}

}  // namespace operators

TEST_CASE("the throwing forms throw std::bad_alloc, and nothing else returns null") {
  using namespace operators;
  for (const std::size_t n : impossible_sizes) {
    for (const new_form& form : new_forms) {
      const bool has_thrown = does_throw<std::bad_alloc>([&] { tidemark::escape(form.make(hidden(n), 64)); });
      CAPTURE(form.name);
      CHECK(has_thrown == !form.is_nothrow);
    }
  }
}

TEST_CASE("a new-handler that throws bad_alloc ends the allocation, and nothrow new answers with a null pointer") {
  using namespace operators;
  for (const new_form& form : new_forms) {
    const handler_guard guard([] { throw std::bad_alloc(); });
    const counts before;
    void* p = &handler_calls;
    const bool has_thrown = does_throw<std::bad_alloc>([&] { p = form.make(hidden(impossible_sizes[3]), 64); });
    const counts after;
    CAPTURE(form.name);
    CHECK(has_thrown == !form.is_nothrow);
    CHECK((p == nullptr) == form.is_nothrow);
    CHECK(has_left_no_trace(before, after, true));
  }
}

TEST_CASE("a constructor that throws gives its block back") {
  using namespace operators;
  const counts before;
  int thrown = 0;
  thrown += does_throw<other_error>([] { tidemark::escape(new throws); }) ? 1 : 0;
  thrown += does_throw<other_error>([] { tidemark::escape(new (std::nothrow) throws); }) ? 1 : 0;
  thrown += does_throw<other_error>([] { tidemark::escape(new aligned_and_throws); }) ? 1 : 0;
  thrown += does_throw<other_error>([] { tidemark::escape(new (std::nothrow) aligned_and_throws); }) ? 1 : 0;
  thrown += does_throw<other_error>([] { tidemark::escape(new aligned_and_throws[2]); }) ? 1 : 0;
  thrown += does_throw<other_error>([] { tidemark::escape(std::make_shared<throws>().get()); }) ? 1 : 0;
  for (const bool is_nothrow : {false, true}) {
    throws_at_third::made = 0;
    thrown += does_throw<other_error>([&] {
      tidemark::escape(is_nothrow ? new (std::nothrow) throws_at_third[5] : new throws_at_third[5]);
    })
                  ? 1
                  : 0;
  }
  const counts after;
  CHECK(thrown == 8);
  CHECK(has_moved(before, after, 0, 0));
  CHECK(after.self.events > before.self.events);
}

#endif

namespace operators {

/// The bytes that `make` adds, which `destroy` must take away again. -1 where it does not, or where it is not one block.
template <class Make, class Destroy>
std::int64_t bytes_of(Make make, Destroy destroy) {
  const counts before;
  auto* p = launder(make());
  const counts between;
  destroy(p);
  const counts after;
  const std::int64_t bytes = between.thread.live_bytes - before.thread.live_bytes;
  return has_moved(before, between, bytes, 1) && has_moved(before, after, 0, 0) ? bytes : -1;
}

}  // namespace operators

TEST_CASE("new and delete expressions count what they ask for, an array's own length included") {
  using namespace operators;
  const auto destroy = [](auto* p) { delete p; };
  const auto destroy_array = [](auto* p) { delete[] p; };
  const std::size_t five = hidden(5);

  CHECK(bytes_of([] { return new char; }, destroy) == 1);
  CHECK(bytes_of([] { return new int(3); }, destroy) == sizeof(int));
  CHECK(bytes_of([] { return new (std::nothrow) int(3); }, destroy) == sizeof(int));
  CHECK(bytes_of([] { return new with_destructor; }, destroy) == sizeof(with_destructor));
  CHECK(bytes_of([] { return new cache_line; }, destroy) == sizeof(cache_line));
  CHECK(bytes_of([] { return new (std::nothrow) cache_line; }, destroy) == sizeof(cache_line));
  CHECK(bytes_of([] { return new aligned_with_destructor; }, destroy) == sizeof(aligned_with_destructor));

  CHECK(bytes_of([&] { return new char[five]; }, destroy_array) == 5);
  CHECK(bytes_of([&] { return new (std::nothrow) double[five]; }, destroy_array) == 5 * sizeof(double));
  CHECK(bytes_of([&] { return new cache_line[five]; }, destroy_array) == 5 * sizeof(cache_line));
  CHECK(bytes_of([&] { return new (std::nothrow) cache_line[five]; }, destroy_array) == 5 * sizeof(cache_line));
  CHECK(bytes_of([&] { return new with_destructor[five]; }, destroy_array) ==
        5 * sizeof(with_destructor) + sizeof(std::size_t));
  CHECK(bytes_of([&] { return new aligned_with_destructor[five]; }, destroy_array) ==
        5 * sizeof(aligned_with_destructor) + alignof(aligned_with_destructor));
}

TEST_CASE("what a container holds is counted, also where the standard library's own code asks for it") {
  using namespace operators;
  const counts before;
  std::int64_t of_vector = 0;
  std::int64_t of_string = 0;
  {
    const std::vector<double> v(hidden(1'000));
    tidemark::escape(v.data());
    of_vector = counts().thread.live_bytes - before.thread.live_bytes;
    const std::string s(hidden(1'000), 'x');
    tidemark::escape(s.data());
    of_string = counts().thread.live_bytes - before.thread.live_bytes - of_vector;
  }
  const counts after;
  CHECK(of_vector == 1'000 * sizeof(double));
  CHECK(of_string == 1'001);
  CHECK(has_moved(before, after, 0, 0));
}

TEST_CASE("new and delete that succeed leave errno alone, also as a thread's first events") {
  using namespace operators;
  const auto leaves_errno_alone = [] {
    errno = EDOM;
    for (const std::size_t n : {1UL, 100UL, 5'000UL, 200'000UL, static_cast<std::size_t>(40_MiB)}) {
      for (const new_form& form : new_forms) {
        void* p = form.make(hidden(n), 4'096);
        tidemark::escape(p);
        if (errno != EDOM) return false;
        ::operator delete(launder(p));
        if (errno != EDOM) return false;
      }
    }
    return true;
  };
  CHECK(leaves_errno_alone());
  bool holds = false;
  std::thread([&] { holds = leaves_errno_alone(); }).join();
  CHECK(holds);
}

TEST_CASE("a block that never passed the hook is foreign to delete: it is freed, and only foreign_frees changes") {
  using namespace operators;
  std::size_t form = 0;
  for (const std::size_t n :
       {0UL, 1UL, 15UL, 16UL, 17UL, 24UL, 25UL, 4'095UL, 4'096UL, 100'000UL, static_cast<std::size_t>(40_MiB)}) {
    for (int repeat = 0; repeat < 12; ++repeat) {
      void* p = foreign_malloc(n);
      fill(p, n, 'Z');  // an even byte passes no check, whatever this run's secret is
      const counts before;
      delete_forms[form++ % delete_form_count].free(p, n, 16);
      const counts after;
      CAPTURE(n);
      CHECK(after.self.foreign_frees == before.self.foreign_frees + 1);
      CHECK(is_same(before, after));
    }
  }
}

TEST_CASE("memory that was hooked and freed is foreign once it is handed out again past the hook") {
  using namespace operators;
  const std::uint64_t foreign_before = tidemark::self().foreign_frees;
  const counts before;
  constexpr std::uint64_t times = 1'000;
  for (std::uint64_t i = 0; i < times; ++i) {
    const std::size_t n = hidden(i % 500);
    void* hooked_block = ::operator new(n);
    fill(hooked_block, n, 'Z');
    ::operator delete(launder(hooked_block));
    ::operator delete(foreign_malloc(n + 16));
  }
  const counts after;
  CHECK(after.self.foreign_frees == foreign_before + times);
  CHECK(after.thread.live_bytes == before.thread.live_bytes);
  CHECK(after.thread.deallocations == before.thread.deallocations + times);
}

TEST_CASE("a free that bypasses the hook is safe, and its block counts as live for ever") {
  using namespace operators;
  const counts before;
  std::int64_t bypassed_bytes = 0;
  std::int64_t bypassed_blocks = 0;
  for (const std::size_t n : {1UL, 24UL, 25UL, 4'096UL, 100'000UL, static_cast<std::size_t>(40_MiB)}) {
    for (const new_form& form : new_forms) {
      void* p = form.make(hidden(n), 64);
      fill(p, n, 'Z');
      foreign_free(p);
      bypassed_bytes += static_cast<std::int64_t>(n);
      ++bypassed_blocks;
    }
  }
  const counts after;
  CHECK(has_moved(before, after, bypassed_bytes, bypassed_blocks));
}

TEST_CASE("the process's account, its peak and its windows agree with the only thread's") {
  using namespace operators;
  tidemark::meter::process_heap::window of_process;
  tidemark::meter::thread_heap::window of_thread;
  hooked::dice dice(1);
  constexpr std::size_t places = 64;
  void* blocks[places] = {};
  std::size_t sizes[places] = {};
  std::int64_t live = 0;
  std::int64_t peak = 0;
  std::uint64_t largest = 0;
  std::uint64_t made = 0;
  for (int i = 0; i < 20'000; ++i) {
    const std::size_t place = dice.below(places);
    if (blocks[place] == nullptr) {
      sizes[place] = dice.below(16) == 0 ? dice.below(300'000) : dice.below(500);
      blocks[place] = new_forms[dice.below(new_form_count)].make(sizes[place], std::size_t{1} << dice.below(8));
      live += static_cast<std::int64_t>(sizes[place]);
      if (live > peak) peak = live;
      if (sizes[place] > largest) largest = sizes[place];
      ++made;
    } else {
      delete_forms[dice.below(delete_form_count)].free(blocks[place], sizes[place], 16);
      blocks[place] = nullptr;
      live -= static_cast<std::int64_t>(sizes[place]);
    }
  }
  const tidemark::reading<tidemark::window_usage> t = of_thread.close();
  const tidemark::reading<tidemark::window_usage> p = of_process.close();
  for (void* block : blocks) ::operator delete(launder(block));
  for (const auto* r : {&t, &p}) {
    REQUIRE(r->has_value());
    CHECK((*r)->net_bytes() == live);
    CHECK((*r)->peak_growth() == peak);
    CHECK((*r)->largest_bytes == largest);
    CHECK((*r)->allocations == made);
    CHECK((*r)->error_bound_bytes == 0);
  }
}
