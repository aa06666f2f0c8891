// SPDX-License-Identifier: MIT
// What happens to one block: it is requested with room for a stamp, stamped and booked at its birth; read, wiped and
// booked at its death. The hooks are made of these.
#pragma once

#include <cstddef>
#include <cstdint>

#include <tidemark/config/platform.hpp>
#include <tidemark/core/ledger.hpp>
#include <tidemark/core/stamp.hpp>
#include <tidemark/hook/detail/below.hpp>
#include <tidemark/hook/detail/booking.hpp>

namespace tidemark {
inline namespace v0 {
namespace detail {
namespace hook {

// The steps of an event are written so that whatever is rare can be a tail call: the common path then saves no register.

/// Stamps a fresh block and books it. False: `s.account.settle_allocated(n)` must follow.
[[nodiscard]] TIDEMARK_ALWAYS_INLINE bool try_book_birth(slot& s, void* p, std::size_t usable, std::size_t n) noexcept {
  write_stamp(p, usable, n, s.owner_word, own_ledger.secret);
  return try_count_birth(s, n);
}

inline void book_birth(slot& s, void* p, std::size_t usable, std::size_t n) noexcept {
  if (!try_book_birth(s, p, usable, n)) s.account.settle_allocated(n);
}

/// The first size query of a thread, whose word says that events pass.
inline void first_size_query() noexcept {
  void* p = real_malloc(1);
  if (p != nullptr) static_cast<void>(real_usable(p));
  real_free(p);
}

inline std::size_t usable_bytes(void* p) noexcept {
  return own_ledger.ask_sizes ? real_usable(p) : usable_by_chunk_word(p);
}

/// The birth of a block off the fast path: the thread has no clean slot.
TIDEMARK_NOINLINE inline void book_birth_slowly(void* p, std::size_t n) noexcept {
  on_slot_for_event([=](slot& s) {
    const std::size_t usable = usable_bytes(p);
    if (own_thread.quiet_depth == 0) return book_birth(s, p, usable, n);
    write_stamp(p, usable, n, quiet_owner, own_ledger.secret);
    count_quiet_birth(s, n);
  });
}

/// Reads the stamp of a live block. False: it never passed the hook.
[[nodiscard]] inline bool find_stamp(stamp& was, void* p, std::size_t usable) noexcept {
  // Other allocators have blocks too small for a stamp: what lies in front of them is not ours to read.
  return usable >= stamp_bytes && read_stamp(was, p, usable, own_ledger.secret);
}

TIDEMARK_NOINLINE inline void book_death_slowly(void* p) noexcept {
  on_slot_for_event([=](slot& s) {
    const std::size_t usable = usable_bytes(p);
    stamp was;
    if (!find_stamp(was, p, usable)) return s.foreign_frees.add(1);
    wipe_stamp(p, usable);
    count_death(s, was);
  });
}

}  // namespace hook
}  // namespace detail
}  // namespace v0
}  // namespace tidemark
