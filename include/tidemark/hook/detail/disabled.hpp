// SPDX-License-Identifier: MIT
// DEFINES the description of a hook that was compiled with TIDEMARK_OPT_DISABLE.
#pragma once

#include <tidemark/config/platform.hpp>
#include <tidemark/core/ledger.hpp>

namespace tidemark {
inline namespace v0 {
namespace detail {
namespace hook {

inline hook_start start_nothing() noexcept {
  return {hook_kind::none, "the hook header was included with TIDEMARK_OPT_DISABLE=1", false};
}

}  // namespace hook
}  // namespace detail
}  // namespace v0
}  // namespace tidemark

extern "C" TIDEMARK_EXPORT const tidemark::detail::hook_descriptor tidemark_hook = {
    &tidemark::detail::own_ledger, 0, tidemark::detail::hook::start_nothing, nullptr, nullptr};
