// SPDX-License-Identifier: MIT
// The version, as files carry it.
#pragma once

#include <string>

#include <tidemark/config/version.hpp>

namespace tidemark {
inline namespace v0 {
namespace detail {

/// "0.1.0"
[[nodiscard]] inline std::string version_text() {
  return std::to_string(TIDEMARK_VERSION_MAJOR) + '.' + std::to_string(TIDEMARK_VERSION_MINOR) + '.' +
         std::to_string(TIDEMARK_VERSION_PATCH);
}

}  // namespace detail
}  // namespace v0
}  // namespace tidemark
