// SPDX-License-Identifier: MIT
// The same list of sizes, compiled on either side.
#pragma once

#include <cstddef>
#include <utility>
#include <vector>

#include <tidemark/tidemark.hpp>

#include "disable_other.hpp"

inline int plus_one(int n) { return n + 1; }

namespace {

inline std::vector<std::size_t> sizes_here() {
  using namespace tidemark;
  return {
      sizeof(scope),
      sizeof(process_scope),
      sizeof(basic_scope<meter::thread_heap, meter::process_heap, counted_steps>),
      alignof(scope),
      sizeof(meter::thread_heap::window),
      sizeof(meter::process_heap::window),
      sizeof(task_scope),
      sizeof(task_token),
      sizeof(join_task),
      sizeof(meter::task_heap::window),
      sizeof(meter::resident::window),
      sizeof(meter::domains::window),
      sizeof(domain),
      sizeof(allocator<int>),
      sizeof(resource),
      sizeof(over_budget),
      sizeof(process_memory_reading),
      sizeof(attachment),
      sizeof(scope_record),
      sizeof(meter_reading),
      sizeof(usage),
      sizeof(window_usage),
      sizeof(reading<window_usage>),
      sizeof(self_report),
      sizeof(quiet),
      sizeof(decltype(measure(plus_one, 1))),
      sizeof(decltype(monitored("f", plus_one))),
      sizeof(ring_sink),
      sizeof(text_sink),
      sizeof(json_sink),
      sizeof(callback_sink),
      sizeof(csv_sink),
      sizeof(summary_sink),
      sizeof(append_file),
      sizeof(openmetrics_sink),
      sizeof(trace_event_sink),
      sizeof(mprof_sink),
      sizeof(sample_record),
      sizeof(alert_record),
      sizeof(monitor),
      sizeof(monitor_options),
      sizeof(growth_window),
      sizeof(limit_watch),
      sizeof(memory_report),
      sizeof(meter::device<>::window),
      sizeof(meter::device_pool<>::window),
      sizeof(detail::sampler),
      sizeof(detail::monitor_bell),
      sizeof(detail::pressure_registry),
      sizeof(detail::dump_target),
      sizeof(detail::failure_reports),
      sizeof(detail::ledger_state),
      sizeof(detail::slot),
      sizeof(detail::attached_sink),
      sizeof(detail::domain_node),
      sizeof(detail::task_account),
      sizeof(detail::resident_marks),
      sizeof(detail::path_tree),
  };
}

}  // namespace
