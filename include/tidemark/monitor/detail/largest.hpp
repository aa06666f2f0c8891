// SPDX-License-Identifier: MIT
// The few largest of many, without an allocation.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace tidemark {
inline namespace v0 {
namespace detail {

/// Of those with more than 0 bytes, most first.
template <class T, std::size_t Capacity>
class largest {
 public:
  struct entry {
    std::int64_t bytes;
    T what;
  };

  void add(std::int64_t bytes, T what) noexcept {
    if (bytes <= 0) return;
    std::size_t at = size_ < Capacity ? size_++ : Capacity;
    if (at == Capacity && entries_[--at].bytes >= bytes) return;
    for (; at > 0 && entries_[at - 1].bytes < bytes; --at) entries_[at] = entries_[at - 1];
    entries_[at] = {bytes, what};
  }

  [[nodiscard]] const entry* begin() const noexcept { return entries_.data(); }
  [[nodiscard]] const entry* end() const noexcept { return entries_.data() + size_; }

 private:
  std::array<entry, Capacity> entries_{};
  std::size_t size_ = 0;
};

}  // namespace detail
}  // namespace v0
}  // namespace tidemark
