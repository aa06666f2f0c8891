// SPDX-License-Identifier: MIT
// Lets several threads pass together, again and again: std::barrier is C++20.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <mutex>

/// Allocates nothing.
class barrier {
 public:
  explicit barrier(std::size_t parties) : parties_(parties) {}

  void arrive_and_wait() {
    std::unique_lock<std::mutex> held(mutex_);
    const std::size_t round = round_;
    if (++arrived_ == parties_) {
      arrived_ = 0;
      ++round_;
      all_here_.notify_all();
    } else {
      all_here_.wait(held, [&] { return round_ != round; });
    }
  }

 private:
  std::mutex mutex_;
  std::condition_variable all_here_;
  std::size_t parties_;
  std::size_t arrived_ = 0;
  std::size_t round_ = 0;
};
