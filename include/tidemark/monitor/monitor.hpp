// SPDX-License-Identifier: MIT
// Samples the process at an interval: heap, resident set, the nearest limit, domains, devices. Each sample goes to the sinks,
// to the alerts that were asked for, and into the verdict on growth.
//
//   tidemark::monitor m;   // once a second, on a thread of its own
//   m.alert_when(tidemark::above_fraction_of_limit(0.9), [](const tidemark::alert_record& a) { page_someone(a.name); });
//   if (m.growth().verdict == tidemark::growth_verdict::leaking) ...
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include <tidemark/config/config.hpp>
#include <tidemark/config/platform.hpp>
#include <tidemark/core/detail/order.hpp>
#include <tidemark/core/detail/os_clock.hpp>
#include <tidemark/core/detail/os_message.hpp>
#include <tidemark/core/detail/os_thread.hpp>
#include <tidemark/core/detail/raise.hpp>
#include <tidemark/core/gate.hpp>
#include <tidemark/core/ledger.hpp>
#include <tidemark/core/record.hpp>
#include <tidemark/core/sink.hpp>
#include <tidemark/core/sync.hpp>
#include <tidemark/monitor/alert.hpp>
#include <tidemark/monitor/detail/bell.hpp>
#include <tidemark/monitor/detail/pressure_list.hpp>
#include <tidemark/monitor/detail/sampler.hpp>
#include <tidemark/monitor/growth.hpp>
#include <tidemark/sys/detail/service_thread_posix.hpp>
#include <tidemark/sys/detail/service_thread_unknown.hpp>

// A macro in headers of some systems.
#pragma push_macro("check")
#undef check

