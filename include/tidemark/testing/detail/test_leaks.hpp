// SPDX-License-Identifier: MIT
// What a test case leaves behind: a window from its beginning to its end, for the listeners of the frameworks.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include <tidemark/config/platform.hpp>
#include <tidemark/core/gate.hpp>
#include <tidemark/core/location.hpp>
#include <tidemark/core/reading.hpp>
#include <tidemark/core/usage.hpp>
#include <tidemark/testing/detail/enforcement.hpp>
#include <tidemark/testing/detail/extent_window.hpp>
#include <tidemark/testing/detail/words.hpp>
#include <tidemark/testing/extent.hpp>

namespace tidemark {
inline namespace v0 {
namespace detail {
namespace checks {
inline namespace TIDEMARK_TAG {

/// Of one test after another, on the thread that runs them.
class test_leaks {
 public:
  void begin() {
    why_absent_ = why_thread_unseen();
    window_.emplace(testing::extent::thread);
  }

  /// Opened again for each part of the test that runs: what the framework does in between is not the test's.
  void pause() {
    if (!window_) return;
    const reading<window_usage> read = window_->usage();
    window_.reset();
    if (read) {
      usage_ = *read;
      blocks_ += static_cast<std::int64_t>(read->allocations - read->deallocations);
      bytes_ += static_cast<std::int64_t>(read->allocated_bytes - read->freed_bytes);
    } else if (why_absent_.empty()) {
      why_absent_ = read.why();
    }
  }

  /// What is wrong with the test, in words; empty where it left nothing behind, or was not watched.
  [[nodiscard]] std::string end(std::string_view name, const location& where) {
    pause();
    const quiet hidden;
    const std::int64_t blocks = blocks_;
    const std::int64_t bytes = bytes_;
    blocks_ = bytes_ = 0;
    if (!why_absent_.empty()) {
      return message_lines(where, joined("the leak check of test '", name, "' saw nothing"))
          .add("because", why_absent_)
          .text();
    }
    if (blocks <= 0) return {};  // a buffer that grew is one for another
    return message_lines(where, joined("test '", name, "' leaves memory behind"))
        .add("expected", "as many blocks and bytes at the end of the test as at its beginning")
        .add("measured", joined(blocks < 0 ? "-" : "", counted(magnitude(blocks), "block"), " and ", exact_bytes(bytes),
                                " more on the thread of the test"))
        .add_figures(usage_, "this thread, in the last run of the test's body")
        .add("if wanted", "what is made once and kept, such as a cache or a static: make it inside a tidemark::quiet")
        .text();
  }

 private:
  std::string_view why_absent_;
  std::optional<extent_window> window_;
  window_usage usage_;
  std::int64_t blocks_ = 0;
  std::int64_t bytes_ = 0;
};

}  // namespace TIDEMARK_TAG
}  // namespace checks
}  // namespace detail
}  // namespace v0
}  // namespace tidemark
