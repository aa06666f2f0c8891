// SPDX-License-Identifier: MIT
// pair ITERATIONS [THREADS [SCOPES]]: each thread opens SCOPES scopes inside one another, then allocates and frees one
// small block ITERATIONS times. The same file is linked with every hook and every baseline, and with none. With BENCH_MALLOC
// the block is malloc's.
#include <cstddef>
#include <cstdlib>
#include <new>
#include <thread>
#include <vector>

#include <tidemark/core/ledger.hpp>
#include <tidemark/scope/scope.hpp>

#include "../arguments.hpp"
#include "sizes.hpp"
#include "witness.hpp"

namespace {

// The operators are called as functions: a compiler may delete a new-expression, never these calls.
#if defined(BENCH_MALLOC)
void* make(std::size_t n) { return std::malloc(n); }
void unmake(void* p) { std::free(p); }
#else
void* make(std::size_t n) { return ::operator new(n); }
void unmake(void* p) { ::operator delete(p); }
#endif

void allocate_and_free(std::size_t iterations) {
  for (std::size_t i = 0; i < iterations; ++i) {
    void* p = make(bench::size_at(i));
    tidemark::escape(p);
    unmake(p);
  }
}

void inside_scopes(std::size_t scopes, std::size_t iterations) {
  if (scopes == 0) return allocate_and_free(iterations);
  const tidemark::scope open("level");
  inside_scopes(scopes - 1, iterations);
}

}  // namespace

int main(int argc, char** argv) {
  const std::size_t iterations = bench::number(argc, argv, 1, 1'000);
  const std::size_t threads = bench::number(argc, argv, 2, 1);
  const std::size_t scopes = bench::number(argc, argv, 3, 0);
  std::vector<std::thread> others;
  for (std::size_t t = 1; t < threads; ++t) others.emplace_back(inside_scopes, scopes, iterations);
  inside_scopes(scopes, iterations);
  for (std::thread& t : others) t.join();
  return bench::status_if_seen(2 * threads * iterations);
}
