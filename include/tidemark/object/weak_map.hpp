// SPDX-License-Identifier: MIT
// Tables that know objects and keep none alive: an entry is gone when its object is. Any std::shared_ptr will do.
//
//   tidemark::weak_value_map<std::string, tokenizer> loaded;
//   std::shared_ptr<tokenizer> t = loaded.get_or_create(path, [&] { return std::make_shared<tokenizer>(path); });
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include <tidemark/config/platform.hpp>
#include <tidemark/core/detail/os_thread.hpp>
#include <tidemark/core/detail/raise.hpp>
#include <tidemark/core/ledger.hpp>
#include <tidemark/core/sync.hpp>
#include <tidemark/object/detail/edges.hpp>
#include <tidemark/object/detail/tracked.hpp>
#include <tidemark/object/detail/weak_table.hpp>
#include <tidemark/sys/detail/wake_linux.hpp>
#include <tidemark/sys/detail/wake_unknown.hpp>

namespace tidemark {
inline namespace v0 {
inline namespace TIDEMARK_ERROR_TAG {

/// Keys to objects that live elsewhere. To find() a dead one is to find nothing; its entry goes with a later call: after as many
/// calls as there were entries, there are at most twice the living and 16.
/// Hash and equality are the user's; equality is called under the lock, and must not call the map. Keys and weak handles end
/// outside it.
/// Threads: any. Allocates: for each entry, and for all of them as they grow. Cost: constant in the long run; now and then a
/// call visits every entry.
template <class Key, class T, class Hash = std::hash<Key>, class Equal = std::equal_to<Key>>
class weak_value_map {
 public:
  weak_value_map() = default;
  explicit weak_value_map(Hash hash, Equal equal = Equal()) : hash_(std::move(hash)), equal_(std::move(equal)) {}
  weak_value_map(const weak_value_map&) = delete;
  weak_value_map& operator=(const weak_value_map&) = delete;
  ~weak_value_map() = default;

  /// From now on the key finds that object, whatever it found before.
  /// Throws: `std::invalid_argument` for an empty pointer; `std::bad_alloc`; what the key's copy, hash and equality throw.
  void put(Key key, const std::shared_ptr<T>& object) {
    if (detail::owner_of(object) == nullptr) {
      detail::raise_invalid_argument("tidemark::weak_value_map::put: an empty std::shared_ptr owns no object");
    }
    const std::size_t hash = hash_(key);
    auto fresh = std::make_unique<node>(hash, std::move(key));
    fresh->object = object;
    on_entry(hash, fresh->key, [&](node* known) {
      if (known != nullptr) {
        known->object.swap(fresh->object);  // the old handle ends with `fresh`
      } else {
        table_.link(*fresh.release());
      }
    });
  }

  /// The living object, or empty. Throws: what hash and equality throw.
  [[nodiscard]] std::shared_ptr<T> find(const Key& key) const {
    std::shared_ptr<T> found;
    on_entry(hash_(key), key, [&](node* known) {
      if (known != nullptr) found = known->object.lock();
    });
    return found;
  }

  /// The living object; or else what `factory()` makes, a std::shared_ptr, outside the lock and in one thread at a time for each
  /// key. Others who ask for that key wait for it, and are the next to make it where it throws or gives nothing: the key is then
  /// absent. What put() sets meanwhile wins.
  /// Throws: what `factory` throws; `std::logic_error` where it asks for its own key; as put(). Two factories on two threads
  /// that ask for each other's keys wait for ever.
  template <class Factory>
  [[nodiscard]] std::shared_ptr<T> get_or_create(const Key& key, Factory&& factory) {
    const std::size_t hash = hash_(key);
    std::shared_ptr<T> found;
    if (node* mine = find_or_begin(hash, key, found)) {
      making made(*this, *mine);
      found = made.keep(std::forward<Factory>(factory)());
    }
    return found;
  }

  /// Whether it was there and lived. A get_or_create() that runs for the key sets it again when it ends.
  /// Throws: what hash and equality throw.
  bool erase(const Key& key) {
    std::weak_ptr<T> erased;  // ends after the lock
    bool is_erased = false;
    on_entry(hash_(key), key, [&](node* known) {
      if (known == nullptr) return;
      is_erased = !known->object.expired();
      known->object.swap(erased);
    });
    return is_erased;
  }

  /// As erase() of every key.
  void clear() noexcept {
    for (bool is_empty = false; !is_empty;) {
      detail::released_nodes<node> released;
      std::weak_ptr<T> erased;  // ends after the lock
      const detail::spin_guard held(table_.lock);
      table_.remove_if(released, [](const node& n) { return n.maker == nullptr; });
      is_empty = true;
      table_.for_each([&](node& n) {  // those that wait for their object
        if (!is_empty || n.object.expired()) return;
        is_empty = false;
        n.object.swap(erased);
      });
    }
  }

  /// The living. Cost: visits every entry.
  [[nodiscard]] std::size_t size() const noexcept {
    std::size_t living = 0;
    const detail::spin_guard held(table_.lock);
    table_.for_each([&](const node& n) { living += n.object.expired() ? 0U : 1U; });
    return living;
  }

  /// The living at one moment, in no order, held as long as the snapshot is. Others may change the map meanwhile.
  /// Throws: `std::bad_alloc`, what copying a key throws.
  [[nodiscard]] std::vector<std::pair<Key, std::shared_ptr<T>>> snapshot() const {
    held_nodes held(table_);
    std::vector<std::pair<Key, std::shared_ptr<T>>> living;
    living.reserve(held.all.size());
    for (auto& [n, object] : held.all) living.emplace_back(n->key, std::move(object));
    return living;
  }

  /// Removes the dead now, and gives back what memory the living do not need.
  void purge() noexcept { table_.tidy(); }

 private:
  struct node : detail::weak_node<node> {
    node(std::size_t h, Key k) : detail::weak_node<node>(h), key(std::move(k)) {}

    [[nodiscard]] bool is_dead() const noexcept { return maker == nullptr && object.expired(); }

    const Key key;
    std::weak_ptr<T> object;
    const void* maker = nullptr;  // the thread that makes the object
    std::uint64_t process = 0;    // in which it does
  };

  /// Runs `f(node*)` under the lock, on the key's node or null, and then what is due.
  template <class F>
  void on_entry(std::size_t hash, const Key& key, const F& f) const {
    bool is_untidy = false;
    {
      const detail::spin_guard held(table_.lock);
      f(table_.find(hash, [&](const node& n) { return equal_(n.key, key); }));
      is_untidy = table_.is_untidy();
    }
    if (is_untidy) table_.tidy();
  }

  /// The node whose object this thread is to make; or null, and `found` is the object.
  [[nodiscard]] node* find_or_begin(std::size_t hash, const Key& key, std::shared_ptr<T>& found) {
    std::unique_ptr<node> fresh;
    for (;;) {
      enum { has_found, is_mine, is_absent, is_made, is_recursive } outcome = has_found;
      node* mine = nullptr;
      const std::uint32_t seen = changed_.seen();
      on_entry(hash, key, [&](node* known) {
        if (known != nullptr && (found = known->object.lock()) != nullptr) return;
        if (known == nullptr && fresh == nullptr) {
          outcome = is_absent;
          return;
        }
        // Whoever makes it in another process is not in this one, which is a fork child.
        if (known != nullptr && known->maker != nullptr && known->process == detail::ledger().process_id) {
          outcome = known->maker == detail::os::thread_mark() ? is_recursive : is_made;
          return;
        }
        outcome = is_mine;
        mine = known;
        if (mine == nullptr) {
          mine = fresh.release();
          table_.link(*mine);
        }
        mine->maker = detail::os::thread_mark();
        mine->process = detail::ledger().process_id;
      });
      if (outcome == has_found || outcome == is_mine) return mine;
      if (outcome == is_recursive) {
        detail::raise_logic_error(
            "tidemark::weak_value_map::get_or_create: the factory of a key asked for that same key, so it would wait "
            "for itself; make the inner object without the map");
      }
      if (outcome == is_absent) {
        fresh = std::make_unique<node>(hash, key);
      } else {
        changed_.wait(seen, 1'000'000'000);
      }
    }
  }

  /// The making of one object: however it ends, those who wait go on.
  class making {
   public:
    making(weak_value_map& map, node& n) noexcept : map_(map), node_(&n) {}
    ~making() {
      if (node_ != nullptr) end(nullptr);
    }
    making(const making&) = delete;
    making& operator=(const making&) = delete;

    /// What the key finds from now on.
    [[nodiscard]] std::shared_ptr<T> keep(std::shared_ptr<T> made) noexcept { return end(std::move(made)); }

   private:
    std::shared_ptr<T> end(std::shared_ptr<T> made) noexcept {
      std::weak_ptr<T> fresh(made);  // the old handle ends with it, after the lock
      std::shared_ptr<T> found;
      {
        const detail::spin_guard held(map_.table_.lock);
        found = node_->object.lock();
        if (found == nullptr) node_->object.swap(fresh);
        node_->maker = nullptr;
        node_ = nullptr;  // others may end it from now on
      }
      map_.changed_.wake();
      return found != nullptr ? found : made;
    }

    weak_value_map& map_;
    node* node_;
  };

  /// The living nodes, whose keys are read outside the lock.
  struct held_nodes {
    explicit held_nodes(const detail::weak_table<node>& t) : table(t) {
      for (std::size_t room = 0;;) {
        all.reserve(room);
        const detail::spin_guard held(table.lock);
        room = table.count();
        if (all.capacity() < room) continue;
        table.for_each([&](node& n) {
          std::shared_ptr<T> object = n.object.lock();
          if (object == nullptr) return;
          ++n.users;
          all.emplace_back(&n, std::move(object));
        });
        return;
      }
    }
    ~held_nodes() {
      detail::released_nodes<node> released;
      const detail::spin_guard held(table.lock);
      for (auto& [n, object] : all) released.add(*n);
    }
    held_nodes(const held_nodes&) = delete;
    held_nodes& operator=(const held_nodes&) = delete;

    const detail::weak_table<node>& table;
    std::vector<std::pair<node*, std::shared_ptr<T>>> all;
  };

  mutable detail::weak_table<node> table_;  // every call counts
  detail::os::wake_word changed_;           // an object was made, or its making failed
  Hash hash_;
  Equal equal_;
};

/// Objects that live elsewhere, each once: aliases and pointers to bases are the same object. Purged as weak_value_map is.
/// Threads: any.
template <class T>
class weak_set {
 public:
  weak_set() = default;
  weak_set(const weak_set&) = delete;
  weak_set& operator=(const weak_set&) = delete;
  ~weak_set() = default;

  /// Whether it was not there yet.
  /// Throws: `std::invalid_argument` for an empty pointer, `std::bad_alloc`.
  bool insert(const std::shared_ptr<T>& object) {
    if (detail::owner_of(object) == nullptr) {
      detail::raise_invalid_argument("tidemark::weak_set::insert: an empty std::shared_ptr owns no object");
    }
    auto fresh = std::make_unique<node>(hash_of(object), object);
    bool is_new = false;
    on_entry(object, [&](const node* known) {
      is_new = known == nullptr;
      if (is_new) table_.link(*fresh.release());
    });
    return is_new;
  }

  template <class U>
  [[nodiscard]] bool contains(const std::shared_ptr<U>& object) const {
    bool is_known = false;
    on_entry(object, [&](const node* known) { is_known = known != nullptr; });
    return is_known;
  }

  /// Whether it was there.
  template <class U>
  bool erase(const std::shared_ptr<U>& object) {
    detail::released_nodes<node> released;
    bool is_known = false;
    on_entry(object, [&](node* known) {
      is_known = known != nullptr;
      if (is_known) table_.unlink(*known, released);
    });
    return is_known;
  }

  void clear() noexcept {
    detail::released_nodes<node> released;
    const detail::spin_guard held(table_.lock);
    table_.remove_if(released, [](const node&) { return true; });
  }

  /// The living. Cost: visits every entry.
  [[nodiscard]] std::size_t size() const noexcept {
    std::size_t living = 0;
    const detail::spin_guard held(table_.lock);
    table_.for_each([&](const node& n) { living += n.object.expired() ? 0U : 1U; });
    return living;
  }

  /// The living at one moment, in no order, held as long as the snapshot is. Throws: `std::bad_alloc`.
  [[nodiscard]] std::vector<std::shared_ptr<T>> snapshot() const {
    std::vector<std::shared_ptr<T>> living;
    for (std::size_t room = 0;;) {
      living.reserve(room);
      const detail::spin_guard held(table_.lock);
      room = table_.count();
      if (living.capacity() < room) continue;
      table_.for_each([&](const node& n) {
        if (std::shared_ptr<T> object = n.object.lock()) living.push_back(std::move(object));
      });
      return living;
    }
  }

  /// Removes the dead now, and gives back what memory the living do not need.
  void purge() noexcept { table_.tidy(); }

 private:
  struct node : detail::weak_node<node> {
    node(std::size_t h, const std::shared_ptr<T>& o) noexcept : detail::weak_node<node>(h), object(o) {}

    [[nodiscard]] bool is_dead() const noexcept { return object.expired(); }

    const std::weak_ptr<T> object;
  };

  template <class U>
  [[nodiscard]] static std::size_t hash_of(const std::shared_ptr<U>& object) noexcept {
    return reinterpret_cast<std::uintptr_t>(detail::owner_of(object)) / alignof(void*);
  }

  /// Runs `f(node*)` under the lock, on the object's node or null, and then what is due.
  template <class U, class F>
  void on_entry(const std::shared_ptr<U>& object, const F& f) const {
    bool is_untidy = false;
    {
      const detail::spin_guard held(table_.lock);
      f(table_.find(hash_of(object), [&](const node& n) { return detail::is_same_owner(n.object, object); }));
      is_untidy = table_.is_untidy();
    }
    if (is_untidy) table_.tidy();
  }

  mutable detail::weak_table<node> table_;  // every call counts
};

}  // namespace TIDEMARK_ERROR_TAG
}  // namespace v0
}  // namespace tidemark
