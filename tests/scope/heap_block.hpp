// SPDX-License-Identifier: MIT
// What the tests of scopes share: a heap block of a known size that no compiler deletes, a small random generator, and the
// reading of one meter of a record.
#pragma once

#include <cstddef>
#include <cstdint>
#include <new>
#include <string_view>
#include <utility>

#include <tidemark/core/ledger.hpp>
#include <tidemark/core/record.hpp>
#include <tidemark/core/usage.hpp>

/// One allocation through `operator new`, freed by the destructor on whatever thread that runs.
class heap_block {
 public:
  heap_block() noexcept = default;
  explicit heap_block(std::size_t n) : p_(::operator new(n)), size_(n) { tidemark::escape(p_); }
  heap_block(heap_block&& other) noexcept : p_(std::exchange(other.p_, nullptr)), size_(other.size_) {}
  heap_block& operator=(heap_block&& other) noexcept {
    std::swap(p_, other.p_);
    std::swap(size_, other.size_);
    return *this;
  }
  heap_block(const heap_block&) = delete;
  heap_block& operator=(const heap_block&) = delete;
  ~heap_block() { free(); }

  void free() noexcept {
    tidemark::escape(p_);
    ::operator delete(std::exchange(p_, nullptr));
  }
  [[nodiscard]] bool is_live() const noexcept { return p_ != nullptr; }
  [[nodiscard]] std::size_t size() const noexcept { return size_; }

 private:
  void* p_ = nullptr;
  std::size_t size_ = 0;
};

/// The same numbers on every run. Source: splitmix64, Steele, Lea and Flood 2014.
class random_numbers {
 public:
  explicit random_numbers(std::uint64_t seed) noexcept : state_(seed) {}

  /// From 0 to `end` - 1.
  [[nodiscard]] std::size_t below(std::size_t end) noexcept {
    state_ += 0x9e37'79b9'7f4a'7c15U;
    std::uint64_t z = state_;
    z = (z ^ (z >> 30)) * 0xbf58'476d'1ce4'e5b9U;
    z = (z ^ (z >> 27)) * 0x94d0'49bb'1331'11ebU;
    return static_cast<std::size_t>((z ^ (z >> 31)) % end);
  }

 private:
  std::uint64_t state_;
};

/// What a meter of a record read; all zeros with an impossible error bound where it is absent.
[[nodiscard]] inline tidemark::window_usage usage_in(const tidemark::scope_record& r,
                                                     std::string_view meter = "thread_heap") {
  tidemark::window_usage none;
  none.error_bound_bytes = -1;
  const tidemark::meter_reading* found = r.find(meter);
  return found == nullptr ? none : found->usage.value_or(none);
}

[[nodiscard]] inline tidemark::usage this_threads_usage() {
  return tidemark::thread_usage().value_or(tidemark::usage{});
}
