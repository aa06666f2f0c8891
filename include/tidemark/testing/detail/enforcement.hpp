// SPDX-License-Identifier: MIT
// Guards are keepers of this thread, from their making to their end; and why they could keep nothing here.
#pragma once

#include <cstdlib>
#include <string>
#include <string_view>

#include <tidemark/config/config.hpp>
#include <tidemark/config/platform.hpp>
#include <tidemark/core/detail/gate_keeper.hpp>
#include <tidemark/core/detail/os_message.hpp>
#include <tidemark/core/detail/raise.hpp>
#include <tidemark/core/gate.hpp>
#include <tidemark/core/ledger.hpp>
#include <tidemark/testing/detail/sight.hpp>

namespace tidemark {
inline namespace v0 {
namespace detail {
namespace checks {

template <class... Parts>
[[nodiscard]] std::string joined(const Parts&... parts) {
  std::string text;
  ((text += parts), ...);
  return text;
}

inline namespace TIDEMARK_TAG {

/// Whether the hook can refuse an allocation of this thread. Empty: it can.
[[nodiscard]] inline std::string_view why_no_refusal() {
  if (hook_state() == hook_kind::none) return hook_reason();
  if (hook_state() == hook_kind::sanitizer) {
    return "the sanitizer allocates, and tells the hook afterwards: nothing can be refused. Run this check in a build "
           "without it; under hook/global_new.hpp with g++, -DTIDEMARK_OPT_SANITIZER_HOOKS=0 counts and refuses there "
           "too";
  }
  return why_thread_unseen();
}

/// Raises std::logic_error where there is a reason why a guard would have no effect.
inline void require(const char* who, std::string_view why_not) {
  if (why_not.empty()) return;
  const quiet hidden;
  raise_logic_error(joined("tidemark::testing::", who, " has no effect here: ", why_not).c_str());
}

}  // namespace TIDEMARK_TAG

/// A keeper of the thread that opens it.
class thread_guard : public gate_keeper {
 protected:
  thread_guard() = default;
  ~thread_guard() { close(); }

  void open() noexcept {
    open_gate_keeper(*this);
    is_open_ = true;
  }
  void close() noexcept {
    if (!is_open_) return;
    is_open_ = false;
    if (close_gate_keeper(*this)) return;
    // The thread that has it in its list would go on to call what is no longer there.
    os::say("a guard of tidemark::testing was closed on another thread than the one that opened it");
    std::abort();
  }

 private:
  bool is_open_ = false;
};

}  // namespace checks
}  // namespace detail
}  // namespace v0
}  // namespace tidemark
