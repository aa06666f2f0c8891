// SPDX-License-Identifier: MIT
// What is known of each tracked object, from its creation until the last weak handle has let its memory go. A record is found
// by its object's control block: aliases and pointers to bases share that one. Records are library memory, never in the
// user's numbers, and used again; ids are not.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <string_view>
#include <utility>
#include <vector>

#include <tidemark/config/platform.hpp>
#include <tidemark/core/detail/os_clock.hpp>
#include <tidemark/core/ledger.hpp>
#include <tidemark/core/location.hpp>
#include <tidemark/core/path.hpp>
#include <tidemark/core/sync.hpp>
#include <tidemark/object/detail/edges.hpp>
#include <tidemark/object/detail/expiry.hpp>

namespace tidemark {
inline namespace v0 {

/// Objects made with make_tracked().
struct tracked_totals {
  std::int64_t objects = 0;
  std::int64_t bytes = 0;  ///< with their control blocks, as requested
};

namespace detail {

class tracked_objects;

/// What an object is, said once by whoever makes it.
struct tracked_record {
  tracked_objects* home = nullptr;  // also for a part of the program with a ledger of its own
  std::uint64_t id = 0;             // from 1 in the order of creation, never used again
  std::string_view type;
  std::int64_t object_bytes = 0;
  std::int64_t block_bytes = 0;  // the object with its control block, as requested
  const void* object = nullptr;
  const void* control = nullptr;    // the control block's address, as owner_of() tells it
  const path_node* path = nullptr;  // of the scope open at its creation; null: none
  location where;                   // empty unless it was made with TIDEMARK_MAKE_TRACKED
  edge_function* edges = nullptr;   // null: not known

  // Under the lock of its shard.
  std::int64_t died_ns = 0;            // 0: it lives
  std::weak_ptr<void> self;            // empty once it is dead, so that it keeps no block
  expiry_entry* callbacks = nullptr;   // newest first
  tracked_record* next = nullptr;      // in its bucket, among the dead, or among the free
  tracked_record* previous = nullptr;  // among the dead
};

/// A tracked object that is kept alive while it is looked at, and with it its record.
struct held_object {
  std::shared_ptr<void> object;
  const tracked_record* record;
};

template <class T, class U>
[[nodiscard]] bool is_same_owner(const T& a, const U& b) noexcept {
  return !a.owner_before(b) && !b.owner_before(a);
}

/// Registry of the tracked objects. Threads: any.
class TIDEMARK_EXPORT tracked_objects {
 public:
  static constexpr std::uint64_t key = registry_key("tracked objects");

  /// A record for the object whose control block will be there. Null: no memory.
  [[nodiscard]] tracked_record* take(const void* control) noexcept {
    shard& s = shard_of(control);
    tracked_record* r = nullptr;
    {
      const spin_guard held(s.lock);
      if (s.buckets == nullptr && !grow(s)) return nullptr;
      r = s.free;
      if (r != nullptr) s.free = r->next;
    }
    if (r == nullptr) {
      void* piece = ledger().memory.allocate(sizeof(tracked_record));
      if (piece == nullptr) return nullptr;
      r = new (piece) tracked_record;
    }
    *r = tracked_record();
    r->id = next_id_.fetch_add(1, std::memory_order_relaxed);  // counter only
    r->home = this;
    r->control = control;
    return r;
  }

  /// The object of a complete record can be found from now on.
  void add(tracked_record& r) noexcept {
    shard& s = shard_of(r.control);
    const spin_guard held(s.lock);
    if (static_cast<std::size_t>(s.living.objects) >= s.bucket_count) static_cast<void>(grow(s));  // or longer chains
    tracked_record*& bucket = bucket_of(s, r.control);
    r.next = bucket;
    bucket = &r;
    count(s.living, r, 1);
  }

  /// Its destructor has run: calls what waits for that, newest first. Never inlined: the frame of its caller is on the stack
  /// once for each object of a chain of owners that ends.
  TIDEMARK_NOINLINE void end(tracked_record& r) noexcept { expiries_.run(bury(r)); }

  /// Its block is given back, or was never used.
  void give_back(tracked_record& r) noexcept {
    shard& s = shard_of(r.control);
    const spin_guard held(s.lock);
    if (r.died_ns != 0) {
      (r.previous != nullptr ? r.previous->next : s.dead) = r.next;
      if (r.next != nullptr) r.next->previous = r.previous;
      count(s.zombies, r, -1);
    }
    r.next = s.free;
    s.free = &r;
  }

  /// The record of the object that `p` shares in the ownership of; null where that is not tracked.
  /// It stays as long as a shared_ptr or a weak_ptr of that object does.
  template <class T>
  [[nodiscard]] tracked_record* find(const std::shared_ptr<T>& p) noexcept {
    const void* control = owner_of(p);
    shard& s = shard_of(control);
    const spin_guard held(s.lock);
    if (s.buckets == nullptr) return nullptr;
    tracked_record* r = bucket_of(s, control);
    while (r != nullptr && !(r->control == control && is_same_owner(r->self, p))) r = r->next;
    return r;
  }

  /// From now on `e` waits for the object's end. False: that has come.
  [[nodiscard]] bool add(tracked_record& r, const std::shared_ptr<expiry_entry>& e) noexcept {
    const spin_guard held(shard_of(r.control).lock);
    if (r.died_ns != 0) return false;
    e->self = e;
    e->record = &r;
    e->next = r.callbacks;
    if (r.callbacks != nullptr) r.callbacks->previous = e.get();
    r.callbacks = e.get();
    return true;
  }

  /// It waits no longer. `control` is that of its object, whose record may serve another by now.
  void remove(expiry_entry& e, const void* control) noexcept {
    std::shared_ptr<expiry_entry> listed;  // let go after the lock
    const spin_guard held(shard_of(control).lock);
    if (e.record == nullptr) return;
    (e.previous != nullptr ? e.previous->next : e.record->callbacks) = e.next;
    if (e.next != nullptr) e.next->previous = e.previous;
    e.record = nullptr;
    listed.swap(e.self);
  }

  /// Every tracked object that lives, held. Whoever lets the last of these go runs its destructor.
  /// Throws: `std::bad_alloc`.
  [[nodiscard]] std::vector<held_object> hold_all() {
    std::vector<held_object> all;
    gather(
        all, [](const shard& s) { return s.living.objects; },
        [&](const shard& s) {
          for (std::size_t i = 0; i < s.bucket_count; ++i) {
            for (const tracked_record* r = s.buckets[i]; r != nullptr; r = r->next) {
              if (std::shared_ptr<void> object = r->self.lock()) all.push_back({std::move(object), r});
            }
          }
        });
    return all;
  }

  /// `row(const tracked_record&)` of each dead object whose block is still held. Throws: `std::bad_alloc`.
  template <class MakeRow>
  [[nodiscard]] auto dead_rows(MakeRow row) {
    std::vector<decltype(row(std::declval<const tracked_record&>()))> rows;
    gather(
        rows, [](const shard& s) { return s.zombies.objects; },
        [&](const shard& s) {
          for (const tracked_record* r = s.dead; r != nullptr; r = r->next) rows.push_back(row(*r));
        });
    return rows;
  }

  [[nodiscard]] tracked_totals living() noexcept { return sum(&shard::living); }
  [[nodiscard]] tracked_totals zombies() noexcept { return sum(&shard::zombies); }

  void on_fork(fork_moment moment) noexcept {
    for (shard& s : shards_) moment == fork_moment::before ? s.lock.lock() : s.lock.unlock();
    expiries_.on_fork(moment);
  }

 private:
  struct shard {
    spin_lock lock;
    tracked_record** buckets = nullptr;  // of the living
    std::size_t bucket_count = 0;
    tracked_record* dead = nullptr;  // newest first
    tracked_record* free = nullptr;
    tracked_totals living;
    tracked_totals zombies;
    std::uint64_t apart[6] = {};  // threads that use neighbours write different cache lines
  };
  static constexpr int shard_bits = 4;
  static constexpr std::size_t first_bucket_count = 512;  // a page

  [[nodiscard]] static std::uint64_t hash_of(const void* control) noexcept {
    return (reinterpret_cast<std::uintptr_t>(control) >> 3) * 0x9e37'79b9'7f4a'7c15U;
  }
  [[nodiscard]] shard& shard_of(const void* control) noexcept { return shards_[hash_of(control) >> (64 - shard_bits)]; }
  [[nodiscard]] static tracked_record*& bucket_of(shard& s, const void* control) noexcept {
    return s.buckets[(hash_of(control) >> 24) & (s.bucket_count - 1)];
  }

  // From the living to the dead. Returns the callbacks that wait for that.
  [[nodiscard]] expiry_entry* bury(tracked_record& r) noexcept {
    const std::int64_t now = os::steady_ns();
    std::weak_ptr<void> self;  // let go after the lock
    shard& s = shard_of(r.control);
    const spin_guard held(s.lock);
    self.swap(r.self);
    tracked_record** at = &bucket_of(s, r.control);
    while (*at != nullptr && *at != &r) at = &(*at)->next;
    if (*at == &r) {  // it was added
      *at = r.next;
      count(s.living, r, -1);
    }
    r.died_ns = now;
    r.previous = nullptr;
    r.next = s.dead;
    if (s.dead != nullptr) s.dead->previous = &r;
    s.dead = &r;
    count(s.zombies, r, 1);
    for (expiry_entry* e = r.callbacks; e != nullptr; e = e->next) e->record = nullptr;
    return std::exchange(r.callbacks, nullptr);
  }

  static void count(tracked_totals& sums, const tracked_record& r, int objects) noexcept {
    sums.objects += objects;
    sums.bytes += objects * r.block_bytes;
  }
  [[nodiscard]] tracked_totals sum(tracked_totals shard::*which) noexcept {
    tracked_totals all;
    for (shard& s : shards_) {
      const spin_guard held(s.lock);
      all.objects += (s.*which).objects;
      all.bytes += (s.*which).bytes;
    }
    return all;
  }

  [[nodiscard]] static bool grow(shard& s) noexcept {
    const std::size_t count = s.buckets == nullptr ? first_bucket_count : s.bucket_count * 4;
    void* pages = ledger().memory.map(count * sizeof(tracked_record*));
    if (pages == nullptr) return false;
    tracked_record** const old = std::exchange(s.buckets, static_cast<tracked_record**>(pages));
    const std::size_t old_count = std::exchange(s.bucket_count, count);
    for (std::size_t i = 0; i < old_count; ++i) {
      while (tracked_record* r = old[i]) {
        old[i] = r->next;
        tracked_record*& bucket = bucket_of(s, r->control);
        r->next = bucket;
        bucket = r;
      }
    }
    if (old != nullptr) ledger().memory.unmap(old, old_count * sizeof(tracked_record*));
    return true;
  }

  // Nothing is allocated in a lock: room is made before it, again where there are more by then.
  template <class Row, class Count, class Fill>
  void gather(std::vector<Row>& rows, Count count, Fill fill) {
    for (shard& s : shards_) {
      for (std::size_t room = 0;;) {
        rows.reserve(rows.size() + room);
        const spin_guard held(s.lock);
        room = static_cast<std::size_t>(count(s));
        if (rows.capacity() - rows.size() >= room) {
          fill(s);
          break;
        }
      }
    }
  }

  std::atomic<std::uint64_t> next_id_{1};
  shard shards_[1U << shard_bits];
  expiry_runs expiries_;
};

}  // namespace detail
}  // namespace v0
}  // namespace tidemark
