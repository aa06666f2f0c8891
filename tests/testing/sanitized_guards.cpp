// SPDX-License-Identifier: MIT
// Guards and failing allocations where a sanitizer allocates and the hook only listens: what could not be refused is said, never
// passed, and regions see. Without doctest, as tests/hook/sanitized.cpp.
// usage: sanitized_guards; prints what does not hold, and exits with 1.
#if defined(SANITIZED_MALLOC)
  #include <tidemark/hook/malloc.hpp>
#else
  #include <tidemark/hook/global_new.hpp>
#endif

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>
#include <stdexcept>

#include <tidemark/alloc/allocator.hpp>
#include <tidemark/core/domain.hpp>
#include <tidemark/testing/faults.hpp>
#include <tidemark/testing/guards.hpp>

namespace {

namespace t = tidemark::testing;

int failures = 0;

void expect(bool holds, const char* what) {
  if (holds) return;
  ++failures;
  std::printf("it does not hold that %s\n", what);
}

template <class F>
bool is_refused_with_reason(F make) {
  try {
    make();
  } catch (const std::logic_error& e) {
    return std::strstr(e.what(), "the sanitizer allocates") != nullptr &&
           std::strstr(e.what(), "TIDEMARK_OPT_SANITIZER_HOOKS=0") != nullptr;
  }
  return false;
}

void allocate_and_free(std::size_t n) {
  void* p = ::operator new(n);
  tidemark::escape(p);
  ::operator delete(p);
}

bool is_as_before() {
  return tidemark::detail::this_thread().keepers == nullptr &&
         tidemark::detail::ledger().process_keeper.load() == nullptr && tidemark::detail::this_thread().word >= 0;
}

void limits_and_faults() {
  expect(is_refused_with_reason([] { const t::heap_limit limit(0); }), "a limit is refused with a reason");
  expect(is_refused_with_reason([] { const t::heap_limit limit(0, t::extent::process); }),
         "a limit on the process is refused with a reason");
  expect(is_refused_with_reason([] { const t::fail_allocation fault(1); }), "a fault is refused with a reason");
  expect(is_as_before(), "what is refused leaves nothing open");
  int runs = 0;
  const t::failure_report r = t::for_each_allocation_failure([&] {
    ++runs;
    allocate_and_free(10);
  });
  expect(!r.ok, "failures that cannot be made do not pass");
  expect(runs == 1, "the function runs once all the same");
  expect(r.message.find("not checked, and so not passed") != std::string::npos,
         "the verdict says that it was not checked");
  expect(r.message.find("the sanitizer allocates") != std::string::npos, "the verdict says why");
}

void regions() {
  std::uint64_t told = 0, bytes = 0, exempt = 9;
  {
    const t::no_allocation_region region;
    allocate_and_free(1'000);
    void* p = std::malloc(500);
    tidemark::escape(p);
    std::free(p);
    told = region.allocations();
    bytes = region.allocated_bytes();
    const t::allow_allocations allowed;
    allocate_and_free(10);
    exempt = region.allocations();
  }
  expect(told == 2, "a region sees new and malloc");
  expect(bytes == 1'500, "a region sees their sizes");
  expect(exempt == 2, "an exemption hides from a region");
  {
    const t::no_allocation_region region(t::reaction::throw_error);
    try {
      allocate_and_free(100);
    } catch (const std::bad_alloc&) {
      expect(false, "what is allocated already is recorded, and does not throw");
    }
    told = region.allocations();
  }
  expect(told == 1, "throw_error records");
  int calls = 0;
  bool may_throw = true;
  {
    const t::no_allocation_region region([&](const t::forbidden_attempt& a) {
      ++calls;
      may_throw = a.may_throw;
    });
    allocate_and_free(100);
  }
  expect(calls == 1, "a callback is called");
  expect(!may_throw, "a callback may not throw at a sanitizer");
  expect(is_as_before(), "nothing is left open");
}

void domains() {
  const tidemark::domain d("weights");
  tidemark::allocator<char> from(d);
  bool is_refused = false;
  const t::fail_allocation fault(2, 1, d);
  from.deallocate(from.allocate(10), 10);
  try {
    from.deallocate(from.allocate(10), 10);
  } catch (const std::bad_alloc&) {
    is_refused = true;
  }
  expect(is_refused, "a domain's allocations fail under a sanitizer too");
  expect(fault.requests() == 2, "they are counted once each");
}

}  // namespace

int main() {
  expect(tidemark::hook_state() == tidemark::hook_kind::sanitizer, "the hook listens to the sanitizer");
  limits_and_faults();
  regions();
  domains();
  return failures == 0 ? 0 : 1;
}
