// SPDX-License-Identifier: MIT
// Counting an event on a slot: its owner's bytes and its account. Where the size of a block is kept is another matter.
#pragma once

#include <cstddef>
#include <cstdint>

#include <tidemark/config/platform.hpp>
#include <tidemark/core/ledger.hpp>
#include <tidemark/core/stamp.hpp>

namespace tidemark {
inline namespace v0 {
namespace detail {
namespace hook {

/// False: `s.account.settle_allocated(n)` must follow.
[[nodiscard]] TIDEMARK_ALWAYS_INLINE bool try_count_birth(slot& s, std::size_t n) noexcept {
  s.owner_cell->add(static_cast<std::int64_t>(n));
  return s.account.try_allocated(n);
}

/// Of a block that carries `quiet_owner`.
inline void count_quiet_birth(slot& s, std::size_t n) noexcept {
  s.quiet_bytes.add(static_cast<std::int64_t>(n));
  s.quiet_blocks.add(1);
}

/// `was.owner` may be a path that this slot has not met, or the owner of blocks that were never counted.
inline void count_death(slot& s, const stamp& was) noexcept {
  if (was.owner == quiet_owner) {
    s.quiet_bytes.subtract(static_cast<std::int64_t>(was.size));
    s.quiet_blocks.subtract(1);
    return;
  }
  const bool known = was.owner < path_capacity && s.reserve_owner(was.owner, own_ledger.memory, own_ledger.table_lock);
  s.owned[known ? was.owner : other_path_id].subtract(static_cast<std::int64_t>(was.size));
  s.account.freed(was.size);
}

/// Runs `f(slot&)` on this thread's slot, given to it now if need be, or on the shared one.
template <class F>
TIDEMARK_ALWAYS_INLINE void on_slot_for_event(F f) noexcept {
  const std::intptr_t word = own_thread.word;
  slot* own = is_slot(word) ? slot_of(word) : begin_thread();
  if (TIDEMARK_LIKELY(own != nullptr)) return f(*own);
  on_shared_slot(f);
}

}  // namespace hook
}  // namespace detail
}  // namespace v0
}  // namespace tidemark
