// SPDX-License-Identifier: MIT
// Weak pointers to an object that no std::shared_ptr holds, for the thread that the object belongs to. The source is the
// object's last member, so that it ends first and no view finds a half-destroyed object.
//
//   class connection {
//     tidemark::weak_view<connection> view() const { return source_.view(); }
//     ...
//     tidemark::weak_source<connection> source_{this};   // last
//   };
//   if (connection* c = view.get()) c->reply();
#pragma once

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <type_traits>
#include <utility>

#include <tidemark/config/platform.hpp>
#include <tidemark/core/detail/os_message.hpp>
#include <tidemark/core/detail/os_thread.hpp>
#include <tidemark/core/gate.hpp>

namespace tidemark {
inline namespace v0 {
namespace detail {

#if defined(NDEBUG)
inline namespace without_debug {
inline constexpr bool is_debug_build = false;
}
#else
inline namespace with_debug {
inline constexpr bool is_debug_build = true;
}
#endif

/// Shared by a source and its views.
class view_flag {
 public:
  /// `thread`: where it may be used, null for no check.
  explicit view_flag(const void* thread) noexcept : thread_(thread) {}

  void add_user() noexcept { users_.fetch_add(1, std::memory_order_relaxed); }  // by one who is one
  void remove_user() noexcept {
    if (users_.fetch_sub(1, std::memory_order_acq_rel) == 1) delete this;  // with the other removals
  }
  [[nodiscard]] bool has_views() const noexcept {
    return users_.load(std::memory_order_acquire) > 1;  // pairs with remove_user()
  }

  void invalidate() noexcept { is_valid_.store(false, std::memory_order_release); }  // pairs with is_valid()
  [[nodiscard]] bool is_valid() const noexcept { return is_valid_.load(std::memory_order_acquire); }  // invalidate()

  [[nodiscard]] const void* thread() const noexcept { return thread_; }

 private:
  ~view_flag() = default;

  std::atomic<std::uint32_t> users_{1};
  std::atomic<bool> is_valid_{true};
  const void* const thread_;
};

inline void expect_thread(const void* thread, const char* who) noexcept {
  if (TIDEMARK_LIKELY(thread == nullptr || thread == os::thread_mark())) return;
  os::say(who,
          " was called on another thread than the one that made the weak_source: the object may end during its use");
  std::abort();
}

}  // namespace detail

/// Sees an object until its source ends. 16 bytes.
/// Threads: made, copied and ended on any; get() on the source's alone.
template <class T>
class weak_view {
 public:
  /// Null: no object, and never one.
  constexpr weak_view() noexcept = default;
  weak_view(detail::view_flag& flag, T* object) noexcept : flag_(&flag), object_(object) { flag_->add_user(); }

  template <class U, class = std::enable_if_t<std::is_convertible_v<U*, T*>>>
  weak_view(const weak_view<U>& other) noexcept : flag_(other.flag_), object_(other.object_) {
    if (flag_ != nullptr) flag_->add_user();
  }
  weak_view(const weak_view& other) noexcept : flag_(other.flag_), object_(other.object_) {
    if (flag_ != nullptr) flag_->add_user();
  }
  weak_view(weak_view&& other) noexcept
      : flag_(std::exchange(other.flag_, nullptr)), object_(std::exchange(other.object_, nullptr)) {}
  weak_view& operator=(weak_view other) noexcept {
    std::swap(flag_, other.flag_);
    std::swap(object_, other.object_);
    return *this;
  }
  ~weak_view() {
    if (flag_ != nullptr) flag_->remove_user();
  }

  /// The object, or null where it is gone. Where the source checks threads, another thread's call ends the program with a
  /// message; where not, it is a race.
  [[nodiscard]] T* get() const noexcept {
    if (flag_ == nullptr) return nullptr;
    detail::expect_thread(flag_->thread(), "tidemark::weak_view::get");
    return flag_->is_valid() ? object_ : nullptr;
  }

  /// False: it will never be valid again. True is a hint, but on the source's thread. Threads: any.
  [[nodiscard]] bool maybe_valid() const noexcept { return flag_ != nullptr && flag_->is_valid(); }
  /// Whether it saw an object that is gone; a null view never did. Threads: any.
  [[nodiscard]] bool was_invalidated() const noexcept { return flag_ != nullptr && !flag_->is_valid(); }
  [[nodiscard]] bool is_null() const noexcept { return flag_ == nullptr; }

 private:
  template <class U>
  friend class weak_view;

  detail::view_flag* flag_ = nullptr;
  T* object_ = nullptr;
};

/// The last member of an object that is to be seen by views. Bound to the thread that makes it.
/// Whether threads are checked is decided where it is made: by default where NDEBUG is not defined.
/// Threads: the one that made it; it may end on another once no view is left. Allocates: 16 bytes with the first view, inside
/// `quiet`.
template <class T>
class weak_source {
 public:
  explicit weak_source(T* object, bool checks_thread = detail::is_debug_build) noexcept
      : object_(object), thread_(checks_thread ? detail::os::thread_mark() : nullptr) {}
  weak_source(const weak_source&) = delete;
  weak_source& operator=(const weak_source&) = delete;
  ~weak_source() { invalidate_all(); }

  /// Throws: `std::bad_alloc`.
  [[nodiscard]] weak_view<T> view() const {
    detail::expect_thread(thread_, "tidemark::weak_source::view");
    if (flag_ == nullptr) {
      const quiet hidden;
      flag_ = new detail::view_flag(thread_);
    }
    return weak_view<T>(*flag_, object_);
  }

  /// Views made so far see nothing any more; later ones do.
  void invalidate_all() noexcept {
    if (flag_ == nullptr) return;
    if (flag_->has_views()) detail::expect_thread(thread_, "tidemark::weak_source::invalidate_all");
    flag_->invalidate();
    std::exchange(flag_, nullptr)->remove_user();
  }

 private:
  T* object_;
  mutable detail::view_flag* flag_ = nullptr;  // null: no view was made
  const void* thread_;
};

}  // namespace v0
}  // namespace tidemark
