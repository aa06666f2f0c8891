// SPDX-License-Identifier: MIT
// scope ITERATIONS [SCOPES]: opens and closes a named scope ITERATIONS times, inside SCOPES others, with no sink attached.
#include <cstddef>

#include <tidemark/core/ledger.hpp>
#include <tidemark/scope/scope.hpp>

#include "../arguments.hpp"
#include "../hook/witness.hpp"

namespace {

void open_and_close(std::size_t iterations) {
  for (std::size_t i = 0; i < iterations; ++i) {
    const tidemark::scope open("step");
    tidemark::escape(&open);
  }
}

void inside_scopes(std::size_t scopes, std::size_t iterations) {
  if (scopes == 0) return open_and_close(iterations);
  const tidemark::scope open("level");
  inside_scopes(scopes - 1, iterations);
}

}  // namespace

int main(int argc, char** argv) {
  inside_scopes(bench::number(argc, argv, 2, 0), bench::number(argc, argv, 1, 1'000));
  return bench::status_if_seen(0);
}
