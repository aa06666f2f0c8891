// SPDX-License-Identifier: MIT
// From the figures of the system's files, where -1 stands for what is not said, to readings.
#pragma once

#include <cstdint>

#include <tidemark/core/reading.hpp>

namespace tidemark {
inline namespace v0 {
namespace detail {

/// A value that is not negative, or else why it is not known; `why` lives as long as the program does.
[[nodiscard]] inline reading<std::int64_t> figure(std::int64_t value, const char* why) noexcept {
  using bytes = reading<std::int64_t>;
  return value >= 0 ? bytes(value) : bytes::absent_because(why != nullptr ? why : "this kernel does not say");
}

}  // namespace detail
}  // namespace v0
}  // namespace tidemark
