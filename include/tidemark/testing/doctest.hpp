// SPDX-License-Identifier: MIT
// The checks of memory as doctest assertions: TIDEMARK_CHECK_PEAK(64_MiB, model.forward(batch)); the list is in
// testing/detail/macros.hpp. And a listener that fails every test case that leaves memory behind: write
// TIDEMARK_REGISTER_LEAK_LISTENER(); in one .cpp file. Tested with doctest 2.4.9.
#pragma once

#if !defined(DOCTEST_VERSION)
  #if __has_include(<doctest/doctest.h>)
    #include <doctest/doctest.h>
  #else
    #include <doctest.h>
  #endif
#endif

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

struct doctest_framework {
  static void report(const testing::verdict& v, const location& where, bool is_fatal) {
    namespace dt = ::doctest;
    const auto line = static_cast<int>(where.line());
    if (v.ok) {
      dt::detail::ResultBuilder passed(is_fatal ? dt::assertType::DT_REQUIRE : dt::assertType::DT_CHECK,
                                       where.file_name(), line, "tidemark");
      passed.setResult(dt::detail::Result(true, dt::String(without_line(v, where).c_str())));
      static_cast<void>(passed.log());
      return;
    }
    dt::detail::MessageBuilder failed(where.file_name(), line,
                                      is_fatal ? dt::assertType::is_require : dt::assertType::is_check);
    failed* dt::String(without_line(v, where).c_str());
    static_cast<void>(failed.log());
    // Which react() does for a REQUIRE alone, and not where the run is to be aborted.
    if (dt::detail::checkIfShouldThrow(is_fatal ? dt::assertType::DT_REQUIRE : dt::assertType::DT_CHECK)) {
      dt::detail::throwException();
    }
  }
};

/// Fails each test case that leaves memory behind. It takes the place of a test's function while the test runs: what
/// doctest and its reporters do around it is not the test's.
class doctest_leak_listener final : public ::doctest::IReporter {
 public:
  explicit doctest_leak_listener(const ::doctest::ContextOptions& options) : options_(&options) {}

  void test_run_start() override {
    const quiet hidden;
    if (options_->no_exitcode) test_leaks::all().keep_status();
    warm_up(64);
  }
  void test_case_start(const ::doctest::TestCaseData& data) override {
    // doctest keeps test cases in a set, which does not order them by their function.
    auto& test = const_cast<::doctest::detail::TestCase&>(static_cast<const ::doctest::detail::TestCase&>(data));
    running() = {&test, test.m_test};
    test.m_test = run_watched;
  }
  void test_case_end(const ::doctest::CurrentTestCaseStats&) override {
    if (running().test != nullptr) running().test->m_test = running().body;
    running() = {};
  }

  void subcase_start(const ::doctest::SubcaseSignature&) override { test_leaks::all().suspect_framework(); }
  void test_case_exception(const ::doctest::TestCaseException&) override { test_leaks::all().suspect_framework(); }
  void log_message(const ::doctest::MessageData&) override { test_leaks::all().suspect_framework(); }
  void log_assert(const ::doctest::AssertData& data) override {
    if (data.m_failed || options_->success) test_leaks::all().suspect_framework();
  }

  void test_run_end(const ::doctest::TestRunStats&) override {}
  void report_query(const ::doctest::QueryData&) override {}
  void test_case_reenter(const ::doctest::TestCaseData&) override {}
  void subcase_end() override {}
  void test_case_skipped(const ::doctest::TestCaseData&) override {}

 private:
  struct running_test {
    ::doctest::detail::TestCase* test = nullptr;
    ::doctest::detail::funcType body = nullptr;
  };
  [[nodiscard]] static running_test& running() noexcept {
    static running_test one;
    return one;
  }

  static void run_watched() {
    const running_test now = running();
    const auto line = static_cast<int>(now.test->m_line);
    const location where = location::current(now.test->m_file.c_str(), line, now.test->m_name);
    watched_body watched(now.test->m_name, where);
    now.body();
    testing::verdict v;
    const quiet hidden;
    v.message = watched.end();
    if (!v.message.empty()) doctest_framework::report(v, where, false);
  }

  // doctest keeps the room of its list of INFOs.
  static void warm_up(int depth) {
    if (depth == 0) return;
    DOCTEST_INFO("");
    warm_up(depth - 1);
  }

  const ::doctest::ContextOptions* options_;
};

}  // namespace TIDEMARK_TAG

using framework = doctest_framework;

}  // namespace checks
}  // namespace detail
}  // namespace v0
}  // namespace tidemark

/// In one .cpp file, outside of every namespace.
#define TIDEMARK_REGISTER_LEAK_LISTENER() \
  TIDEMARK_DETAIL_MAKE_TEST_LEAKS()       \
  DOCTEST_REGISTER_LISTENER("tidemark_leaks", 0, ::tidemark::detail::checks::doctest_leak_listener)

// A failed REQUIRE throws.
#define TIDEMARK_DETAIL_LEAVE_TEST

#include <tidemark/testing/detail/macros.hpp>
