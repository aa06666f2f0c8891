// SPDX-License-Identifier: MIT
// Which tests leave memory behind: what the leak listeners of the bindings share. Each test owns the blocks that its
// thread allocates in its body, as a scope does, so that it does not matter who frees them, and when. What a framework
// keeps of a test on its own account is released with the framework: a test of which it may have kept something is
// judged when the program ends.
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include <tidemark/config/platform.hpp>
#include <tidemark/core/detail/os_thread.hpp>
#include <tidemark/core/gate.hpp>
#include <tidemark/core/ledger.hpp>
#include <tidemark/core/location.hpp>
#include <tidemark/core/path.hpp>
#include <tidemark/core/reading.hpp>
#include <tidemark/core/usage.hpp>
#include <tidemark/scope/detail/frame.hpp>
#include <tidemark/scope/meter/thread_heap.hpp>
#include <tidemark/testing/detail/enforcement.hpp>
#include <tidemark/testing/detail/extent_window.hpp>
#include <tidemark/testing/detail/words.hpp>

namespace tidemark {
inline namespace v0 {
namespace detail {
namespace checks {
inline namespace TIDEMARK_TAG {

/// One test after another, on the thread that runs them.
class test_leaks {
 public:
  /// TIDEMARK_REGISTER_LEAK_LISTENER() asks for it before any other static is made: it ends after all of them.
  [[nodiscard]] static test_leaks& all() {
    static test_leaks of_the_program;
    return of_the_program;
  }
  test_leaks(const test_leaks&) = delete;
  test_leaks& operator=(const test_leaks&) = delete;
  ~test_leaks() {
    if (os::process_id() != process_id_ || !tell_late() || keeps_status_)
      return;  // a fork child's tests are its parent's
    std::fflush(nullptr);
    std::_Exit(EXIT_FAILURE);  // the status is the program's to choose until here, and the framework chose it before
  }

  /// From now on the test owns what this thread allocates.
  void begin(std::string_view name, const location& where) {
    why_unseen_ = why_thread_unseen();
    const quiet hidden;
    name_ = name;
    where_ = where;
    may_be_framework_ = false;
    path_ = nullptr;
    if (!why_unseen_.empty()) return;
    place_.emplace();
    place_->enter(name);
    const slot* s = current_slot();
    const thread_frame* f = s == nullptr ? nullptr : s->innermost.own();
    path_ = f == nullptr ? nullptr : f->path.own();
    if (path_ == nullptr || path_->id == other_path_id) {
      why_unseen_ = "there are too many tests and scopes: more than 65,536 paths, or no memory for one more";
      path_ = nullptr;
    } else {
      owned_before_ = owned_bytes(*path_);
    }
    window_.emplace();
  }

  /// Some of what the test owns may be the framework's: a section, a message, the report of a failure.
  void suspect_framework() noexcept { may_be_framework_ = true; }
  /// The framework's exit status is not to be changed.
  void keep_status() noexcept { keeps_status_ = true; }

  /// The test is over. What is wrong with it, in words; empty where nothing is, or nothing is known yet.
  [[nodiscard]] std::string end() {
    const reading<window_usage> read = window_ ? window_->usage() : reading<window_usage>::absent("no window");
    window_.reset();
    if (place_) place_->leave();
    const quiet hidden;
    place_.reset();
    if (!why_unseen_.empty()) return unseen();
    const std::int64_t bytes = owned_bytes(*path_) - owned_before_;
    const std::int64_t blocks = read ? static_cast<std::int64_t>(read->allocations - read->deallocations) : 0;
    const std::int64_t net_bytes = read ? static_cast<std::int64_t>(read->allocated_bytes - read->freed_bytes) : 0;
    const bool has_blocks = read && net_bytes == bytes && blocks > 0;
    if (bytes <= 0 && !(has_blocks && bytes == 0)) return {};
    finding& f = findings_[path_];
    if (may_be_framework_) {
      if (!f.is_suspect) f = {true, name_, where_.file_name(), where_.line(), f.told_bytes};
      return {};
    }
    f.told_bytes += bytes;
    message_lines lines(where_, headline(name_));
    lines.add("expected", expected)
        .add("measured", has_blocks ? counted(magnitude(blocks), "block") + " and " + exact_bytes(bytes) + still_live
                                    : exact_bytes(bytes) + still_live);
    if (read) lines.add_figures(*read, "this thread, in the test");
    return lines.add("if wanted", if_wanted).text();
  }

 private:
  static constexpr const char* expected = "whatever the test's thread allocates in the test is freed";
  static constexpr const char* still_live = " more are live at the end of the test";
  static constexpr const char* if_wanted =
      "what is made once and kept, such as a cache or a static: make it before, or inside a tidemark::quiet";

  struct finding {
    bool is_suspect = false;
    std::string name;
    std::string file;  // the framework's own text may be gone before this is told
    std::uint32_t line = 0;
    std::int64_t told_bytes = 0;
  };

  test_leaks() = default;

  [[nodiscard]] static std::string headline(std::string_view name) {
    return joined("test '", name, "' leaves memory behind");
  }

  [[nodiscard]] std::string unseen() {
    if (is_unseen_told_) return {};
    is_unseen_told_ = true;  // it is the same in every test
    return message_lines(where_, "tests are not checked for leaks, and so not passed")
        .add("because", why_unseen_)
        .text();
  }

  // Whether there was something to tell.
  [[nodiscard]] bool tell_late() {
    const quiet hidden;
    bool is_any = false;
    for (const auto& [path, f] : findings_) {
      const std::int64_t bytes = f.is_suspect ? owned_bytes(*path) - f.told_bytes : 0;
      if (bytes <= 0) continue;
      is_any = true;
      const std::string text =
          message_lines(location::current(f.file.c_str(), static_cast<int>(f.line), ""), headline(f.name))
              .add("expected", expected)
              .add("measured", exact_bytes(bytes) + " more are live at the end of the program")
              .add("told here", "since the framework kept something of the test as well, which is gone by now")
              .add("if wanted", if_wanted)
              .text();
      std::fprintf(stderr, "%s\n", text.c_str());
    }
    return is_any;
  }

  std::uint64_t process_id_ = os::process_id();
  std::map<const path_node*, finding> findings_;
  bool keeps_status_ = false;
  bool is_unseen_told_ = false;

  std::string name_;
  location where_;
  std::string_view why_unseen_;
  bool may_be_framework_ = false;
  const path_node* path_ = nullptr;
  std::int64_t owned_before_ = 0;
  std::optional<frame> place_;
  std::optional<meter::thread_heap::window> window_;
};

/// The body of a test, however it is left.
class watched_body {
 public:
  watched_body(std::string_view name, const location& where) { test_leaks::all().begin(name, where); }
  watched_body(const watched_body&) = delete;
  watched_body& operator=(const watched_body&) = delete;
  ~watched_body() {
    if (is_over_) return;
    test_leaks::all().suspect_framework();  // the exception is on its way
    contain_exceptions([] { static_cast<void>(test_leaks::all().end()); }, [](const char*) {});
  }
  [[nodiscard]] std::string end() {
    is_over_ = true;
    return test_leaks::all().end();
  }

 private:
  bool is_over_ = false;
};

}  // namespace TIDEMARK_TAG
}  // namespace checks
}  // namespace detail
}  // namespace v0
}  // namespace tidemark

// What is made first ends last.
#if defined(__GNUC__)
  #define TIDEMARK_DETAIL_MAKE_TEST_LEAKS()                                    \
    __attribute__((constructor(101))) static void tidemark_make_test_leaks() { \
      static_cast<void>(::tidemark::detail::checks::test_leaks::all());        \
    }
#else
  #define TIDEMARK_DETAIL_MAKE_TEST_LEAKS()                                         \
    static const ::tidemark::detail::checks::test_leaks& tidemark_made_test_leaks = \
        ::tidemark::detail::checks::test_leaks::all();
#endif
