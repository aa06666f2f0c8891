// SPDX-License-Identifier: MIT
// A task that several threads work on: OpenMP's here, a std::thread and a pool of one's own in the same way. Each
// worker joins the task: what it allocates counts for the task, and its scopes go on in the task's path.
//
//   g++ -std=c++17 -fopenmp -I include examples/openmp_workers.cpp -o openmp_workers && ./openmp_workers
#define TIDEMARK_OPT_SETTLE_BYTES 0  // figures of several threads are then exact, for a lock per event
#include <tidemark/hook/global_new.hpp>
#include <tidemark/tidemark.hpp>

#include <cstdio>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

namespace {

constexpr int documents = 64;
constexpr std::size_t tokens = 4'096;

/// The tokens of a document, 16 KiB, and the word counts that come of them, 1 KiB.
std::vector<int> tokenize(int document) {
  TIDEMARK_FUNCTION();
  std::vector<int> text(tokens, document);
  std::vector<int> counts(256);
  for (const int token : text) ++counts[static_cast<std::size_t>(token) % counts.size()];
  return counts;
}

}  // namespace

int main() {
  const auto report = tidemark::attach(std::make_shared<tidemark::summary_sink>(stdout));
  std::vector<std::vector<int>> counts(documents);
  tidemark::task_scope task("tokenize all");

#pragma omp parallel num_threads(4)
  {
    const tidemark::join_task joined(task.token());  // on the thread that opened the task it changes nothing
#pragma omp for
    for (int i = 0; i < documents; ++i) counts[static_cast<std::size_t>(i)] = tokenize(i);
  }

  const tidemark::scope_record done = task.close();
  const auto& heap = done.meters[0].usage;
  if (!heap) {
    std::printf("no figures: %s\n", std::string(heap.why()).c_str());
    return 0;
  }
  // 64 x 17 KiB were allocated, and the 16 KiB of each text freed again. At the peak up to 4 texts exist at once.
  std::printf("%llu allocations, %s kept, peak %s\n\n", static_cast<unsigned long long>(heap->allocations),
              tidemark::format_bytes(heap->net_bytes()).c_str(), tidemark::format_bytes(heap->peak_growth()).c_str());
}
