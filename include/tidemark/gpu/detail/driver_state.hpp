// SPDX-License-Identifier: MIT
// What the driver thread knows, and what it is asked to do. One state for each driver thread: a fork child has a thread
// and a state of its own.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include <tidemark/config/platform.hpp>
#include <tidemark/core/detail/os_module.hpp>
#include <tidemark/core/detail/raise.hpp>
#include <tidemark/core/gate.hpp>
#include <tidemark/gpu/detail/cuda.hpp>
#include <tidemark/gpu/detail/figures.hpp>
#include <tidemark/gpu/detail/nvml.hpp>
#include <tidemark/gpu/detail/own_process_linux.hpp>
#include <tidemark/gpu/detail/own_process_unknown.hpp>

namespace tidemark {
inline namespace v0 {
namespace detail {
namespace driver {

inline constexpr const char* late =
    "timeout: a call of the GPU driver has not returned within the deadline (gpu::set_driver_deadline_ns); until it "
    "does, nothing more is asked";

/// One question to the driver, with the place for its answer. Whoever asks holds it until the answer; where that comes
/// too late the driver thread does.
struct job {
  void (*run)(job&, void*& state, bool is_fork_child) noexcept = nullptr;
  void (*destroy)(job&) noexcept = nullptr;
};

inline namespace TIDEMARK_ERROR_TAG {

struct driver_state {
  nvml_library nvml;
  cuda_library cuda;
};

/// A question as code: `f(driver_state&, Answer&)`, which returns null or why there is no answer.
template <class Answer, class F>
struct question final : job {
  explicit question(F function) : f(std::move(function)) {
    run = [](job& self, void*& state, bool is_fork_child) noexcept {
      static_cast<question&>(self).ask(state, is_fork_child);
    };
    destroy = [](job& self) noexcept { delete &static_cast<question&>(self); };
  }

  void ask(void*& state, bool is_fork_child) noexcept {
    why = no_memory;
    contain_exceptions(
        [&] {
          if (state == nullptr) {
            auto* const made = new driver_state;  // never freed: drivers leave their own threads behind too
            if (is_fork_child || is_forked_without_exec()) made->cuda.begin_in_fork_child();
            state = made;
          }
          why = f(*static_cast<driver_state*>(state), answer);
        },
        [](const char*) {});
  }

  F f;
  Answer answer;
  const char* why = nullptr;
};

}  // namespace TIDEMARK_ERROR_TAG
}  // namespace driver
}  // namespace detail
}  // namespace v0
}  // namespace tidemark
