// SPDX-License-Identifier: MIT
// All live tracked objects and the edges between them, as they were while two readings of them agreed. Every object is kept
// alive for as long as the graph stands.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <tidemark/config/platform.hpp>
#include <tidemark/core/detail/names.hpp>
#include <tidemark/core/detail/os_thread.hpp>
#include <tidemark/core/ledger.hpp>
#include <tidemark/core/path.hpp>
#include <tidemark/object/cycle.hpp>
#include <tidemark/object/detail/edges.hpp>
#include <tidemark/object/detail/tracked.hpp>
#include <tidemark/object/object_key.hpp>

namespace tidemark {
inline namespace v0 {
namespace detail {

/// Registry of the one search that may run: another's hold on every object would look like that of the program.
class TIDEMARK_EXPORT search_turn {
 public:
  static constexpr std::uint64_t key = registry_key("object search");

  [[nodiscard]] bool take() noexcept {
    const void* nobody = nullptr;
    return searcher_.compare_exchange_strong(nobody, os::thread_mark(), std::memory_order_acquire,
                                             std::memory_order_relaxed);  // pairs with give_back()
  }
  void give_back() noexcept { searcher_.store(nullptr, std::memory_order_release); }  // pairs with take()

  /// A child does not have the thread that was searching, unless that one forked.
  void on_fork(fork_moment moment) noexcept {
    if (moment == fork_moment::after_in_child && searcher_.load(std::memory_order_relaxed) != os::thread_mark()) {
      give_back();
    }
  }

 private:
  std::atomic<const void*> searcher_{nullptr};
};

/// Threads: the one that made it.
class object_graph {
 public:
  using index = std::uint32_t;
  static constexpr index none = UINT32_MAX;

  struct edge {
    index to;
    std::uint64_t group;  // the type that lists the member, and the member
  };
  struct span {
    const edge* first;
    const edge* last;
    [[nodiscard]] const edge* begin() const noexcept { return first; }
    [[nodiscard]] const edge* end() const noexcept { return last; }
    [[nodiscard]] std::size_t size() const noexcept { return static_cast<std::size_t>(last - first); }
  };

  object_graph() = default;
  object_graph(const object_graph&) = delete;
  object_graph& operator=(const object_graph&) = delete;
  ~object_graph() {
    objects_.clear();  // the last references may be these, and destructors run
    if (turn_ != nullptr) turn_->give_back();
  }

  /// Reads all of it, up to `tries` times until two readings agree. Null, or the reason why there is no graph. Called once.
  /// Throws: what a type's `for_each_edge` throws; `std::bad_alloc`.
  [[nodiscard]] const char* take(int tries = 3) {
    search_turn* const turn = registry<search_turn>();
    if (turn == nullptr) return "no memory for a search";
    if (!turn->take()) return "another search over the tracked objects is running";
    turn_ = turn;
    do {
      if (try_take()) return nullptr;
    } while (--tries > 0);
    return objects_.size() < none ? unstable : "there are more tracked objects than a search can number";
  }

  static constexpr const char* unstable =
      "unstable: references between the objects changed while they were read; search while nothing changes them";

  [[nodiscard]] index size() const noexcept { return static_cast<index>(objects_.size()); }
  [[nodiscard]] const tracked_record& record(index i) const noexcept { return *objects_[i].record; }
  /// How many references no edge accounts for.
  [[nodiscard]] std::int64_t outside(index i) const noexcept { return outside_[i]; }
  [[nodiscard]] span edges(index i) const noexcept {
    return {edges_.data() + first_edge_[i], edges_.data() + first_edge_[i + 1]};
  }

  [[nodiscard]] index find(const object_key& key) const noexcept {
    if (key.owner_ != nullptr) return find_owner(key.owner_);
    if (key.id_ != 0) return find_id(key.id_);
    return key.address_ != nullptr ? find_address(key.address_) : none;
  }

  [[nodiscard]] object_info info(index i) const {
    const tracked_record& r = record(i);
    object_info o;
    o.id = r.id;
    o.type = std::string(r.type);
    o.bytes = r.block_bytes;
    o.path = path_text(r.path);
    if (r.where.line() != 0) o.where = intern(r.where);
    o.address = r.object;
    o.outside_references = outside_[i];
    return o;
  }

  /// The edges of one object to those for which `wanted(index)` holds, with their names, in the order of `edges(i)`. False
  /// where they are no longer those of the graph.
  template <class Wanted>
  [[nodiscard]] bool name_edges(index i, std::vector<object_edge>& into, const Wanted& wanted) const {
    edge_reader reader(*this, true);
    reader.wanted = [](const void* f, index to) -> bool { return (*static_cast<const Wanted*>(f))(to); };
    reader.wanted_context = &wanted;
    reader.read(record(i));
    if (!is_as_read(i, reader)) return false;
    const span known = edges(i);
    for (std::size_t e = 0; e < known.size(); ++e) {
      if (!wanted(known.first[e].to)) continue;
      into.push_back(std::move(reader.names[e]));
      into.back().from = record(i).id;
      into.back().to = record(known.first[e].to).id;
    }
    return true;
  }

 private:
  /// The object that a shared_ptr with this owner keeps alive.
  [[nodiscard]] index find_owner(const void* owner) const noexcept {
    for (std::size_t i = place_of(owner);; i = (i + 1) & (places_.size() - 1)) {
      if (places_[i].owner == owner || places_[i].object == none) return places_[i].object;
    }
  }
  /// The object that this address lies in.
  [[nodiscard]] index find_address(const void* address) const noexcept {
    const auto at = reinterpret_cast<std::uintptr_t>(address);
    for (index i = 0; i < size(); ++i) {
      const auto begin = reinterpret_cast<std::uintptr_t>(record(i).object);
      if (at - begin < static_cast<std::uintptr_t>(record(i).object_bytes)) return i;
    }
    return none;
  }
  [[nodiscard]] index find_id(std::uint64_t id) const noexcept {
    for (index i = 0; i < size(); ++i) {
      if (record(i).id == id) return i;
    }
    return none;
  }

  /// The edges of one object at a time.
  class edge_reader {
   public:
    explicit edge_reader(const object_graph& graph, bool with_names = false)
        : graph_(graph),
          walk_([](void* reader, const edge_walk& at,
                   const edge_found& found) { static_cast<edge_reader*>(reader)->take(at, found); },
                this, with_names),
          with_names_(with_names) {}

    std::vector<edge> edges;
    std::vector<object_edge> names;  // of `edges`, where they are wanted
    bool (*wanted)(const void* context, index to) = nullptr;
    const void* wanted_context = nullptr;

    std::vector<std::uintptr_t> places;  // where the shared_ptrs of `edges` lie; 0: temporary

    /// After those of the objects before.
    void append(const tracked_record& r) {
      if (r.edges != nullptr) walk_.run(r.object, r.edges, r.type);
    }
    void read(const tracked_record& r) {
      edges.clear();
      names.clear();
      places.clear();
      append(r);
    }

   private:
    void take(const edge_walk& at, const edge_found& found) {
      const index to = graph_.find_owner(found.owner);
      if (to == none) return;
      edges.push_back({to, at.group()});
      places.push_back(reinterpret_cast<std::uintptr_t>(found.place));
      if (!with_names_) return;
      names.emplace_back();
      if (!wanted(wanted_context, to)) return;
      names.back().name = at.name();
      names.back().type = std::string(at.type());
      names.back().member = std::string(at.member());
    }

    const object_graph& graph_;
    edge_walk walk_;
    bool with_names_;
  };

  /// Addresses, as many as it is made for.
  class address_set {
   public:
    explicit address_set(std::size_t most) {
      std::size_t count = 16;
      for (; count < most * 2; count *= 2) --shift_;
      places_.resize(count);
    }
    /// Whether it was not there. 0 never is.
    [[nodiscard]] bool add(std::uintptr_t address) noexcept {
      if (address == 0) return true;
      auto i = static_cast<std::size_t>(hash_of(address) >> shift_);
      for (; places_[i] != 0; i = (i + 1) & (places_.size() - 1)) {
        if (places_[i] == address) return false;
      }
      places_[i] = address;
      return true;
    }

   private:
    int shift_ = 60;
    std::vector<std::uintptr_t> places_;
  };

  [[nodiscard]] bool try_take() {
    objects_.clear();
    if (tracked_objects* const all = find_registry<tracked_objects>()) objects_ = all->hold_all();
    if (objects_.size() >= none) return false;
    index_owners();
    first_edge_.assign(1, 0);
    edge_reader reader(*this);
    for (index i = 0; i < size(); ++i) {
      reader.append(record(i));
      first_edge_.push_back(reader.edges.size());
    }
    edges_ = std::move(reader.edges);
    const std::vector<std::uintptr_t> places = std::move(reader.places);
    outside_.clear();
    for (const held_object& o : objects_) outside_.push_back(o.object.use_count() - 1);
    // The other way round, so that what moves from one to the next with the visits is not met at the same places again.
    for (index i = size(); i-- > 0;) {
      reader.read(record(i));
      if (!is_as_read(i, reader)) return false;
    }
    for (index i = 0; i < size(); ++i) {
      if (objects_[i].object.use_count() - 1 != outside_[i]) return false;
    }
    // One shared_ptr is one reference, however often it was told: a type may list a member that its base lists too, and two
    // objects what lies in a third that they share.
    address_set told(places.size());
    for (std::size_t e = 0; e < places.size(); ++e) {
      if (told.add(places[e]) && --outside_[edges_[e].to] < 0) return false;
    }
    return true;
  }

  [[nodiscard]] bool is_as_read(index i, const edge_reader& now) const noexcept {
    const span known = edges(i);
    if (now.edges.size() != known.size()) return false;
    for (std::size_t e = 0; e < known.size(); ++e) {
      if (now.edges[e].to != known.first[e].to || now.edges[e].group != known.first[e].group) return false;
    }
    return true;
  }

  [[nodiscard]] static std::uint64_t hash_of(std::uintptr_t address) noexcept {
    return (address >> 3) * 0x9e37'79b9'7f4a'7c15U;
  }
  [[nodiscard]] std::size_t place_of(const void* owner) const noexcept {
    return static_cast<std::size_t>(hash_of(reinterpret_cast<std::uintptr_t>(owner)) >> shift_);
  }
  void index_owners() {
    std::size_t count = 16;
    shift_ = 60;
    for (; count < objects_.size() * 2; count *= 2) --shift_;
    places_.assign(count, {});
    for (index n = 0; n < size(); ++n) {
      std::size_t i = place_of(record(n).control);
      while (places_[i].object != none) i = (i + 1) & (count - 1);
      places_[i] = {record(n).control, n};
    }
  }

  struct place {
    const void* owner = nullptr;
    index object = none;
  };

  search_turn* turn_ = nullptr;
  std::vector<held_object> objects_;
  std::vector<std::int64_t> outside_;
  std::vector<place> places_;  // of the objects, by owner
  int shift_ = 60;
  std::vector<std::size_t> first_edge_;
  std::vector<edge> edges_;
};

}  // namespace detail
}  // namespace v0
}  // namespace tidemark
