// SPDX-License-Identifier: MIT
// How a caller names a tracked object.
#pragma once

#include <cstdint>
#include <memory>
#include <type_traits>

#include <tidemark/object/detail/edges.hpp>

namespace tidemark {
inline namespace v0 {
namespace detail {
class object_graph;
}

/// Names a tracked object for a question about it; none of its references is taken. Not explicit: it is what a caller has.
class object_key {
 public:
  template <class T>
  object_key(const std::shared_ptr<T>& pointer) noexcept : owner_(detail::owner_of(pointer)) {}
  /// A `tracked_weak`.
  template <class Weak, std::enable_if_t<detail::is_weak_handle<Weak>, int> = 0, class = decltype(&Weak::id)>
  object_key(const Weak& handle) noexcept : id_(handle.id()) {}
  /// An address within it: `this`, a member's.
  object_key(const void* address) noexcept : address_(address) {}

 private:
  friend class detail::object_graph;
  const void* owner_ = nullptr;
  std::uint64_t id_ = 0;
  const void* address_ = nullptr;
};

}  // namespace v0
}  // namespace tidemark
