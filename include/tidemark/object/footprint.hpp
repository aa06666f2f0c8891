// SPDX-License-Identifier: MIT
// How many bytes of heap a value holds, found by copying it.
#pragma once

#include <cstdint>
#include <memory>
#include <new>
#include <type_traits>

#include <tidemark/config/config.hpp>
#include <tidemark/config/platform.hpp>
#include <tidemark/core/gate.hpp>
#include <tidemark/core/ledger.hpp>
#include <tidemark/core/reading.hpp>

namespace tidemark {
inline namespace v0 {
namespace detail {

/// Raw room for one value, so that a large one does not lie on the stack.
template <class T>
class value_room {
 public:
  value_room() : place_(std::allocator<T>().allocate(1)) {}
  ~value_room() { std::allocator<T>().deallocate(place_, 1); }
  value_room(const value_room&) = delete;
  value_room& operator=(const value_room&) = delete;

  [[nodiscard]] void* place() const noexcept { return place_; }

 private:
  T* place_;
};

}  // namespace detail

inline namespace TIDEMARK_TAG {

/// The heap bytes that a fresh copy of `value` needs, in requested sizes: what lies in it, at any depth. Not in it:
/// `sizeof` the value, room to spare such as a vector's beyond its size, what it shares (the object behind a
/// std::shared_ptr), and what its copying allocates on other threads or other than through the hook. 0 is a copy that
/// needs no heap.
/// Absent without a hook, with `hook_reason()`, and on a thread that is ending.
/// Threads: as copying the value. Allocates: the copy, in `quiet`: no scope, account or limit of the heap sees it. A
/// domain that the value's own allocators feed does, and may refuse it. Throws: what the copy constructor throws, and
/// `std::bad_alloc`.
/// Cost: a copy of the value and its destruction.
template <class T>
[[nodiscard]] reading<std::int64_t> footprint_of(const T& value) {
  static_assert(std::is_copy_constructible_v<T>,
                "tidemark: footprint_of() measures a copy of the value, and this type cannot be copied");
#if TIDEMARK_OPT_DISABLE
  static_cast<void>(value);
  return reading<std::int64_t>::absent("disabled");
#else
  const quiet hidden;
  const detail::slot* s = detail::current_slot();
  if (detail::ledger().hook == hook_kind::none) {
    return reading<std::int64_t>::absent_because(detail::ledger().hook_reason);
  }
  if (s == nullptr) {
    return reading<std::int64_t>::absent("this thread has no account: it is ending, or memory ran out");
  }
  const detail::value_room<T> room;
  const std::int64_t before = s->quiet_bytes.load();
  const T* const copy = ::new (room.place()) T(value);
  escape(copy);
  const std::int64_t after = s->quiet_bytes.load();
  std::destroy_at(copy);
  return after - before;
#endif
}

}  // namespace TIDEMARK_TAG
}  // namespace v0
}  // namespace tidemark
