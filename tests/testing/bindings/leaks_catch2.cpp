// SPDX-License-Identifier: MIT
#define CATCH_CONFIG_MAIN
#include <tidemark/testing/catch2.hpp>

#if !defined(WITHOUT_HOOK)
  #include <tidemark/hook/global_new.hpp>
#endif

#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

TIDEMARK_REGISTER_LEAK_LISTENER();

TEST_CASE("clean with infos and sections") {
  std::vector<std::string> words(10, std::string(100, 'x'));
  INFO("a text that is longer than any buffer inside of a string object " << words.size());
  CAPTURE(words.size(), words[0]);
  INFO("and another one, so that the list of them grows");
  CHECK(words.size() == 10);
  SECTION("a name that is longer than any buffer inside of a string object") {
    CHECK(words[0].size() == 100);
    SECTION("inner one") { CHECK(words[1].size() == 100); }
    SECTION("inner two, and this name is long as well, as names of sections are") { CHECK(words[2].size() == 100); }
  }
  SECTION("second") { CHECK(words[3].size() == 100); }
  CHECK_THROWS_AS(throw std::runtime_error("thrown"), std::runtime_error);
}
TEST_CASE("clean with generators") {
  const int n = GENERATE(1, 2, 3);
  CHECK(n > 0);
}
TEST_CASE("leaks 24 bytes") {
  tidemark::escape(::operator new(24));
  CHECK(true);
}
TEST_CASE("leaks in a section") {
  SECTION("a") { tidemark::escape(::operator new(32)); }
  SECTION("b") { CHECK(true); }
}
TEST_CASE("keeps what it says that it keeps") {
  const tidemark::quiet kept;
  tidemark::escape(::operator new(48));
}
TEST_CASE("fails by itself") { CHECK(std::string(100, 'a') == std::string(100, 'b')); }
TEST_CASE("clean at the end") { CHECK(std::string(100, 'x').size() == 100); }

// The thread's own block is freed on the other thread.
TEST_CASE("clean with a thread") {
  bool has_run = false;
  std::thread([&] { has_run = true; }).join();
  CHECK(has_run);
}
static int* older = new int(7);
TEST_CASE("leaks behind an older block") {
  tidemark::escape(new int(1));
  delete older;
}
