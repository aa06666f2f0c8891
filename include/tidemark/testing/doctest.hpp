// SPDX-License-Identifier: MIT
// The checks of memory as doctest assertions: TIDEMARK_CHECK_PEAK(64_MiB, model.forward(batch)); the list is in
// testing/detail/macros.hpp. And a listener that fails every test case that leaves memory behind: write
// TIDEMARK_REGISTER_LEAK_LISTENER() in one .cpp file. Tested with doctest 2.4.9.
#pragma once

#if !defined(DOCTEST_VERSION)
  #if __has_include(<doctest/doctest.h>)
    #include <doctest/doctest.h>
  #else
    #include <doctest.h>
  #endif
#endif

#include <cstddef>
#include <optional>
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
    failed.react();  // which throws at a REQUIRE, and where the run is to be aborted
  }
};

/// What doctest itself keeps of its subcases is not the test's.
class quiet_subcase {
 public:
  quiet_subcase(const char* name, const char* file, int line) {
    const quiet hidden;
    subcase_.emplace(name, file, line);
  }
  ~quiet_subcase() {
    const quiet hidden;
    subcase_.reset();
  }
  quiet_subcase(const quiet_subcase&) = delete;
  quiet_subcase& operator=(const quiet_subcase&) = delete;
  operator bool() const { return static_cast<bool>(*subcase_); }  // as doctest's own

 private:
  std::optional<::doctest::detail::Subcase> subcase_;
};

/// Fails each test case that passed and left memory behind on its thread. With the junit reporter, which keeps every test case to
/// the end, what doctest keeps would be taken for the tests': use another one.
class doctest_leak_listener final : public ::doctest::IReporter {
 public:
  explicit doctest_leak_listener(const ::doctest::ContextOptions&) {}

  void test_run_start() override {
    const quiet hidden;
    warm_up(32);
  }
  void test_case_start(const ::doctest::TestCaseData& test) override {
    test_ = &test;
    leaks_.begin();
  }
  void test_case_end(const ::doctest::CurrentTestCaseStats& stats) override {
    leaks_.pause();
    const quiet hidden;
    const auto line = static_cast<int>(test_->m_line);
    const location where = location::current(test_->m_file.c_str(), line, test_->m_name);
    const std::string problem = leaks_.end(test_->m_name, where);
    if (problem.empty() || stats.failure_flags != 0) return;  // a failed test is told already
    ++failed_;
    const std::string prefix = line_of(where) + ": ";
    ::doctest::detail::MessageBuilder told(test_->m_file.c_str(), line, ::doctest::assertType::is_check);
    told* ::doctest::String(problem.substr(prefix.size()).c_str());
    static_cast<void>(told.log());
  }
  void test_run_end(const ::doctest::TestRunStats& stats) override {
    // The results of the test cases are counted before their ends are told; these are the run's own numbers.
    const_cast<::doctest::TestRunStats&>(stats).numTestCasesFailed += failed_;
  }

  void report_query(const ::doctest::QueryData&) override {}
  void test_case_reenter(const ::doctest::TestCaseData&) override {}
  void test_case_exception(const ::doctest::TestCaseException&) override {}
  void subcase_start(const ::doctest::SubcaseSignature&) override {}
  void subcase_end() override {}
  void log_assert(const ::doctest::AssertData&) override {}
  void log_message(const ::doctest::MessageData&) override {}
  void test_case_skipped(const ::doctest::TestCaseData&) override {}

 private:
  // doctest keeps the room of its list of INFOs, and its stream.
  static void warm_up(int depth) {
    if (depth == 0) {
      ::doctest::detail::MessageBuilder never_told("", 0, ::doctest::assertType::is_warn);
      never_told* std::string(16'384, ' ').c_str();
      return;
    }
    DOCTEST_INFO("depth ", depth);
    warm_up(depth - 1);
  }

  const ::doctest::TestCaseData* test_ = nullptr;
  test_leaks leaks_;
  unsigned failed_ = 0;
};

}  // namespace TIDEMARK_TAG

using framework = doctest_framework;

}  // namespace checks
}  // namespace detail
}  // namespace v0
}  // namespace tidemark

#undef DOCTEST_SUBCASE
#define DOCTEST_SUBCASE(name)                                                                      \
  if (const ::tidemark::detail::checks::quiet_subcase & DOCTEST_ANONYMOUS(DOCTEST_ANON_SUBCASE_) = \
          ::tidemark::detail::checks::quiet_subcase(name, __FILE__, __LINE__))

/// In one .cpp file, outside of every namespace.
#define TIDEMARK_REGISTER_LEAK_LISTENER() \
  DOCTEST_REGISTER_LISTENER("tidemark_leaks", 0, ::tidemark::detail::checks::doctest_leak_listener)

// A failed REQUIRE throws.
#define TIDEMARK_DETAIL_LEAVE_TEST

#include <tidemark/testing/detail/macros.hpp>
