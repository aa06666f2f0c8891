// SPDX-License-Identifier: MIT
// A timeline for Perfetto, chrome://tracing and speedscope: scopes as slices, samples as counters, alerts as instants.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>

#include <tidemark/config/config.hpp>
#include <tidemark/config/platform.hpp>
#include <tidemark/core/detail/os_thread.hpp>
#include <tidemark/core/ledger.hpp>
#include <tidemark/core/record.hpp>
#include <tidemark/core/sink.hpp>
#include <tidemark/core/sync.hpp>
#include <tidemark/sink/detail/decimal.hpp>
#include <tidemark/sink/detail/json_object.hpp>
#include <tidemark/sink/detail/sample_names.hpp>
#include <tidemark/sink/detail/slices.hpp>
#include <tidemark/sink/detail/trace_file.hpp>
#include <tidemark/sys/detail/rewrite.hpp>

namespace tidemark {
inline namespace v0 {

/// How a trace is written.
struct trace_event_options {
  bool figures = true;  ///< each slice carries its path and meters; speedscope makes these a part of its name
};

inline namespace TIDEMARK_TAG {

/// Writes a file that is complete after each record, also where the program is killed. What the file held before is
/// lost. Where another process has it open, and in a fork child, the process id goes into the name: "run.json" is
/// "run.4242.json".
/// A scope is a slice of its thread. One that overlaps another there without lying in it, or that ended on another
/// thread, is an async pair. What is absent in a sample has no counter at that time.
/// What cannot be opened or written is said once on the standard error, and its records are dropped and counted.
/// Threads: any. Throws: the constructor, nothing but `std::bad_alloc`. Cost: a write per record. The
/// file grows by about 130 bytes a scope, 450 with figures; the memory does not grow.
/// Source: Trace Event Format (Google, 2016), object form; times are those of the steady clock.
class trace_event_sink final : public sink {
 public:
  explicit trace_event_sink(const std::string& path, trace_event_options options = {})
      : options_(options), file_("trace_event_sink", path) {}

#if !TIDEMARK_OPT_DISABLE
  void on_scope(const scope_record& r) override {
    detail::trace_events events;
    place(events, r) ? add_slice(events, r) : add_pair(events, r);
    file_.write(events);
  }

  void on_sample(const sample_record& r) override {
    detail::trace_events events;
    const auto counter = [&](std::string_view name, std::string_view series, const reading<std::int64_t>& value,
                             std::int64_t time_ns) {
      if (value) add_counter(events, name, series, time_ns, *value);
    };
    const auto now = r.time_ns;
    if (r.heap) counter("heap", "live_bytes", r.heap->live_bytes, now);
    counter("resident", "bytes", r.resident_bytes, now);
    counter("limit", "bytes", r.limit_bytes, now);
    counter("limit used", "bytes", r.limit_used_bytes, now);
    for (const auto& d : detail::domains_by_name(r.domains)) {
      counter("domain " + d.name, "live_bytes", d.live_bytes, now);
    }
    for (const auto& d : detail::devices_by_name(r.devices)) {
      const std::int64_t then = d.of->time_ns != 0 ? d.of->time_ns : now;
      counter("device " + d.name + " used", "bytes", d.of->used_bytes, then);
      counter("device " + d.name + " of this process", "bytes", d.of->process_bytes, then);
    }
    counter("dropped records", "records", static_cast<std::int64_t>(self().dropped_records), now);
    file_.write(events);
  }

  void on_alert(const alert_record& r) override {
    detail::trace_events events;
    detail::trace_events::event e(events, "i", r.name);
    e.text("cat", "alert");
    e.text("s", "p");
    e.number("tid", detail::os::thread_id());
    detail::append_fixed(e.field("ts"), r.time_ns, 3);
    detail::json_object args(e.field("args"));
    args.number("value_bytes", r.value_bytes);
    args.number("threshold_bytes", r.threshold_bytes);
    args.boolean("cleared", r.cleared);
    args.end();
    e.end();
    file_.write(events);
  }
#endif

 private:
  /// Whether it is a slice. A thread's first scope brings the thread's name.
  [[nodiscard]] bool place(detail::trace_events& events, const scope_record& r) {
    const std::uint64_t here = detail::os::thread_id();
    if (r.thread != here) return false;
    bool is_new = false;
    bool is_slice = false;
    {
      const detail::spin_guard held(lock_);
      if (process_ != detail::ledger().process_id) {
        process_ = detail::ledger().process_id;
        slices_.clear();
      }
      is_new = slices_.is_new(here);
      is_slice = slices_.add(here, r.start_ns, r.start_ns + r.duration_ns, r.depth);
    }
    std::string name;
    if (is_new && detail::os::read_whole("/proc/thread-self/comm", 256, name) == 0)
      events.add_name("thread_name", here, name);
    return is_slice;
  }

  void add_slice(detail::trace_events& events, const scope_record& r) const {
    detail::trace_events::event e(events, "X", r.name);
    e.text("cat", "scope");
    e.number("tid", r.thread);
    detail::append_fixed(e.field("ts"), r.start_ns, 3);
    detail::append_fixed(e.field("dur"), r.duration_ns, 3);
    add_figures(e, r);
    e.end();
  }

  void add_pair(detail::trace_events& events, const scope_record& r) {
    const std::uint64_t id = pairs_.fetch_add(1, std::memory_order_relaxed);  // counter only
    for (const bool is_begin : {true, false}) {
      detail::trace_events::event e(events, is_begin ? "b" : "e", r.name);
      e.text("cat", "scope");
      e.number("id", id);
      e.number("tid", r.thread);
      detail::append_fixed(e.field("ts"), r.start_ns + (is_begin ? 0 : r.duration_ns), 3);
      if (is_begin) add_figures(e, r);
      e.end();
    }
  }

  void add_figures(detail::json_object& event, const scope_record& r) const {
    if (!options_.figures) return;
    detail::json_object args(event.field("args"));
    args.text("path", r.path);
    if (r.left_by_exception) args.boolean("exception", true);
    args.number("owned_bytes", r.owned_bytes);
    for (const meter_reading& m : r.meters) args.figures_of(m.meter, m.usage);
    args.end();
  }

  static void add_counter(detail::trace_events& events, std::string_view name, std::string_view series,
                          std::int64_t time_ns, std::int64_t value) {
    detail::trace_events::event e(events, "C", name);
    detail::append_fixed(e.field("ts"), time_ns, 3);
    detail::json_object args(e.field("args"));
    args.number(series, value);
    args.end();
    e.end();
  }

  trace_event_options options_;
  detail::leaf_lock lock_;  // for the two below
  detail::slices slices_;
  std::uint64_t process_ = detail::ledger().process_id;
  std::atomic<std::uint64_t> pairs_{1};
  detail::trace_file file_;
};

}  // namespace TIDEMARK_TAG
}  // namespace v0
}  // namespace tidemark
