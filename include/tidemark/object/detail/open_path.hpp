// SPDX-License-Identifier: MIT
// The scope path that is open where an object is made.
#pragma once

#include <tidemark/core/detail/slot.hpp>
#include <tidemark/core/ledger.hpp>
#include <tidemark/core/path.hpp>

namespace tidemark {
inline namespace v0 {
namespace detail {

/// Of this thread's innermost open scope, or of the task that it joined since; null: none.
[[nodiscard]] inline const path_node* open_path() noexcept {
  const slot* s = current_slot();
  const thread_frame* f = s == nullptr ? nullptr : s->innermost.own();
  while (f != nullptr && f->is_abandoned()) f = f->older.own();
  return f == nullptr ? nullptr : f->path.own();
}

}  // namespace detail
}  // namespace v0
}  // namespace tidemark
