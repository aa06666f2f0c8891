// SPDX-License-Identifier: MIT
// CUDA gives a UUID as 16 bytes; NVML, and this library, as "GPU-" and its digits.
#pragma once

#include <cstddef>
#include <string>

#include <tidemark/config/platform.hpp>

namespace tidemark {
inline namespace v0 {
namespace detail {
namespace driver {

/// `Byte` is a kind of char. Throws: `std::bad_alloc`.
template <class Byte>
[[nodiscard]] std::string gpu_uuid(const Byte (&bytes)[16]) {
  constexpr const char* digits = "0123456789abcdef";
  std::string text = "GPU-";
  for (std::size_t i = 0; i < sizeof bytes; ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    const auto byte = static_cast<unsigned char>(bytes[i]);
    text += digits[byte >> 4];
    text += digits[byte & 15];
  }
  return text;
}

}  // namespace driver
}  // namespace detail
}  // namespace v0
}  // namespace tidemark
