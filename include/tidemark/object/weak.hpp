// SPDX-License-Identifier: MIT
// Shared objects whose end is known: when one dies, who is told, and how many bytes weak handles still hold of it.
//
//   std::shared_ptr<layer> l = tidemark::make_tracked<layer>(4096);
//   tidemark::tracked_weak<layer> w = l;                     // lock(), expired(), and what it was
//   tidemark::on_expire(w, [] { std::puts("gone"); });
//   for (const tidemark::zombie& z : tidemark::zombies()) ...   // dead, and their memory still held
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <tidemark/config/platform.hpp>
#include <tidemark/core/detail/os_clock.hpp>
#include <tidemark/core/detail/raise.hpp>
#include <tidemark/core/gate.hpp>
#include <tidemark/core/ledger.hpp>
#include <tidemark/core/location.hpp>
#include <tidemark/core/path.hpp>
#include <tidemark/object/detail/edges.hpp>
#include <tidemark/object/detail/expiry.hpp>
#include <tidemark/object/detail/tracked.hpp>
#include <tidemark/object/detail/tracked_block.hpp>

namespace tidemark {
inline namespace v0 {
inline namespace TIDEMARK_ERROR_TAG {

/// As std::make_shared: one block, std::enable_shared_from_this works, aliases and pointers to bases are the same object.
/// Its memory is the user's and counts; what is known of it is not.
/// Throws: what the constructor throws, `std::bad_alloc`. Threads: any.
/// Cost: over std::make_shared, 32 bytes and some 500 instructions in an object's life; 170 to 190 bytes of library memory, which
/// serve other objects later.
template <class T, class... Args>
[[nodiscard]] std::shared_ptr<T> make_tracked(Args&&... args) {
  return detail::make_tracked_at<T>(location(), std::forward<Args>(args)...);
}

/// A weak handle of a tracked object, of which it still tells the id, type and size when that is dead. There is no way to use
/// the object but lock(). Equality, order and hash are by id, and so by owner.
/// Threads: an instance as a std::weak_ptr, which copies as it do from any thread.
template <class T>
class tracked_weak {
 public:
  using element_type = T;

  /// Null: no object, and never one.
  constexpr tracked_weak() noexcept = default;

  /// Not explicit, as std::weak_ptr's is not. An empty pointer gives null.
  /// Throws: `std::invalid_argument` where the object was not made with make_tracked().
  template <class U, class = std::enable_if_t<std::is_convertible_v<std::shared_ptr<U>, std::shared_ptr<T>>>>
  tracked_weak(const std::shared_ptr<U>& owner) : weak_(owner), record_(record_of(owner)) {}

  template <class U, class = std::enable_if_t<std::is_convertible_v<std::shared_ptr<U>, std::shared_ptr<T>>>>
  tracked_weak(const tracked_weak<U>& other) noexcept : weak_(other.weak_), record_(other.record_) {}
  template <class U, class = std::enable_if_t<std::is_convertible_v<std::shared_ptr<U>, std::shared_ptr<T>>>>
  tracked_weak(tracked_weak<U>&& other) noexcept
      : weak_(std::move(other.weak_)), record_(std::exchange(other.record_, nullptr)) {}
  tracked_weak(const tracked_weak&) noexcept = default;
  tracked_weak(tracked_weak&& other) noexcept
      : weak_(std::move(other.weak_)), record_(std::exchange(other.record_, nullptr)) {}
  tracked_weak& operator=(const tracked_weak&) noexcept = default;
  tracked_weak& operator=(tracked_weak&& other) noexcept {
    tracked_weak taken(std::move(other));
    swap(taken);
    return *this;
  }
  ~tracked_weak() = default;

  /// The object, kept alive; empty once it is dead.
  [[nodiscard]] std::shared_ptr<T> lock() const noexcept { return weak_.lock(); }
  /// Whether lock() can give nothing any more; true of null as well. That it is false may be over at once.
  [[nodiscard]] bool expired() const noexcept { return weak_.expired(); }
  /// Null is not dead: it never had an object.
  [[nodiscard]] bool is_null() const noexcept { return record_ == nullptr; }

  /// From 1, in the order of creation, never given again; 0: null.
  [[nodiscard]] std::uint64_t id() const noexcept { return record_ == nullptr ? 0 : record_->id; }
  /// What was made, whatever `T` is: "nn::layer".
  [[nodiscard]] std::string_view type() const noexcept {
    return record_ == nullptr ? std::string_view() : record_->type;
  }
  /// Its sizeof.
  [[nodiscard]] std::int64_t bytes() const noexcept { return record_ == nullptr ? 0 : record_->object_bytes; }

  void reset() noexcept { *this = tracked_weak(); }
  void swap(tracked_weak& other) noexcept {
    weak_.swap(other.weak_);
    std::swap(record_, other.record_);
  }
  friend void swap(tracked_weak& a, tracked_weak& b) noexcept { a.swap(b); }

  /// What is known of the object; null of null.
  [[nodiscard]] detail::tracked_record* record() const noexcept { return record_; }

 private:
  template <class U>
  friend class tracked_weak;

  template <class U>
  [[nodiscard]] static detail::tracked_record* record_of(const std::shared_ptr<U>& owner) {
    if (detail::owner_of(owner) == nullptr) return nullptr;
    auto* objects = detail::find_registry<detail::tracked_objects>();
    detail::tracked_record* r = objects == nullptr ? nullptr : objects->find(owner);
    if (r == nullptr) {
      detail::raise_invalid_argument(
          "tidemark::tracked_weak: this std::shared_ptr's object is not tracked: make it with "
          "tidemark::make_tracked<T>(...) in place of std::make_shared or new");
    }
    return r;
  }

  std::weak_ptr<T> weak_;
  detail::tracked_record* record_ = nullptr;  // valid as long as `weak_` holds the block
};

template <class T, class U>
[[nodiscard]] bool operator==(const tracked_weak<T>& a, const tracked_weak<U>& b) noexcept {
  return a.id() == b.id();
}
template <class T, class U>
[[nodiscard]] bool operator!=(const tracked_weak<T>& a, const tracked_weak<U>& b) noexcept {
  return a.id() != b.id();
}
/// The older object first.
template <class T, class U>
[[nodiscard]] bool operator<(const tracked_weak<T>& a, const tracked_weak<U>& b) noexcept {
  return a.id() < b.id();
}

}  // namespace TIDEMARK_ERROR_TAG

namespace detail {
template <class T>
inline constexpr bool is_weak_handle<tracked_weak<T>> = true;
}

/// Names one callback of on_expire(). It may outlive the object; that it ends cancels nothing. Copies name the same callback.
class expiry_token {
 public:
  expiry_token() noexcept = default;
  expiry_token(std::shared_ptr<detail::expiry_entry> entry, detail::tracked_record* r) noexcept
      : entry_(std::move(entry)), objects_(r->home), control_(r->control) {}

  /// When it returns, the callback does not run and never will, and what it holds is gone: it waits for a call that runs,
  /// unless this thread is inside that call. So two callbacks that cancel each other may wait for ever.
  /// Returns whether it prevented the call. Threads: any, each with its own copy.
  bool cancel() noexcept {
    if (entry_ == nullptr) return false;
    if (!entry_->cancel()) {
      entry_->wait_until_over();
      return false;
    }
    objects_->remove(*entry_, control_);
    entry_->drop();
    return true;
  }

 private:
  std::shared_ptr<detail::expiry_entry> entry_;
  detail::tracked_objects* objects_ = nullptr;
  const void* control_ = nullptr;
};

inline namespace TIDEMARK_ERROR_TAG {

/// Calls `callback()` once, after the object's destructor and outside every lock, on the thread that let go of the object last;
/// at once where it is dead already. Of one object the newest callback comes first; one that falls due while its thread is
/// inside another follows after that. What it allocates counts, as the program's own; what it throws is said on the standard
/// error.
/// Throws: `std::invalid_argument` for a null handle, `std::bad_alloc`, what moving the callback throws. Threads: any.
template <class T, class F>
expiry_token on_expire(const tracked_weak<T>& weak, F callback) {
  detail::tracked_record* r = weak.record();
  if (r == nullptr) {
    detail::raise_invalid_argument("tidemark::on_expire: the handle is null: no object of it will ever die");
  }
  std::shared_ptr<detail::expiry_entry> entry;
  {
    const quiet hidden;
    entry = std::make_shared<detail::expiry_call<F>>(std::move(callback));
  }
  expiry_token token(entry, r);
  if (!r->home->add(*r, entry)) entry->call();
  return token;
}

}  // namespace TIDEMARK_ERROR_TAG

/// A dead object whose memory weak handles still hold.
struct zombie {
  std::uint64_t id;
  std::string_view type;
  std::int64_t bytes;   ///< still held: the object's and its control block's, as requested
  std::int64_t age_ns;  ///< since its death, steady clock
  std::string path;     ///< of the scope open at its creation; empty: none
  location where;       ///< empty unless it was made with TIDEMARK_MAKE_TRACKED
};

/// The largest first, then the oldest. Threads: any; what dies or goes meanwhile may be missed.
/// Throws: `std::bad_alloc`. Cost: one step per zombie.
[[nodiscard]] inline std::vector<zombie> zombies() {
  const quiet hidden;
  std::vector<zombie> rows;
  auto* objects = detail::find_registry<detail::tracked_objects>();
  if (objects == nullptr) return rows;
  struct dead_object {
    zombie row;
    const detail::path_node* path;
  };
  std::vector<dead_object> dead = objects->dead_rows([](const detail::tracked_record& r) {
    return dead_object{{r.id, r.type, r.block_bytes, r.died_ns, {}, r.where}, r.path};
  });
  const std::int64_t now = detail::os::steady_ns();
  rows.reserve(dead.size());
  for (dead_object& d : dead) {
    d.row.age_ns = now - d.row.age_ns;
    d.row.path = detail::path_text(d.path);
    rows.push_back(std::move(d.row));
  }
  std::sort(rows.begin(), rows.end(),
            [](const zombie& a, const zombie& b) { return a.bytes != b.bytes ? a.bytes > b.bytes : a.id < b.id; });
  return rows;
}

/// The tracked objects that live. Threads: any.
[[nodiscard]] inline tracked_totals live_tracked() noexcept {
  auto* objects = detail::find_registry<detail::tracked_objects>();
  return objects == nullptr ? tracked_totals() : objects->living();
}

/// What the rows of zombies() sum up to. Threads: any.
[[nodiscard]] inline tracked_totals zombie_totals() noexcept {
  auto* objects = detail::find_registry<detail::tracked_objects>();
  return objects == nullptr ? tracked_totals() : objects->zombies();
}

}  // namespace v0
}  // namespace tidemark

/// make_tracked<T>(args...), which also notes file and line. A type with a comma needs an alias.
#define TIDEMARK_MAKE_TRACKED(...) TIDEMARK_DETAIL_MAKE_TRACKED(__VA_ARGS__, )
// The last comma may stand in braces.
#define TIDEMARK_DETAIL_MAKE_TRACKED(type, ...) \
  ::tidemark::detail::tracked_maker<type>{::tidemark::location::current(), __VA_ARGS__}.made

/// Inside namespace std, where a hash of an own type belongs: std::unordered_set<tracked_weak<T>> works.
template <class T>
struct std::hash<tidemark::tracked_weak<T>> {
  [[nodiscard]] std::size_t operator()(const tidemark::tracked_weak<T>& weak) const noexcept {
    return std::hash<std::uint64_t>()(weak.id());
  }
};
