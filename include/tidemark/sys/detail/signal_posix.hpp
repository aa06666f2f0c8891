// SPDX-License-Identifier: MIT
// The contract: handle_signal(signal, f) calls `f` in the handler of that signal from now on, and then whoever handled it
// before. Null, or why the system refuses. `f` does only what a signal handler may. A second call for a signal changes
// nothing, unless someone has given the signal back to the system since.
#pragma once

#include <tidemark/config/platform.hpp>
#include <tidemark/core/detail/os_module.hpp>
#include <tidemark/core/ledger.hpp>

#if TIDEMARK_HAS_POSIX()

  #include <atomic>
  #include <cerrno>
  #include <cstdint>
  #include <initializer_list>

  #include <signal.h>

namespace tidemark {
inline namespace v0 {
namespace detail {
namespace os {

inline constexpr int signal_numbers = 65;

/// What was there before this library's handler. Written before the handler is in place.
struct handled_signal {
  std::atomic<bool> is_taken{false};
  void (*f)() noexcept = nullptr;
  struct sigaction before = {};
};

/// Registry of the signals that are handled here.
class TIDEMARK_EXPORT signal_table {
 public:
  static constexpr std::uint64_t key = registry_key("signals");

  [[nodiscard]] const char* handle(int number, void (*f)() noexcept) noexcept {
    if (number <= 0 || number >= signal_numbers) return "no signal has this number";
    for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT, SIGSYS}) {
      if (number == fault) return "the program does not go on after this signal";
    }
    handled_signal& s = signals_[number];
    const int saved = errno;
    keep_this_loaded();
    s.f = f;
    const char* why = nullptr;
    struct sigaction ours = {};
    ours.sa_sigaction = on_signal;
    ours.sa_flags = SA_SIGINFO | SA_RESTART | SA_ONSTACK;
    sigemptyset(&ours.sa_mask);
    const bool is_first = !s.is_taken.exchange(true);
    struct sigaction now = {};
    bool is_done = ::sigaction(number, nullptr, &now) == 0;
    // A handler that came later may call this one, which must not call it in turn.
    const bool is_reset = (now.sa_flags & SA_SIGINFO) == 0 && (now.sa_handler == SIG_DFL || now.sa_handler == SIG_IGN);
    if (is_done && (is_first || is_reset)) {
      s.before = now;  // first: the handler may run before sigaction() has returned
      is_done = ::sigaction(number, &ours, nullptr) == 0;
    }
    if (!is_done) {
      why = "the system lets no one handle this signal";
      if (is_first) s.is_taken.store(false);
    }
    errno = saved;
    return why;
  }

  void on_fork(fork_moment) noexcept {}

 private:
  static void on_signal(int number, siginfo_t* info, void* context) noexcept;

  handled_signal signals_[signal_numbers];
};

inline void signal_table::on_signal(int number, siginfo_t* info, void* context) noexcept {
  const int saved = errno;
  const handled_signal& s = find_registry<signal_table>()->signals_[number];
  s.f();
  if ((s.before.sa_flags & SA_SIGINFO) != 0) {
    s.before.sa_sigaction(number, info, context);
  } else if (s.before.sa_handler != SIG_DFL && s.before.sa_handler != SIG_IGN) {
    s.before.sa_handler(number);
  }
  errno = saved;
}

[[nodiscard]] inline const char* handle_signal(int number, void (*f)() noexcept) noexcept {
  signal_table* const table = registry<signal_table>();
  return table == nullptr ? "no memory for the library's own state" : table->handle(number, f);
}

}  // namespace os
}  // namespace detail
}  // namespace v0
}  // namespace tidemark

#endif
