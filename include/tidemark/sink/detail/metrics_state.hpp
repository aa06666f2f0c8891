// SPDX-License-Identifier: MIT
// What a metrics page says: the last sample, the alerts, and scopes added up by path. The number of label values is
// capped, so that names made at run time cannot flood whoever collects them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <tidemark/core/ledger.hpp>
#include <tidemark/core/record.hpp>
#include <tidemark/core/usage.hpp>
#include <tidemark/sink/detail/metrics_text.hpp>
#include <tidemark/sink/detail/sample_names.hpp>
#include <tidemark/sink/detail/version_text.hpp>

namespace tidemark {
inline namespace v0 {
namespace detail {

/// What is known by the value of a label; of more than `most` values in its life, those after the first ones are
/// refused.
template <class T>
class labelled {
 public:
  /// Null: refused, and counted.
  [[nodiscard]] T* find_or_add(const std::string& value, std::size_t most) {
    const auto found = all_.find(value);
    if (found != all_.end()) return &found->second;
    if (all_.size() < most) return &all_[value];
    ++refused_;
    return nullptr;
  }
  [[nodiscard]] std::uint64_t refused() const noexcept { return refused_; }
  [[nodiscard]] auto begin() const noexcept { return all_.begin(); }
  [[nodiscard]] auto end() const noexcept { return all_.end(); }

 private:
  std::map<std::string, T> all_;
  std::uint64_t refused_ = 0;
};

/// Threads: one at a time. Label values in it are escaped.
class metrics_state {
 public:
  explicit metrics_state(std::size_t most_label_values) : most_(most_label_values) {}

  void add(const scope_record& r) {
    scope_sums* sums = scopes_.find_or_add(label_value(r.path), most_);
    if (sums == nullptr) return;
    for (const meter_reading& m : r.meters) {
      if (!m.usage || m.unit != "bytes") continue;
      const std::string meter = label_value(m.meter);
      if (meters_.find_or_add(meter, most_) == nullptr) continue;
      const auto peak = sums->peak_growth_bytes.emplace(meter, m.usage->peak_growth()).first;
      if (peak->second < m.usage->peak_growth()) peak->second = m.usage->peak_growth();
    }
    ++sums->calls;
    sums->duration_ns += r.duration_ns;
  }

  void add(const alert_record& r) {
    if (bool* is_active = alerts_.find_or_add(label_value(r.name), most_)) *is_active = !r.cleared;
  }

  void take(const sample_record& r) {
    sample_record sample = r;
    std::vector<named_domain> domains = domains_by_name(sample.domains, label_value);
    std::vector<named_device> devices = devices_by_name(sample.devices, label_value);
    keep_known(domains, domain_names_);
    keep_known(devices, device_names_);
    sample_ = std::move(sample);  // keeps the devices where they are
    domains_ = std::move(domains);
    devices_ = std::move(devices);
  }

  [[nodiscard]] std::string text(bool is_openmetrics, const self_report& self) const {
    metrics_text out(is_openmetrics);
    out.gauge("tidemark_build_info", "", "The version of tidemark in this program.");
    out.sample({{"version", version_text()}}, 1);
    write_process(out);
    write_domains(out);
    write_devices(out);
    write_scopes(out);
    out.gauge("tidemark_alert_active", "", "1 while the alert's value is over its threshold, else 0.");
    for (const auto& [name, is_active] : alerts_) out.sample({{"alert", name}}, is_active ? 1 : 0);
    out.gauge("tidemark_own_bytes", "bytes", "What the library takes for itself, in no other figure.");
    out.sample({}, self.own_bytes);
    out.gauge("tidemark_stamp_bytes", "bytes", "What the heap hook adds to live blocks.");
    out.sample({}, self.stamp_bytes);
    out.total("tidemark_dropped_records", "", "Records that a sink, or the memory for them, refused.");
    out.sample({}, self.dropped_records);
    out.total("tidemark_foreign_frees", "", "Frees of blocks that never passed the heap hook.");
    out.sample({}, self.foreign_frees);
    out.total("tidemark_label_values_dropped", "", "Times a value was left out, since its label had too many.");
    for (const auto& [label, refused] : refusals()) out.sample({{"label", label}}, refused);
    return out.take();
  }

 private:
  struct nothing {};
  struct scope_sums {
    std::uint64_t calls = 0;
    std::int64_t duration_ns = 0;
    std::map<std::string, std::int64_t> peak_growth_bytes;  // the highest of one call, by meter
  };

  template <class Named>
  void keep_known(std::vector<Named>& all, labelled<nothing>& known) const {
    std::size_t kept = 0;
    for (std::size_t i = 0; i < all.size(); ++i) {
      if (known.find_or_add(all[i].name, most_) != nullptr) std::swap(all[kept++], all[i]);
    }
    all.erase(all.begin() + static_cast<std::ptrdiff_t>(kept), all.end());
  }

  void write_process(metrics_text& out) const {
    if (sample_.heap) {
      const usage& heap = *sample_.heap;
      out.gauge("tidemark_heap_live_bytes", "bytes", "Allocated and not yet freed, in requested bytes.");
      out.sample({}, heap.live_bytes);
      out.gauge("tidemark_heap_peak_bytes", "bytes", "The highest of the live bytes.");
      out.sample({}, heap.peak_bytes);
      out.gauge("tidemark_heap_error_bound_bytes", "bytes", "Live and peak bytes are off by at most this.");
      out.sample({}, heap.error_bound_bytes);
      out.gauge("tidemark_heap_live_blocks", "blocks", "Allocations that are not yet freed.");
      out.sample({}, heap.live_blocks);
      out.total("tidemark_heap_allocated_bytes", "bytes", "Bytes ever allocated.");
      out.sample({}, heap.allocated_bytes);
      out.total("tidemark_heap_freed_bytes", "bytes", "Bytes ever freed.");
      out.sample({}, heap.freed_bytes);
      out.total("tidemark_heap_allocations", "", "Blocks ever allocated.");
      out.sample({}, heap.allocations);
      out.total("tidemark_heap_deallocations", "", "Blocks ever freed.");
      out.sample({}, heap.deallocations);
    }
    out.gauge("tidemark_process_resident_bytes", "bytes", "Pages of the process in memory, shared ones included.");
    out.sample({}, sample_.resident_bytes);
    const std::string source = label_value(sample_.limit_source);
    out.gauge("tidemark_memory_limit_bytes", "bytes", "The memory limit that is nearest by.");
    out.sample({{"source", source}}, sample_.limit_bytes);
    out.gauge("tidemark_memory_limit_used_bytes", "bytes", "What counts towards that limit.");
    out.sample({{"source", source}}, sample_.limit_used_bytes);
  }

  void write_domains(metrics_text& out) const {
    out.gauge("tidemark_domain_live_bytes", "bytes", "What the domain was fed and still holds.");
    for (const named_domain& d : domains_) out.sample({{"domain", d.name}}, d.live_bytes);
    out.gauge("tidemark_domain_peak_bytes", "bytes", "The highest of the domain's live bytes.");
    for (const named_domain& d : domains_) out.sample({{"domain", d.name}}, d.peak_bytes);
    out.gauge("tidemark_domain_limit_bytes", "bytes", "The most that may be live in the domain.");
    for (const named_domain& d : domains_) out.sample({{"domain", d.name}}, d.limit_bytes);
  }

  void write_devices(metrics_text& out) const {
    const auto each = [this, &out](const reading<std::int64_t> device_sample::*figure) {
      for (const named_device& d : devices_) {
        out.sample({{"device", d.name}, {"name", label_value(d.of->name)}}, d.of->*figure);
      }
    };
    out.gauge("tidemark_device_total_bytes", "bytes", "The memory of the device.");
    each(&device_sample::total_bytes);
    out.gauge("tidemark_device_used_bytes", "bytes", "What all processes use of the device.");
    each(&device_sample::used_bytes);
    out.gauge("tidemark_device_process_bytes", "bytes", "What this process uses of the device.");
    each(&device_sample::process_bytes);
  }

  void write_scopes(metrics_text& out) const {
    out.total("tidemark_scope_calls", "", "Scopes that ended.");
    for (const auto& [path, sums] : scopes_) out.sample({{"path", path}}, sums.calls);
    out.total("tidemark_scope_duration_seconds", "seconds", "The durations of the scopes that ended, together.");
    for (const auto& [path, sums] : scopes_) out.sample_seconds({{"path", path}}, sums.duration_ns);
    out.gauge("tidemark_scope_peak_growth_bytes", "bytes", "The most that one call rose above its entry.");
    for (const auto& [path, sums] : scopes_) {
      for (const auto& [meter, peak] : sums.peak_growth_bytes) out.sample({{"path", path}, {"meter", meter}}, peak);
    }
  }

  [[nodiscard]] std::vector<std::pair<const char*, std::uint64_t>> refusals() const {
    return {{"path", scopes_.refused()},
            {"meter", meters_.refused()},
            {"alert", alerts_.refused()},
            {"domain", domain_names_.refused()},
            {"device", device_names_.refused()}};
  }

  std::size_t most_;
  sample_record sample_;
  std::vector<named_domain> domains_;
  std::vector<named_device> devices_;  // of `sample_`
  labelled<scope_sums> scopes_;
  labelled<nothing> meters_;
  labelled<bool> alerts_;
  labelled<nothing> domain_names_;
  labelled<nothing> device_names_;
};

}  // namespace detail
}  // namespace v0
}  // namespace tidemark
