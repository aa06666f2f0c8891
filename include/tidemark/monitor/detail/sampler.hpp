// SPDX-License-Identifier: MIT
// Takes one sample: heap, resident set, nearest limit, domains, and devices when their time has come.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include <tidemark/config/config.hpp>
#include <tidemark/core/detail/domain_node.hpp>
#include <tidemark/core/detail/names.hpp>
#include <tidemark/core/ledger.hpp>
#include <tidemark/core/reading.hpp>
#include <tidemark/core/record.hpp>
#include <tidemark/gpu/device.hpp>
#include <tidemark/gpu/process.hpp>
#include <tidemark/sys/detail/figure.hpp>
#include <tidemark/sys/limit.hpp>
#include <tidemark/sys/process.hpp>

namespace tidemark {
inline namespace v0 {
namespace detail {

/// The devices that were found once; others are looked for where one no longer answers, and now and then.
class device_sampler {
 public:
  /// Throws: `std::bad_alloc`. Cost: calls of the drivers, up to their deadline.
  void read_into(sample_record& s) {
    s.devices.clear();
    s.why_no_devices = {};
    if (reads_until_listed_ == 0) list();
    --reads_until_listed_;
    if (why_none_ != nullptr) s.why_no_devices = why_none_;
    for (const known_device& d : devices_) {
      const gpu::device_memory m = gpu::memory(d.device);
      s.devices.push_back(
          {d.uuid, d.name, m.total_bytes, m.used_bytes, gpu::process_memory(d.device), m.source, s.time_ns});
      if (!m.used_bytes.has_value()) reads_until_listed_ = 0;
    }
  }

 private:
  struct known_device {
    gpu::device device;
    std::string_view uuid, name;
  };
  static constexpr int reads_per_list = 64;

  void list() {
    devices_.clear();
    const reading<std::vector<gpu::device>> all = gpu::devices();
    reads_until_listed_ = reads_per_list;
    why_none_ = all.has_value() ? (all->empty() ? "the driver has no device" : nullptr) : intern(all.why()).data();
    if (!all.has_value()) return;
    for (const gpu::device& d : *all) {
      devices_.push_back({d, intern(d.uuid.empty() ? d.pci_address : d.uuid), intern(d.name)});
    }
  }

  std::vector<known_device> devices_;
  const char* why_none_ = nullptr;
  int reads_until_listed_ = 0;
};

/// What one sample needs, kept for the next one. Threads: one at a time.
class sampler {
 public:
  /// Twelve system calls at most but for devices; nothing is allocated once the vectors are as long as they get.
  /// `device_interval_ns` below 0: devices are never asked.
  void take(std::int64_t time_ns, std::int64_t device_interval_ns) {
    sample_.time_ns = time_ns;
    sample_.heap = process_usage();
    os::status_figures status;
    const char* const why = os::read_status(this_process, status);
    sample_.resident_bytes = figure(status.resident, why);
    const memory_limit_reading limit = limits_.read();
    sample_.limit_bytes = limit.limit_bytes;
    sample_.limit_used_bytes = limit.used_bytes;
    sample_.limit_source = name_of(limit.source);
    list_domains();
    if (device_interval_ns < 0) {
      sample_.why_no_devices = "the monitor asks no devices: its device_interval is below 0";
    } else if (!has_asked_devices_ || time_ns - devices_ns_ >= device_interval_ns) {
      has_asked_devices_ = true;
      devices_ns_ = time_ns;
      devices_.read_into(sample_);
    }
  }

  [[nodiscard]] const sample_record& sample() const noexcept { return sample_; }

  sampler* next_free = nullptr;

 private:
  void list_domains() {
    sample_.domains.clear();
    auto* const all = find_registry<domain_registry>();
    for (domain_node* d = all == nullptr ? nullptr : all->newest(); d != nullptr; d = d->older) {
      if (d->is_alive()) sample_.domains.push_back({d->name, d->current(), d->limit(), d->is_external});
    }
    std::reverse(sample_.domains.begin(), sample_.domains.end());  // in the order of their making
  }

  sample_record sample_;
  limit_watch limits_;
  device_sampler devices_;
  bool has_asked_devices_ = false;
  std::int64_t devices_ns_ = 0;
};

}  // namespace detail
}  // namespace v0
}  // namespace tidemark
