// SPDX-License-Identifier: MIT
// What the tests of guards and of failing allocations share: every allocation function, a thread that does what it is told, and a
// child process whose end and last words are known.
#pragma once

#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <new>
#include <string>
#include <thread>
#include <type_traits>

#include <malloc.h>
#include <sys/wait.h>
#include <unistd.h>

#include <tidemark/core/ledger.hpp>
#include <tidemark/core/usage.hpp>

#include "../hook/blocks.hpp"
#include "../hook/hooked.hpp"
#include "barrier.hpp"
#include "test.hpp"

namespace guarded {

using hooked::hidden;
using hooked::launder;

/// Known without asking the library: a form is tested by one function, and each file includes one hook.
[[nodiscard]] inline bool sees_malloc() { return tidemark::hook_state() == tidemark::hook_kind::malloc_family; }

// ---- the allocation functions ----

enum class way { throws, returns_null, sets_errno, returns_enomem };

struct form {
  const char* name;
  way fails;
  bool is_by_page;
  void* (*make)(std::size_t n, std::size_t alignment);

  /// What a block of n bytes counts: pvalloc makes whole pages.
  [[nodiscard]] std::size_t counted(std::size_t n) const {
    const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
    return is_by_page ? (n + page - 1) / page * page : n;
  }
  /// Whether a test may see it fail: without exceptions a `new` that throws ends the program.
  [[nodiscard]] bool may_fail() const { return TIDEMARK_HAS_EXCEPTIONS() || fails != way::throws; }
  [[nodiscard]] bool is_new() const { return fails == way::throws || fails == way::returns_null; }
};

inline constexpr form all_forms[] = {
    {"new", way::throws, false, [](std::size_t n, std::size_t) { return ::operator new(n); }},
    {"new[]", way::throws, false, [](std::size_t n, std::size_t) { return ::operator new[](n); }},
    {"new nothrow", way::returns_null, false,
     [](std::size_t n, std::size_t) { return ::operator new(n, std::nothrow); }},
    {"new[] nothrow", way::returns_null, false,
     [](std::size_t n, std::size_t) { return ::operator new[](n, std::nothrow); }},
    {"new align", way::throws, false,
     [](std::size_t n, std::size_t a) { return ::operator new (n, std::align_val_t{a}); }},
    {"new[] align", way::throws, false,
     [](std::size_t n, std::size_t a) { return ::operator new[](n, std::align_val_t{a}); }},
    {"new align nothrow", way::returns_null, false,
     [](std::size_t n, std::size_t a) { return ::operator new (n, std::align_val_t{a}, std::nothrow); }},
    {"new[] align nothrow", way::returns_null, false,
     [](std::size_t n, std::size_t a) { return ::operator new[](n, std::align_val_t{a}, std::nothrow); }},
    {"malloc", way::sets_errno, false, [](std::size_t n, std::size_t) { return std::malloc(n); }},
    {"calloc(1, n)", way::sets_errno, false, [](std::size_t n, std::size_t) { return std::calloc(hidden(1), n); }},
    {"calloc(n, 1)", way::sets_errno, false, [](std::size_t n, std::size_t) { return std::calloc(n, hidden(1)); }},
    {"realloc(nullptr, n)", way::sets_errno, false,
     [](std::size_t n, std::size_t) { return std::realloc(launder<void>(nullptr), n); }},
    {"reallocarray(nullptr, n, 1)", way::sets_errno, false,
     [](std::size_t n, std::size_t) { return ::reallocarray(launder<void>(nullptr), n, hidden(1)); }},
    {"aligned_alloc", way::sets_errno, false, [](std::size_t n, std::size_t a) { return ::aligned_alloc(a, n); }},
    {"posix_memalign", way::returns_enomem, false,
     [](std::size_t n, std::size_t a) {
       void* p = nullptr;
       const int error = ::posix_memalign(&p, a, n);
       return error == ENOMEM || error == 0 ? launder(p) : launder<void>(&p);  // any other error looks like success
     }},
    {"memalign", way::sets_errno, false, [](std::size_t n, std::size_t a) { return ::memalign(a, n); }},
    {"valloc", way::sets_errno, false, [](std::size_t n, std::size_t) { return ::valloc(n); }},
    {"pvalloc", way::sets_errno, true, [](std::size_t n, std::size_t) { return ::pvalloc(n); }},
};

/// Those that the hook of this program sees.
struct form_range {
  [[nodiscard]] const form* begin() const { return all_forms; }
  [[nodiscard]] const form* end() const { return all_forms + size(); }
  [[nodiscard]] static std::size_t size() { return sees_malloc() ? sizeof all_forms / sizeof *all_forms : 8; }
  [[nodiscard]] const form& operator[](std::size_t i) const { return all_forms[i]; }
};
inline constexpr form_range forms{};

inline void give_back(void* p) { sees_malloc() ? std::free(launder(p)) : ::operator delete(launder(p)); }

inline constexpr std::size_t alignment = 64;
inline constexpr int marker = EDOM;  // an errno that no allocation function sets

/// One try of one function: null, and why; nothing is left to doubt about how it said so.
struct attempt {
  void* p = nullptr;
  bool said_so_rightly = true;
};

inline attempt try_make(const form& f, std::size_t n) {
  attempt a;
  errno = marker;
  const auto make = [&] { a.p = launder(f.make(hidden(n), alignment)); };
#if TIDEMARK_HAS_EXCEPTIONS()
  try {
    make();
    a.said_so_rightly = a.p != nullptr || f.fails != way::throws;
  } catch (const std::bad_alloc&) {
    a.said_so_rightly = f.fails == way::throws;
    return a;
  }
#else
  make();
#endif
  if (a.p != nullptr || f.fails == way::returns_enomem) a.said_so_rightly = a.said_so_rightly && errno == marker;
  if (a.p == nullptr && f.fails == way::sets_errno) a.said_so_rightly = errno == ENOMEM;
  return a;
}

/// Whether a block of n bytes can be had now; it is given back.
inline bool can_make(const form& f, std::size_t n) {
  const attempt a = try_make(f, n);
  if (a.p != nullptr) give_back(a.p);
  return a.p != nullptr;
}
inline const form& nothrow = all_forms[2];
inline bool can_take(std::size_t n) { return can_make(nothrow, n); }

/// The bytes of one `new` that throws nothing.
inline void* take(std::size_t n) { return try_make(nothrow, n).p; }

// ---- what the library says of itself ----

inline bool is_same(const tidemark::usage& a, const tidemark::usage& b) { return hooked::is_same(a, b); }
inline tidemark::usage thread_now() { return *tidemark::thread_usage(); }

/// Nobody is asked before this thread's next allocation.
inline bool is_on_the_fast_path() {
  return tidemark::detail::this_thread().word >= 0 && tidemark::detail::this_thread().keepers == nullptr &&
         tidemark::detail::ledger().process_keeper.load() == nullptr &&
         tidemark::detail::this_thread().tracked_depth == 0;
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
inline void* reserve = nullptr;

/// Once; then it gives up.
inline void free_the_reserve() {
  ++handler_calls;
  if (reserve == nullptr) std::set_new_handler(nullptr);
  ::operator delete(launder(reserve));
  reserve = nullptr;
}

// ---- another thread, another process ----

/// A thread that does what it is told, one thing at a time. Telling it allocates nothing on either side.
class helper {
 public:
  helper() : thread_([this] { run(); }) {}
  ~helper() {
    job_ = nullptr;
    start_.arrive_and_wait();
    thread_.join();
  }
  helper(const helper&) = delete;
  helper& operator=(const helper&) = delete;

  template <class F>
  void run_there(F&& f) {
    what_ = &f;
    job_ = [](void* p) { (*static_cast<std::remove_reference_t<F>*>(p))(); };
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

/// How a child process ended, and what it said on the standard error.
struct ending {
  int signal = 0;
  int status = -1;
  std::string said;

  [[nodiscard]] bool says(const std::string& text) const { return said.find(text) != std::string::npos; }
};

/// Runs `f` in a child of this process; it ends with what f returns. It is killed where it hangs.
template <class F>
ending in_child(F f) {
  ending e;
  int ends[2];
  if (::pipe(ends) != 0) return e;
  const ::pid_t child = ::fork();
  if (child == 0) {
    ::alarm(60);
    ::dup2(ends[1], STDERR_FILENO);
    ::dup2(ends[1], STDOUT_FILENO);
    ::close(ends[0]);
    ::signal(SIGABRT, SIG_DFL);  // doctest's handler would tell of it
    ::_exit(f());
  }
  ::close(ends[1]);
  char part[512];
  for (::ssize_t n = 0; (n = ::read(ends[0], part, sizeof part)) > 0;) e.said.append(part, static_cast<std::size_t>(n));
  ::close(ends[0]);
  int status = 0;
  ::waitpid(child, &status, 0);
  e.signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
  e.status = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return e;
}

}  // namespace guarded
