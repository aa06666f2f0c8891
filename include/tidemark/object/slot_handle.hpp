// SPDX-License-Identifier: MIT
// Objects in one dense array, named by handles of 8 bytes that never find another object than theirs: a place in the table that
// has served as often as its generation can count is retired, not used again.
//
//   tidemark::slot_map<particle> particles;
//   tidemark::slot_handle<particle> h = particles.emplace(0.5F);
//   if (particle* p = particles.find(h)) p->move();
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <type_traits>
#include <utility>
#include <vector>

#include <tidemark/config/platform.hpp>
#include <tidemark/core/detail/raise.hpp>

namespace tidemark {
inline namespace v0 {

/// Names an object of a slot_map<T>, also after it is gone. The default names none, and never will.
/// Threads: a plain value.
template <class T>
struct slot_handle {
  std::uint32_t index = 0;
  std::uint32_t generation = 0;  ///< odd: a life of the slot; 0: null

  [[nodiscard]] constexpr bool is_null() const noexcept { return generation == 0; }

  [[nodiscard]] friend constexpr bool operator==(slot_handle a, slot_handle b) noexcept {
    return a.index == b.index && a.generation == b.generation;
  }
  [[nodiscard]] friend constexpr bool operator!=(slot_handle a, slot_handle b) noexcept { return !(a == b); }
  [[nodiscard]] friend constexpr bool operator<(slot_handle a, slot_handle b) noexcept {
    return a.index != b.index ? a.index < b.index : a.generation < b.generation;
  }
};

inline namespace TIDEMARK_ERROR_TAG {

/// Objects side by side, in no order: an object moves when others are added or erased, and its handle finds it still. Handles
/// are of one map: another may find an object of its own by them. A copy of a map is found by the same handles.
/// Each slot serves 2^31 objects; `Generation` is narrower for tests. At most 2^32 - 1 slots.
/// `T` is movable; what it is made with, and its move, must not call the map; its destructor may.
/// Threads: as a std::vector. Cost: find() is two loads from memory; 12 bytes per object besides the object, 8 per retired slot.
template <class T, class Generation = std::uint32_t>
class slot_map {
  static_assert(std::is_unsigned_v<Generation> && sizeof(Generation) <= sizeof(std::uint32_t),
                "tidemark: a generation is an unsigned number of at most 32 bits");

 public:
  using handle = slot_handle<T>;
  using iterator = T*;
  using const_iterator = const T*;

  slot_map() = default;
  slot_map(const slot_map&) = default;
  slot_map& operator=(const slot_map&) = default;
  slot_map(slot_map&& other) noexcept { swap(other); }
  slot_map& operator=(slot_map&& other) noexcept {
    slot_map taken(std::move(other));
    swap(taken);
    return *this;
  }
  ~slot_map() = default;

  /// Throws: what making or moving an object throws, `std::bad_alloc`; the map is then as it was.
  template <class... Args>
  handle emplace(Args&&... args) {
    if (first_free_ == none) add_slot();
    const std::size_t place = objects_.size();
    if (owners_.size() == place) owners_.push_back(none);
    objects_.emplace_back(std::forward<Args>(args)...);
    const std::uint32_t index = first_free_;
    slot& s = slots_[index];
    first_free_ = s.place;
    owners_[place] = index;
    s.place = static_cast<std::uint32_t>(place);
    ++s.generation;
    return {index, s.generation};
  }

  /// Whether there was such an object. Its destructor runs last, when the map is whole without it.
  /// Throws: what moving an object throws.
  bool erase(handle h) {
    if (!contains(h)) return false;
    slot& s = slots_[h.index];
    const std::uint32_t last = owners_[objects_.size() - 1];
    [[maybe_unused]] T erased = std::move(objects_[s.place]);
    if (last != h.index) objects_[s.place] = std::move(objects_.back());
    objects_.pop_back();
    slots_[last].place = s.place;
    owners_[s.place] = last;
    end_life(h.index);
    return true;
  }

  /// Erases every object. What they took is given back.
  void clear() noexcept {
    std::vector<T> erased;
    erased.swap(objects_);
    for (std::size_t i = 0; i < erased.size(); ++i) end_life(owners_[i]);
  }

  /// The object, until the map changes; null where it is gone.
  [[nodiscard]] T* find(handle h) noexcept { return contains(h) ? &objects_[slots_[h.index].place] : nullptr; }
  [[nodiscard]] const T* find(handle h) const noexcept {
    return contains(h) ? &objects_[slots_[h.index].place] : nullptr;
  }
  [[nodiscard]] bool contains(handle h) const noexcept {
    return (h.generation & 1U) != 0 && h.index < slots_.size() && slots_[h.index].generation == h.generation;
  }
  /// Of an object in this map: `for (const T& t : map) use(map.handle_of(t))`.
  [[nodiscard]] handle handle_of(const T& object) const noexcept {
    const std::uint32_t index = owners_[static_cast<std::size_t>(&object - objects_.data())];
    return {index, slots_[index].generation};
  }

  [[nodiscard]] iterator begin() noexcept { return objects_.data(); }
  [[nodiscard]] iterator end() noexcept { return objects_.data() + objects_.size(); }
  [[nodiscard]] const_iterator begin() const noexcept { return objects_.data(); }
  [[nodiscard]] const_iterator end() const noexcept { return objects_.data() + objects_.size(); }

  [[nodiscard]] std::size_t size() const noexcept { return objects_.size(); }
  [[nodiscard]] bool empty() const noexcept { return objects_.empty(); }
  /// Slots that never serve again.
  [[nodiscard]] std::size_t retired_slots() const noexcept { return retired_; }
  /// How many objects there is room for.
  [[nodiscard]] std::size_t capacity() const noexcept { return objects_.capacity(); }
  /// What the map itself takes of the heap; not what its objects own.
  [[nodiscard]] std::int64_t bytes() const noexcept {
    return static_cast<std::int64_t>(objects_.capacity() * sizeof(T) + owners_.capacity() * sizeof(std::uint32_t) +
                                     slots_.capacity() * sizeof(slot));
  }

  /// Throws: `std::bad_alloc`, what moving an object throws.
  void reserve(std::size_t objects) {
    objects_.reserve(objects);
    owners_.reserve(objects);
    slots_.reserve(objects + retired_);
  }

  void swap(slot_map& other) noexcept {
    objects_.swap(other.objects_);
    owners_.swap(other.owners_);
    slots_.swap(other.slots_);
    std::swap(first_free_, other.first_free_);
    std::swap(retired_, other.retired_);
  }
  friend void swap(slot_map& a, slot_map& b) noexcept { a.swap(b); }

 private:
  struct slot {
    std::uint32_t place = 0;    // of the object; of a free slot, the next free one
    Generation generation = 0;  // odd: it has an object
  };
  static constexpr std::uint32_t none = UINT32_MAX;

  void add_slot() {
    if (slots_.size() == none) detail::raise_bad_alloc();
    slots_.push_back({none, 0});
    first_free_ = static_cast<std::uint32_t>(slots_.size() - 1);
  }

  void end_life(std::uint32_t index) noexcept {
    slot& s = slots_[index];
    if (++s.generation == 0) {  // the next life's handles would be those of the first
      ++retired_;
      return;
    }
    s.place = first_free_;
    first_free_ = index;
  }

  std::vector<T> objects_;
  std::vector<std::uint32_t> owners_;  // the slot of each object; may have more places than there are objects
  std::vector<slot> slots_;
  std::uint32_t first_free_ = none;
  std::size_t retired_ = 0;
};

}  // namespace TIDEMARK_ERROR_TAG
}  // namespace v0
}  // namespace tidemark

/// Inside namespace std, where a hash of an own type belongs: std::unordered_map with handles as keys works.
template <class T>
struct std::hash<tidemark::slot_handle<T>> {
  [[nodiscard]] std::size_t operator()(tidemark::slot_handle<T> h) const noexcept {
    return std::hash<std::uint64_t>()(std::uint64_t{h.generation} << 32 | h.index);
  }
};
