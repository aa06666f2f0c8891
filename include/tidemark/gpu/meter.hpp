// SPDX-License-Identifier: MIT
// Meters of a device for scopes: what is used of it, by all processes, and what this process's memory pool holds there.
//
//   tidemark::basic_scope<tidemark::meter::thread_heap, tidemark::meter::device<>> step("train step");
#pragma once

#include <cstddef>
#include <string_view>

#include <tidemark/config/config.hpp>
#include <tidemark/config/platform.hpp>
#include <tidemark/core/detail/raise.hpp>
#include <tidemark/core/gate.hpp>
#include <tidemark/core/ledger.hpp>
#include <tidemark/core/reading.hpp>
#include <tidemark/core/usage.hpp>
#include <tidemark/gpu/detail/device_query.hpp>
#include <tidemark/gpu/detail/device_registry.hpp>
#include <tidemark/gpu/detail/figures.hpp>

namespace tidemark {
inline namespace v0 {
namespace detail {
namespace driver {

/// "device:12" as a constant.
template <int Ordinal, std::size_t PrefixSize>
class meter_name {
 public:
  constexpr explicit meter_name(const char (&prefix)[PrefixSize]) noexcept : text_() {
    std::size_t used = 0;
    for (; used + 1 < PrefixSize; ++used) text_[used] = prefix[used];
    int power = 1;
    while (Ordinal / power >= 10) power *= 10;
    for (; power > 0; power /= 10) text_[used++] = static_cast<char>('0' + Ordinal / power % 10);
  }
  [[nodiscard]] constexpr const char* text() const noexcept { return text_; }

 private:
  char text_[PrefixSize + 11];
};
template <int Ordinal>
inline constexpr meter_name<Ordinal, 8> device_meter_name{"device:"};
template <int Ordinal>
inline constexpr meter_name<Ordinal, 13> device_pool_meter_name{"device_pool:"};

inline namespace TIDEMARK_ERROR_TAG {

/// A window over what a device says of itself. `Figures` are `memory_figures` or `pool_figures`.
template <class Figures>
class device_gauge {
 public:
  device_gauge() noexcept = default;
  device_gauge(const device_gauge&) = delete;
  device_gauge& operator=(const device_gauge&) = delete;
  ~device_gauge() { end(); }

  void open(int ordinal) noexcept {
    why_ = no_memory;
    guarded([&] {
      queried_device asked;
      Figures now;
      device_node* node = nullptr;
      why_ = find_visible(ordinal, asked, node);
      if (why_ == nullptr) why_ = ask(asked, true, now);
      if (why_ != nullptr) return;
      window_ = registry<device_registry>()->open(*node, now);
      why_ = window_ == nullptr ? no_memory : nullptr;
      node_ = node;
    });
  }

  [[nodiscard]] reading<window_usage> read(bool must_be_new) const noexcept {
    using absent = reading<window_usage>;
    if (window_ == nullptr) return absent::absent_because(why_);
    const char* why = no_memory;
    window_usage u;
    guarded([&] {
      Figures now;
      device_state state;
      registry<device_registry>()->with_lock([&] { state = node_->state; });
      const queried_device asked = query_of(state);
      why = ask(asked, must_be_new, now);
      if (why == nullptr) why = registry<device_registry>()->read(*window_, now, u);
    });
    if (why != nullptr) return absent::absent_because(why);
    return u;
  }

  void end() noexcept {
    if (window_ != nullptr) registry<device_registry>()->close(*node_, *window_);
    window_ = nullptr;
    why_ = "closed: the window is closed";
  }

 private:
  template <class F>
  static void guarded(F f) noexcept {
    const quiet hidden;
    contain_exceptions(f, [](const char*) {});
  }

  [[nodiscard]] static const char* ask(const queried_device& d, bool must_be_new, memory_figures& now) {
    const char* const why = read_memory(d, must_be_new, now);
    return why != nullptr ? why : now.used.why;
  }
  [[nodiscard]] static const char* ask(const queried_device& d, bool, pool_figures& now) {
    pool_answer a;
    const char* const why = read_pool(d, pool_kind::of_stream, false, a);
    now = a.before;
    if (why != nullptr) return why;
    return now.used.why != nullptr ? now.used.why : now.used_peak.why;
  }

  device_node* node_ = nullptr;
  device_window* window_ = nullptr;
  const char* why_ = "disabled";
};

}  // namespace TIDEMARK_ERROR_TAG

inline namespace TIDEMARK_TAG {

/// A meter's window. Threads: opened, read and closed by any.
template <class Figures, int Ordinal>
class meter_window {
 public:
  meter_window() noexcept {
#if !TIDEMARK_OPT_DISABLE
    gauge_.open(Ordinal);
#endif
  }
  meter_window(const device_window&) = delete;
  meter_window& operator=(const device_window&) = delete;

  /// So far; a reading of the device may be up to a millisecond old.
  [[nodiscard]] reading<window_usage> usage() const { return gauge_.read(false); }
  reading<window_usage> close() noexcept {
    const reading<window_usage> last = gauge_.read(true);
    gauge_.end();
    return last;
  }

 private:
  device_gauge<Figures> gauge_;
};

}  // namespace TIDEMARK_TAG
}  // namespace driver
}  // namespace detail

namespace meter {
inline namespace TIDEMARK_TAG {

/// What is used of the device that is visible as `Ordinal`, by all processes: among CUDA's ordinals where the machine
/// has devices of NVIDIA's, otherwise the place in `gpu::devices()`. The peak is *sampled*: the highest of the entry,
/// the exit and each `gpu::memory()` of that device meanwhile, such as the monitor's. It may have been higher between
/// them, by at most `error_bound_bytes`, which reaches up to all that the device has.
/// Cost: a call of the driver at each edge, up to the deadline.
template <int Ordinal = 0>
struct device {
  static_assert(Ordinal >= 0, "an ordinal is 0 or more");
  static constexpr const char* name = tidemark::detail::driver::device_meter_name<Ordinal>.text();
  static constexpr const char* unit = "bytes";
  static constexpr bool counts_events = false;
  static constexpr bool is_sampled = true;  ///< the peak is a lower bound

  using window = tidemark::detail::driver::meter_window<tidemark::detail::driver::memory_figures, Ordinal>;
};

/// What is allocated from the memory pool of the device that is visible as `Ordinal` (gpu/pool.hpp). Where the pool's
/// high mark rose in the window, that is the peak, exactly; otherwise the peak is the higher edge, and
/// `error_bound_bytes` reaches up to the mark. Nothing is reset. Absent where the program had no CUDA context at the
/// entry.
/// Cost: some calls of the driver at each edge, up to the deadline.
template <int Ordinal = 0>
struct device_pool {
  static_assert(Ordinal >= 0, "an ordinal is 0 or more");
  static constexpr const char* name = tidemark::detail::driver::device_pool_meter_name<Ordinal>.text();
  static constexpr const char* unit = "bytes";
  static constexpr bool counts_events = false;

  using window = tidemark::detail::driver::meter_window<tidemark::detail::driver::pool_figures, Ordinal>;
};

}  // namespace TIDEMARK_TAG
}  // namespace meter
}  // namespace v0
}  // namespace tidemark
