// SPDX-License-Identifier: MIT
// The library's own memory. It comes from the system in pages, never from the heap being measured, and is never given
// back piece by piece: what is made from it lives as long as the program.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include <tidemark/core/detail/os_pages.hpp>
#include <tidemark/core/sync.hpp>

namespace tidemark {
inline namespace v0 {
namespace detail {

/// Threads: all members from any thread.
class arena {
 public:
  constexpr arena() noexcept = default;

  /// Zeroed memory of its own pages; null when there is none.
  [[nodiscard]] void* map(std::size_t bytes) noexcept {
    void* p = os::map_pages(bytes);
    if (p != nullptr) mapped_.fetch_add(bytes, std::memory_order_relaxed);  // counter only
    return p;
  }
  void unmap(void* p, std::size_t bytes) noexcept {
    os::unmap_pages(p, bytes);
    mapped_.fetch_sub(bytes, std::memory_order_relaxed);  // counter only
  }

  /// A zeroed piece, aligned for anything; null when there is no memory. `bytes` up to a few KiB waste no page.
  [[nodiscard]] void* allocate(std::size_t bytes) noexcept {
    constexpr std::size_t step = alignof(std::max_align_t);
    bytes = (bytes + step - 1) / step * step;
    if (bytes > chunk_bytes / 4) return map(bytes);
    const spin_guard held(lock_);
    if (bytes > left_) {
      void* fresh = map(chunk_bytes);
      if (fresh == nullptr) return nullptr;
      next_ = static_cast<unsigned char*>(fresh);
      left_ = chunk_bytes;
    }
    void* piece = next_;
    next_ += bytes;
    left_ -= bytes;
    return piece;
  }

  [[nodiscard]] std::uint64_t mapped_bytes() const noexcept {
    return mapped_.load(std::memory_order_relaxed);  // counter only
  }

  void lock() noexcept { lock_.lock(); }
  void unlock() noexcept { lock_.unlock(); }

 private:
  static constexpr std::size_t chunk_bytes = 16 * 1024;

  spin_lock lock_;
  unsigned char* next_ = nullptr;
  std::size_t left_ = 0;
  std::atomic<std::uint64_t> mapped_{0};
};

}  // namespace detail
}  // namespace v0
}  // namespace tidemark
