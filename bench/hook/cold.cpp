// SPDX-License-Identifier: MIT
// cold BLOCKS [ROUNDS]: allocates BLOCKS small blocks, then frees them in a shuffled order, so that what a hook keeps at
// or about a block has left the caches by the time it is freed.
#include <cstddef>
#include <cstdint>
#include <new>
#include <utility>
#include <vector>

#include <tidemark/core/ledger.hpp>

#include "../arguments.hpp"
#include "sizes.hpp"
#include "witness.hpp"

namespace {

// A fixed linear congruential generator (Knuth's MMIX constants): every run and every flavour has the same order.
std::vector<std::uint32_t> shuffled(std::size_t n) {
  std::vector<std::uint32_t> order(n);
  for (std::size_t i = 0; i < n; ++i) order[i] = static_cast<std::uint32_t>(i);
  std::uint64_t state = 42;
  for (std::size_t i = n; i > 1; --i) {
    state = state * 6'364'136'223'846'793'005U + 1'442'695'040'888'963'407U;
    std::swap(order[i - 1], order[(state >> 33) % i]);
  }
  return order;
}

}  // namespace

int main(int argc, char** argv) {
  const std::size_t blocks = bench::number(argc, argv, 1, 1'000);
  const std::size_t rounds = bench::number(argc, argv, 2, 1);
  const std::vector<std::uint32_t> place_of = shuffled(blocks);
  std::vector<void*> held(blocks);
  for (std::size_t round = 0; round < rounds; ++round) {
    for (std::size_t i = 0; i < blocks; ++i) {
      void* p = ::operator new(bench::size_at(i));
      tidemark::escape(p);
      held[place_of[i]] = p;
    }
    for (void* p : held) ::operator delete(p);
  }
  return bench::status_if_seen(2 * blocks * rounds);
}
