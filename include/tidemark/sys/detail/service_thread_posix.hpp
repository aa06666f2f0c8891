// SPDX-License-Identifier: MIT
// The contract: a thread of the library's own.
//   start(f, argument, stack_bytes)   false: the system refuses one. Signals go to the program's own threads, but for faults of
//                                     this one; stack_bytes 0: as the program's threads have
//   join()                            waits for its end
//   abandon()                         it is not waited for: it serves for ever, or a fork has left it behind
// errno is untouched.
#pragma once

#include <tidemark/config/platform.hpp>
#include <tidemark/core/detail/os_module.hpp>
#include <tidemark/core/gate.hpp>

#if TIDEMARK_HAS_POSIX()

  #include <cerrno>
  #include <cstddef>
  #include <initializer_list>

  #include <pthread.h>
  #include <signal.h>

namespace tidemark {
inline namespace v0 {
namespace detail {
namespace os {

class service_thread {
 public:
  using function = void (*)(void* argument) noexcept;

  service_thread() noexcept = default;
  service_thread(const service_thread&) = delete;
  service_thread& operator=(const service_thread&) = delete;
  ~service_thread() { abandon(); }

  [[nodiscard]] bool is_started() const noexcept { return is_started_; }

  [[nodiscard]] bool start(function f, void* argument, std::size_t stack_bytes) noexcept {
    const quiet hidden;
    const int saved = errno;
    keep_loaded(reinterpret_cast<const void*>(f));
    f_ = f;
    argument_ = argument;
    sigset_t all;
    sigset_t before;
    sigfillset(&all);
    // What the thread itself does wrong goes to the program's handlers.
    for (const int s : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT, SIGSYS}) sigdelset(&all, s);
    pthread_attr_t how;
    pthread_attr_init(&how);
    if (stack_bytes > 0) static_cast<void>(pthread_attr_setstacksize(&how, stack_bytes));
    pthread_sigmask(SIG_SETMASK, &all, &before);
    is_started_ = pthread_create(&thread_, &how, run, this) == 0;
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    pthread_attr_destroy(&how);
    errno = saved;
    return is_started_;
  }

  void join() noexcept {
    if (is_started_) pthread_join(thread_, nullptr);
    is_started_ = false;
  }

  /// In a fork child nothing is left to detach.
  void forget() noexcept { is_started_ = false; }

  void abandon() noexcept {
    if (is_started_) pthread_detach(thread_);
    is_started_ = false;
  }

 private:
  static void* run(void* self) noexcept {
    const quiet hidden;
    const auto& me = *static_cast<service_thread*>(self);
    me.f_(me.argument_);
    return nullptr;
  }

  function f_ = nullptr;
  void* argument_ = nullptr;
  pthread_t thread_{};
  bool is_started_ = false;
};

}  // namespace os
}  // namespace detail
}  // namespace v0
}  // namespace tidemark

#endif
