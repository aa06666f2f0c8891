// SPDX-License-Identifier: MIT
// Which devices CUDA_VISIBLE_DEVICES leaves visible, and in which order. Source: the CUDA C++ Programming Guide, and
// PyTorch's reading of it (torch/cuda/__init__.py, _parse_visible_devices).
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include <tidemark/config/platform.hpp>

namespace tidemark {
inline namespace v0 {
namespace detail {
namespace driver {

/// What the variable says, before the devices are known.
struct visible_devices {
  enum class kind { all, numbers, uuids };

  kind is = kind::all;
  std::vector<std::size_t> numbers;
  std::vector<std::string> uuids;  // or their beginnings, all of one kind
};

/// The number that a text begins with, after an optional sign, as strtoul reads it. False: it is negative, or there is
/// none.
[[nodiscard]] inline bool take_ordinal(std::string_view text, std::size_t& number) noexcept {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  if (!text.empty() && text.front() == '+') text.remove_prefix(1);
  std::size_t used = 0;
  number = 0;
  for (; used < text.size() && text[used] >= '0' && text[used] <= '9'; ++used) {
    if (number < 1'000'000) number = number * 10 + static_cast<std::size_t>(text[used] - '0');
  }
  return used > 0;
}

/// Calls `f(element)` for each element of a list with commas, while it returns true.
template <class F>
void for_each_element(std::string_view list, F f) {
  for (;;) {
    const std::size_t comma = list.find(',');
    if (!f(list.substr(0, comma)) || comma == std::string_view::npos) return;
    list.remove_prefix(comma + 1);
  }
}

/// Null is a variable that is not set. A duplicate leaves nothing visible.
[[nodiscard]] inline visible_devices parse_visible_devices(const char* text) {
  visible_devices v;
  if (text == nullptr) return v;
  const std::string_view list(text);
  const std::string_view prefix = list.substr(0, 4);
  if (prefix == "GPU-" || prefix == "MIG-") {
    v.is = visible_devices::kind::uuids;
    for_each_element(list, [&](std::string_view element) {
      for (const std::string& known : v.uuids) {
        if (known != element) continue;
        v.uuids.clear();
        return false;
      }
      if (element.substr(0, 4) != prefix) return false;
      v.uuids.emplace_back(element);
      return true;
    });
    return v;
  }
  v.is = visible_devices::kind::numbers;
  for_each_element(list, [&](std::string_view element) {
    std::size_t number = 0;
    if (!take_ordinal(element, number)) return false;
    for (const std::size_t known : v.numbers) {
      if (known != number) continue;
      v.numbers.clear();
      return false;
    }
    v.numbers.push_back(number);
    return true;
  });
  return v;
}

/// Of devices with these UUIDs, in CUDA's order where numbers count: which is visible as ordinal 0, 1 and so on.
[[nodiscard]] inline std::vector<std::size_t> visible_of(const visible_devices& v,
                                                         const std::vector<std::string_view>& uuids) {
  std::vector<std::size_t> chosen;
  if (v.is == visible_devices::kind::all) {
    for (std::size_t i = 0; i < uuids.size(); ++i) chosen.push_back(i);
    return chosen;
  }
  if (v.is == visible_devices::kind::numbers) {
    for (const std::size_t number : v.numbers) {
      if (number >= uuids.size()) break;
      chosen.push_back(number);
    }
    return chosen;
  }
  for (const std::string& wanted : v.uuids) {
    std::size_t match = uuids.size();
    for (std::size_t i = 0; i < uuids.size(); ++i) {
      if (uuids[i].substr(0, wanted.size()) != wanted) continue;
      if (match != uuids.size()) return chosen;  // ambiguous: the list ends
      match = i;
    }
    if (match == uuids.size()) break;
    for (const std::size_t known : chosen) {
      if (known == match) return {};
    }
    chosen.push_back(match);
  }
  return chosen;
}

}  // namespace driver
}  // namespace detail
}  // namespace v0
}  // namespace tidemark
