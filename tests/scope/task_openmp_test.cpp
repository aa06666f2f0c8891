// SPDX-License-Identifier: MIT
// OpenMP's threads as workers. Compiled without OpenMP, the same holds of one thread.
#include <tidemark/hook/global_new.hpp>
#include <tidemark/scope/task.hpp>

#include <cstddef>
#include <cstdint>

#if defined(_OPENMP)
  #include <omp.h>
#endif

#include <tidemark/config/platform.hpp>

#include "heap_block.hpp"
#include "task_support.hpp"
#include "test.hpp"

using tidemark::join_task;
using tidemark::scope;
using tidemark::task_scope;
using tidemark::window_usage;

namespace {

constexpr std::size_t items = 1'000;
// GCC's own runtime is not instrumented: ThreadSanitizer does not see how it orders its threads.
constexpr std::size_t threads = TIDEMARK_HAS_TSAN() ? 1 : 4;

std::size_t self() {
#if defined(_OPENMP)
  return static_cast<std::size_t>(omp_get_thread_num());
#else
  return 0;
#endif
}

struct alignas(64) share {
  std::uint64_t blocks = 0;
  std::uint64_t bytes = 0;
};

}  // namespace

TEST_CASE("each thread of a parallel region counts once, the one that opened the task included") {
  for (int round = 0; round < 20; ++round) {
    static heap_block kept[items];
    share shares[threads];
    std::size_t team = 1;
    task_scope task("parallel");
    const auto token = task.token();
#if defined(_OPENMP)
  #pragma omp parallel num_threads(threads)
#endif
    {
      const join_task joined(token);
      const scope inside("loop");
#if defined(_OPENMP)
  #pragma omp single nowait
      team = static_cast<std::size_t>(omp_get_num_threads());
  #pragma omp for
#endif
      for (std::size_t i = 0; i < items; ++i) {
        kept[i] = heap_block(1 + i);
        const heap_block passing(2'000);
        shares[self()].blocks += 1;
        shares[self()].bytes += 1 + i;
      }
    }
    const tidemark::scope_record r = task.close();
    const window_usage u = usage_in(r, "task_heap");
    constexpr std::uint64_t bytes = items * (items + 1) / 2;
    std::uint64_t blocks_of_all = 0;
    std::uint64_t bytes_of_all = 0;
    for (const share& s : shares) {
      blocks_of_all += s.blocks;
      bytes_of_all += s.bytes;
    }
    CHECK(blocks_of_all == items);
    CHECK(bytes_of_all == bytes);
    CHECK(counts_are(u, 2 * items, bytes + 2'000 * items, items, 2'000 * items));
    const std::int64_t bound = team == 1 ? 0 : 2 * static_cast<std::int64_t>(team) * TIDEMARK_OPT_SETTLE_BYTES;
    CHECK(u.error_bound_bytes <= bound);
    const auto lowest = static_cast<std::int64_t>(bytes);
    CHECK(u.peak_growth() >= lowest - bound);
    CHECK(u.peak_growth() <= lowest + 2'000 * static_cast<std::int64_t>(team) + bound);
    CHECK(r.owned_bytes.value_or(-1) == lowest);
    for (heap_block& b : kept) b.free();
  }
}

TEST_CASE("a parallel region that joins nothing leaves the task to the thread that opened it") {
  std::uint64_t mine = 0;
  task_scope task("not joined");
#if defined(_OPENMP)
  #pragma omp parallel for num_threads(threads)
#endif
  for (std::size_t i = 0; i < items; ++i) {
    const heap_block passing(10);
    if (self() == 0) mine += 1;
  }
  const window_usage u = closed(task);
  CHECK(mine > 0);
  CHECK(counts_are(u, mine, 10 * mine, mine, 10 * mine));
  CHECK(u.error_bound_bytes == 0);
}
