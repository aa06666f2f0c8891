// SPDX-License-Identifier: MIT
// The contract of gpu/ about the one thread that calls drivers, on Linux:
//   run_on_driver_thread(job, is_left_behind)   null where the job has run; otherwise why not
// `is_left_behind`: the call hangs, and the job is the thread's from here on. It may hang for ever, in a driver's
// initialisation too; the thread is made at the first question, and never joined.
#pragma once

#include <tidemark/config/platform.hpp>
#include <tidemark/core/detail/os_clock.hpp>
#include <tidemark/core/detail/os_thread.hpp>
#include <tidemark/core/ledger.hpp>
#include <tidemark/gpu/detail/driver_state.hpp>
#include <tidemark/gpu/detail/figures.hpp>
#include <tidemark/gpu/detail/settings.hpp>
#include <tidemark/sys/detail/service_thread_posix.hpp>

#if TIDEMARK_HAS_LINUX()

  #include <cerrno>
  #include <cstddef>
  #include <cstdint>

  #include <pthread.h>
  #include <time.h>

namespace tidemark {
inline namespace v0 {
namespace detail {
namespace driver {

/// Registry of the thread, and of the job that it is given. Threads: any; one job at a time.
class TIDEMARK_EXPORT driver_thread {
 public:
  static constexpr std::uint64_t key = registry_key("gpu driver thread");

  driver_thread() noexcept { make_condition(); }
  driver_thread(const driver_thread&) = delete;
  driver_thread& operator=(const driver_thread&) = delete;

  [[nodiscard]] const char* run(job& asked, bool& is_left_behind) noexcept {
    const os::no_cancellation whole;
    is_left_behind = false;
    const timespec end = time_of(os::steady_ns() + deadline_ns());  // at most days: no overflow
    pthread_mutex_lock(&mutex_);
    while (job_ != nullptr) {  // another's
      if (is_late_ || !wait_until(end)) {
        pthread_mutex_unlock(&mutex_);
        return late;
      }
    }
    job_ = &asked;
    const bool must_start = !has_thread_;
    has_thread_ = true;
    pthread_cond_broadcast(&changed_);
    if (must_start) {
      pthread_mutex_unlock(&mutex_);
      const bool is_started = start();
      pthread_mutex_lock(&mutex_);
      if (!is_started) {
        has_thread_ = false;
        give_turn_back();
        return "no_thread: the system refuses a thread for the GPU driver";
      }
    }
    while (!is_answered_) {
      if (wait_until(end) || is_answered_) continue;
      is_late_ = is_left_behind = true;
      pthread_cond_broadcast(&changed_);  // those in the queue need not wait for it
      pthread_mutex_unlock(&mutex_);
      return late;
    }
    is_answered_ = false;
    give_turn_back();
    return nullptr;
  }

  // Nobody waits in the child for a thread that it lacks. What that thread was doing is left as it is.
  void on_fork(fork_moment moment) noexcept {
    if (moment == fork_moment::before) {
      pthread_mutex_lock(&mutex_);
      return;
    }
    if (moment == fork_moment::after_in_child) {
      has_thread_ = is_late_ = is_answered_ = is_taken_ = false;
      is_fork_child_ = true;
      job_ = nullptr;
      make_condition();
    }
    pthread_mutex_unlock(&mutex_);
  }

 private:
  static constexpr std::size_t stack_bytes = std::size_t{1} << 20;

  void make_condition() noexcept {
    pthread_condattr_t steady;
    pthread_condattr_init(&steady);
    pthread_condattr_setclock(&steady, CLOCK_MONOTONIC);
    pthread_cond_init(&changed_, &steady);
    pthread_condattr_destroy(&steady);
  }

  [[nodiscard]] static timespec time_of(std::int64_t ns) noexcept {
    timespec t{};
    t.tv_sec = static_cast<time_t>(ns / 1'000'000'000);
    t.tv_nsec = static_cast<long>(ns % 1'000'000'000);
    return t;
  }
  /// False: that moment has come.
  [[nodiscard]] bool wait_until(const timespec& end) noexcept {
    return pthread_cond_timedwait(&changed_, &mutex_, &end) != ETIMEDOUT;
  }
  void give_turn_back() noexcept {
    job_ = nullptr;
    is_taken_ = false;
    pthread_cond_broadcast(&changed_);
    pthread_mutex_unlock(&mutex_);
  }

  [[nodiscard]] bool start() noexcept {
    const auto serve = [](void* me) noexcept { static_cast<driver_thread*>(me)->serve(); };
    const bool is_started = thread_.start(serve, this, stack_bytes);
    thread_.abandon();  // a call may hang for ever
    return is_started;
  }

  void serve() noexcept {
    void* state = nullptr;
    pthread_mutex_lock(&mutex_);
    for (;;) {
      while (job_ == nullptr || is_taken_) pthread_cond_wait(&changed_, &mutex_);
      job& mine = *job_;
      const bool is_fork_child = is_fork_child_;
      is_taken_ = true;
      pthread_mutex_unlock(&mutex_);
      mine.run(mine, state, is_fork_child);
      pthread_mutex_lock(&mutex_);
      if (!is_late_) {
        is_answered_ = true;
        pthread_cond_broadcast(&changed_);
        continue;
      }
      pthread_mutex_unlock(&mutex_);
      mine.destroy(mine);
      pthread_mutex_lock(&mutex_);
      is_late_ = is_taken_ = false;
      job_ = nullptr;
      pthread_cond_broadcast(&changed_);
    }
  }

  pthread_mutex_t mutex_ = PTHREAD_MUTEX_INITIALIZER;  // nothing is locked, and nothing allocated, under it
  pthread_cond_t changed_;
  os::service_thread thread_;
  bool has_thread_ = false;
  bool is_fork_child_ = false;
  job* job_ = nullptr;        // the one whose turn it is
  bool is_taken_ = false;     // the thread is at it
  bool is_answered_ = false;  // and whoever asked has yet to see
  bool is_late_ = false;      // whoever asked is gone
};

[[nodiscard]] inline const char* run_on_driver_thread(job& asked, bool& is_left_behind) noexcept {
  is_left_behind = false;
  driver_thread* const thread = registry<driver_thread>();
  if (thread == nullptr) return no_memory;
  if (os::process_id() != ledger().process_id) {
    return "forked: a child that was made without running fork handlers (_Fork(), clone()) cannot ask the driver";
  }
  return thread->run(asked, is_left_behind);
}

}  // namespace driver
}  // namespace detail
}  // namespace v0
}  // namespace tidemark

#endif
