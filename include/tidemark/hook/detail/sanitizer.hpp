// SPDX-License-Identifier: MIT
// DEFINES the hook of a sanitizer build. The runtime has its own allocator and operators, and tells two functions of each
// block. What lies in a block is the sanitizer's to watch, so size and owner are kept beside it.
#pragma once

#include <cstddef>
#include <cstdint>

#include <tidemark/config/config.hpp>
#include <tidemark/config/platform.hpp>
#include <tidemark/core/detail/gate_keeper.hpp>
#include <tidemark/core/ledger.hpp>
#include <tidemark/core/stamp.hpp>
#include <tidemark/hook/detail/booking.hpp>
#include <tidemark/hook/detail/side_table.hpp>
#include <tidemark/hook/detail/start.hpp>

// g++ ships no header for these. Source: LLVM compiler-rt, include/sanitizer/allocator_interface.h.
extern "C" int __sanitizer_install_malloc_and_free_hooks(void (*on_malloc)(const volatile void*, std::size_t),
                                                         void (*on_free)(const volatile void*));
extern "C" std::size_t __sanitizer_get_allocated_size(const volatile void* block);

// MemorySanitizer would judge arguments that its own runtime passed.
#if TIDEMARK_HAS_MSAN()
  #define TIDEMARK_DETAIL_CALLED_BY_SANITIZER __attribute__((no_sanitize("memory")))
#else
  #define TIDEMARK_DETAIL_CALLED_BY_SANITIZER
#endif

namespace tidemark {
inline namespace v0 {
namespace detail {
namespace hook {

#if TIDEMARK_HAS_ASAN()
inline constexpr const char* sanitizer_limits =
    "AddressSanitizer reports new and malloc alike: malloc(0) counts as 1 byte, a realloc counts the new block before "
    "the "
    "old one is gone, and blocks from before the hook was installed are foreign";
#elif TIDEMARK_HAS_TSAN()
inline constexpr const char* sanitizer_limits =
    "ThreadSanitizer reports new and malloc alike, but not posix_memalign, aligned_alloc, memalign, valloc and "
    "pvalloc; "
    "frees of blocks that it did not report are not counted as foreign";
#else
inline constexpr const char* sanitizer_limits =
    "MemorySanitizer reports new and malloc alike, but not a realloc that stays in place, and blocks from before the "
    "hook "
    "was installed are foreign";
#endif

TIDEMARK_CONSTINIT inline side_table* live_blocks = nullptr;

TIDEMARK_DETAIL_CALLED_BY_SANITIZER inline void on_sanitizer_malloc(const volatile void* p, std::size_t reported) {
  if (own_thread.word == word_passing) {
    was_reached = true;
    return;
  }
  if (p == nullptr) return;  // ThreadSanitizer reports those that failed as well
  // Asked for, since ThreadSanitizer reports n bytes of a reallocarray(p, n, size); and says 1 of a malloc(0).
  const std::size_t n = reported == 0 ? 0 : __sanitizer_get_allocated_size(p);
  on_slot_for_event([=](slot& s) {
    const bool is_hidden = own_thread.quiet_depth > 0;
    stamp was{};
    bool has_room = true;
    const stamp is{n, is_hidden ? quiet_owner : static_cast<std::uint32_t>(s.owner_word)};
    if (live_blocks->insert(p, is, was, has_room)) count_death(s, was);
    if (!has_room) return drop_record();
    if (is_hidden) return count_quiet_birth(s, n);
    if (!try_count_birth(s, n)) s.account.settle_allocated(n);
  });
  // It is allocated: nothing can be refused any more, but whoever watches is told.
  static_cast<void>(gate_passage({n, 0, nullptr, allocation_caller::told}));
}

TIDEMARK_DETAIL_CALLED_BY_SANITIZER inline void on_sanitizer_free(const volatile void* p) {
  if (p == nullptr || own_thread.word == word_passing) return;
  on_slot_for_event([=](slot& s) {
    stamp was{};
    if (live_blocks->erase(p, was)) return count_death(s, was);
    if (!TIDEMARK_HAS_TSAN()) s.foreign_frees.add(1);
  });
}

inline hook_start start_listening() noexcept {
  live_blocks = registry<side_table>();
  if (live_blocks == nullptr) return {hook_kind::none, "no memory for the table of live blocks", false};
  if (__sanitizer_install_malloc_and_free_hooks(on_sanitizer_malloc, on_sanitizer_free) == 0) {
    return {hook_kind::none, "the sanitizer has no place left for a malloc hook: others took all five", false};
  }
  return started(hook_kind::sanitizer, sanitizer_limits, false);
}

}  // namespace hook
}  // namespace detail
}  // namespace v0
}  // namespace tidemark

#undef TIDEMARK_DETAIL_CALLED_BY_SANITIZER

extern "C" TIDEMARK_EXPORT const tidemark::detail::hook_descriptor tidemark_hook = {
    &tidemark::detail::own_ledger, TIDEMARK_OPT_SETTLE_BYTES, tidemark::detail::hook::start_listening, nullptr,
    nullptr};
