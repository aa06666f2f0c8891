// SPDX-License-Identifier: MIT
// What the parts of gpu/ hand each other: plain figures with reasons that live for ever, so that a call that never
// returns holds nothing of its caller's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include <tidemark/config/platform.hpp>
#include <tidemark/core/detail/names.hpp>
#include <tidemark/core/reading.hpp>

namespace tidemark {
inline namespace v0 {
namespace detail {
namespace driver {

inline constexpr const char* no_memory = "no_memory: none is left for the library's own state";

/// A number of bytes, or why there is none.
struct figure {
  std::int64_t value = 0;
  const char* why = "not_supported: nothing says so";  // null: it is known

  [[nodiscard]] bool is_known() const noexcept { return why == nullptr; }
  void set(std::uint64_t bytes) noexcept {
    // A driver writes -1 for what it does not know.
    why = bytes > std::uint64_t{INT64_MAX} ? "not_supported: the driver has no figure for it" : nullptr;
    value = why == nullptr ? static_cast<std::int64_t>(bytes) : 0;
  }
  [[nodiscard]] reading<std::int64_t> told() const {
    if (why != nullptr) return reading<std::int64_t>::absent_because(why);
    return value;
  }
};

/// What a source says of a device's memory.
struct memory_figures {
  figure total, free, used, reserved, shared_total, shared_used;
  const char* source = "";

  void be_absent(const char* why) noexcept {
    for (figure* f : {&total, &free, &used, &reserved, &shared_total, &shared_used}) *f = {0, why};
    source = "";
  }
};

/// What a pool holds.
struct pool_figures {
  figure reserved, reserved_peak, used, used_peak;
  const void* pool = nullptr;  // which one it was

  void be_absent(const char* why) noexcept {
    for (figure* f : {&reserved, &reserved_peak, &used, &used_peak}) *f = {0, why};
  }
};

/// How a device is found again in any source.
struct device_key {
  std::string uuid;
  std::string pci_address;
  bool is_mig_parent = false;
};

/// A reason put together at run time, kept for ever. Of a few dozen texts: codes, and what a driver calls them.
[[nodiscard]] inline const char* kept_reason(std::string_view text) noexcept { return intern(text).data(); }

[[nodiscard]] inline bool has_code(std::string_view why, std::string_view code) noexcept {
  return why.size() > code.size() && why.substr(0, code.size()) == code && why[code.size()] == ':';
}

/// The text behind "GPU-" or "MIG-": CUDA and NVML write the same device with either.
[[nodiscard]] inline std::string_view bare_uuid(std::string_view uuid) noexcept {
  const std::string_view kind = uuid.substr(0, 4);
  return kind == "GPU-" || kind == "MIG-" ? uuid.substr(4) : uuid;
}

/// What tells a device from all others, in any source.
[[nodiscard]] inline std::string_view identity_of(std::string_view uuid, std::string_view pci_address) noexcept {
  return uuid.empty() ? pci_address : bare_uuid(uuid);
}

/// "00000000:3B:00.0" as Linux writes it, "0000:3b:00.0"; empty where it is no such address.
[[nodiscard]] inline std::string linux_pci_address(std::string_view text) {
  const std::size_t colon = text.find(':');
  if (colon == std::string_view::npos || colon == 0) return {};
  std::string domain(text.substr(0, colon));
  while (domain.size() > 4 && domain.front() == '0') domain.erase(0, 1);
  while (domain.size() < 4) domain.insert(0, 1, '0');
  std::string address = domain + std::string(text.substr(colon));
  for (char& c : address) {
    if (c >= 'A' && c <= 'F') c = static_cast<char>(c - 'A' + 'a');
    const bool is_part = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f') || c == ':' || c == '.';
    if (!is_part) return {};
  }
  if (address.find('.') == std::string::npos) address += ".0";
  return address;
}

}  // namespace driver
}  // namespace detail
}  // namespace v0
}  // namespace tidemark
