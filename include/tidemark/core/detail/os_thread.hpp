// SPDX-License-Identifier: MIT
// The contract: what the core asks of the system about threads.
//   yield_thread()            gives up this thread's turn
//   thread_id(), process_id() the system's own numbers, 0 where there are none
//   thread_mark()             an address that no other thread has, the same in every shared object; no system call
//   stack_address()           an address in this thread's stack
//   is_thread_alive(id)       false only where that thread of this process has ended
//   no_cancellation           while it stands, pthread_cancel() of this thread waits
//   at_thread_exit            a value per thread, whose function runs when the thread ends, after its C++ thread-locals
//   at_fork(...)              functions run before a fork, and after it in the parent and in the child
// Every function: no allocation through malloc (but inside pthread, see set()), errno untouched; true is success.
#pragma once

#include <cstdint>

#include <tidemark/config/platform.hpp>

#if TIDEMARK_HAS_POSIX()
  #include <cerrno>

  #include <limits.h>
  #include <pthread.h>
  #include <sched.h>
  #include <unistd.h>
  #if TIDEMARK_HAS_LINUX()
    #include <sys/syscall.h>
  #endif
#endif

namespace tidemark {
inline namespace v0 {
namespace detail {
namespace os {

inline std::uintptr_t stack_address() noexcept {
#if defined(__GNUC__)
  return reinterpret_cast<std::uintptr_t>(__builtin_frame_address(0));  // a sanitizer may keep locals elsewhere
#else
  const char here = 0;
  return reinterpret_cast<std::uintptr_t>(&here);
#endif
}

#if TIDEMARK_HAS_POSIX()

inline void yield_thread() noexcept { sched_yield(); }

inline const void* thread_mark() noexcept { return reinterpret_cast<const void*>(pthread_self()); }

inline std::uint64_t thread_id() noexcept {
  #if TIDEMARK_HAS_LINUX()
  return static_cast<std::uint64_t>(syscall(SYS_gettid));
  #else
  return reinterpret_cast<std::uint64_t>(pthread_self());
  #endif
}

inline std::uint64_t process_id() noexcept { return static_cast<std::uint64_t>(getpid()); }

inline bool is_thread_alive(std::uint64_t id) noexcept {
  #if TIDEMARK_HAS_LINUX()
  const int saved = errno;
  const bool is_alive = syscall(SYS_tgkill, getpid(), static_cast<pid_t>(id), 0) == 0 || errno != ESRCH;
  errno = saved;
  return is_alive;
  #else
  static_cast<void>(id);
  return true;
  #endif
}

/// A write is a cancellation point, and the unwinding that cancels a thread would end the program in a destructor.
class no_cancellation {
 public:
  no_cancellation() noexcept { pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before_); }
  ~no_cancellation() { pthread_setcancelstate(before_, nullptr); }
  no_cancellation(const no_cancellation&) = delete;
  no_cancellation& operator=(const no_cancellation&) = delete;

 private:
  int before_ = 0;
};

/// How often a thread's exit functions are called again while they leave a value behind.
  #if defined(PTHREAD_DESTRUCTOR_ITERATIONS) && TIDEMARK_HAS_TSAN()
inline constexpr int thread_exit_rounds = PTHREAD_DESTRUCTOR_ITERATIONS - 1;  // TSan forgets the thread in the last
  #elif defined(PTHREAD_DESTRUCTOR_ITERATIONS)
inline constexpr int thread_exit_rounds = PTHREAD_DESTRUCTOR_ITERATIONS;
  #else
inline constexpr int thread_exit_rounds = 4;  // POSIX's least
  #endif

class at_thread_exit {
 public:
  bool create(void (*function)(void*)) noexcept { return created_ = pthread_key_create(&key_, function) == 0; }
  /// May call malloc: glibc keeps the first 32 keys in the thread and allocates for later ones.
  bool set(const void* value) noexcept { return created_ && pthread_setspecific(key_, value) == 0; }

 private:
  pthread_key_t key_ = 0;
  bool created_ = false;  // key 0 may be another's
};

inline bool at_fork(void (*before)(), void (*in_parent)(), void (*in_child)()) noexcept {
  return pthread_atfork(before, in_parent, in_child) == 0;
}

#else

inline void yield_thread() noexcept {}
inline const void* thread_mark() noexcept {
  static thread_local char mark;
  return &mark;
}
inline std::uint64_t thread_id() noexcept { return 0; }
inline std::uint64_t process_id() noexcept { return 0; }
inline bool is_thread_alive(std::uint64_t) noexcept { return true; }
class no_cancellation {};
inline constexpr int thread_exit_rounds = 1;

class at_thread_exit {
 public:
  bool create(void (*)(void*)) noexcept { return false; }
  bool set(const void*) noexcept { return false; }
};

inline bool at_fork(void (*)(), void (*)(), void (*)()) noexcept { return true; }

#endif

}  // namespace os
}  // namespace detail
}  // namespace v0
}  // namespace tidemark
