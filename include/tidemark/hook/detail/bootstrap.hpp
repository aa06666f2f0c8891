// SPDX-License-Identifier: MIT
// The few blocks that are asked for while the allocator below is being looked up: older dynamic linkers allocate there.
// They are never counted and never given back.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include <tidemark/config/platform.hpp>

namespace tidemark {
inline namespace v0 {
namespace detail {
namespace hook {

/// Threads: one, the one that looks up the allocator, allocates; any may ask and free.
class bootstrap_pool {
 public:
  /// Zeroed; null when the pool is empty.
  [[nodiscard]] void* allocate(std::size_t n) noexcept {
    const std::size_t room = (n + 15) / 16 * 16 + sizeof(header);
    if (n > sizeof room_ || room > sizeof room_ - used_) return nullptr;
    auto* at = room_ + used_;
    used_ += room;
    // glibc's own word of a block that is a mapping: the common paths leave such a block to the slow ones.
    const header h{n, 2};
    std::memcpy(at, &h, sizeof h);
    return at + sizeof h;
  }

  [[nodiscard]] TIDEMARK_ALWAYS_INLINE bool has(const void* p) const noexcept {
    return reinterpret_cast<std::uintptr_t>(p) - reinterpret_cast<std::uintptr_t>(room_) < sizeof room_;
  }

  [[nodiscard]] static std::size_t size_of(const void* p) noexcept {
    header h{};
    std::memcpy(&h, static_cast<const unsigned char*>(p) - sizeof h, sizeof h);
    return h.bytes;
  }

 private:
  struct header {
    std::size_t bytes;
    std::size_t chunk_word;
  };

  alignas(16) unsigned char room_[4'096] = {};
  std::size_t used_ = 0;
};

TIDEMARK_CONSTINIT inline bootstrap_pool bootstrap;

}  // namespace hook
}  // namespace detail
}  // namespace v0
}  // namespace tidemark
