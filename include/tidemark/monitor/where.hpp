// SPDX-License-Identifier: MIT
// Where the memory is, in two columns: what is resident, by what it is mapped from, and what the program asked for; and the
// same of each device. What neither explains is *unaccounted*.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <tidemark/config/config.hpp>
#include <tidemark/core/detail/order.hpp>
#include <tidemark/core/detail/table.hpp>
#include <tidemark/core/domain.hpp>
#include <tidemark/core/gate.hpp>
#include <tidemark/core/ledger.hpp>
#include <tidemark/core/path.hpp>
#include <tidemark/core/reading.hpp>
#include <tidemark/gpu/device.hpp>
#include <tidemark/gpu/pool.hpp>
#include <tidemark/gpu/process.hpp>
#include <tidemark/sys/allocator.hpp>
#include <tidemark/sys/mappings.hpp>

namespace tidemark {
inline namespace v0 {

/// One figure of a report. Units: bytes.
struct memory_row {
  std::string name;
  reading<std::int64_t> bytes;
};

/// A device's memory. Units: bytes.
struct device_report {
  using bytes = reading<std::int64_t>;

  std::string uuid, name;
  bytes total_bytes = bytes::absent("not read");
  bytes used_bytes = bytes::absent("not read");             ///< by all processes
  bytes process_bytes = bytes::absent("not read");          ///< by this one, as the driver charges it
  bytes other_processes_bytes = bytes::absent("not read");  ///< used, but not by this one
  bytes my_allocations_bytes = bytes::absent("not read");   ///< live in `gpu::domain_of()`
  bytes pool_reserved_bytes = bytes::absent("not read");    ///< by the stream's and the graphs' pools
  /// This process's, but neither allocated through the domain nor reserved by a pool: context, libraries, and allocations
  /// that nobody counts. What the domain counts may lie in a pool, so the greater of the two is taken off.
  bytes unaccounted_bytes = bytes::absent("not read");
};

/// Units: bytes.
struct memory_report {
  using bytes = reading<std::int64_t>;

  std::vector<memory_row> resident;  ///< disjoint, by what is mapped; they sum to `resident_bytes`
  bytes resident_bytes = bytes::absent("not read");
  std::vector<memory_row> requested;  ///< heap live, retained by the allocator, tidemark's own
  /// Resident heap and anonymous memory beyond what was requested, if all that the allocator retains is resident. Negative:
  /// allocated and never touched, or given back by the allocator.
  bytes unaccounted_bytes = bytes::absent("not read");
  /// The same if nothing of what it retains is resident, as after `trim_heap()`: the truth is between the two.
  bytes unaccounted_most_bytes = bytes::absent("not read");
  std::vector<memory_row> domains;  ///< live; host domains are a part of the heap, external ones are not
  std::vector<memory_row> scopes;   ///< live blocks by the scope path that allocated them, most first, at most 20
  std::vector<device_report> devices;
  std::string why_no_devices;  ///< empty where there are some

  [[nodiscard]] inline std::string table() const;
};

namespace detail {

/// Both, or the reason of the one that lacks.
template <class F>
[[nodiscard]] reading<std::int64_t> both(const reading<std::int64_t>& a, const reading<std::int64_t>& b, F f) {
  if (!a.has_value()) return a;
  if (!b.has_value()) return b;
  return f(*a, *b);
}

[[nodiscard]] inline std::string told(const reading<std::int64_t>& r) {
  return r.has_value() ? format_bytes(*r) : std::string("unknown");
}

inline void fill_resident(memory_report& r, reading<std::int64_t>& heap_resident) {
  const reading<std::vector<mapping_group>> groups = mappings();
  if (!groups.has_value()) {
    r.resident_bytes = heap_resident = memory_report::bytes::absent(groups.why());
    return;
  }
  constexpr std::pair<mapping_kind, const char*> kinds[] = {{mapping_kind::heap, "heap and anonymous"},
                                                            {mapping_kind::stack, "stacks"},
                                                            {mapping_kind::code, "code"},
                                                            {mapping_kind::file, "other files"},
                                                            {mapping_kind::shared_memory, "shared memory"},
                                                            {mapping_kind::kernel, "kernel"}};
  std::int64_t all = 0;
  for (const auto& [kind, name] : kinds) {
    std::int64_t sum = 0;
    for (const mapping_group& g : *groups) {
      const mapping_kind k = g.kind == mapping_kind::anonymous ? mapping_kind::heap : g.kind;
      sum += k == kind ? g.resident_bytes : 0;
    }
    r.resident.push_back({name, sum});
    all += sum;
  }
  heap_resident = r.resident.front().bytes;
  r.resident_bytes = all;
}

inline void fill_requested(memory_report& r, const reading<std::int64_t>& heap_resident) {
  using bytes = reading<std::int64_t>;
  const reading<usage> heap = process_usage();
  const allocator_reading allocator = allocator_info();
  const self_report own = self();
  const auto own_bytes = static_cast<std::int64_t>(own.own_bytes + own.stamp_bytes);
  r.requested.push_back({"heap live", heap.has_value() ? bytes(heap->live_bytes) : bytes::absent(heap.why())});
  if (!heap.has_value()) r.requested.push_back({"allocator in use", allocator.in_use_bytes});
  r.requested.push_back({"allocator retained", allocator.retained_bytes});
  r.requested.push_back({"tidemark's own", own_bytes});
  const auto minus = [](std::int64_t a, std::int64_t b) { return a - b; };
  const bytes live = heap.has_value() ? r.requested.front().bytes : allocator.in_use_bytes;
  r.unaccounted_most_bytes =
      both(heap_resident, live, [&](std::int64_t a, std::int64_t b) { return a - b - own_bytes; });
  r.unaccounted_bytes = both(r.unaccounted_most_bytes, allocator.retained_bytes, minus);
}

inline void fill_owners(memory_report& r) {
  for (const domain& d : domains()) {
    r.domains.push_back({d.name() + (d.is_external() ? " (external)" : ""), d.current().live_bytes});
  }
  if (hook_state() == hook_kind::none) return;
  std::vector<path_state> states = path_states();
  std::stable_sort(states.begin(), states.end(),
                   [](const path_state& a, const path_state& b) { return a.own_bytes > b.own_bytes; });
  for (const path_state& s : states) {
    if (s.own_bytes <= 0 || r.scopes.size() == 20) break;
    r.scopes.push_back({path_text(s.path), s.own_bytes});
  }
}

[[nodiscard]] inline device_report report_on(const gpu::device& d) {
  const auto minus = [](std::int64_t a, std::int64_t b) { return a - b; };
  const auto plus = [](std::int64_t a, std::int64_t b) { return a + b; };
  device_report r;
  r.uuid = d.uuid;
  r.name = d.name;
  const gpu::device_memory m = gpu::memory(d);
  r.total_bytes = m.total_bytes;
  r.used_bytes = m.used_bytes;
  r.process_bytes = gpu::process_memory(d);
  r.other_processes_bytes = both(r.used_bytes, r.process_bytes, minus);
  const std::int64_t mine = gpu::domain_of(d).current().live_bytes;
  r.my_allocations_bytes = mine;
  r.pool_reserved_bytes = both(gpu::memory_pool(d).reserved_bytes, gpu::graph_pool(d).reserved_bytes, plus);
  r.unaccounted_bytes = both(r.process_bytes, greater(mine, r.pool_reserved_bytes.value_or(0)), minus);
  return r;
}

inline void fill_devices(memory_report& r) {
  const reading<std::vector<gpu::device>> all = gpu::devices();
  if (!all.has_value()) {
    r.why_no_devices = std::string(all.why());
    return;
  }
  for (const gpu::device& d : *all) {
    if (!d.is_mig_parent) r.devices.push_back(report_on(d));
  }
  if (r.devices.empty()) r.why_no_devices = "the driver has no device";
}

[[nodiscard]] inline std::string unaccounted_note(const memory_report& r) {
  if (!r.unaccounted_bytes.has_value()) return {};
  if (*r.unaccounted_most_bytes < 0) return "allocated, never touched";
  if (*r.unaccounted_most_bytes == *r.unaccounted_bytes) return "beyond what was requested";
  return "to " + format_bytes(*r.unaccounted_most_bytes) + ", by how much of what is retained is resident";
}

class report_table {
 public:
  void title(std::string_view text) {
    flush();
    if (!text_.empty()) text_ += '\n';
    text_ += text;
    text_ += '\n';
  }
  void row(std::string_view name, const reading<std::int64_t>& bytes, std::string_view note = {}) {
    std::string printable = "  ";
    append_printable(printable, name);
    std::string why(note);
    if (!bytes.has_value()) append_printable(why, bytes.why());
    table_.add({std::move(printable), told(bytes), std::move(why)});
  }
  [[nodiscard]] std::string take() {
    flush();
    return std::move(text_);
  }

 private:
  [[nodiscard]] static text_table fresh() { return text_table({{"", false}, {"", true}, {"", false}}); }
  void flush() {
    std::string rows;
    table_.append_to(rows);
    if (!table_.is_empty()) text_ += rows.substr(rows.find('\n') + 1);  // without the line of titles
    table_ = fresh();
  }

  std::string text_;
  text_table table_ = fresh();
};

}  // namespace detail

inline namespace TIDEMARK_TAG {

/// Where this process's memory is, now. Threads: any; what changes meanwhile may show in one column and not yet in the other.
/// With TIDEMARK_OPT_DISABLE the heap is absent, the rest is told. Throws: `std::bad_alloc`; what it allocates is in no number.
/// Cost: the kernel walks every page (10 ms for each GiB of small ones), and the drivers' calls.
[[nodiscard]] inline memory_report where_is_my_memory() {
  const quiet hidden;
  memory_report r;
  reading<std::int64_t> heap_resident = reading<std::int64_t>::absent("not read");
  detail::fill_resident(r, heap_resident);
  detail::fill_requested(r, heap_resident);
  detail::fill_owners(r);
  detail::fill_devices(r);
  return r;
}

}  // namespace TIDEMARK_TAG

/// As a table for a person, several lines. Throws: `std::bad_alloc`.
inline std::string memory_report::table() const {
  const quiet hidden;
  detail::report_table t;
  t.title("resident");
  for (const memory_row& r : resident) t.row(r.name, r.bytes);
  t.row("= in all", resident_bytes);
  t.title("requested");
  for (const memory_row& r : requested) t.row(r.name, r.bytes);
  t.row("unaccounted", unaccounted_bytes, detail::unaccounted_note(*this));
  if (!domains.empty()) t.title("domains");
  for (const memory_row& r : domains) t.row(r.name, r.bytes);
  if (!scopes.empty()) t.title("live, by the scope that allocated it");
  for (const memory_row& r : scopes) t.row(r.name, r.bytes);
  for (const device_report& d : devices) {
    std::string title = "device ";
    detail::append_printable(title, d.name + " " + d.uuid);
    t.title(title);
    t.row("my allocations", d.my_allocations_bytes);
    t.row("reserved by pools", d.pool_reserved_bytes);
    t.row("my process", d.process_bytes);
    t.row("other processes", d.other_processes_bytes);
    t.row("unaccounted", d.unaccounted_bytes, "my process beyond the first two");
  }
  if (devices.empty()) {
    std::string title = "devices: none (";
    detail::append_printable(title, why_no_devices);
    t.title(title + ")");
  }
  return t.take();
}

}  // namespace v0
}  // namespace tidemark
