// SPDX-License-Identifier: MIT
// A scope: from its construction to its end it measures what its meters see, names the owner of what is allocated
// meanwhile, and leaves one record for the attached sinks.
#pragma once

#include <cstdint>
#include <exception>
#include <string_view>
#include <tuple>
#include <utility>

#include <tidemark/config/config.hpp>
#include <tidemark/config/platform.hpp>
#include <tidemark/core/detail/names.hpp>
#include <tidemark/core/detail/os_clock.hpp>
#include <tidemark/core/gate.hpp>
#include <tidemark/core/location.hpp>
#include <tidemark/core/record.hpp>
#include <tidemark/core/sink.hpp>
#include <tidemark/scope/detail/frame.hpp>
#include <tidemark/scope/detail/windows.hpp>
#include <tidemark/scope/meter/process_heap.hpp>
#include <tidemark/scope/meter/resident.hpp>
#include <tidemark/scope/meter/thread_heap.hpp>

namespace tidemark {
inline namespace v0 {
inline namespace TIDEMARK_TAG {

/// A window in time with a name, over any meters. Neither copied nor moved: `std::optional`, lists and `std::unique_ptr`
/// hold it. Scopes may end in any order and on any thread.
/// Allocates: nothing while no sink is attached, but for the first use of a name. Cost: bench/README.md.
template <class... Meters>
class basic_scope {
  using windows = detail::meter_windows<Meters...>;
  using first_meter = std::tuple_element_t<0, std::tuple<Meters...>>;

 public:
  explicit basic_scope(std::string_view name, location where = location::current()) noexcept
      : where_(where), start_(name) {}

  basic_scope(const basic_scope&) = delete;
  basic_scope& operator=(const basic_scope&) = delete;

  ~basic_scope() {
#if !TIDEMARK_OPT_DISABLE
    if (is_open_ && detail::has_sinks()) {
      detail::contain_exceptions([this] { end(); }, [](const char*) { detail::drop_record(); });
    }
#endif
    windows_.drop();
    start_.place.leave();
  }

  /// Ends the scope now, delivers its record to the sinks, and returns it.
  /// Throws: `std::logic_error` the second time; `std::bad_alloc`, after which the scope has ended without a record.
  scope_record close() {
    if (!is_open_) detail::raise_logic_error("tidemark: this scope is closed already");
    return end();
  }

  /// What the first meter has seen so far. Threads: the one that opened the scope.
  [[nodiscard]] reading<window_usage> usage() const { return usage<first_meter>(); }

  /// The same for a meter of this scope.
  template <class Meter>
  [[nodiscard]] reading<window_usage> usage() const {
    return windows_.template read<Meter>();
  }

 protected:
  /// The window of a meter of this scope; null once it is closed.
  template <class Meter>
  [[nodiscard]] const typename Meter::window* window() const noexcept {
    return windows_.template find<Meter>();
  }

 private:
  // The meters close first and the path last, so that the scope's own work is in none of them.
  scope_record end() {
    is_open_ = false;
    typename windows::readings readings = windows_.close();
#if TIDEMARK_OPT_DISABLE
    const quiet hidden;
    scope_record record;
    record.owned_bytes = reading<std::int64_t>::absent("disabled");
#else
    const std::int64_t end_ns = detail::os::steady_ns();
    const bool is_unwinding = std::uncaught_exceptions() > start_.exceptions;
    start_.place.leave();
    const quiet hidden;
    scope_record record;
    start_.place.describe(record);
    record.start_ns = start_.ns;
    record.duration_ns = end_ns - start_.ns;
    record.left_by_exception = is_unwinding;
#endif
    record.where = detail::intern(where_);
    windows_.append_to(record.meters, std::move(readings));
#if !TIDEMARK_OPT_DISABLE
    detail::deliver(&sink::on_scope, record);
#endif
    return record;
  }

  struct start {
    detail::frame place;
    std::int64_t ns = 0;
    int exceptions = 0;

    explicit start(std::string_view name) noexcept {
#if TIDEMARK_OPT_DISABLE
      static_cast<void>(name);
#else
      place.enter(name);
      exceptions = std::uncaught_exceptions();
      ns = detail::os::steady_ns();
      place.started(ns);
#endif
    }
  };

  location where_;
  bool is_open_ = true;
  start start_;
  windows windows_;  // opens last
};

/// What this thread allocates.
using scope = basic_scope<meter::thread_heap>;

/// What the whole process allocates, and what the system charges it.
using process_scope = basic_scope<meter::process_heap, meter::resident>;

}  // namespace TIDEMARK_TAG
}  // namespace v0
}  // namespace tidemark

/// A `tidemark::scope` to the end of the block.
#define TIDEMARK_SCOPE(name) \
  const ::tidemark::scope TIDEMARK_DETAIL_JOIN(tidemark_scope_, __LINE__) { name }

/// The same, named after the function.
#define TIDEMARK_FUNCTION() TIDEMARK_SCOPE(static_cast<const char*>(__func__))
