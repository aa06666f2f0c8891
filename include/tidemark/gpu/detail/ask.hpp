// SPDX-License-Identifier: MIT
// How a question reaches the driver, and how its answer comes back: on the driver thread, within the deadline, in no
// number of the user's.
#pragma once

#include <new>
#include <string_view>
#include <utility>

#include <tidemark/config/platform.hpp>
#include <tidemark/core/detail/os_module.hpp>
#include <tidemark/core/gate.hpp>
#include <tidemark/core/ledger.hpp>
#include <tidemark/gpu/detail/driver_state.hpp>
#include <tidemark/gpu/detail/driver_thread_linux.hpp>
#include <tidemark/gpu/detail/driver_thread_unknown.hpp>
#include <tidemark/gpu/detail/settings.hpp>

namespace tidemark {
inline namespace v0 {
namespace detail {
namespace driver {

/// Null, or that the program or its environment asks for no GPU query at all.
[[nodiscard]] inline const char* why_off() noexcept {
  const settings* const all = find_registry<settings>();
  if (all != nullptr && all->is_off.load(std::memory_order_relaxed)) {  // counter only
    return "disabled: gpu::allow_queries(false)";
  }
  const char* const said = environment("TIDEMARK_GPU");
  if (said != nullptr && std::string_view(said) == "off") return "disabled: the environment says TIDEMARK_GPU=off";
  return nullptr;
}

inline namespace TIDEMARK_ERROR_TAG {

/// Asks `f(driver_state&, Answer&)`, which returns null or a reason. Null, or why `answer` is as it was.
/// `f` holds copies: it may run on after the caller is gone.
template <class Answer, class F>
[[nodiscard]] const char* ask_driver(Answer& answer, F f) {
  if (const char* why = why_off()) return why;
  const quiet hidden;
  os::keep_this_loaded();
  auto* asked = new (std::nothrow) question<Answer, F>(std::move(f));
  if (asked == nullptr) return no_memory;
  bool is_left_behind = false;
  const char* why = run_on_driver_thread(*asked, is_left_behind);
  if (is_left_behind) return why;
  if (why == nullptr) why = asked->why;
  if (why == nullptr) answer = std::move(asked->answer);
  delete asked;
  return why;
}

}  // namespace TIDEMARK_ERROR_TAG
}  // namespace driver
}  // namespace detail
}  // namespace v0
}  // namespace tidemark
