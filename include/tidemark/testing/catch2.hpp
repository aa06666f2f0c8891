// SPDX-License-Identifier: MIT
// The checks of memory as Catch2 assertions: TIDEMARK_CHECK_PEAK(64_MiB, model.forward(batch)); the list is in
// testing/detail/macros.hpp. And a listener that fails every test case that leaves memory behind: write
// TIDEMARK_REGISTER_LEAK_LISTENER(); in one .cpp file (with Catch2 2, one that has CATCH_CONFIG_EXTERNAL_INTERFACES or
// Catch's main). Tested with Catch2 2.13.10; what is for version 3 is written from its sources and was not compiled.
#pragma once

#if !defined(CATCH_VERSION_MAJOR)
  #if __has_include(<catch2/catch_test_macros.hpp>)
    #include <catch2/catch_test_macros.hpp>
  #else
    #include <catch2/catch.hpp>
  #endif
#endif
#if __has_include(<catch2/catch_test_macros.hpp>)
  #include <catch2/catch_test_case_info.hpp>
  #include <catch2/interfaces/catch_interfaces_config.hpp>
  #include <catch2/internal/catch_assertion_handler.hpp>
  #include <catch2/internal/catch_reusable_string_stream.hpp>
  #include <catch2/internal/catch_test_case_registry_impl.hpp>
  #include <catch2/reporters/catch_reporter_event_listener.hpp>
  #include <catch2/reporters/catch_reporter_registrars.hpp>
  #define TIDEMARK_DETAIL_CATCH2_LISTENER ::Catch::EventListenerBase
#elif defined(CATCH_CONFIG_EXTERNAL_INTERFACES)
  #define TIDEMARK_DETAIL_CATCH2_LISTENER ::Catch::TestEventListenerBase
#endif

#include <string>
#include <utility>
#include <vector>

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

struct catch2_framework {
  static void report(const testing::verdict& v, const location& where, bool is_fatal) {
    namespace c = ::Catch;
    c::AssertionHandler handler(is_fatal ? "TIDEMARK_REQUIRE" : "TIDEMARK_CHECK",
                                c::SourceLineInfo(where.file_name(), where.line()), c::StringRef(),
                                is_fatal ? c::ResultDisposition::Normal : c::ResultDisposition::ContinueOnFailure);
    handler.handleMessage(v.ok ? c::ResultWas::Ok : c::ResultWas::ExplicitFailure, without_line(v, where));
    handler.complete();
  }
};

#if defined(TIDEMARK_DETAIL_CATCH2_LISTENER)
  #if __has_include(<catch2/catch_test_macros.hpp>)
using catch2_test = ::Catch::TestCaseHandle;

/// What Catch2 keeps of a test case is not known here: each is judged when the program ends.
class catch2_capture {
 public:
  catch2_capture() { test_leaks::all().suspect_framework(); }
};

[[nodiscard]] inline catch2_test with_invoker(const catch2_test& test, ::Catch::ITestInvoker* invoker) {
  return {const_cast<::Catch::TestCaseInfo*>(&test.getTestCaseInfo()), invoker};
}
  #else
using catch2_test = ::Catch::TestCase;

/// Stands before Catch2's own for the time of a body: what Catch2 and its reporters keep is hidden, also from checks in
/// the body, which any listener makes Catch2 report every assertion in. A generator is made by the test, and Catch2
/// keeps it.
class catch2_capture final : public ::Catch::IResultCapture {
  template <class F>
  static decltype(auto) hiding(F f) {
    const quiet hidden;
    return f();
  }

  using info = ::Catch::AssertionInfo;
  using reaction = ::Catch::AssertionReaction;

 public:
  catch2_capture() : behind_(::Catch::getResultCapture()) {
    ::Catch::getCurrentMutableContext().setResultCapture(this);
  }
  ~catch2_capture() override { ::Catch::getCurrentMutableContext().setResultCapture(&behind_); }
  catch2_capture(const catch2_capture&) = delete;
  catch2_capture& operator=(const catch2_capture&) = delete;

