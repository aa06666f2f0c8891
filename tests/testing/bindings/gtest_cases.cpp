// SPDX-License-Identifier: MIT
#include <tidemark/testing/gtest.hpp>

#if !defined(WITHOUT_HOOK)
  #include <tidemark/hook/global_new.hpp>
#endif

#define TEST_NAMED(name) TEST(cases, name)
#define CHECK_TRUE(...) EXPECT_TRUE(__VA_ARGS__)
#define FAIL_NOW(text) FAIL() << (text)
#include "cases.hpp"

TEST(cases, fatal_assertion_leaves_the_test) {
  TIDEMARK_CHECK_PEAK(1000, take(1500); ASSERT_TRUE(hook_state() == hook_kind::sanitizer));
  FAIL_NOW("reached the end");
}

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
