// SPDX-License-Identifier: MIT
// What the disabled translation unit does and sees, in types that both sides share.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <tidemark/core/record.hpp>
#include <tidemark/core/sink.hpp>

/// One meter's worth of a user's, so that a scope over it has the same type arguments on both sides.
struct counted_steps {
  static constexpr const char* name = "steps";
  static constexpr const char* unit = "steps";
  static constexpr bool counts_events = false;
  struct window {
    window() noexcept { ++opened; }
    [[nodiscard]] tidemark::reading<tidemark::window_usage> usage() const { return tidemark::window_usage{}; }
    tidemark::reading<tidemark::window_usage> close() noexcept { return usage(); }
    inline static int opened = 0;
  };
};

namespace disabled_side {

/// The sizes of everything whose layout an option could change.
std::vector<std::size_t> sizes();

/// Opens and ends scopes in every way but close(), allocating `bytes` inside.
void run_scopes(std::size_t bytes);
/// The record of a closed scope around an allocation of `bytes`.
tidemark::scope_record close_scope(std::size_t bytes);
/// The reason of every query and of a scope's usage.
std::vector<std::string> reasons();
/// Whether a second close is refused; true without exceptions.
bool refuses_second_close();

/// What measured and monitored callables returned: 1, 2, 3, 4.
std::vector<int> results(std::int64_t& duration_ns, std::string& why);

/// Attaches there, opens scopes there, calls `meanwhile`, and detaches.
void attach_there(const std::shared_ptr<tidemark::sink>& s, void (*meanwhile)());

/// Opens a scope there, calls `f`, and ends it.
void inside_scope(void (*f)());

}  // namespace disabled_side
