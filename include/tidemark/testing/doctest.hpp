// SPDX-License-Identifier: MIT
// The checks of memory as doctest assertions: TIDEMARK_CHECK_PEAK(64_MiB, model.forward(batch)); the list is in
// testing/detail/macros.hpp. Tested with doctest 2.4.9.
#pragma once

#if !defined(DOCTEST_VERSION)
  #if __has_include(<doctest/doctest.h>)
    #include <doctest/doctest.h>
  #else
    #include <doctest.h>
  #endif
#endif

#include <tidemark/config/platform.hpp>
#include <tidemark/core/location.hpp>
#include <tidemark/testing/detail/reported_check.hpp>
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
      passed.setResult(dt::detail::Result(true, without_line(v, where).c_str()));
      static_cast<void>(passed.log());
      return;
    }
    dt::detail::MessageBuilder failed(where.file_name(), line,
                                      is_fatal ? dt::assertType::is_require : dt::assertType::is_check);
    failed* dt::String(without_line(v, where).c_str());
    static_cast<void>(failed.log());
    failed.react();
  }
};

}  // namespace TIDEMARK_TAG

using framework = doctest_framework;

}  // namespace checks
}  // namespace detail
}  // namespace v0
}  // namespace tidemark

// A failed REQUIRE throws.
#define TIDEMARK_DETAIL_LEAVE_TEST

#include <tidemark/testing/detail/macros.hpp>
