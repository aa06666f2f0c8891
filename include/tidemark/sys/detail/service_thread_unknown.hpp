// SPDX-License-Identifier: MIT
// service_thread_posix.hpp's contract with the standard library's threads.
#pragma once

#include <tidemark/config/platform.hpp>
#include <tidemark/core/detail/raise.hpp>
#include <tidemark/core/gate.hpp>

#if !TIDEMARK_HAS_POSIX()

  #include <cstddef>
  #include <thread>

namespace tidemark {
inline namespace v0 {
namespace detail {
namespace os {

class service_thread {
 public:
  using function = void (*)(void* argument) noexcept;

  service_thread() noexcept = default;
  service_thread(const service_thread&) = delete;
  service_thread& operator=(const service_thread&) = delete;
  ~service_thread() { abandon(); }

  [[nodiscard]] bool is_started() const noexcept { return thread_.joinable(); }

  [[nodiscard]] bool start(function f, void* argument, std::size_t) noexcept {
    contain_exceptions(
        [&] {
          thread_ = std::thread([f, argument] {
            const quiet hidden;
            f(argument);
          });
        },
        [](const char*) {});
    return is_started();
  }

  void join() noexcept {
    if (is_started()) thread_.join();
  }
  void forget() noexcept { abandon(); }
  void abandon() noexcept {
    if (is_started()) thread_.detach();
  }

 private:
  std::thread thread_;
};

}  // namespace os
}  // namespace detail
}  // namespace v0
}  // namespace tidemark

#endif
