// SPDX-License-Identifier: MIT
// Whether the hook that is linked has seen what the program did. Without it a hook that a tool bypasses would look free.
#pragma once

#include <cstdint>
#include <cstdio>

#include <tidemark/core/ledger.hpp>

namespace bench {

/// The program's exit status. True of every program without a hook.
inline int status_if_seen(std::uint64_t least_events) {
  if (&tidemark_hook == nullptr) return 0;
  if (tidemark::hook_state() == tidemark::hook_kind::none || tidemark::self().events < least_events) {
    std::fprintf(stderr, "the hook did not see the allocations\n");
    return 3;
  }
  return 0;
}

}  // namespace bench
