// SPDX-License-Identifier: MIT
// One block with a control block and an object in it, as std::make_shared makes it; but the library gives the control block its
// place and ends the object itself. std::allocate_shared leaves that to an allocator only since C++20: in C++17 libc++
// never asks its allocator to destroy.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <type_traits>
#include <utility>

#include <tidemark/config/platform.hpp>
#include <tidemark/core/detail/raise.hpp>
#include <tidemark/core/ledger.hpp>
#include <tidemark/core/location.hpp>
#include <tidemark/object/detail/edges.hpp>
#include <tidemark/object/detail/open_path.hpp>
#include <tidemark/object/detail/tracked.hpp>
#include <tidemark/object/detail/type_name.hpp>

namespace tidemark {
inline namespace v0 {
namespace detail {

template <class T>
struct tracked_block {
  // A table pointer, two counts, a pointer, a deleter and an allocator: 48 bytes in libc++, 40 in libstdc++.
  alignas(void*) unsigned char control[6 * sizeof(void*)];
  alignas(T) unsigned char object[sizeof(T)];
};

/// Ends the object: its destructor, then the callbacks that wait for it.
template <class T>
struct tracked_deleter {
  tracked_record* record;

  void operator()(T* object) const noexcept {
    object->~T();
    record->home->end(*record);
  }
};

/// Gives the control block its place in the object's block, and the block back after it.
template <class U, class T>
struct tracked_allocator {
  using value_type = U;

  explicit tracked_allocator(tracked_record* r) noexcept : record(r) {}
  template <class V>
  tracked_allocator(const tracked_allocator<V, T>& other) noexcept : record(other.record) {}

  [[nodiscard]] U* allocate(std::size_t) noexcept {
    static_assert(sizeof(U) <= sizeof(tracked_block<T>::control) && alignof(U) <= alignof(void*),
                  "tidemark: this standard library's control block needs more room than is known");
    return static_cast<U*>(const_cast<void*>(record->control));
  }
  void deallocate(U* control, std::size_t) noexcept {
    record->home->give_back(*record);
    ::delete reinterpret_cast<tracked_block<T>*>(control);
  }

  template <class V>
  [[nodiscard]] friend bool operator==(const tracked_allocator& a, const tracked_allocator<V, T>& b) noexcept {
    return a.record == b.record;
  }
  template <class V>
  [[nodiscard]] friend bool operator!=(const tracked_allocator& a, const tracked_allocator<V, T>& b) noexcept {
    return a.record != b.record;
  }

  tracked_record* record;
};

/// A block and its record until the object is in it.
template <class T>
class unborn_object {
 public:
  unborn_object() = default;
  ~unborn_object() {
    if (record_ != nullptr) record_->home->give_back(*record_);
    ::delete block_;
  }
  unborn_object(const unborn_object&) = delete;
  unborn_object& operator=(const unborn_object&) = delete;

  /// Null: no memory.
  [[nodiscard]] tracked_record* begin(const location& where) {
    tracked_objects* objects = registry<tracked_objects>();
    if (objects == nullptr) return nullptr;
    block_ = ::new tracked_block<T>;
    record_ = objects->take(block_->control);
    if (record_ == nullptr) return nullptr;
    record_->type = type_name<T>();
    record_->object_bytes = sizeof(T);
    record_->block_bytes = sizeof(tracked_block<T>);
    record_->object = block_->object;
    record_->path = open_path();
    record_->where = where;
    record_->edges = edges_of<T>();
    return record_;
  }
  [[nodiscard]] void* place() const noexcept { return block_->object; }

  void release() noexcept {
    block_ = nullptr;
    record_ = nullptr;
  }

 private:
  tracked_block<T>* block_ = nullptr;
  tracked_record* record_ = nullptr;
};

inline namespace TIDEMARK_ERROR_TAG {

template <class T, class... Args>
[[nodiscard]] std::shared_ptr<T> make_tracked_at(const location& where, Args&&... args) {
  static_assert(std::is_object_v<T> && !std::is_array_v<T>, "tidemark: an object that is no array is tracked");
  using object = std::remove_cv_t<T>;
  unborn_object<object> unborn;
  // First: an object that another one makes in its constructor is younger.
  tracked_record* r = unborn.begin(where);
  if (r == nullptr) raise_bad_alloc();
  auto* made = static_cast<object*>(unborn.place());
  // The standard's header, so that a compiler warns of conversions in it no more than in std::make_shared.
  std::allocator<object> maker;
  std::allocator_traits<std::allocator<object>>::construct(maker, made, std::forward<Args>(args)...);
  unborn.release();
  std::shared_ptr<object> owner(made, tracked_deleter<object>{r}, tracked_allocator<object, object>(r));
  if (owner_of(owner) != r->control) {
    raise_logic_error(
        "tidemark::make_tracked: objects cannot be found by a std::shared_ptr of this standard library's layout");
  }
  r->self = owner;
  r->home->add(*r);
  return owner;
}

/// What a macro can write with a comma too many.
template <class T>
struct tracked_maker {
  template <class... Args>
  explicit tracked_maker(const location& where, Args&&... args)
      : made(make_tracked_at<T>(where, std::forward<Args>(args)...)) {}

  std::shared_ptr<T> made;
};

}  // namespace TIDEMARK_ERROR_TAG
}  // namespace detail
}  // namespace v0
}  // namespace tidemark
