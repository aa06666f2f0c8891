// SPDX-License-Identifier: MIT
// failure_points ITERATIONS ALLOCATIONS: tries a function with that many allocations ITERATIONS times, each time with every one of
// them failing in turn.
#include <cstddef>
#include <cstdio>
#include <memory>
#include <vector>

#include <tidemark/core/ledger.hpp>
#include <tidemark/testing/faults.hpp>

#include "../arguments.hpp"
#include "../hook/witness.hpp"

int main(int argc, char** argv) {
  const std::size_t iterations = bench::number(argc, argv, 1, 10);
  const std::size_t allocations = bench::number(argc, argv, 2, 10);
  for (std::size_t i = 0; i < iterations; ++i) {
    const auto report = tidemark::testing::for_each_allocation_failure([allocations] {
      std::vector<std::unique_ptr<int>> nodes(allocations - 1);
      for (auto& node : nodes) node = std::make_unique<int>(1);
      tidemark::escape(nodes.data());
    });
    if (!report.ok || report.points != allocations) {
      std::fprintf(stderr, "%s\n", report.message.c_str());
      return 1;
    }
  }
  return bench::status_if_seen(iterations * allocations);
}
