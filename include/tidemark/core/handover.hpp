// SPDX-License-Identifier: MIT
// One ledger for a program and its plugins. A shared object that was linked against, or that the program opens when it was
// itself linked with -rdynamic, finds the program's ledger by its symbols. Where it cannot, the program hands its own over:
//
//   // in the program                                   // in the plugin
//   start_plugin(tidemark::this_ledger());              extern "C" void start_plugin(tidemark::ledger_handle program) {
//                                                         if (auto used = tidemark::use_ledger(program); !used) ...
#pragma once

#include <cstddef>
#include <cstdint>
#include <new>

#include <tidemark/config/config.hpp>
#include <tidemark/config/platform.hpp>
#include <tidemark/core/detail/os_module.hpp>
#include <tidemark/core/ledger.hpp>
#include <tidemark/core/reading.hpp>

namespace tidemark {
inline namespace v0 {

/// Names a ledger to another part of the program. Plain data; stays valid for the life of the process.
struct ledger_handle {
  std::uint32_t version;  ///< of what `state` points to
  std::uint32_t state_bytes;
  detail::ledger_state* state;
};

inline namespace TIDEMARK_TAG {

/// The ledger that this part of the program uses. Threads: any.
[[nodiscard]] inline ledger_handle this_ledger() noexcept {
  static_cast<void>(detail::current_slot());
  return {detail::ledger_version, static_cast<std::uint32_t>(sizeof(detail::ledger_state)), &detail::ledger()};
}

/// From here on this part of the program uses that ledger: its scopes, sinks and readings are the same as there.
/// Call it before the first scope, sink or reading of this part. Absent, with nothing changed, where it came too late, where
/// this part has the heap hook itself or an `operator new` of its own, or where the other was compiled from another version.
/// Threads: one, while no other uses the library from this part. This part, and the one that the ledger lies in, are kept
/// loaded.
[[nodiscard]] inline reading<ledger_handle> use_ledger(ledger_handle other) {
#if TIDEMARK_OPT_DISABLE
  static_cast<void>(other);
  return reading<ledger_handle>::absent("disabled");
#else
  using result = reading<ledger_handle>;
  using namespace detail;
  hook_question asked;
  asked.fed = other.state;
  asked.version = other.version;
  asked.state_bytes = other.state_bytes;
  if (const char* why = asked.why_not_shared()) return result::absent_because(why);
  if (other.state == &ledger()) return other;
  if (has_hook()) {
    return result::absent("this part of the program has the heap hook, which feeds its own ledger");
  }
  // What replaces malloc is reached through every operator new. The question goes through one of them; this part may have
  // another of its own.
  void* (*const aligned)(std::size_t, std::align_val_t, const std::nothrow_t&) noexcept = &::operator new;
  void* (*const used)(std::size_t) = &::operator new;
  if (other.state->hook == hook_kind::global_new &&
      (ask_operator_new().fed != other.state ||
       !os::in_one_object(reinterpret_cast<const void*>(aligned), reinterpret_cast<const void*>(used)))) {
    return result::absent(
        "this part's operator new does not reach the program's hook: it has one of its own, or a C++ library of its "
        "own");
  }
  int untouched = 0;
  if (&ledger() != &own_ledger || !own_ledger.phase.compare_exchange_strong(untouched, ledger_handed_over)) {
    return result::absent("this part of the program has used a ledger already: hand over before its first scope");
  }
  os::keep_loaded(reinterpret_cast<const void*>(other.state->thread_here));
  os::keep_this_loaded();
  ledger_in_use = other.state;
  return other;
#endif
}

}  // namespace TIDEMARK_TAG
}  // namespace v0
}  // namespace tidemark
