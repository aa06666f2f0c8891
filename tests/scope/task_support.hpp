// SPDX-License-Identifier: MIT
// What the tests of tasks share: threads that allocate nothing of their own, and what a task says.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <string_view>

#include <pthread.h>

#include <tidemark/scope/task.hpp>

#include "heap_block.hpp"

/// Runs `f()` on a thread that is made and ends without `operator new`: std::thread's own events count for whoever is in a
/// task.
template <class F>
class bare_thread {
 public:
  explicit bare_thread(F f) : f_(f) {
    const auto body = [](void* p) -> void* {
      static_cast<bare_thread*>(p)->f_();
      return nullptr;
    };
    if (pthread_create(&thread_, nullptr, body, this) != 0) std::abort();
  }
  ~bare_thread() { join(); }
  bare_thread(const bare_thread&) = delete;
  bare_thread& operator=(const bare_thread&) = delete;

  void join() {
    if (is_joined_) return;
    is_joined_ = true;
    pthread_join(thread_, nullptr);
  }

 private:
  F f_;
  pthread_t thread_{};
  bool is_joined_ = false;
};

[[nodiscard]] inline tidemark::window_usage so_far(const tidemark::task_scope& task) {
  tidemark::window_usage none;
  none.error_bound_bytes = -1;
  return task.usage().value_or(none);
}

[[nodiscard]] inline tidemark::window_usage closed(tidemark::task_scope& task) {
  return usage_in(task.close(), "task_heap");
}

/// The counts by hand.
[[nodiscard]] inline bool counts_are(const tidemark::window_usage& u, std::uint64_t allocations,
                                     std::uint64_t allocated_bytes, std::uint64_t deallocations,
                                     std::uint64_t freed_bytes) {
  return u.allocations == allocations && u.allocated_bytes == allocated_bytes && u.deallocations == deallocations &&
         u.freed_bytes == freed_bytes &&
         u.net_bytes() == static_cast<std::int64_t>(allocated_bytes) - static_cast<std::int64_t>(freed_bytes);
}