namespace tidemark {
inline namespace v0 {

struct monitor_options {
  std::chrono::nanoseconds interval = std::chrono::seconds{1};  ///< between samples; 0: no thread, `check()` is called
  /// At least that long between two questions to the drivers; 0: at each sample; below 0: devices are never asked.
  std::chrono::nanoseconds device_interval = std::chrono::seconds{5};
  std::function<std::int64_t()> now_ns = {};  ///< stamps samples; a steady clock of one's own, in nanoseconds
  std::size_t growth_samples = 600;           ///< how many `growth()` looks back on
  growth_options growth = {};
  double clear_fraction = 0.95;  ///< of its threshold, where an alert clears
};

namespace detail {

/// When the next sample is due: in step with the first, but never two at once to catch up.
[[nodiscard]] constexpr std::int64_t next_turn(std::int64_t due_ns, std::int64_t now_ns,
                                               std::int64_t interval_ns) noexcept {
  const std::int64_t next = due_ns + interval_ns;
  return next > now_ns ? next : now_ns + interval_ns;
}

}  // namespace detail

inline namespace TIDEMARK_TAG {

/// Watches this process. With TIDEMARK_OPT_DISABLE it does nothing.
/// A fork child has the monitor without its thread: it does nothing there until `restart()`, but `check()` works.
/// Threads: any, for every member; neither copied nor moved. Cost: some 40 us of processor time and twelve system calls at
/// most for each sample (bench/), devices apart; no heap allocation once it has taken some. Some 200 KiB, which are in no
/// number.
class monitor {
 public:
  /// Begins at once. Where the system refuses a thread it says so on the standard error, and `check()` is left.
  /// Throws: `std::invalid_argument` for an interval below 0, `growth_samples` not within 30 and 10,000,000, or a
  /// `clear_fraction` not within 0 and 1; `std::bad_alloc`.
  explicit monitor(monitor_options options = {}) : options_(std::move(options)), growth_(required(options_)) {
#if !TIDEMARK_OPT_DISABLE
    const quiet hidden;
    give_back(take_sampler());
    start();
#endif
  }
  /// Waits for a sample that is being taken. Not from inside of its own callbacks.
  ~monitor() {
    stop();
    const quiet hidden;
    while (sampler_list_ != nullptr) delete std::exchange(sampler_list_, sampler_list_->next_free);
    for (const alert* a = first_alert_.load(); a != nullptr;) delete std::exchange(a, a->next.load());
  }
  monitor(const monitor&) = delete;
  monitor& operator=(const monitor&) = delete;

  /// Takes one sample, now, and delivers it before it returns. From inside of a sink it goes to no sink.
  /// Throws: `std::bad_alloc`.
  void check() {
#if !TIDEMARK_OPT_DISABLE
    const quiet hidden;
    [[maybe_unused]] const detail::os::no_cancellation whole;
    const borrowed_sampler borrowed(*this);
    borrowed->take(now_ns(), options_.device_interval.count());
    const sample_record& s = borrowed->sample();
    const detail::growing_figure growing = detail::growing(s);
    const alert* last = nullptr;
    {
      const detail::spin_guard held(lock_);
      if (sampled_process_ != detail::os::process_id()) forget_parent();
      if (growing.source != nullptr) {
        if (growth_source_ != growing.source) growth_.clear();
        growth_source_ = growing.source;
        growth_.add(s.time_ns, growing.bytes);
      }
      last = last_alert_;  // one that a callback adds waits for the next sample
    }
    detail::deliver(&sink::on_sample, s);
    detail::relieve_pressure(s);
    for (alert* a = last == nullptr ? nullptr : first_alert_.load(); a != nullptr; a = a->next.load()) {
      look(*a, s);
      if (a == last) break;
    }
    if (auto* bell = detail::find_registry<detail::monitor_bell>()) bell->answer();
#endif
  }

  /// From the next sample on: `callback(const alert_record&)` once when the value rises above the threshold, and once when it
  /// comes back to `clear_fraction` of it; sinks are told too. Called inside `quiet`, outside every lock; what it throws is
  /// said on the standard error. A figure that is not known is said there once, and never alerts.
  /// A name that another alert of this monitor has gets a number.
  /// Throws: `std::invalid_argument` for a `clear_fraction` above 1, `std::bad_alloc`.
  void alert_when(alert_condition condition, std::function<void(const alert_record&)> callback = {}) {
    const quiet hidden;
    if (condition.clear_fraction > 1) {
      detail::raise_invalid_argument("tidemark::monitor::alert_when: clear_fraction is at most 1");
    }
    auto made = std::make_unique<alert>();
    made->condition = std::move(condition);
    made->condition.name = name_of_its_own(made->condition.name);
    made->callback = std::move(callback);
    const detail::spin_guard held(lock_);
    (last_alert_ == nullptr ? first_alert_ : last_alert_->next).store(made.get());
    last_alert_ = made.release();
  }

  /// Whether the heap, or where it is not seen the resident set, grows without an end, as far as the samples tell.
  /// Cost: 0.4 ms for 600 samples. Throws: `std::bad_alloc`.
  [[nodiscard]] growth_reading growth() const {
    const quiet hidden;
    growth_window samples(options_.growth_samples);
    std::string_view source;
    {
      const detail::spin_guard held(lock_);
      if (sampled_process_ == detail::os::process_id()) samples.copy_samples(growth_);  // not a parent's
      source = growth_source_ == nullptr ? std::string_view() : std::string_view(growth_source_);
    }
    growth_reading r = samples.judge(options_.growth);
    r.source = source;
    return r;
  }

  /// Begins again where the thread is gone: in a fork child. The samples and alerts of the parent are forgotten.
  /// Threads: one at a time.
  void restart() {
#if !TIDEMARK_OPT_DISABLE
    if (is_this_process() && thread_.is_started()) return;
    start();
#endif
  }

 private:
  struct alert {
    alert_condition condition;
    std::function<void(const alert_record&)> callback;
    detail::alert_state state;  // under the lock
    detail::published<alert> next;
  };

  class borrowed_sampler {
   public:
    explicit borrowed_sampler(monitor& from) : from_(from), sampler_(&from.take_sampler()) {}
    ~borrowed_sampler() { from_.give_back(*sampler_); }
    borrowed_sampler(const borrowed_sampler&) = delete;
    borrowed_sampler& operator=(const borrowed_sampler&) = delete;
    [[nodiscard]] detail::sampler* operator->() const noexcept { return sampler_; }

   private:
    monitor& from_;
    detail::sampler* sampler_;
  };

  [[nodiscard]] static std::size_t required(const monitor_options& o) {
    if (o.interval.count() < 0) {
      detail::raise_invalid_argument("tidemark::monitor: an interval is 0 (no thread) or more");
    }
    constexpr std::size_t most = 10'000'000;
    if (o.growth_samples < growth_window::least_samples || o.growth_samples > most) {
      detail::raise_invalid_argument(
          "tidemark::monitor: growth_samples is at least 30, below which nothing can be told, and at most 10,000,000");
    }
    if (!(o.clear_fraction >= 0 && o.clear_fraction <= 1)) {
      detail::raise_invalid_argument("tidemark::monitor: clear_fraction is at least 0 and at most 1");
    }
    return o.growth_samples;
  }

  /// A clock of the user's may say anything: within 73 years of 0, so that no difference overflows.
  [[nodiscard]] std::int64_t now_ns() const {
    if (!options_.now_ns) return detail::os::steady_ns();
    constexpr std::int64_t most = std::int64_t{1} << 61;
    return detail::lesser(detail::greater(options_.now_ns(), -most), most);
  }
  [[nodiscard]] bool is_this_process() const noexcept { return process_id_ == detail::os::process_id(); }

  /// Threads: under the lock.
  void forget_parent() noexcept {
    growth_.clear();
    for (alert* a = first_alert_.load(); a != nullptr; a = a->next.load()) a->state = detail::alert_state();
    sampled_process_ = detail::os::process_id();
  }

  // As a rule there is one; a check that runs while another does takes its own.
  [[nodiscard]] detail::sampler& take_sampler() {
    {
      const detail::spin_guard held(lock_);
      if (detail::sampler* s = sampler_list_) {
        sampler_list_ = s->next_free;
        return *s;
      }
    }
    return *new detail::sampler;
  }
  void give_back(detail::sampler& s) noexcept {
    const detail::spin_guard held(lock_);
    s.next_free = sampler_list_;
    sampler_list_ = &s;
  }

  [[nodiscard]] std::string name_of_its_own(const std::string& wanted) const {
    std::string name = wanted;
    for (int number = 2;; ++number) {
      const alert* a = first_alert_.load();
      while (a != nullptr && a->condition.name != name) a = a->next.load();
      if (a == nullptr) return name;
      name = wanted + " #" + std::to_string(number);
    }
  }

  void look(alert& a, const sample_record& s) {
    using event = detail::alert_state::event;
    std::int64_t value = 0;
    std::int64_t threshold = 0;
    std::string_view why;
    event happened = event::nothing;
    {
      const detail::spin_guard held(lock_);
      happened = a.state.look(a.condition, s, options_.clear_fraction, value, threshold, why);
    }
    if (happened == event::nothing) return;
    if (happened == event::cannot_tell) {
      detail::os::say("the alert ", a.condition.name, " cannot be raised: ", why);
      return;
    }
    const alert_record record{a.condition.name, value, threshold, happened == event::cleared, s.time_ns};
    detail::deliver(&sink::on_alert, record);
    if (a.callback == nullptr) return;
    detail::contain_exceptions(
        [&] { a.callback(record); },
        [&](const char* what) { detail::os::say("what listens to the alert ", record.name, " threw: ", what); });
  }

  void start() noexcept {
    process_id_ = detail::os::process_id();
    is_stopped_.store(false, std::memory_order_relaxed);  // before the thread begins
    if (options_.interval.count() == 0) return;
    auto* const bell = detail::registry<detail::monitor_bell>();
    const auto run = [](void* me) noexcept { static_cast<monitor*>(me)->run(); };
    if (bell == nullptr || !thread_.start(run, this, 0)) {
      detail::os::say("the monitor takes no samples: the system refuses a thread for it; monitor::check() takes one");
    }
  }

  void stop() noexcept {
    if (!thread_.is_started()) return;
    if (!is_this_process()) return thread_.forget();
    is_stopped_.store(true, std::memory_order_release);  // pairs with run()
    detail::find_registry<detail::monitor_bell>()->word.wake();
    thread_.join();
  }

  void run() noexcept {
    auto& bell = *detail::find_registry<detail::monitor_bell>();
    constexpr std::int64_t years = std::int64_t{1} << 58;
    const std::int64_t interval = options_.interval.count() < years ? options_.interval.count() : years;
    std::int64_t due = detail::os::steady_ns();
    bool has_missed = false;
    for (;;) {
      const std::uint32_t seen = bell.word.seen();
      if (is_stopped_.load(std::memory_order_acquire)) return;  // pairs with stop()
      bell.answer();
      const std::int64_t now = detail::os::steady_ns();
      if (now < due) {
        bell.word.wait(seen, due - now);
        continue;
      }
      detail::contain_exceptions([&] { check(); },
                                 [&](const char* what) {
                                   if (!has_missed) detail::os::say("the monitor missed a sample: ", what);
                                   has_missed = true;  // said once
                                 });
      due = detail::next_turn(due, detail::os::steady_ns(), interval);
    }
  }

  const monitor_options options_;
  mutable detail::leaf_lock lock_;
  detail::sampler* sampler_list_ = nullptr;  // those that no check uses
  detail::published<alert> first_alert_;     // they stay
  alert* last_alert_ = nullptr;
  growth_window growth_;
  const char* growth_source_ = nullptr;  // "heap" or "resident"
  std::uint64_t sampled_process_ = 0;
  std::atomic<bool> is_stopped_{false};
  std::uint64_t process_id_ = 0;
  detail::os::service_thread thread_;
};

}  // namespace TIDEMARK_TAG
}  // namespace v0
}  // namespace tidemark

#pragma pop_macro("check")
