// SPDX-License-Identifier: MIT
// The gate: what a hook asks before the real call. A thread with any flag set leaves the fast path; `quiet` is the flag
// that users set.
#pragma once

#include <cstdint>

#include <tidemark/config/platform.hpp>
#include <tidemark/core/ledger.hpp>

namespace tidemark {
inline namespace v0 {
namespace detail {

/// Sets a flag on this thread's slot, if it has one.
inline void raise_gate(gate_flag flag) noexcept {
  if (slot* s = current_slot()) {
    s->gate |= flag;
    publish_word(*s);
  }
}

inline void lower_gate(gate_flag flag) noexcept {
  if (slot* s = current_slot()) {
    s->gate &= ~static_cast<std::uint32_t>(flag);
    publish_word(*s);
  }
}

}  // namespace detail

/// While one is open on this thread, what the thread allocates is never counted, whoever frees it and when; a block that
/// was counted at its birth is subtracted wherever it is freed, also in here. Nests.
/// Threads: opened and closed on one thread. Cost: about 20 instructions.
class [[nodiscard]] quiet {
 public:
  quiet() noexcept {
    static_cast<void>(detail::current_slot());  // a thread's beginning may change which ledger it is in
    if (detail::this_thread().quiet_depth++ == 0) detail::raise_gate(detail::gate_quiet);
  }
  ~quiet() {
    if (--detail::this_thread().quiet_depth == 0) detail::lower_gate(detail::gate_quiet);
  }
  quiet(const quiet&) = delete;
  quiet& operator=(const quiet&) = delete;
};

}  // namespace v0
}  // namespace tidemark
