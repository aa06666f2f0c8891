// SPDX-License-Identifier: MIT
#include <tidemark/testing/gtest.hpp>

#if !defined(WITHOUT_HOOK)
  #include <tidemark/hook/global_new.hpp>
#endif

#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

class fixture : public ::testing::TestWithParam<int> {
 protected:
  std::vector<int> held_ = std::vector<int>(10);
};

TEST_P(fixture, clean_with_traces_and_parameters) {
  SCOPED_TRACE("a text that is longer than any buffer inside of a string object");
  SCOPED_TRACE(std::string(100, 'x'));
  EXPECT_EQ(held_.size(), 10U) << "never said";
  EXPECT_THROW(throw std::runtime_error("thrown"), std::runtime_error);
  EXPECT_GE(GetParam(), 1);
}
INSTANTIATE_TEST_SUITE_P(all, fixture, ::testing::Values(1, 2));

TEST(leaks, leaks_24_bytes) { tidemark::escape(::operator new(24)); }
TEST(leaks, keeps_what_it_says_that_it_keeps) {
  const tidemark::quiet kept;
  tidemark::escape(::operator new(48));
}
TEST(leaks, records_a_property) { RecordProperty("a_property", std::string(100, 'x')); }
TEST(leaks, fails_by_itself) { EXPECT_EQ(std::string(100, 'a'), std::string(100, 'b')); }
TEST(leaks, clean_at_the_end) { EXPECT_EQ(std::string(100, 'x').size(), 100U); }

TIDEMARK_REGISTER_LEAK_LISTENER();

// The thread's own block is freed on the other thread.
TEST(leaks, clean_with_a_thread) {
  bool has_run = false;
  std::thread([&] { has_run = true; }).join();
  EXPECT_TRUE(has_run);
}
static int* older = new int(7);
TEST(leaks, leaks_behind_an_older_block) {
  tidemark::escape(new int(1));
  delete older;
}

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);

  return RUN_ALL_TESTS();
}
