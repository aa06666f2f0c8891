// SPDX-License-Identifier: MIT
// One window of each of several meters, opened and closed together. In a translation unit with TIDEMARK_OPT_DISABLE none
// is ever opened, and every reading says so.
#pragma once

#include <cstddef>
#include <optional>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include <tidemark/config/config.hpp>
#include <tidemark/config/platform.hpp>
#include <tidemark/core/detail/names.hpp>
#include <tidemark/core/reading.hpp>
#include <tidemark/core/record.hpp>
#include <tidemark/core/usage.hpp>

namespace tidemark {
inline namespace v0 {
namespace detail {

/// Whether a meter has several readings, as meter::domains has.
template <class Meter, class = void>
inline constexpr bool has_many_readings = false;
template <class Meter>
inline constexpr bool has_many_readings<Meter, std::void_t<decltype(std::declval<typename Meter::window&>().close(
                                                   std::declval<std::vector<meter_reading>&>()))>> = true;

/// Stands for the readings of such a meter, which its window is asked for in the end.
struct many_readings {};

inline namespace TIDEMARK_TAG {

template <class... Meters>
class meter_windows {
  static_assert(sizeof...(Meters) > 0, "nothing to measure: name at least one meter");

 public:
  template <class Meter>
  using reading_of = std::conditional_t<has_many_readings<Meter>, many_readings, reading<window_usage>>;
  using readings = std::tuple<reading_of<Meters>...>;

#if TIDEMARK_OPT_DISABLE
  meter_windows() noexcept = default;
#else
  meter_windows() noexcept : windows_(std::in_place) {}
#endif

  /// Their last readings, in the order of the meters.
  [[nodiscard]] readings close() noexcept {
    if (!windows_) return readings{absent<Meters>()...};
    const auto close_each = [](auto&... w) { return readings{close_one<Meters>(w)...}; };  // from left to right
    return std::apply(close_each, *windows_);
  }

  /// Adds these readings to a record's, with those of meters that have many, and forgets the windows.
  /// Throws: `std::bad_alloc`.
  void append_to(std::vector<meter_reading>& all, readings last) {
    all.reserve(all.size() + sizeof...(Meters));
    const auto append_each = [&](auto&... r) { (append<Meters>(all, r), ...); };
    std::apply(append_each, last);
    windows_.reset();
  }

  /// Forgets them unread.
  void drop() noexcept { windows_.reset(); }

  template <class Meter>
  [[nodiscard]] reading<window_usage> read() const {
    static_assert(!has_many_readings<Meter>, "this meter has several readings: close() gives them all");
    const auto* w = find<Meter>();
    return w == nullptr ? absent<Meter>() : told_by<Meter>(w->usage());
  }

  /// Null once they are closed.
  template <class Meter>
  [[nodiscard]] const typename Meter::window* find() const noexcept {
    static_assert((std::is_same_v<Meter, Meters> || ...), "this scope has no such meter");
    return windows_ ? &std::get<index_of<Meter>()>(*windows_) : nullptr;
  }

 private:
  template <class Meter>
  [[nodiscard]] static constexpr std::size_t index_of() noexcept {
    std::size_t index = 0;
    static_cast<void>(((std::is_same_v<Meter, Meters> ? false : (++index, true)) && ...));
    return index;
  }

  template <class Meter>
  [[nodiscard]] static reading_of<Meter> close_one([[maybe_unused]] typename Meter::window& w) noexcept {
    if constexpr (has_many_readings<Meter>) {
      return {};
    } else {
      return told_by<Meter>(w.close());
    }
  }

  template <class Meter>
  void append(std::vector<meter_reading>& all, [[maybe_unused]] reading_of<Meter>& last) {
    if constexpr (!has_many_readings<Meter>) {
      all.push_back({intern(Meter::name), std::move(last), intern(Meter::unit)});
    } else if (windows_) {
      std::get<index_of<Meter>()>(*windows_).close(all);
    } else {
      all.push_back({intern(Meter::name), absent_reading(), intern(Meter::unit)});
    }
  }

  // Whether events are counted is the meter's to say, also where its windows leave the field at its default.
  template <class Meter>
  [[nodiscard]] static reading<window_usage> told_by(reading<window_usage> r) {
    if constexpr (!Meter::counts_events) {
      if (r) {
        window_usage u = *r;
        u.counts_events = false;
        return u;
      }
    }
    return r;
  }

  template <class Meter>
  [[nodiscard]] static reading_of<Meter> absent() noexcept {
    if constexpr (has_many_readings<Meter>) {
      return {};
    } else {
      return absent_reading();
    }
  }
  [[nodiscard]] static reading<window_usage> absent_reading() noexcept {
#if TIDEMARK_OPT_DISABLE
    return reading<window_usage>::absent("disabled");
#else
    return reading<window_usage>::absent("the scope is closed");
#endif
  }

  std::optional<std::tuple<typename Meters::window...>> windows_;
};

}  // namespace TIDEMARK_TAG
}  // namespace detail
}  // namespace v0
}  // namespace tidemark
