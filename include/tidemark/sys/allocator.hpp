// SPDX-License-Identifier: MIT
// The allocator that serves malloc: which it is, what it says of itself, and giving back what it holds without need.
// <tidemark/alloc/allocator.hpp> has the tracked allocator for containers.
#pragma once

#include <cstdint>
#include <string_view>

#include <tidemark/core/gate.hpp>
#include <tidemark/core/reading.hpp>
#include <tidemark/sys/detail/allocator_figures.hpp>
#include <tidemark/sys/detail/allocator_linux.hpp>
#include <tidemark/sys/detail/allocator_unknown.hpp>
#include <tidemark/sys/detail/resident_linux.hpp>
#include <tidemark/sys/detail/resident_unknown.hpp>

namespace tidemark {
inline namespace v0 {

using detail::os::allocator_kind;

/// "glibc", "musl", "jemalloc", "tcmalloc", "mimalloc", "sanitizer".
[[nodiscard]] constexpr std::string_view name_of(allocator_kind kind) noexcept {
  switch (kind) {
    case allocator_kind::glibc:
      return "glibc";
    case allocator_kind::musl:
      return "musl";
    case allocator_kind::jemalloc:
      return "jemalloc";
    case allocator_kind::tcmalloc:
      return "tcmalloc";
    case allocator_kind::mimalloc:
      return "mimalloc";
    case allocator_kind::sanitizer:
      return "sanitizer";
  }
  return "unknown";
}

/// What the allocator counts itself, of the whole process and with nothing hooked. Units: bytes.
struct allocator_reading {
  using bytes = reading<std::int64_t>;

  reading<allocator_kind> kind = reading<allocator_kind>::absent("not read");
  /// In blocks that are allocated, rounded up to the sizes that it gives; tidemark's stamps are in it. glibc counts
  /// the freed blocks that threads keep for themselves too, up to seven of each size below 1 KiB.
  bytes in_use_bytes = bytes::absent("not read");
  /// Held beyond that: free blocks, whose pages may be resident or not (glibc); resident free pages, caches and books
  /// (jemalloc, tcmalloc).
  bytes retained_bytes = bytes::absent("not read");
};

/// The allocator below any hook of tidemark's. Threads: any, but not within the allocator's own hooks.
/// Cost: glibc walks its free blocks under its locks, one arena after the other.
[[nodiscard]] inline allocator_reading allocator_info() noexcept {
  using bytes = reading<std::int64_t>;
  const quiet hidden;
  detail::os::allocator_figures f;
  detail::os::ask_allocator(f);
  allocator_reading r;
  r.kind = f.why_no_kind == nullptr ? reading<allocator_kind>(f.kind)
                                    : reading<allocator_kind>::absent_because(f.why_no_kind);
  r.in_use_bytes = f.why_no_in_use == nullptr ? bytes(f.in_use) : bytes::absent_because(f.why_no_in_use);
  r.retained_bytes = f.why_no_retained == nullptr ? bytes(f.retained) : bytes::absent_because(f.why_no_retained);
  return r;
}

/// Makes the allocator give the system what it can, of every thread's memory where it can reach it. Returns by how
/// much the resident set fell meanwhile, which other threads have a part in: 0 where they took as much. Absent where
/// the allocator cannot be asked, or where what it gave is not known.
/// Cost: the allocator's own, under its locks; pages that are needed again have to be given anew.
inline reading<std::int64_t> trim_heap() noexcept {
  using result = reading<std::int64_t>;
  const quiet hidden;
  detail::os::resident_now before;
  detail::os::resident_now after;
  const char* const unread = detail::os::read_resident(before);
  if (const char* why = detail::os::give_back()) return result::absent_because(why);
  if (unread != nullptr) return result::absent_because(unread);
  if (const char* why = detail::os::read_resident(after)) return result::absent_because(why);
  return before.resident > after.resident ? before.resident - after.resident : 0;
}

}  // namespace v0
}  // namespace tidemark
