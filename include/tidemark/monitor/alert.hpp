// SPDX-License-Identifier: MIT
// What a monitor may be asked to look out for. A condition is plain data: an input, a threshold, a name.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include <tidemark/config/config.hpp>
#include <tidemark/core/bytes.hpp>
#include <tidemark/core/detail/raise.hpp>
#include <tidemark/core/reading.hpp>
#include <tidemark/core/record.hpp>
#include <tidemark/gpu/device.hpp>

namespace tidemark {
inline namespace v0 {

/// Which figure of a sample an alert looks at.
enum class alert_input { resident, heap, limit, device, growth };

/// An input above a threshold. Made by the functions below; its name is what records and metrics call it.
struct alert_condition {
  std::string name;
  alert_input input = alert_input::resident;
  std::int64_t threshold_bytes = 0;  ///< not of `limit`
  double fraction = 0;               ///< of `limit`
  std::int64_t window_ns = 0;        ///< of `growth`
  std::string device_uuid = {};      ///< of `device`; empty: whichever uses most
  double clear_fraction = -1;        ///< of the threshold, where it clears; below 0: the monitor's

  /// The same under another name.
  [[nodiscard]] alert_condition named(std::string other) && {
    name = std::move(other);
    return std::move(*this);
  }
};

namespace detail {
inline namespace TIDEMARK_ERROR_TAG {

[[nodiscard]] inline alert_condition condition_above(const char* name, alert_input input, std::int64_t bytes) {
  if (bytes < 0) raise_invalid_argument("tidemark: an alert's threshold is 0 bytes or more");
  return {std::string(name) + "(" + format_bytes(bytes) + ")", input, bytes};
}

}  // namespace TIDEMARK_ERROR_TAG
}  // namespace detail

inline namespace TIDEMARK_ERROR_TAG {

// Each throws: `std::invalid_argument` for a negative threshold, `std::bad_alloc`.

/// The resident set of this process is above that.
[[nodiscard]] inline alert_condition resident_above(std::int64_t bytes) {
  return detail::condition_above("resident_above", alert_input::resident, bytes);
}

/// The live bytes of the heap are above that. Never without a heap hook.
[[nodiscard]] inline alert_condition heap_above(std::int64_t bytes) {
  return detail::condition_above("heap_above", alert_input::heap, bytes);
}

/// What counts towards the nearest limit (sys/limit.hpp) is above that part of it.
/// Throws: `std::invalid_argument` for a fraction that is not above 0 and at most 1.
[[nodiscard]] inline alert_condition above_fraction_of_limit(double fraction) {
  if (!(fraction > 0 && fraction <= 1)) {
    detail::raise_invalid_argument("tidemark::above_fraction_of_limit: the fraction is above 0 and at most 1");
  }
  const int permille = static_cast<int>(fraction * 1'000 + 0.5);
  std::string percent = std::to_string(permille / 10);
  if (permille % 10 != 0) percent += "." + std::to_string(permille % 10);
  alert_condition c{"above_fraction_of_limit(" + percent + "%)", alert_input::limit};
  c.fraction = fraction;
  return c;
}

/// What all processes use of some device is above that.
[[nodiscard]] inline alert_condition device_above(std::int64_t bytes) {
  return detail::condition_above("device_above", alert_input::device, bytes);
}

/// The same of one device. Throws: `std::invalid_argument` for one without a UUID.
[[nodiscard]] inline alert_condition device_above(const gpu::device& d, std::int64_t bytes) {
  if (d.uuid.empty()) detail::raise_invalid_argument("tidemark::device_above: the device has no uuid");
  alert_condition c = device_above(bytes);
  c.device_uuid = d.uuid;
  c.name.insert(c.name.size() - 1, " of " + d.uuid);
  return c;
}

/// The heap, or where it is not seen the resident set, is more than `bytes` above what it was `window` ago. Not before that
/// long has passed, and to a 32nd of it.
/// Throws: `std::invalid_argument` for a window that is not above 0.
[[nodiscard]] inline alert_condition growth_above(std::int64_t bytes, std::chrono::nanoseconds window) {
  if (window.count() <= 0) detail::raise_invalid_argument("tidemark::growth_above: the window is above 0");
  alert_condition c = detail::condition_above("growth_above", alert_input::growth, bytes);
  c.window_ns = window.count();
  const std::int64_t seconds = c.window_ns / 1'000'000'000;
  const bool is_seconds = seconds > 0 && seconds * 1'000'000'000 == c.window_ns;
  c.name.insert(c.name.size() - 1,
                " in " + (is_seconds ? std::to_string(seconds) + " s" : std::to_string(c.window_ns / 1'000) + " us"));
  return c;
}

}  // namespace TIDEMARK_ERROR_TAG

namespace detail {

/// The figure that tells growth: the heap where it is seen, else what is resident. No source: neither is known.
struct growing_figure {
  std::int64_t bytes = 0;
  const char* source = nullptr;
};
[[nodiscard]] inline growing_figure growing(const sample_record& s) noexcept {
  if (s.heap.has_value()) return {s.heap->live_bytes, "heap"};
  if (s.resident_bytes.has_value()) return {*s.resident_bytes, "resident"};
  return {};
}

/// What a value was a while ago.
class rise_history {
 public:
  void add(std::int64_t time_ns, std::int64_t value, std::int64_t window_ns) noexcept {
    // As a sample is kept for each 32nd of the window, the oldest of 34 is at least one window old.
    if (count_ > 0 && time_ns - points_[newest_].time_ns < window_ns / 32) return;
    newest_ = (newest_ + 1) % points_.size();
    points_[newest_] = {time_ns, value};
    if (count_ < points_.size()) ++count_;
  }

  /// The newest that is at least that old; false: none is.
  [[nodiscard]] bool find(std::int64_t time_ns, std::int64_t window_ns, std::int64_t& value) const noexcept {
    for (std::size_t back = 0; back < count_; ++back) {
      const point& p = points_[(newest_ + points_.size() - back) % points_.size()];
      if (time_ns - p.time_ns < window_ns) continue;
      value = p.value;
      return true;
    }
    return false;
  }

 private:
  struct point {
    std::int64_t time_ns, value;
  };
  std::array<point, 34> points_{};
  std::size_t newest_ = 0;
  std::size_t count_ = 0;
};

/// An alert of a monitor, from sample to sample. Threads: under the monitor's lock.
class alert_state {
 public:
  enum class event { nothing, raised, cleared, cannot_tell };

  /// What this sample does to it. `cannot_tell` comes once, with `why` as the reason.
  [[nodiscard]] event look(const alert_condition& c, const sample_record& s, double clear_fraction,
                           std::int64_t& value_bytes, std::int64_t& threshold_bytes, std::string_view& why) noexcept {
    const reading<std::int64_t>* missing = nullptr;
    const input in = read(c, s, missing);
    if (!in.is_known) {
      if (missing == nullptr || is_said_) return event::nothing;
      is_said_ = true;
      why = missing->why();
      return event::cannot_tell;
    }
    value_bytes = in.value;
    threshold_bytes = in.threshold;
    const double fraction = c.clear_fraction >= 0 ? c.clear_fraction : clear_fraction;
    const bool is_above = in.value > in.threshold;
    const bool is_clear = static_cast<double>(in.value) <= static_cast<double>(in.threshold) * fraction;
    if (is_raised_ ? !is_clear : !is_above) return event::nothing;
    is_raised_ = !is_raised_;
    return is_raised_ ? event::raised : event::cleared;
  }

  [[nodiscard]] bool is_raised() const noexcept { return is_raised_; }

 private:
  struct input {
    bool is_known = false;
    std::int64_t value = 0;
    std::int64_t threshold = 0;
  };

  /// `missing` stays null where there is nothing to compare with yet.
  [[nodiscard]] input read(const alert_condition& c, const sample_record& s,
                           const reading<std::int64_t>*& missing) noexcept {
    switch (c.input) {
      case alert_input::resident:
        return known(s.resident_bytes, c.threshold_bytes, missing);
      case alert_input::heap:
        if (s.heap.has_value()) return {true, s.heap->live_bytes, c.threshold_bytes};
        unknown_ = reading<std::int64_t>::absent_because("the heap is not seen: the program has no heap hook");
        missing = &unknown_;
        return {};
      case alert_input::limit: {
        if (!s.limit_bytes.has_value()) return known(s.limit_bytes, 0, missing);
        const double threshold = static_cast<double>(*s.limit_bytes) * c.fraction;
        return known(s.limit_used_bytes, threshold < 9e18 ? static_cast<std::int64_t>(threshold) : INT64_MAX, missing);
      }
      case alert_input::device:
        return of_devices(c, s, missing);
      case alert_input::growth:
        return of_growth(c, s, missing);
    }
    return {};
  }

  [[nodiscard]] static input known(const reading<std::int64_t>& r, std::int64_t threshold,
                                   const reading<std::int64_t>*& missing) noexcept {
    if (r.has_value()) return {true, *r, threshold};
    missing = &r;
    return {};
  }

  [[nodiscard]] input of_devices(const alert_condition& c, const sample_record& s,
                                 const reading<std::int64_t>*& missing) noexcept {
    input most;
    unknown_ = reading<std::int64_t>::absent_because(s.why_no_devices.empty() ? "no such device was sampled"
                                                                              : s.why_no_devices.data());
    missing = &unknown_;
    for (const device_sample& d : s.devices) {
      if (!c.device_uuid.empty() && d.uuid != c.device_uuid) continue;
      if (!d.used_bytes.has_value()) {
        if (!most.is_known) missing = &d.used_bytes;
      } else if (!most.is_known || *d.used_bytes > most.value) {
        most = {true, *d.used_bytes, c.threshold_bytes};
      }
    }
    return most;
  }

  [[nodiscard]] input of_growth(const alert_condition& c, const sample_record& s,
                                const reading<std::int64_t>*& missing) noexcept {
    const growing_figure now = growing(s);
    if (now.source == nullptr) {
      missing = &s.resident_bytes;
      return {};
    }
    std::int64_t before = 0;
    const bool is_old_enough = history_.find(s.time_ns, c.window_ns, before);
    history_.add(s.time_ns, now.bytes, c.window_ns);
    return {is_old_enough, now.bytes - before, c.threshold_bytes};
  }

  bool is_raised_ = false;
  bool is_said_ = false;
  rise_history history_;
  reading<std::int64_t> unknown_ = reading<std::int64_t>::absent("not read");
};

}  // namespace detail
}  // namespace v0
}  // namespace tidemark
