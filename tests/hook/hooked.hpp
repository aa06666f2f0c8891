// SPDX-License-Identifier: MIT
// What the hook's tests share: whether this build has a hook, a reading of every count at one moment, and a barrier.
#pragma once

#include <cstddef>
#include <cstdint>

#include <tidemark/config/platform.hpp>
#include <tidemark/core/ledger.hpp>

#include "test.hpp"

#include "barrier.hpp"
#include "dice.hpp"

namespace hooked {

/// A sanitizer has operators of its own: the hook listens to it, and nothing is written into a block.
inline constexpr bool is_sanitizer_listening = TIDEMARK_OPT_SANITIZER_HOOKS && TIDEMARK_HAS_SANITIZER_ALLOCATOR();
inline constexpr std::int64_t stamp_bytes = is_sanitizer_listening ? 0 : 16;

/// What a block of n bytes counts: AddressSanitizer makes one byte of none.
inline constexpr std::size_t counted(std::size_t n) { return is_sanitizer_listening && TIDEMARK_HAS_ASAN() && n == 0 ? 1 : n; }

/// Everything that an event may change. Two of them are equal where nothing happened. Taking one allocates nothing, and so
/// does not disturb what it reads.
struct counts {
  tidemark::usage thread = *tidemark::thread_usage();
  tidemark::usage process = *tidemark::process_usage();
  tidemark::self_report self = tidemark::self();
};

inline bool is_same(const tidemark::usage& a, const tidemark::usage& b) {
  return a.live_bytes == b.live_bytes && a.peak_bytes == b.peak_bytes && a.live_blocks == b.live_blocks &&
         a.allocations == b.allocations && a.deallocations == b.deallocations &&
         a.allocated_bytes == b.allocated_bytes && a.freed_bytes == b.freed_bytes;
}

/// No event was counted between the two.
inline bool is_same(const counts& a, const counts& b) {
  return is_same(a.thread, b.thread) && is_same(a.process, b.process) && a.self.events == b.self.events &&
         a.self.stamp_bytes == b.self.stamp_bytes && a.self.own_bytes == b.self.own_bytes;
}

/// Both accounts moved by that much, on this thread, and nothing else did.
inline bool has_moved(const counts& from, const counts& to, std::int64_t bytes, std::int64_t blocks) {
  return to.thread.live_bytes - from.thread.live_bytes == bytes &&
         to.thread.live_blocks - from.thread.live_blocks == blocks &&
         to.process.live_bytes - from.process.live_bytes == bytes &&
         to.process.live_blocks - from.process.live_blocks == blocks &&
         static_cast<std::int64_t>(to.self.stamp_bytes - from.self.stamp_bytes) == stamp_bytes * blocks &&
         to.self.foreign_frees == from.self.foreign_frees;
}

using ::barrier;
using ::dice;

}  // namespace hooked
