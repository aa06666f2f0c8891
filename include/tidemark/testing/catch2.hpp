// SPDX-License-Identifier: MIT
// The checks of memory as Catch2 assertions: TIDEMARK_CHECK_PEAK(64_MiB, model.forward(batch)); the list is in
// testing/detail/macros.hpp. And a listener that fails every test case that leaves memory behind: write
// TIDEMARK_REGISTER_LEAK_LISTENER() in one .cpp file (with Catch2 2, one that was compiled with CATCH_CONFIG_EXTERNAL_INTERFACES
// or that has Catch's main). Tested with Catch2 2.13.10; the branches for version 3 are written from its documentation and
// were not compiled.
#pragma once

#if __has_include(<catch2/catch_test_macros.hpp>)
  #include <catch2/catch_test_macros.hpp>
  #include <catch2/internal/catch_assertion_handler.hpp>
  #include <catch2/reporters/catch_reporter_event_listener.hpp>
  #include <catch2/reporters/catch_reporter_registrars.hpp>
  #define TIDEMARK_DETAIL_CATCH2_LISTENER EventListenerBase
#else
  #include <catch2/catch.hpp>
  #define TIDEMARK_DETAIL_HAS_CATCH2_SECTIONS
  #if defined(CATCH_REGISTER_LISTENER) && \
      (defined(CATCH_CONFIG_EXTERNAL_INTERFACES) || defined(CATCH_CONFIG_RUNNER) || defined(CATCH_CONFIG_MAIN))
    #define TIDEMARK_DETAIL_CATCH2_LISTENER TestEventListenerBase
  #endif
#endif

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

struct catch2_framework {
  static void report(const testing::verdict& v, const location& where, bool is_fatal) {
    tell(without_line(v, where), v.ok, where, is_fatal);
  }
  static void tell(const std::string& text, bool is_ok, const location& where, bool is_fatal) {
    namespace c = ::Catch;
    c::AssertionHandler handler(is_fatal ? "TIDEMARK_REQUIRE" : "TIDEMARK_CHECK",
                                c::SourceLineInfo(where.file_name(), where.line()), c::StringRef(),
                                is_fatal ? c::ResultDisposition::Normal : c::ResultDisposition::ContinueOnFailure);
    handler.handleMessage(is_ok ? c::ResultWas::Ok : c::ResultWas::ExplicitFailure, std::string(text));
    handler.complete();
  }
};

#if defined(TIDEMARK_DETAIL_HAS_CATCH2_SECTIONS)
/// What Catch2 itself keeps of its sections is not the test's.
class quiet_section {
 public:
  template <class MakeInfo>
  explicit quiet_section(MakeInfo make_info) {
    const quiet hidden;
    section_.emplace(make_info());
  }
  ~quiet_section() {
    const quiet hidden;
    section_.reset();
  }
  quiet_section(const quiet_section&) = delete;
  quiet_section& operator=(const quiet_section&) = delete;
  explicit operator bool() const { return static_cast<bool>(*section_); }

 private:
  std::optional<::Catch::Section> section_;
};
#endif

#if defined(TIDEMARK_DETAIL_HAS_CATCH2_SECTIONS)
/// What the bodies of the running test case left behind; null while nobody listens.
inline test_leaks*& listening_leaks() {
  static test_leaks* leaks = nullptr;
  return leaks;
}

template <class F>
auto quietly(F f) {
  const quiet hidden;
  return f();
}

/// A test case's body and nothing else: what Catch2 and its reporters keep meanwhile is not the test's.
template <void (*Body)()>
void run_body() {
  struct window {
    test_leaks* leaks = listening_leaks();
    window() {
      if (leaks != nullptr) leaks->begin();
    }
    ~window() {
      if (leaks != nullptr) leaks->pause();
    }
  };
  const window open;
  Body();
}
#endif

#if defined(TIDEMARK_DETAIL_CATCH2_LISTENER)
/// Fails each test case that passed and left memory behind on its thread. Judged is each TEST_CASE of a file that includes this header;
/// not TEST_CASE_METHOD and templates. With a reporter that keeps every assertion to the end (junit, sonarqube) what Catch2 keeps would be
/// taken for the tests': use another one.
class catch2_leak_listener final : public ::Catch::TIDEMARK_DETAIL_CATCH2_LISTENER {
  using base = ::Catch::TIDEMARK_DETAIL_CATCH2_LISTENER;

 public:
  using base::base;
  ~catch2_leak_listener() override { listening_leaks() = nullptr; }