  bool sectionStarted(const ::Catch::SectionInfo& s, ::Catch::Counts& n) override {
    return hiding([&] { return behind_.sectionStarted(s, n); });
  }
  void sectionEnded(const ::Catch::SectionEndInfo& s) override {
    hiding([&] { behind_.sectionEnded(s); });
  }
  void sectionEndedEarly(const ::Catch::SectionEndInfo& s) override {
    hiding([&] { behind_.sectionEndedEarly(s); });
  }
  ::Catch::IGeneratorTracker& acquireGeneratorTracker(::Catch::StringRef name,
                                                      const ::Catch::SourceLineInfo& where) override {
    test_leaks::all().suspect_framework();
    return hiding([&]() -> auto& { return behind_.acquireGeneratorTracker(name, where); });
  }
    #if defined(CATCH_CONFIG_ENABLE_BENCHMARKING)
  void benchmarkPreparing(const std::string& name) override {
    hiding([&] { behind_.benchmarkPreparing(name); });
  }
  void benchmarkStarting(const ::Catch::BenchmarkInfo& b) override {
    hiding([&] { behind_.benchmarkStarting(b); });
  }
  void benchmarkEnded(const ::Catch::BenchmarkStats<>& b) override {
    hiding([&] { behind_.benchmarkEnded(b); });
  }
  void benchmarkFailed(const std::string& error) override {
    hiding([&] { behind_.benchmarkFailed(error); });
  }
    #endif
  void pushScopedMessage(const ::Catch::MessageInfo& m) override {
    hiding([&] { behind_.pushScopedMessage(m); });
  }
  void popScopedMessage(const ::Catch::MessageInfo& m) override {
    hiding([&] { behind_.popScopedMessage(m); });
  }
  void emplaceUnscopedMessage(const ::Catch::MessageBuilder& m) override {
    hiding([&] { behind_.emplaceUnscopedMessage(m); });
  }
  void handleFatalErrorCondition(::Catch::StringRef message) override {
    hiding([&] { behind_.handleFatalErrorCondition(message); });
  }
  void handleExpr(const info& i, const ::Catch::ITransientExpression& e, reaction& r) override {
    hiding([&] { behind_.handleExpr(i, e, r); });
  }
  void handleMessage(const info& i, ::Catch::ResultWas::OfType t, const ::Catch::StringRef& m, reaction& r) override {
    hiding([&] { behind_.handleMessage(i, t, m, r); });
  }
  void handleUnexpectedExceptionNotThrown(const info& i, reaction& r) override {
    hiding([&] { behind_.handleUnexpectedExceptionNotThrown(i, r); });
  }
  void handleUnexpectedInflightException(const info& i, const std::string& m, reaction& r) override {
    hiding([&] { behind_.handleUnexpectedInflightException(i, m, r); });
  }
  void handleIncomplete(const info& i) override {
    hiding([&] { behind_.handleIncomplete(i); });
  }
  void handleNonExpr(const info& i, ::Catch::ResultWas::OfType t, reaction& r) override {
    hiding([&] { behind_.handleNonExpr(i, t, r); });
  }
  bool lastAssertionPassed() override { return behind_.lastAssertionPassed(); }
  void assertionPassed() override { behind_.assertionPassed(); }
  std::string getCurrentTestName() const override { return behind_.getCurrentTestName(); }
  const ::Catch::AssertionResult* getLastResult() const override { return behind_.getLastResult(); }
  void exceptionEarlyReported() override { behind_.exceptionEarlyReported(); }

 private:
  ::Catch::IResultCapture& behind_;
};

[[nodiscard]] inline catch2_test with_invoker(const catch2_test& test, ::Catch::ITestInvoker* invoker) {
  return {invoker, ::Catch::TestCaseInfo(test.getTestCaseInfo())};
}
  #endif

/// Takes the place of a test case's own function: what Catch2 and its reporters do around it is not the test's.
class watched_test final : public ::Catch::ITestInvoker {
 public:
  explicit watched_test(const catch2_test& test) : test_(test) {}
  void invoke() const override {
    const auto& about = test_.getTestCaseInfo();
    const location where = location::current(about.lineInfo.file, static_cast<int>(about.lineInfo.line), "");
    testing::verdict v;
    {
      const catch2_capture capture;
      watched_body watched(about.name, where);
      test_.invoke();
      const quiet hidden;
      v.message = watched.end();
    }
    const quiet hidden;
    if (!v.message.empty()) catch2_framework::report(v, where, false);
  }

 private:
  catch2_test test_;
};

/// Fails each test case that leaves memory behind.
class catch2_leak_listener final : public TIDEMARK_DETAIL_CATCH2_LISTENER {
  using base = TIDEMARK_DETAIL_CATCH2_LISTENER;

 public:
  using base::base;

  void testRunStarting(const ::Catch::TestRunInfo& run) override {
    base::testRunStarting(run);
    const quiet hidden;
    warm_up(16);
    // Catch2 has the list as constant, but not made of constants, and keeps pointers into it: each keeps its place.
    auto& tests = const_cast<std::vector<catch2_test>&>(::Catch::getAllTestCasesSorted(*m_config));
    for (catch2_test& test : tests) test = with_invoker(test, new watched_test(test));
  }

 private:
  // Catch2 keeps its streams, and their room.
  static void warm_up(int depth) {
    if (depth == 0) return;
    ::Catch::ReusableStringStream stream;
    stream << std::string(16 << 10, ' ');
    warm_up(depth - 1);
  }
};
#endif

}  // namespace TIDEMARK_TAG

using framework = catch2_framework;

}  // namespace checks
}  // namespace detail
}  // namespace v0
}  // namespace tidemark

#if defined(TIDEMARK_DETAIL_CATCH2_LISTENER)
  #undef TIDEMARK_DETAIL_CATCH2_LISTENER
  #if __has_include(<catch2/catch_test_macros.hpp>)
    #define TIDEMARK_DETAIL_CATCH2_LISTENER_NAME ("tidemark_leaks")
  #else
    #define TIDEMARK_DETAIL_CATCH2_LISTENER_NAME
  #endif
/// In one .cpp file, outside of every namespace.
  #define TIDEMARK_REGISTER_LEAK_LISTENER()                                                                  \
    TIDEMARK_DETAIL_MAKE_TEST_LEAKS()                                                                        \
    static const ::Catch::ListenerRegistrar<::tidemark::detail::checks::catch2_leak_listener> tidemark_leaks \
        TIDEMARK_DETAIL_CATCH2_LISTENER_NAME
#endif

// A failed REQUIRE throws.
#define TIDEMARK_DETAIL_LEAVE_TEST

#include <tidemark/testing/detail/macros.hpp>
