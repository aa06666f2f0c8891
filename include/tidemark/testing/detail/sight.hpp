// SPDX-License-Identifier: MIT
// Whether what this thread allocates is seen: nothing holds because nothing was.
#pragma once

#include <cstdint>
#include <new>
#include <string_view>

#include <tidemark/config/platform.hpp>
#include <tidemark/core/gate.hpp>
#include <tidemark/core/ledger.hpp>
#include <tidemark/testing/extent.hpp>

namespace tidemark {
inline namespace v0 {
namespace detail {
namespace checks {

inline constexpr std::string_view why_hidden = "a tidemark::quiet is open on this thread and hides what it allocates";

[[nodiscard]] inline bool is_hidden() noexcept { return this_thread().quiet_depth > 0; }

inline namespace TIDEMARK_TAG {

/// Why what this thread allocates is not seen. Empty: one escaped allocation was, and on the library's own account, so
/// that no check around this one counts it.
[[nodiscard]] inline std::string_view why_thread_unseen() {
  if (hook_state() == hook_kind::none) return hook_reason();
  const slot* s = current_slot();
  if (s == nullptr) return "this thread has no account: it is ending, or memory ran out";
  if (is_hidden()) return why_hidden;
  const quiet hidden;
  const std::int64_t before = s->quiet_blocks.load();
  void* p = ::operator new(1, std::nothrow);
  escape(p);
  const std::int64_t during = s->quiet_blocks.load();
  ::operator delete(p);
  if (during == before + 1 && s->quiet_blocks.load() == before) return {};
  return "one allocation was made to try, and the heap hook did not see it";
}

/// The same of an extent. A domain counts without a hook, and whatever is hidden.
[[nodiscard]] inline std::string_view why_unseen(const testing::extent& over) {
  return over.what() == testing::extent::kind::domain ? std::string_view() : why_thread_unseen();
}

}  // namespace TIDEMARK_TAG
}  // namespace checks
}  // namespace detail
}  // namespace v0
}  // namespace tidemark
