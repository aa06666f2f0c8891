// SPDX-License-Identifier: MIT
// Benchmarks whose memory figures are known to the byte; benchmark_check.py reads what each reporter says of them.
// With -DBENCHMARKS_WITHOUT_HOOK nothing sees the heap.
#include <benchmark/benchmark.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <string_view>
#include <thread>
#include <vector>

#include <tidemark/bridge/benchmark.hpp>
#include <tidemark/core/ledger.hpp>
#if !defined(BENCHMARKS_WITHOUT_HOOK)
  #include <tidemark/hook/global_new.hpp>
#endif

#include "barrier.hpp"

namespace {

using tidemark::bridge::memory_counters;

std::unique_ptr<char[]> block(std::size_t bytes) {
  std::unique_ptr<char[]> b(new char[bytes]);
  tidemark::escape(b.get());
  return b;
}

std::vector<std::unique_ptr<char[]>> room_for(benchmark::IterationCount iterations) {
  std::vector<std::unique_ptr<char[]>> room;
  room.reserve(static_cast<std::size_t>(iterations));
  return room;
}

/// Three blocks of 100 bytes, of which one is kept.
void use_three_blocks(std::vector<std::unique_ptr<char[]>>& kept) {
  const auto first = block(100);
  kept.push_back(block(100));
  const auto last = block(100);
}

void three_blocks(benchmark::State& state) {
  auto kept = room_for(state.max_iterations);
  const memory_counters memory(state);
  for (auto _ : state) use_three_blocks(kept);
}
BENCHMARK(three_blocks)->Iterations(50)->ThreadRange(1, 4)->UseRealTime();
BENCHMARK(three_blocks)->Name("three_blocks_with_argument")->Iterations(50)->Args({1, 2, 3, 4});

void three_blocks_by_keep_running(benchmark::State& state) {
  auto kept = room_for(state.max_iterations + 10);
  const memory_counters memory(state);
  while (state.KeepRunningBatch(20)) {
    for (int i = 0; i < 20; ++i) use_three_blocks(kept);
  }
}
BENCHMARK(three_blocks_by_keep_running)->Iterations(50);  // 60 are run

// As many iterations as the clock asks for.
void three_blocks_freed(benchmark::State& state) {
  const memory_counters memory(state);
  for (auto _ : state) {
    const auto one = block(100);
    const auto two = block(100);
    const auto three = block(100);
  }
}
BENCHMARK(three_blocks_freed)->ThreadRange(1, 4)->UseRealTime();

void no_allocation(benchmark::State& state) {
  const memory_counters memory(state);
  for (auto _ : state) benchmark::ClobberMemory();
}
BENCHMARK(no_allocation)->Iterations(50)->ThreadRange(1, 4);

void aligned(benchmark::State& state) {
  const memory_counters memory(state);
  for (auto _ : state) {
    void* p = ::operator new (1'000, std::align_val_t{256});
    tidemark::escape(p);
    ::operator delete (p, std::align_val_t{256});
  }
}
BENCHMARK(aligned)->Iterations(50);

/// What was there before is freed in the loop: net growth may be negative.
void frees_what_was_there(benchmark::State& state) {
  auto all = room_for(state.max_iterations);
  for (benchmark::IterationCount i = 0; i < state.max_iterations; ++i) all.push_back(block(100));
  const memory_counters memory(state);
  for (auto _ : state) all.pop_back();
}
BENCHMARK(frees_what_was_there)->Iterations(50)->ThreadRange(1, 4);

void set_up_paused(benchmark::State& state) {
  const memory_counters memory(state);
  for (auto _ : state) {
    state.PauseTiming();
    const auto input = block(1'000);
    state.ResumeTiming();
    const auto output = block(24);
  }
}
BENCHMARK(set_up_paused)->Iterations(50);

void set_up_untimed(benchmark::State& state) {
  const memory_counters memory(state);
  for (auto _ : state) {
    std::optional<tidemark::bridge::untimed> set_up(state);
    const auto input = block(1'000);
    set_up.reset();
    const auto output = block(24);
  }
}
BENCHMARK(set_up_untimed)->Iterations(50)->ThreadRange(1, 4);

/// Each thread's own set-up and what it tears down, neither of which is the loop's.
void set_up_outside(benchmark::State& state) {
  auto mine = room_for(1'000);
  for (int i = 0; i < 1'000; ++i) mine.push_back(block(1'024));
  {
    const memory_counters memory(state);
    for (auto _ : state) benchmark::ClobberMemory();
  }
  mine.resize(500);
  mine.push_back(block(3'000'000));
}
BENCHMARK(set_up_outside)->Iterations(50)->ThreadRange(1, 4);

constexpr std::size_t mebibyte = std::size_t{1} << 20;

/// One block of 1 MiB at a time, whichever thread has it.
void taking_turns(benchmark::State& state) {
  static std::mutex turn;
  const memory_counters memory(state);
  for (auto _ : state) {
    const std::lock_guard<std::mutex> mine(turn);
    const auto b = block(mebibyte);
  }
}
BENCHMARK(taking_turns)->Iterations(20)->ThreadRange(1, 4);

/// One block of 1 MiB in each thread at the same time. Not under a memory manager, whose run has one thread.
void together(benchmark::State& state) {
  static std::optional<barrier> all;
  if (state.thread_index() == 0) all.emplace(static_cast<std::size_t>(state.threads()));
  const memory_counters memory(state);
  for (auto _ : state) {
    const auto b = block(mebibyte);
    all->arrive_and_wait();
  }
}
BENCHMARK(together)->Iterations(20)->Threads(2)->Threads(4);

/// A thread that the benchmark starts itself, with and without allocations of its own.
void worker(benchmark::State& state) {
  const auto blocks = state.range(0);
  const memory_counters memory(state);
  for (auto _ : state) {
    std::thread([blocks] {
      for (std::int64_t i = 0; i < blocks; ++i) block(50);
    }).join();
  }
}
BENCHMARK(worker)->Iterations(50)->Arg(0)->Arg(2);

/// One thread gives up before it has counters, another has them and gives up in the loop.
void skipped(benchmark::State& state) {
  if (state.thread_index() == 1) return state.SkipWithError("no input");
  const memory_counters memory(state);
  for (auto _ : state) {
    const tidemark::bridge::untimed set_up(state);
    const auto b = block(100);
    state.SkipWithError("no input");
    break;
  }
}
BENCHMARK(skipped)->Iterations(1)->ThreadRange(1, 4);

void only_in_thread_0(benchmark::State& state) {
  std::optional<memory_counters> memory;
  if (state.thread_index() == 0) memory.emplace(state);
  for (auto _ : state) benchmark::ClobberMemory();
}
BENCHMARK(only_in_thread_0)->Iterations(1)->Threads(3);

/// Nothing in the benchmark: the figures are the memory manager's.
void without_counters(benchmark::State& state) {
  static auto kept = room_for(1'000);
  for (auto _ : state) use_three_blocks(kept);
}
BENCHMARK(without_counters)->Iterations(50);

}  // namespace

int main(int argc, char** argv) {
  // A memory manager by registration, one by hand, or none.
  std::optional<tidemark::bridge::memory_registration> registered;
  tidemark::bridge::memory_manager by_hand;
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    if (argument == "registered") registered.emplace();
    if (argument == "by_hand") benchmark::RegisterMemoryManager(&by_hand);
  }
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
  registered.reset();
  benchmark::RegisterMemoryManager(nullptr);
}
