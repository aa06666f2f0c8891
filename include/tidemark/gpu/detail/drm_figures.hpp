// SPDX-License-Identifier: MIT
// What the kernel's fdinfo files and folders say of a device, as texts and numbers; the same on every system, so that
// it is tested on any. Source: Documentation/gpu/drm-usage-stats.rst.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <tidemark/config/platform.hpp>
#include <tidemark/gpu/detail/figures.hpp>

namespace tidemark {
inline namespace v0 {
namespace detail {
namespace driver {

/// A device of a driver that tells in /sys and /proc.
struct drm_listed {
  std::string uuid, name, pci_address;
  std::string_view driver = "";  // "amdgpu", "i915", "xe"; a literal
  figure is_unified;             // 1 or 0
};

/// A region of a device's memory, as a process holds of it.
struct drm_region {
  std::string name;
  std::uint64_t resident = 0;
  std::uint64_t older = 0;  // the key that came before "resident", of the same meaning
  bool has_resident = false;

  [[nodiscard]] std::uint64_t bytes() const noexcept { return has_resident ? resident : older; }
};

/// "   4096 KiB": bytes unless a unit follows. False: it is no number.
[[nodiscard]] inline bool take_bytes(std::string_view text, std::uint64_t& bytes) noexcept {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  std::size_t used = 0;
  std::uint64_t n = 0;
  for (; used < text.size() && text[used] >= '0' && text[used] <= '9'; ++used) {
    const auto digit = static_cast<std::uint64_t>(text[used] - '0');
    if (n > (UINT64_MAX - digit) / 10) return false;
    n = n * 10 + digit;
  }
  if (used == 0) return false;
  text.remove_prefix(used);
  const std::uint64_t unit = text == " KiB"   ? std::uint64_t{1} << 10
                             : text == " MiB" ? std::uint64_t{1} << 20
                             : text == " GiB" ? std::uint64_t{1} << 30
                             : text.empty()   ? 1
                                              : 0;
  if (unit == 0 || n > UINT64_MAX / unit) return false;
  bytes = n * unit;
  return true;
}

/// Notes a line that says what is resident in a region; no other.
inline void note_region(std::string_view line, std::vector<drm_region>& regions) {
  constexpr std::string_view of_resident = "drm-resident-";
  constexpr std::string_view of_memory = "drm-memory-";
  const bool is_resident = line.substr(0, of_resident.size()) == of_resident;
  const bool is_older = line.substr(0, of_memory.size()) == of_memory;
  const std::size_t colon = line.find(':');
  if ((!is_resident && !is_older) || colon == std::string_view::npos) return;
  const std::size_t prefix = is_resident ? of_resident.size() : of_memory.size();
  std::uint64_t bytes = 0;
  if (colon <= prefix || !take_bytes(line.substr(colon + 1), bytes)) return;
  const std::string_view name = line.substr(prefix, colon - prefix);
  drm_region* r = nullptr;
  for (drm_region& known : regions) {
    if (known.name == name) r = &known;
  }
  if (r == nullptr) {
    regions.emplace_back();
    r = &regions.back();
    r->name = name;
  }
  (is_resident ? r->resident : r->older) = bytes;
  r->has_resident = r->has_resident || is_resident;
}

/// Whether a region is memory of the device; of one that shares the system's, what it took of that counts too.
[[nodiscard]] inline bool counts(const drm_region& region, bool counts_shared) noexcept {
  const std::string_view name = region.name;
  const auto begins = [name](std::string_view text) { return name.substr(0, text.size()) == text; };
  if (begins("vram") || begins("local") || begins("stolen-local")) return true;
  return counts_shared && (begins("gtt") || begins("system") || begins("stolen"));
}

/// As KFD numbers them: the bus in bits 8 to 15, the device in 3 to 7, the function in 0 to 2.
[[nodiscard]] inline std::string pci_address_of(std::uint64_t domain, std::uint64_t location) {
  constexpr const char* digits = "0123456789abcdef";
  const auto hex = [&](std::uint64_t n, int count) {
    std::string text;
    for (int i = count - 1; i >= 0; --i) text += digits[(n >> (4 * i)) & 15];
    return text;
  };
  return hex(domain, 4) + ':' + hex(location >> 8, 2) + ':' + hex((location >> 3) & 31, 2) + '.' + hex(location & 7, 1);
}

}  // namespace driver
}  // namespace detail
}  // namespace v0
}  // namespace tidemark
