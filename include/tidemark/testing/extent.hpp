// SPDX-License-Identifier: MIT
// Whose memory a check looks at.
#pragma once

#include <tidemark/core/domain.hpp>
#include <tidemark/scope/meter/task_heap.hpp>

namespace tidemark {
inline namespace v0 {
namespace testing {

/// Whose memory a check looks at: the heap of this thread, of the whole process, of a task's threads; or a domain,
/// which needs no heap hook. Plain data. A domain must outlive it.
class extent {
 public:
  enum class kind { thread, process, task, domain };

  static const extent thread;   ///< what this thread allocates minus what it frees; exact
  static const extent process;  ///< every thread; within the bound that docs/semantics.md gives

  /// The threads of a task that is open. Not explicit: a token stands for its extent.
  extent(const task_token& task) noexcept : kind_(kind::task), task_(task) {}
  /// What is fed to a domain and to those inside it; exact, whatever thread feeds it.
  extent(const domain& d) noexcept : kind_(kind::domain), domain_(&d) {}

  [[nodiscard]] kind what() const noexcept { return kind_; }
  [[nodiscard]] const task_token& task() const noexcept { return task_; }
  /// Null where it is no domain's.
  [[nodiscard]] const domain* of_domain() const noexcept { return domain_; }

 private:
  constexpr explicit extent(kind what) noexcept : kind_(what) {}

  kind kind_;
  task_token task_{};
  const domain* domain_ = nullptr;
};

inline constexpr extent extent::thread{extent::kind::thread};
inline constexpr extent extent::process{extent::kind::process};

}  // namespace testing
}  // namespace v0
}  // namespace tidemark
