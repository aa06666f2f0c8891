// SPDX-License-Identifier: MIT
// Measuring one call, and wrapping a callable so that each of its calls is a scope.
#pragma once

#include <cstdint>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>

#include <tidemark/config/config.hpp>
#include <tidemark/config/platform.hpp>
#include <tidemark/core/detail/names.hpp>
#include <tidemark/core/detail/os_clock.hpp>
#include <tidemark/core/location.hpp>
#include <tidemark/core/reading.hpp>
#include <tidemark/core/usage.hpp>
#include <tidemark/scope/detail/windows.hpp>
#include <tidemark/scope/meter/thread_heap.hpp>
#include <tidemark/scope/scope.hpp>

namespace tidemark {
inline namespace v0 {

/// What `measure` found. `Result` may be a reference, or a type that cannot move.
template <class Result, class... Meters>
struct measurement {
  Result result;                                               ///< what the callable returned
  typename detail::meter_windows<Meters...>::readings usages;  ///< of every meter, in order
  std::int64_t duration_ns = 0;                                ///< steady clock
  reading<window_usage> usage = std::get<0>(usages);           ///< of the first meter
};

template <class... Meters>
struct measurement<void, Meters...> {
  typename detail::meter_windows<Meters...>::readings usages;
  std::int64_t duration_ns = 0;
  reading<window_usage> usage = std::get<0>(usages);
};

namespace detail {

/// What std::invoke does, members included; <functional> has 20k lines more than <tuple>.
template <class F, class... Args>
decltype(auto) invoke(F&& f, Args&&... args) {
  return std::apply(std::forward<F>(f), std::forward_as_tuple(std::forward<Args>(args)...));
}

}  // namespace detail

inline namespace TIDEMARK_TAG {

/// Runs `f(args...)` once and says what it took on this thread. Emits no record; an exception passes through.
/// `measure<meter::process_heap>(f)` uses other meters.
template <class... Meters, class F, class... Args>
[[nodiscard]] auto measure(F&& f, Args&&... args) {
  if constexpr (sizeof...(Meters) == 0) {
    return measure<meter::thread_heap>(std::forward<F>(f), std::forward<Args>(args)...);
  } else {
    static_assert((!detail::has_many_readings<Meters> && ...), "measure() has one reading for each meter: use a scope");
    using result = std::invoke_result_t<F, Args...>;
    const std::int64_t start_ns = detail::os::steady_ns();
    const auto elapsed = [start_ns] { return detail::os::steady_ns() - start_ns; };
    detail::meter_windows<Meters...> windows;
    if constexpr (std::is_void_v<result>) {
      detail::invoke(std::forward<F>(f), std::forward<Args>(args)...);
      return measurement<void, Meters...>{windows.close(), elapsed()};
    } else {
      // Braces evaluate from left to right: the call, the exit, the clock.
      return measurement<result, Meters...>{detail::invoke(std::forward<F>(f), std::forward<Args>(args)...),
                                            windows.close(), elapsed()};
    }
  }
}

/// A callable that behaves as `F`, each call of which is a scope. Made by `monitored`.
template <class F, class... Meters>
class monitored_callable {
 public:
  monitored_callable(std::string_view name, F f, location where)
      : name_(detail::intern(name)), where_(where), f_(std::move(f)) {}

  template <class... Args>
  std::invoke_result_t<F&, Args...> operator()(Args&&... args) {
    const basic_scope<Meters...> open(name_, where_);
    return detail::invoke(f_, std::forward<Args>(args)...);
  }
  template <class... Args>
  std::invoke_result_t<const F&, Args...> operator()(Args&&... args) const {
    const basic_scope<Meters...> open(name_, where_);
    return detail::invoke(f_, std::forward<Args>(args)...);
  }

 private:
  std::string_view name_;
  location where_;
  F f_;
};

/// Wraps a callable: it behaves as before and leaves one record per call, on whatever thread it runs.
/// `monitored<meter::process_heap>("x", f)` uses other meters.
template <class... Meters, class F>
[[nodiscard]] auto monitored(std::string_view name, F f, location where = location::current()) {
  if constexpr (sizeof...(Meters) == 0) {
    return monitored_callable<F, meter::thread_heap>(name, std::move(f), where);
  } else {
    return monitored_callable<F, Meters...>(name, std::move(f), where);
  }
}

}  // namespace TIDEMARK_TAG
}  // namespace v0
}  // namespace tidemark
