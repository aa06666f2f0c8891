// SPDX-License-Identifier: MIT
// One window of each of several meters, opened and closed together. In a translation unit with TIDEMARK_OPT_DISABLE none
// is ever opened, and every reading says so.
#pragma once

#include <cstddef>
#include <optional>
#include <tuple>
#include <type_traits>
#include <utility>

#include <tidemark/config/config.hpp>
#include <tidemark/config/platform.hpp>
#include <tidemark/core/reading.hpp>
#include <tidemark/core/usage.hpp>

namespace tidemark {
inline namespace v0 {
namespace detail {
inline namespace TIDEMARK_TAG {

template <class... Meters>
class meter_windows {
  static_assert(sizeof...(Meters) > 0, "nothing to measure: name at least one meter");

 public:
  template <class>
  using reading_of = reading<window_usage>;
  using readings = std::tuple<reading_of<Meters>...>;

#if TIDEMARK_OPT_DISABLE
  meter_windows() noexcept = default;
#else
  meter_windows() noexcept : windows_(std::in_place) {}
#endif

  /// Their last readings, in the order of the meters.
  [[nodiscard]] readings close() noexcept {
    if (!windows_) return readings{absent<Meters>()...};
    const auto close_each = [](auto&... w) { return readings{told_by<Meters>(w.close())...}; };  // from left to right
    readings last = std::apply(close_each, *windows_);
    windows_.reset();
    return last;
  }

  /// Forgets them unread.
  void drop() noexcept { windows_.reset(); }

  template <class Meter>
  [[nodiscard]] reading<window_usage> read() const {
    static_assert((std::is_same_v<Meter, Meters> || ...), "this scope has no such meter");
    if (!windows_) return absent<Meter>();
    return told_by<Meter>(std::get<index_of<Meter>()>(*windows_).usage());
  }

  template <class Meter>
  [[nodiscard]] static constexpr std::size_t index_of() noexcept {
    std::size_t index = 0;
    static_cast<void>(((std::is_same_v<Meter, Meters> ? false : (++index, true)) && ...));
    return index;
  }

 private:
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

  template <class>
  [[nodiscard]] static reading<window_usage> absent() noexcept {
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
