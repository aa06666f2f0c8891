// SPDX-License-Identifier: MIT
// The checks of memory as GoogleTest assertions: TIDEMARK_CHECK_PEAK(64_MiB, model.forward(batch)); the list is in
// testing/detail/macros.hpp. A REQUIRE form returns from the test where it fails, as ASSERT_* does, and so belongs into
// functions that return nothing. And a listener that fails every test that leaves memory behind: write
// TIDEMARK_REGISTER_LEAK_LISTENER(); in one .cpp file. Tested with GoogleTest 1.12.1.
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

/// Fails each test that leaves memory behind, its fixture included.
class gtest_leak_listener final : public ::testing::EmptyTestEventListener {
 public:
  /// `warm_up_more` makes what a library beside GoogleTest makes once; null: there is none.
  explicit gtest_leak_listener(void (*warm_up_more)()) noexcept : warm_up_more_(warm_up_more) {}

  void OnTestProgramStart(const ::testing::UnitTest&) override {
    const quiet hidden;
    warm_up(64);
    if (warm_up_more_ != nullptr) warm_up_more_();
#if GTEST_HAS_DEATH_TEST
    // GoogleTest keeps the room of the last message that a death test read.
    ::testing::internal::DeathTest::set_last_death_test_message(std::string(64 << 10, ' '));
    ::testing::internal::DeathTest::set_last_death_test_message("");
#endif
  }
  // The last of the listeners begins last and ends first. Events of this kind go through them from the last to the
  // first, so that none is missed or called twice.
  void OnEnvironmentsSetUpEnd(const ::testing::UnitTest& run) override {
    const quiet hidden;
    auto& listeners = const_cast<::testing::UnitTest&>(run).listeners();
    listeners.Append(listeners.Release(this));
  }
  void OnTestStart(const ::testing::TestInfo& info) override {
    const std::string name = [&] {
      const quiet hidden;
      return std::string(info.test_suite_name()) + "." + info.name();
    }();
    test_leaks::all().begin(name, where_of(info));
  }
  void OnTestEnd(const ::testing::TestInfo& info) override {
    // GoogleTest keeps what failures, SUCCEED(), GTEST_SKIP() and RecordProperty() note.
    const ::testing::TestResult& result = *info.result();
    if (result.total_part_count() > 0 || result.test_property_count() > 0) test_leaks::all().suspect_framework();
    const std::string problem = test_leaks::all().end();
    if (problem.empty()) return;
    const quiet hidden;
    testing::verdict v;
    v.message = problem;
    // What --gtest_throw_on_failure throws would go through GoogleTest, which is not in a test any more.
    contain_exceptions([&] { gtest_framework::report(v, where_of(info), false); }, [](const char*) {});
  }

 private:
  [[nodiscard]] static location where_of(const ::testing::TestInfo& info) {
    return location::current(info.file() != nullptr ? info.file() : "", info.line(), info.name());
  }
  // GoogleTest keeps the room of each thread's list of traces.
  static void warm_up(int depth) {
    if (depth == 0) return;
    const ::testing::ScopedTrace trace(__FILE__, __LINE__, "");
    warm_up(depth - 1);
  }

  void (*warm_up_more_)();
};

inline bool register_gtest_leak_listener(void (*warm_up_more)()) {
  const quiet hidden;
  ::testing::UnitTest::GetInstance()->listeners().Append(new gtest_leak_listener(warm_up_more));  // which owns it
  return true;
}

#if defined(GOOGLEMOCK_INCLUDE_GMOCK_GMOCK_H_)  // <gmock/gmock.h>, where it was included before this header
inline void warm_up_gmock() {
  struct mock {
    MOCK_METHOD(void, call, ());
  };
  const ::testing::InSequence ordered;
  ::testing::NiceMock<mock> one;
  ON_CALL(one, call()).WillByDefault(::testing::Return());
  EXPECT_CALL(one, call());
  EXPECT_CALL(one, call());
  one.call();
  one.call();
}
#endif

}  // namespace TIDEMARK_TAG

using framework = gtest_framework;

}  // namespace checks
}  // namespace detail
}  // namespace v0
}  // namespace tidemark

#if defined(GOOGLEMOCK_INCLUDE_GMOCK_GMOCK_H_)
  #define TIDEMARK_DETAIL_WARM_UP_GMOCK ::tidemark::detail::checks::warm_up_gmock
#else
  #define TIDEMARK_DETAIL_WARM_UP_GMOCK nullptr
#endif
/// In one .cpp file, outside of every namespace; behind <gmock/gmock.h> where a test has mocks.
#define TIDEMARK_REGISTER_LEAK_LISTENER()             \
  TIDEMARK_DETAIL_MAKE_TEST_LEAKS()                   \
  [[maybe_unused]] static const bool tidemark_leaks = \
      ::tidemark::detail::checks::register_gtest_leak_listener(TIDEMARK_DETAIL_WARM_UP_GMOCK)

#define TIDEMARK_DETAIL_LEAVE_TEST return

#include <tidemark/testing/detail/macros.hpp>
