// SPDX-License-Identifier: MIT
// Repeatable random numbers for tests.
#pragma once

#include <cstdint>

class dice {
 public:
  explicit dice(std::uint64_t seed) : state_(seed * 2'654'435'761U + 1) {}

  /// From 0 to n - 1.
  std::uint64_t below(std::uint64_t n) {
    state_ = state_ * 6'364'136'223'846'793'005U + 1'442'695'040'888'963'407U;
    return (state_ >> 33) % n;
  }

 private:
  std::uint64_t state_;
};
