// SPDX-License-Identifier: MIT
// Where nothing is held back, every number of a task is exact, whatever the number of its threads.
#define TIDEMARK_OPT_SETTLE_BYTES 0
#include <tidemark/hook/global_new.hpp>
#include <tidemark/scope/task.hpp>

#include <cstddef>

#include "task_traces.hpp"
#include "test.hpp"

TEST_CASE("random traces of tasks are exact where every event settles") {
  for (std::size_t threads = 2; threads <= 8; ++threads) {
    const task_traces::tally seen = task_traces::run(threads * 1'000, 40, threads);
    CHECK(seen.exact == seen.readings);
    CHECK(seen.of_several_threads > 100);
    CHECK(seen.windows > 100);
    CHECK(seen.windows_of_ended_tasks > 10);
  }
}
