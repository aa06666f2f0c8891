// SPDX-License-Identifier: MIT
// How many objects of a type are alive, and which types grow: objgraph's show_most_common_types and show_growth for
// C++.
//
//   struct layer : tidemark::counted<layer> { ... };
//   std::puts(tidemark::live_types().table().c_str());
//
//   const auto mark = tidemark::mark_types();
//   serve(requests);
//   std::puts(tidemark::type_growth(mark).table().c_str());   // what the requests left behind
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <tidemark/core/bytes.hpp>
#include <tidemark/core/detail/names.hpp>
#include <tidemark/core/detail/order.hpp>
#include <tidemark/core/detail/os_clock.hpp>
#include <tidemark/core/detail/table.hpp>
#include <tidemark/core/detail/text.hpp>
#include <tidemark/core/gate.hpp>
#include <tidemark/core/ledger.hpp>
#include <tidemark/core/location.hpp>
#include <tidemark/core/path.hpp>
#include <tidemark/core/sync.hpp>
#include <tidemark/object/detail/open_path.hpp>
#include <tidemark/object/detail/type_counts.hpp>

namespace tidemark {
inline namespace v0 {

namespace detail {
template <class T>
class placed_instances;
}  // namespace detail

/// `counted<T, count_sites>`: each object knows where it was made.
struct count_sites {};

/// A base without a size of its own that counts the objects of `T`. Copies and moves count, assignments do not; an
/// object whose own constructor throws was made and is gone. An object of a class derived from `T` is a `T`; it counts
/// as what it is as well where that class has such a base too.
/// Threads: any; live, peak and total are exact, so that all who make objects of one type write one cache line.
/// Cost: 16 ns for making and destroying one, 60 where two threads do nothing else (measured, g++ 12.2, x86-64).
template <class T, class Sites = void>
class counted {
  static_assert(std::is_void_v<Sites>, "tidemark: the second argument of counted<> is count_sites, or left out");

 public:
  counted() noexcept { detail::count_one_more<T>(); }
  counted(const counted&) noexcept : counted() {}
  counted(counted&&) noexcept : counted() {}
  counted& operator=(const counted&) noexcept = default;
  counted& operator=(counted&&) noexcept = default;
  ~counted() { detail::counts_of<T>.remove(); }
};

/// The same, and `live_instances<T>()` lists the objects. 56 bytes in each of them. The place is where the constructor
/// of `T` stands, unless that hands on its caller's: `buffer(std::size_t n, location where = location::current()) :
/// counted(where) {}`. A copy, and what was moved to, has the place of what it comes from, and the scope and the age of
/// its own.
/// Cost: 50 ns for making and destroying one, 130 where two threads do nothing else (measured as above).
template <class T>
class counted<T, count_sites> {
 public:
  // Not explicit: the base of an aggregate is made from {}.
  counted(location where = location::current()) noexcept : place_{detail::open_path(), where, detail::os::steady_ns()} {
    detail::count_one_more<T>();
    detail::counts_of<T>.list(place_);
  }
  counted(const counted& other) noexcept : counted(other.place_.where) {}
  counted(counted&& other) noexcept : counted(other.place_.where) {}
  counted& operator=(const counted&) noexcept { return *this; }
  counted& operator=(counted&&) noexcept { return *this; }
  ~counted() {
    detail::counts_of<T>.unlist(place_);
    detail::counts_of<T>.remove();
  }

 private:
  friend class detail::placed_instances<T>;

  detail::counted_place place_;
};

/// Rows, and a table of them for a person.
template <class Row>
struct counted_rows {
  std::vector<Row> rows;

  [[nodiscard]] auto begin() const noexcept { return rows.begin(); }
  [[nodiscard]] auto end() const noexcept { return rows.end(); }
  [[nodiscard]] bool empty() const noexcept { return rows.empty(); }
  [[nodiscard]] std::size_t size() const noexcept { return rows.size(); }
  [[nodiscard]] const Row& operator[](std::size_t i) const noexcept { return rows[i]; }

  /// A line of titles and a line for each row, or for each group of alike rows. Throws: `std::bad_alloc`.
  [[nodiscard]] std::string table() const {
    const quiet hidden;
    return Row::table_of(rows);
  }
};

/// The objects of one counted type.
struct live_type {
  std::string_view type;    ///< kept for ever
  std::int64_t live = 0;    ///< made and not yet destroyed
  std::int64_t peak = 0;    ///< the most that were ever live at once
  std::uint64_t total = 0;  ///< ever made
  std::int64_t bytes = 0;   ///< `live` times the size of the type: what the objects allocated is not in it

  [[nodiscard]] static std::string table_of(const std::vector<live_type>& rows) {
    detail::text_table all({{"type", false}, {"live", true}, {"peak", true}, {"total", true}, {"bytes", true}});
    for (const live_type& r : rows) {
      all.add({detail::printable(r.type), detail::grouped(r.live), detail::grouped(r.peak), detail::grouped(r.total),
               format_bytes(r.bytes)});
    }
    return all.text();
  }
};

/// A type of which there are more objects than there were.
struct grown_type {
  std::string_view type;         ///< kept for ever
  std::int64_t delta = 0;        ///< how many more
  std::int64_t live = 0;         ///< how many now
  std::int64_t delta_bytes = 0;  ///< `delta` times the size of the type

  [[nodiscard]] static std::string table_of(const std::vector<grown_type>& rows) {
    detail::text_table all({{"type", false}, {"delta", true}, {"live", true}, {"bytes", true}});
    for (const grown_type& r : rows) {
      all.add({detail::printable(r.type), '+' + detail::grouped(r.delta), detail::grouped(r.live),
               '+' + format_bytes(r.delta_bytes)});
    }
    return all.text();
  }
};

/// One object that knows where it was made.
struct live_instance {
  const void* address = nullptr;
  std::string path;  ///< of the scope that was open, "serve/request"; empty: none
  location where;
  std::int64_t age_ns = 0;

  [[nodiscard]] inline static std::string table_of(const std::vector<live_instance>& rows);
};

namespace detail {

[[nodiscard]] inline live_type row_of(const type_counts& c) noexcept {
  // Objects that are made meanwhile may be in one number and not yet in the next.
  live_type r;
  r.type = c.name();
  r.live = c.live();
  r.peak = greater(c.peak(), r.live);
  r.total = greater(c.total(), static_cast<std::uint64_t>(r.peak));
  r.bytes = r.live * c.object_bytes();
  return r;
}

/// `f(const type_counts&)` of every type of which there ever was an object.
template <class F>
void for_each_counted_type(F f) {
  const counted_types* all = find_registry<counted_types>();
  for (const type_counts* c = all == nullptr ? nullptr : all->newest(); c != nullptr; c = c->older()) f(*c);
}

/// The first `limit` rows, most first; types alike by name.
template <class Row>
void keep_most(std::vector<Row>& rows, std::int64_t Row::*number, std::size_t limit) {
  std::sort(rows.begin(), rows.end(), [number](const Row& a, const Row& b) {
    return a.*number != b.*number ? a.*number > b.*number : a.type < b.type;
  });
  if (rows.size() > limit) rows.resize(limit);
}

}  // namespace detail

/// The counted types that have live objects, most objects first.
/// Threads: any. Throws: `std::bad_alloc`. What it allocates is in no number, here and below.
[[nodiscard]] inline counted_rows<live_type> live_types(std::size_t limit = 20) {
  const quiet hidden;
  counted_rows<live_type> all;
  detail::for_each_counted_type([&](const detail::type_counts& c) {
    const live_type r = detail::row_of(c);
    if (r.live != 0) all.rows.push_back(r);
  });
  detail::keep_most(all.rows, &live_type::live, limit);
  return all;
}

/// The row of one type, also where it has no objects. Cost: no search.
template <class T>
[[nodiscard]] live_type live_type_of() noexcept {
  return detail::row_of(detail::counts_of<T>);
}

/// How many objects of each counted type there are at this moment: what `type_growth` compares with.
class type_mark {
 private:
  friend type_mark mark_types();
  friend counted_rows<grown_type> type_growth(const type_mark& since, std::size_t limit);
  friend counted_rows<grown_type> next_type_growth(type_mark& since, std::size_t limit);

  // Types that had no object yet have no entry.
  [[nodiscard]] std::int64_t at(std::size_t index) const noexcept { return index < live_.size() ? live_[index] : 0; }
  template <class OnGrown>
  [[nodiscard]] counted_rows<grown_type> growth(std::size_t limit, OnGrown on_grown) const {
    counted_rows<grown_type> all;
    detail::for_each_counted_type([&](const detail::type_counts& c) {
      const live_type now = detail::row_of(c);
      const std::int64_t delta = now.live - at(c.index());
      if (delta <= 0) return;
      all.rows.push_back({now.type, delta, now.live, delta * c.object_bytes()});
      on_grown(c.index(), now.live);
    });
    detail::keep_most(all.rows, &grown_type::delta, limit);
    return all;
  }

  std::vector<std::int64_t> live_;  // by type_counts::index()
};

/// Throws: `std::bad_alloc`.
[[nodiscard]] inline type_mark mark_types() {
  const quiet hidden;
  type_mark m;
  detail::for_each_counted_type([&](const detail::type_counts& c) {
    if (m.live_.size() <= c.index()) m.live_.resize(c.index() + 1);  // at the first, which has the highest
    m.live_[c.index()] = c.live();
  });
  return m;
}

/// The types of which there are more objects than at the mark, those that grew most first. Throws: `std::bad_alloc`.
[[nodiscard]] inline counted_rows<grown_type> type_growth(const type_mark& since, std::size_t limit = 20) {
  const quiet hidden;
  return since.growth(limit, [](std::size_t, std::int64_t) {});
}

/// The same, and the mark rises to what is live now: the next call tells what grew beyond the highest count that any
/// call before it saw, as each call of objgraph's show_growth does. Throws: `std::bad_alloc`, and the mark is as it
/// was.
[[nodiscard]] inline counted_rows<grown_type> next_type_growth(type_mark& since, std::size_t limit = 20) {
  const quiet hidden;
  type_mark raised = since;
  auto all = since.growth(limit, [&](std::size_t index, std::int64_t live) {
    if (raised.live_.size() <= index) raised.live_.resize(index + 1);
    raised.live_[index] = live;
  });
  since = std::move(raised);
  return all;
}

namespace detail {

/// Reads the list that a type keeps of its objects.
template <class T>
class placed_instances {
 public:
  [[nodiscard]] static std::vector<live_instance> all() {
    std::vector<found> places;
    // Nothing is allocated in the lock: room is made before it, again where there are more by then.
    for (std::size_t room = 0, count = 1; places.size() < count; room = count) {
      places.reserve(room);
      counts_of<T>.with_places([&](const counted_place* newest, std::size_t placed) {
        count = placed;
        if (places.capacity() < count) return;
        for (const counted_place* p = newest; p != nullptr; p = p->older) {
          places.push_back({p, p->path, p->where, p->born_ns});
        }
      });
    }
    const std::int64_t now = os::steady_ns();
    std::vector<live_instance> rows;
    rows.reserve(places.size());
    for (auto p = places.rbegin(); p != places.rend(); ++p) {  // oldest first
      rows.push_back(
          {address_of(p->place), path_text(p->path), intern(p->where), greater(now - p->born_ns, std::int64_t{0})});
    }
    return rows;
  }

 private:
  struct found {
    const counted_place* place;  // maybe gone by now
    const path_node* path;
    location where;
    std::int64_t born_ns;
  };

  // The object may be half made or half destroyed, so that a cast to its type would lie about it.
  [[nodiscard]] static const void* address_of(const counted_place* place) noexcept {
    using member = counted_place T::*;
    const auto in_object = member(&counted<T, count_sites>::place_);  // as a cast of old: the base may be private
    const auto somewhere = std::uintptr_t{1} << 20;
    const auto distance =
        reinterpret_cast<std::uintptr_t>(&(reinterpret_cast<const T*>(somewhere)->*in_object)) - somewhere;
    return reinterpret_cast<const char*>(place) - distance;
  }
};

}  // namespace detail

/// The objects of `T`, oldest first. Threads: any; an address may be stale where another thread destroys the object.
/// Throws: `std::bad_alloc`. Cost: no object is made or destroyed while the list is copied.
template <class T>
[[nodiscard]] counted_rows<live_instance> live_instances() {
  static_assert(std::is_base_of_v<counted<T, count_sites>, T>,
                "tidemark: live_instances<T>() needs struct T : counted<T, count_sites>");
  const quiet hidden;
  return {detail::placed_instances<T>::all()};
}

inline std::string live_instance::table_of(const std::vector<live_instance>& rows) {
  struct group {
    std::size_t first;
    std::int64_t count;
  };
  const auto is_alike = [](const live_instance& a, const live_instance& b) {
    return a.where.line() == b.where.line() && a.path == b.path &&
           std::string_view(a.where.file_name()) == b.where.file_name();
  };
  std::vector<group> groups;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const auto known =
        std::find_if(groups.begin(), groups.end(), [&](const group& g) { return is_alike(rows[g.first], rows[i]); });
    if (known != groups.end()) {
      ++known->count;
    } else {
      groups.push_back({i, 1});
    }
  }
  std::stable_sort(groups.begin(), groups.end(), [](const group& a, const group& b) { return a.count > b.count; });
  detail::text_table all({{"live", true}, {"scope", false}, {"made at", false}});
  for (const group& g : groups) {
    const live_instance& r = rows[g.first];
    all.add({detail::grouped(g.count), r.path.empty() ? std::string("none") : detail::printable(r.path),
             detail::printable(std::string(r.where.file_name()) + ':' + std::to_string(r.where.line()))});
  }
  return all.text();
}

}  // namespace v0
}  // namespace tidemark
