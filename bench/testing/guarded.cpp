// SPDX-License-Identifier: MIT
// guarded ITERATIONS GUARD: `operator new` and `operator delete` of one block, under a guard that refuses nothing. GUARD: 0 none,
// 1 a limit on this thread's heap, 2 one on the process's, 3 a failure that never comes.
#include <cstddef>
#include <cstdint>
#include <new>
#include <optional>

#include <tidemark/core/ledger.hpp>
#include <tidemark/testing/faults.hpp>
#include <tidemark/testing/guards.hpp>

#include "../arguments.hpp"
#include "../hook/witness.hpp"

int main(int argc, char** argv) {
  namespace t = tidemark::testing;
  const std::size_t iterations = bench::number(argc, argv, 1, 1'000);
  const std::size_t guard = bench::number(argc, argv, 2, 0);
  constexpr std::int64_t enough = std::int64_t{1} << 40;
  std::optional<t::heap_limit> limit;
  std::optional<t::fail_allocation> fault;
  if (guard == 1) limit.emplace(enough);
  if (guard == 2) limit.emplace(enough, t::extent::process);
  if (guard == 3) fault.emplace(enough);
  for (std::size_t i = 0; i < iterations; ++i) {
    void* p = ::operator new(64);
    tidemark::escape(p);
    ::operator delete(p);
  }
  return bench::status_if_seen(iterations);
}