  void testRunStarting(const ::Catch::TestRunInfo& run) override {
    base::testRunStarting(run);
    const quiet hidden;
    listening_leaks() = &leaks_;
    warm_up(32);
  }
  void testCaseStarting(const ::Catch::TestCaseInfo& test) override {
    base::testCaseStarting(test);
    depth_ = 0;
    const quiet hidden;
    name_ = test.name;
  }
  void sectionStarting(const ::Catch::SectionInfo& section) override {
    base::sectionStarting(section);
    ++depth_;
  }
  void sectionEnded(const ::Catch::SectionStats& stats) override {
    if (--depth_ == 0) judge(stats);
    base::sectionEnded(stats);
  }

 private:
  void judge(const ::Catch::SectionStats& stats) {
    const quiet hidden;
    const auto& at = stats.sectionInfo.lineInfo;
    const location where = location::current(at.file, static_cast<int>(at.line), "");
    const std::string problem = leaks_.end(name_, where);
    if (problem.empty() || stats.assertions.failed > 0) return;  // a failed test is told already
    catch2_framework::tell(problem.substr(line_of(where).size() + 2), false, where, false);
  }

  // Catch2 keeps the room of its list of messages, and its streams.
  static void warm_up(int depth) {
    if (depth == 0) return;
    const ::Catch::ReusableStringStream stream;
    const ::Catch::ScopedMessage message(
        ::Catch::MessageBuilder("INFO", ::Catch::SourceLineInfo(__FILE__, __LINE__), ::Catch::ResultWas::Info)
        << depth);
    warm_up(depth - 1);
  }

  std::string name_;
  int depth_ = 0;
  test_leaks leaks_;
};
#endif

}  // namespace TIDEMARK_TAG

using framework = catch2_framework;

}  // namespace checks
}  // namespace detail
}  // namespace v0
}  // namespace tidemark

#if defined(TIDEMARK_DETAIL_HAS_CATCH2_SECTIONS)
  #undef TIDEMARK_DETAIL_HAS_CATCH2_SECTIONS
  #undef INTERNAL_CATCH_TESTCASE2
  #define INTERNAL_CATCH_TESTCASE2(TestName, ...)                                                            \
    static void TestName();                                                                                  \
    namespace {                                                                                              \
    ::Catch::AutoReg INTERNAL_CATCH_UNIQUE_NAME(tidemark_registered)(                                        \
        ::Catch::makeTestInvoker(&::tidemark::detail::checks::run_body<&TestName>), CATCH_INTERNAL_LINEINFO, \
        ::Catch::StringRef(), ::Catch::NameAndTags{__VA_ARGS__});                                            \
    }                                                                                                        \
    static void TestName()
  #if defined(GENERATE)
    #undef GENERATE
    #undef GENERATE_COPY
    #undef GENERATE_REF
    #define GENERATE(...) TIDEMARK_DETAIL_CHECK_GENERATE(, __VA_ARGS__)
    #define GENERATE_COPY(...) TIDEMARK_DETAIL_CHECK_GENERATE(=, __VA_ARGS__)
    #define GENERATE_REF(...) TIDEMARK_DETAIL_CHECK_GENERATE(&, __VA_ARGS__)
    #define TIDEMARK_DETAIL_CHECK_GENERATE(capture, ...)                                              \
      ::tidemark::detail::checks::quietly([&] {                                                       \
        return ::Catch::Generators::generate(INTERNAL_CATCH_STRINGIZE(INTERNAL_CATCH_UNIQUE_NAME(g)), \
                                             CATCH_INTERNAL_LINEINFO, [capture] {                     \
                                               using namespace ::Catch::Generators;                   \
                                               return makeGenerators(__VA_ARGS__);                    \
                                             });                                                      \
      })
  #endif
  #undef INTERNAL_CATCH_SECTION
  #define INTERNAL_CATCH_SECTION(...)                                                                    \
    if (const ::tidemark::detail::checks::quiet_section & INTERNAL_CATCH_UNIQUE_NAME(tidemark_section) = \
            ::tidemark::detail::checks::quiet_section(                                                   \
                [&] { return ::Catch::SectionInfo(CATCH_INTERNAL_LINEINFO, __VA_ARGS__); }))
#endif

#if defined(TIDEMARK_DETAIL_CATCH2_LISTENER)
  #undef TIDEMARK_DETAIL_CATCH2_LISTENER
/// In one .cpp file, outside of every namespace.
  #define TIDEMARK_REGISTER_LEAK_LISTENER()                                                      \
    namespace {                                                                                  \
    ::Catch::ListenerRegistrar<::tidemark::detail::checks::catch2_leak_listener> tidemark_leaks; \
    }
#endif

// A failed REQUIRE throws.
#define TIDEMARK_DETAIL_LEAVE_TEST

#include <tidemark/testing/detail/macros.hpp>
