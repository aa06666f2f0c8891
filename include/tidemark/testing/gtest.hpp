// SPDX-License-Identifier: MIT
// The checks of memory as GoogleTest assertions: TIDEMARK_CHECK_PEAK(64_MiB, model.forward(batch)); the list is in
// testing/detail/macros.hpp. A REQUIRE form returns from the test where it fails, as ASSERT_* does, and so belongs into
// functions that return nothing. And a listener that fails every test that leaves memory behind: call
// TIDEMARK_REGISTER_LEAK_LISTENER() in main(), after InitGoogleTest. Tested with GoogleTest 1.12.1.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include <tidemark/config/platform.hpp>
#include <tidemark/core/gate.hpp>
#include <tidemark/core/location.hpp>
#include <tidemark/testing/detail/reported_check.hpp>
#include <tidemark/testing/detail/test_leaks.hpp>
#include <tidemark/testing/verdict.hpp>

namespace tidemark {
inline namespace v0 {
namespace detail {
namespace checks {
inline namespace TIDEMARK_TAG {

struct gtest_framework {
  static void report(const testing::verdict& v, const location& where, bool is_fatal) {
    if (v.ok) return;
    tell(without_line(v, where), where, is_fatal);
  }
  static void tell(const std::string& text, const location& where, bool is_fatal) {
    const auto kind = is_fatal ? ::testing::TestPartResult::kFatalFailure : ::testing::TestPartResult::kNonFatalFailure;
    GTEST_MESSAGE_AT_(where.file_name(), static_cast<int>(where.line()), text.c_str(), kind);
  }
};

/// Fails each test that passed and left memory behind on its thread.
class gtest_leak_listener final : public ::testing::EmptyTestEventListener {
 public:
  void OnTestProgramStart(const ::testing::UnitTest&) override {
    const quiet hidden;
    warm_up(32);
  }
  void OnTestStart(const ::testing::TestInfo&) override { leaks_.begin(); }
  void OnTestEnd(const ::testing::TestInfo& info) override {
    leaks_.pause();
    const quiet hidden;
    const location where = location::current(info.file(), info.line(), info.name());
    const std::string problem = leaks_.end(std::string(info.test_suite_name()) + "." + info.name(), where);
    // What SUCCEED() and RecordProperty() note, GoogleTest keeps; a failed test is told already.
    const ::testing::TestResult& result = *info.result();
    if (problem.empty() || result.total_part_count() > 0 || result.test_property_count() > 0) return;
    gtest_framework::tell(problem.substr(line_of(where).size() + 2), where, false);
  }

 private:
  // GoogleTest keeps the room of each thread's list of traces.
  static void warm_up(int depth) {
    if (depth == 0) return;
    const ::testing::ScopedTrace trace(__FILE__, __LINE__, "");
    warm_up(depth - 1);
  }

  test_leaks leaks_;
};

inline void register_gtest_leak_listener() {
  const quiet hidden;
  ::testing::UnitTest::GetInstance()->listeners().Append(new gtest_leak_listener);  // which owns it
}

}  // namespace TIDEMARK_TAG

using framework = gtest_framework;

}  // namespace checks
}  // namespace detail
}  // namespace v0
}  // namespace tidemark

/// In main(), before RUN_ALL_TESTS().
#define TIDEMARK_REGISTER_LEAK_LISTENER() ::tidemark::detail::checks::register_gtest_leak_listener()

#define TIDEMARK_DETAIL_LEAVE_TEST return

#include <tidemark/testing/detail/macros.hpp>
