// SPDX-License-Identifier: MIT
// handoff ROUNDS: one thread allocates a batch of blocks and another, started when the batch is complete, frees it. Each
// account moves one way only, so this is where tidemark settles most often.
#include <cstddef>
#include <new>
#include <thread>
#include <vector>

#include <tidemark/core/ledger.hpp>

#include "../arguments.hpp"
#include "sizes.hpp"
#include "witness.hpp"

int main(int argc, char** argv) {
  constexpr std::size_t batch = 16'384;  // enough to make the start of a thread a small part
  const std::size_t rounds = bench::number(argc, argv, 1, 4);
  std::vector<void*> held(batch);
  for (std::size_t round = 0; round < rounds; ++round) {
    for (std::size_t i = 0; i < batch; ++i) {
      held[i] = ::operator new(bench::size_at(i));
      tidemark::escape(held[i]);
    }
    std::thread([&held] {
      for (void* p : held) ::operator delete(p);
    }).join();
  }
  return bench::status_if_seen(2 * batch * rounds);
}
