// SPDX-License-Identifier: MIT
// A program without a heap hook: allocations of a domain fail all the same, those of the heap cannot, and say so.
#include <tidemark/testing/faults.hpp>

#include <cstdint>
#include <memory_resource>
#include <new>
#include <stdexcept>
#include <string>
#include <vector>

#include <tidemark/alloc/allocator.hpp>
#include <tidemark/alloc/resource.hpp>
#include <tidemark/core/domain.hpp>

#include "test.hpp"

namespace t = tidemark::testing;

TEST_CASE("the heap's allocations cannot fail without a hook, which is a verdict that does not hold") {
  int runs = 0;
  const t::failure_report r = t::for_each_allocation_failure([&] { ++runs; });
  CHECK_FALSE(r.ok);
  CHECK(runs == 1);
  CHECK(r.points <= 1);
  CHECK(r.message.find("not checked, and so not passed") != std::string::npos);
}

#if TIDEMARK_HAS_EXCEPTIONS()

namespace {

/// Which of so many allocations through r fail.
std::string pattern(std::pmr::memory_resource& r, int n) {
  std::string seen;
  for (int i = 0; i < n; ++i) {
    try {
      r.deallocate(r.allocate(10), 10);
      seen += '.';
    } catch (const std::bad_alloc&) {
      seen += 'x';
    }
  }
  return seen;
}

}  // namespace

TEST_CASE("the chosen allocations of a domain fail, its children's counted with it, and no others") {
  tidemark::domain parent("parent");
  const tidemark::domain child("child", {-1, &parent});
  const tidemark::domain other("other");
  tidemark::resource of_parent(parent);
  tidemark::resource of_child(child);
  tidemark::resource of_other(other);
  {
    const t::fail_allocation fault(3, 2, parent);
    CHECK(pattern(of_other, 5) == ".....");
    CHECK(pattern(of_parent, 2) == "..");
    CHECK(pattern(of_child, 1) == "x");
    CHECK(pattern(of_parent, 1) == "x");
    CHECK(pattern(of_child, 2) == "..");
    CHECK(fault.requests() == 6);
    CHECK(fault.failures() == 2);
    CHECK(fault.failed_bytes() == 10);
  }
  {
    const t::fail_allocation fault(1, 1, child);
    CHECK(pattern(of_parent, 2) == "..");
    CHECK(pattern(of_child, 2) == "x.");
  }
  CHECK(pattern(of_parent, 2) == "..");
  CHECK(parent.current().live_bytes == 0);
}

TEST_CASE("each layer that a domain is in counts once, also below one of another domain") {
  const tidemark::domain a("a");
  const tidemark::domain b("b");
  tidemark::resource low(b);
  tidemark::resource high(a, &low);
  tidemark::resource highest(b, &high);
  const auto seen = [](const tidemark::domain& d, std::pmr::memory_resource& r) {
    const t::fail_allocation fault(2, 1, d);
    const std::string failed = pattern(r, 3);
    return failed + std::to_string(fault.requests());
  };
  CHECK(seen(a, high) == ".x.3");
  CHECK(seen(b, high) == ".x.3");
  CHECK(seen(b, highest) == ".x.3");
  CHECK(seen(a, low) == "...0");
}

TEST_CASE("every failing allocation of a domain is tried, and a leak is found") {
  const tidemark::domain d("weights");
  const auto good = [&] {
    std::vector<char, tidemark::allocator<char>> v(100, '\0', d);
    v.resize(1'000);
  };
  const t::failure_report survives = t::for_each_allocation_failure(good, d);
  INFO(survives.message);
  CHECK(survives.ok);
  CHECK(survives.points == 2);
  tidemark::resource r(d);
  std::vector<void*> lost;
  const auto bad = [&] {
    void* first = r.allocate(64);
    lost.push_back(first);
    void* second = r.allocate(32);
    lost.pop_back();
    r.deallocate(second, 32);
    r.deallocate(first, 64);
  };
  const t::failure_report leaks = t::for_each_allocation_failure(bad, d);
  CHECK_FALSE(leaks.ok);
  CHECK(leaks.number == 2);
  CHECK(leaks.bytes == 32);
  for (void* p : lost) r.deallocate(p, 64);
  const t::failure_report nothing = t::for_each_allocation_failure([] {}, d);
  CHECK_FALSE(nothing.ok);
  CHECK(nothing.message.find("nothing was allocated") != std::string::npos);
}

TEST_CASE("numbers below 1 and a second fault are errors, and one over the heap names the hooks") {
  const tidemark::domain d("d");
  const auto what = [](auto make) -> std::string {
    try {
      make();
    } catch (const std::logic_error& e) {
      return e.what();
    }
    return "nothing";
  };
  CHECK(what([&] { const t::fail_allocation f(0, 1, d); }).find("counted from 1") != std::string::npos);
  CHECK(what([&] { const t::fail_allocation f(1); }).find("hook/global_new.hpp") != std::string::npos);
  const t::fail_allocation fault(1, 1, d);
  CHECK(what([&] { const t::fail_allocation f(1, 1, d); }).find("another one is open") != std::string::npos);
}

#endif
