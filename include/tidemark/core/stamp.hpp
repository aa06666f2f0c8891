// SPDX-License-Identifier: MIT
// The tail stamp: the last 16 usable bytes of a hooked block say how many bytes were requested and which scope path owns
// them. The user's pointer stays the allocator's own, and a block that was never stamped fails the check.
//
//   word 0   check:16 | size:48        word 1   owner:32 | site:32        (low bits first)
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include <tidemark/config/platform.hpp>

namespace tidemark {
inline namespace v0 {
namespace detail {

/// What a stamp adds to every request.
inline constexpr std::size_t stamp_bytes = 16;

/// The owner of a block that is never counted.
inline constexpr std::uint32_t quiet_owner = 0xffff'ffffU;

/// What a live block's stamp says.
struct stamp {
  std::uint64_t size;
  std::uint32_t owner;
};

inline constexpr int check_bits = 16;

// The upper 16 bits of the product, with the lowest of them set: zeroed memory, the commonest content of a block that was
// never stamped, does not pass.
[[nodiscard]] TIDEMARK_ALWAYS_INLINE std::uint64_t stamp_check(std::uint64_t product) noexcept {
  return product >> (64 - check_bits) | 1;
}

// Both words, the address and the secret reach the upper 16 bits of the product: every lower bit moves them.
[[nodiscard]] TIDEMARK_ALWAYS_INLINE std::uint64_t stamp_product(const void* block, std::uint64_t size,
                                                                 std::uint64_t owner_and_site,
                                                                 std::uint64_t secret) noexcept {
  return ((reinterpret_cast<std::uintptr_t>(block) + size) ^ owner_and_site) * secret;
}

// The usable size may be odd, so the words may be unaligned: memcpy, which is one move each.
[[nodiscard]] TIDEMARK_ALWAYS_INLINE unsigned char* stamp_place(void* block, std::size_t usable) noexcept {
  return static_cast<unsigned char*>(block) + usable - stamp_bytes;
}

TIDEMARK_ALWAYS_INLINE void write_stamp(void* block, std::size_t usable, std::uint64_t size,
                                        std::uint64_t owner_and_site, std::uint64_t secret) noexcept {
  const std::uint64_t product = stamp_product(block, size, owner_and_site, secret);
  const std::uint64_t size_and_check = size << check_bits | stamp_check(product);
  unsigned char* place = stamp_place(block, usable);
  std::memcpy(place, &size_and_check, sizeof size_and_check);
  std::memcpy(place + sizeof size_and_check, &owner_and_site, sizeof owner_and_site);
}

/// Reads the stamp of a block. Returns whether the block has one.
[[nodiscard]] TIDEMARK_ALWAYS_INLINE bool read_stamp(stamp& s, void* block, std::size_t usable,
                                                     std::uint64_t secret) noexcept {
  std::uint64_t size_and_check = 0;
  std::uint64_t owner_and_site = 0;
  const unsigned char* place = stamp_place(block, usable);
  std::memcpy(&size_and_check, place, sizeof size_and_check);
  std::memcpy(&owner_and_site, place + sizeof size_and_check, sizeof owner_and_site);
  s.size = size_and_check >> check_bits;
  std::memcpy(&s.owner, place + sizeof size_and_check, sizeof s.owner);  // by itself: a load beats a move and a mask
  const std::uint64_t product = stamp_product(block, s.size, owner_and_site, secret);
  // The check alone would take one block of random content in 32,768 for a stamped one.
  return static_cast<std::uint16_t>(size_and_check) == static_cast<std::uint16_t>(stamp_check(product)) &&
         s.size <= usable - stamp_bytes;
}

/// What makes a stamp one, kept by whoever may have to put it back.
using stamp_word = std::uint64_t;

/// A freed block must not pass for a live one when the allocator hands its memory to someone who bypasses the hook. No
/// address has a check of 0, so one word is enough.
TIDEMARK_ALWAYS_INLINE stamp_word wipe_stamp(void* block, std::size_t usable) noexcept {
  stamp_word kept = 0;
  unsigned char* place = stamp_place(block, usable);
  std::memcpy(&kept, place, sizeof kept);
  std::memset(place, 0, sizeof kept);
  return kept;
}

TIDEMARK_ALWAYS_INLINE void restore_stamp(void* block, std::size_t usable, stamp_word kept) noexcept {
  std::memcpy(stamp_place(block, usable), &kept, sizeof kept);
}

}  // namespace detail
}  // namespace v0
}  // namespace tidemark
