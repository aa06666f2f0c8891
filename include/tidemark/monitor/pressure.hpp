// SPDX-License-Identifier: MIT
// Caches give memory back before the kernel takes the process: when a monitor sees that the nearest limit is close, whatever
// has `shrink_to(bytes)` is asked to shrink.
//
//   const auto relief = tidemark::shrink_on_pressure(cache);   // at 90 % of the limit, down to 80 %
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <type_traits>
#include <utility>

#include <tidemark/config/config.hpp>
#include <tidemark/core/detail/os_message.hpp>
#include <tidemark/core/detail/raise.hpp>
#include <tidemark/core/gate.hpp>
#include <tidemark/core/record.hpp>
#include <tidemark/core/sink.hpp>
#include <tidemark/monitor/detail/pressure_list.hpp>

namespace tidemark {
inline namespace v0 {

struct pressure_options {
  double above_fraction = 0.9;   ///< of the nearest limit: more use than that is pressure
  double target_fraction = 0.8;  ///< of the limit: the use that shrinking aims at
  std::int64_t keep_bytes = 0;   ///< it is never asked to shrink below that
  /// For what cannot tell its size: what it holds at most. Under pressure it is asked for half of that, then for a quarter.
  std::int64_t full_bytes = -1;
};

namespace detail {

// What it holds, from `stats().bytes` or else `bytes()`; nothing where it has neither.
struct no_size {};
template <class T>
[[nodiscard]] auto size_of(const T& t, int) -> decltype(static_cast<std::int64_t>(t.stats().bytes)) {
  return static_cast<std::int64_t>(t.stats().bytes);
}
template <class T>
[[nodiscard]] auto size_of(const T& t, long) -> decltype(static_cast<std::int64_t>(t.bytes())) {
  return static_cast<std::int64_t>(t.bytes());
}
[[nodiscard]] inline no_size size_of(...) { return {}; }

template <class T>
inline constexpr bool tells_size = !std::is_same_v<decltype(size_of(std::declval<const T&>(), 0)), no_size>;

inline namespace TIDEMARK_TAG {

template <class T>
class shrinking final : public sink {
 public:
  shrinking(T& target, const pressure_options& options)
      : target_(target), options_(options), allowed_bytes_(options.full_bytes) {}

  void on_sample(const sample_record& s) override {
    if (is_asked_.exchange(true, std::memory_order_acquire)) return;  // by another check, at this moment
    contain_exceptions([&] { relieve(s); },
                       [&](const char* what) {
                         if (has_failed_.exchange(true, std::memory_order_relaxed)) return;  // said once
                         os::say("what shrinks under pressure threw: ", what,
                                 "; it is asked again (later ones are not said)");
                       });
    is_asked_.store(false, std::memory_order_release);  // pairs with the exchange
  }

 private:
  void relieve(const sample_record& s) {
    if (!s.limit_bytes.has_value() || !s.limit_used_bytes.has_value()) return;
    auto& given_back = find_registry<pressure_registry>()->given_back_bytes;
    const auto limit = static_cast<double>(*s.limit_bytes);
    const auto used = static_cast<double>(*s.limit_used_bytes - given_back.load(std::memory_order_relaxed));  // a hint
    if (used <= limit * options_.target_fraction) allowed_bytes_ = options_.full_bytes;
    if (static_cast<double>(*s.limit_used_bytes) <= limit * options_.above_fraction) return;
    const auto excess = static_cast<std::int64_t>(used - limit * options_.target_fraction);
    if (excess <= 0) return;
    const std::int64_t before = held_bytes();
    allowed_bytes_ = tells_size<T> ? before - excess : before / 2;
    if (allowed_bytes_ < options_.keep_bytes) allowed_bytes_ = options_.keep_bytes;
    if (allowed_bytes_ >= before) return;
    target_.shrink_to(allowed_bytes_);
    const std::int64_t after = held_bytes();
    if (after < before) given_back.fetch_add(before - after, std::memory_order_relaxed);  // counter only
  }

  [[nodiscard]] std::int64_t held_bytes() const {
    if constexpr (tells_size<T>) {
      return size_of(target_, 0);
    } else {
      return allowed_bytes_;
    }
  }

  T& target_;
  const pressure_options options_;
  std::int64_t allowed_bytes_;  // of what cannot tell its size
  std::atomic<bool> is_asked_{false};
  std::atomic<bool> has_failed_{false};
};

}  // namespace TIDEMARK_TAG
}  // namespace detail

inline namespace TIDEMARK_TAG {

/// While the attachment lives, each sample of any monitor that shows pressure asks `target.shrink_to(bytes)`, on the monitor's
/// thread, outside every lock and inside `quiet`. One after the other gives back what the others have not. `target` outlives
/// the attachment, whose destructor waits for a call that runs; what `shrink_to` throws is said on the standard error, once.
/// Does nothing where the limit is not known, without a monitor, and with TIDEMARK_OPT_DISABLE.
/// Throws: `std::invalid_argument` for fractions that are not above 0, at most 1 and in order, for a negative `keep_bytes`, and
/// where neither `stats().bytes`, `bytes()` nor `full_bytes` tells a size; `std::bad_alloc`.
template <class T>
[[nodiscard]] attachment shrink_on_pressure(T& target, pressure_options options = {}) {
  const bool is_ordered =
      options.target_fraction > 0 && options.target_fraction <= options.above_fraction && options.above_fraction <= 1;
  if (!is_ordered) {
    detail::raise_invalid_argument(
        "tidemark::shrink_on_pressure: above 0, target_fraction is at most above_fraction, and that is at most 1");
  }
  if (options.keep_bytes < 0) {
    detail::raise_invalid_argument("tidemark::shrink_on_pressure: keep_bytes is 0 or more");
  }
  if (!detail::tells_size<T> && options.full_bytes < 0) {
    detail::raise_invalid_argument(
        "tidemark::shrink_on_pressure: what has neither stats().bytes nor bytes() needs full_bytes");
  }
  const quiet hidden;
  return detail::attach_to<detail::pressure_registry>(std::make_shared<detail::shrinking<T>>(target, options));
}

}  // namespace TIDEMARK_TAG
}  // namespace v0
}  // namespace tidemark
