// SPDX-License-Identifier: MIT
// The same where malloc is seen too, and code that checks for null.
#include <tidemark/hook/malloc.hpp>

#include "failures.hpp"

#if !TIDEMARK_HAS_SANITIZER_ALLOCATOR()
TEST_CASE("C functions fail in their turn, with ENOMEM") {
  const auto fails = [](void* p) {
    escape(p);
    const bool has_failed = p == nullptr && errno == ENOMEM;
    std::free(p);
    return has_failed;
  };
  bool all = true;
  std::uint64_t requests = 0;
  void* old = std::malloc(10);
  {
    const t::fail_allocation fault(1, INT64_MAX);
    errno = 0;
    all = all && fails(std::malloc(1)) && fails(std::calloc(1, 1)) && fails(::aligned_alloc(64, 64));
    all = all && fails(std::realloc(nullptr, 1));
    void* grown = std::realloc(old, 20);
    escape(grown);
    all = all && grown == nullptr;
    requests = fault.requests();
  }
  std::free(old);
  CHECK(all);
  CHECK(requests == 5);
}

TEST_CASE("a C-style function that forgets to free on one of its ways out is found") {
  const auto join = [](bool is_careful) {
    return [is_careful] {
      char* first = static_cast<char*>(std::malloc(10));
      escape(first);
      if (first == nullptr) return;
      char* second = static_cast<char*>(std::malloc(20));
      escape(second);
      if (second != nullptr || is_careful) std::free(first);
      std::free(second);
    };
  };
  CHECK(t::for_each_allocation_failure(join(true)).points == 2);
  const t::failure_report report = t::for_each_allocation_failure(join(false));
  CHECK_FALSE(report.ok);
  CHECK(report.number == 2);
  CHECK(report.bytes == 20);
}
#endif
