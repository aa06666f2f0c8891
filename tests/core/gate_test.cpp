// SPDX-License-Identifier: MIT
// Blocks of every kind, so that every way through the hook meets the gate: small, large enough for a mapping
// of their own, aligned, of size 0.
#include <tidemark/core/gate.hpp>
#include <tidemark/hook/global_new.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <new>
#include <thread>

#include "test.hpp"

using tidemark::escape;
using tidemark::quiet;
using tidemark::usage;

namespace {

struct shape {
  std::size_t bytes;
  std::size_t alignment;  // 0: the default
};
constexpr shape shapes[] = {{0, 0},   {1, 0},         {24, 0}, {1'000, 0},  {200'000, 0},
                            {7, 256}, {5'000, 4'096}, {40, 0}, {70'000, 0}, {std::size_t{40} << 20, 0}};
constexpr std::size_t count = sizeof shapes / sizeof *shapes;

constexpr std::uint64_t sum_of_shapes() {
  std::uint64_t sum = 0;
  for (const shape& s : shapes) sum += s.bytes;
  return sum;
}
constexpr auto all_bytes = static_cast<std::int64_t>(sum_of_shapes());
constexpr auto all_blocks = static_cast<std::int64_t>(count);

/// One block of each shape. Itself it allocates nothing.
struct blocks {
  void* at[count] = {};

  void allocate() {
    for (std::size_t i = 0; i < count; ++i) {
      const shape& s = shapes[i];
      at[i] = s.alignment == 0 ? ::operator new(s.bytes) : ::operator new (s.bytes, std::align_val_t{s.alignment});
      escape(at[i]);
    }
  }
  void free() {
    for (std::size_t i = 0; i < count; ++i) {
      const shape& s = shapes[i];
      if (s.alignment == 0) {  // clang 14 calls both sides of a ?: between two operators delete
        ::operator delete(at[i]);
      } else {
        ::operator delete (at[i], std::align_val_t{s.alignment});
      }
    }
  }
};

usage now() { return tidemark::thread_usage().value_or({}); }
usage process_now() { return tidemark::process_usage().value_or({}); }

bool same_events(const usage& a, const usage& b) {
  return a.live_bytes == b.live_bytes && a.live_blocks == b.live_blocks && a.allocations == b.allocations &&
         a.deallocations == b.deallocations && a.allocated_bytes == b.allocated_bytes && a.freed_bytes == b.freed_bytes;
}

/// Runs `f` on another thread and waits. What the thread itself takes is quiet here, and freed there
/// unnoticed.
template <class F>
void elsewhere(F f) {
  const quiet hidden;
  std::thread(f).join();
}

bool has_hook() { return tidemark::hook_state() != tidemark::hook_kind::none; }

}  // namespace

TEST_CASE("the hook is there") { CHECK(has_hook()); }

TEST_CASE("blocks allocated inside quiet are never counted, freed inside or after it") {
  const usage before = now();
  const tidemark::self_report own_before = tidemark::self();
  blocks inside;
  blocks after;
  usage during;
  tidemark::self_report own_during;
  {
    const quiet hidden;
    inside.allocate();
    after.allocate();
    during = now();
    own_during = tidemark::self();
    inside.free();
  }
  const usage between = now();
  after.free();
  const usage end = now();
  const tidemark::self_report own_end = tidemark::self();
  CHECK(same_events(during, before));
  CHECK(same_events(between, before));
  CHECK(same_events(end, before));
  CHECK(end.peak_bytes == before.peak_bytes);
  if (!has_hook()) return;
  // They are the library's own while they live, and no events.
  CHECK(own_during.own_bytes - own_before.own_bytes == 2 * sum_of_shapes());
  CHECK(own_during.stamp_bytes - own_before.stamp_bytes == 2 * 16 * count);
  CHECK(own_end.own_bytes == own_before.own_bytes);
  CHECK(own_end.stamp_bytes == own_before.stamp_bytes);
  CHECK(own_end.events == own_before.events);
  CHECK(own_end.foreign_frees == own_before.foreign_frees);
}

TEST_CASE("a block counted at its birth is subtracted where it is freed, also inside quiet") {
  if (!has_hook()) return;
  blocks counted;
  const usage before = now();
  counted.allocate();
  const usage during = now();
  {
    const quiet hidden;
    counted.free();
  }
  const usage end = now();
  CHECK(during.live_bytes - before.live_bytes == all_bytes);
  CHECK(during.live_blocks - before.live_blocks == all_blocks);
  CHECK(end.live_bytes == before.live_bytes);
  CHECK(end.live_blocks == before.live_blocks);
  CHECK(end.deallocations - before.deallocations == count);
  CHECK(end.freed_bytes - before.freed_bytes == sum_of_shapes());
}

TEST_CASE("quiet nests: the outermost ends it") {
  if (!has_hook()) return;
  blocks first;
  blocks second;
  blocks third;
  blocks counted;
  const usage before = now();
  {
    const quiet outer;
    first.allocate();
    {
      const quiet inner;
      second.allocate();
      { const quiet innermost; }
    }
    third.allocate();
  }
  const usage quiet_end = now();
  counted.allocate();
  const usage end = now();
  for (blocks* b : {&first, &second, &third, &counted}) b->free();
  CHECK(same_events(quiet_end, before));
  CHECK(end.live_bytes - before.live_bytes == all_bytes);
  CHECK(same_events(
      now(), usage{before.live_bytes, 0, before.live_blocks, before.allocations + count, before.deallocations + count,
                   before.allocated_bytes + sum_of_shapes(), before.freed_bytes + sum_of_shapes(), 0}));
}

TEST_CASE("quiet is the thread's own: another thread counts meanwhile") {
  if (!has_hook()) return;
  blocks counted;
  const usage before = process_now();
  usage there;
  {
    const quiet hidden;
    elsewhere([&] {
      counted.allocate();
      there = now();
    });
  }
  const usage during = process_now();
  counted.free();
  const usage end = process_now();
  CHECK(there.live_bytes == all_bytes);
  CHECK(there.allocations == count);
  CHECK(during.live_bytes - before.live_bytes == all_bytes);
  CHECK(during.live_blocks - before.live_blocks == all_blocks);
  CHECK(end.live_bytes == before.live_bytes);
}

TEST_CASE("a quiet block freed by another thread stays uncounted, and a counted one is subtracted there") {
  if (!has_hook()) return;
  blocks hidden_here;
  blocks hidden_for_quiet;
  blocks counted;
  blocks counted_for_quiet;
  const usage before = now();
  const usage process_before = process_now();
  const std::uint64_t own_before = tidemark::self().own_bytes;
  {
    const quiet hidden;
    hidden_here.allocate();
    hidden_for_quiet.allocate();
  }
  counted.allocate();
  counted_for_quiet.allocate();
  usage after_hidden;
  usage after_counted;
  usage after_all;
  elsewhere([&] {
    hidden_here.free();
    after_hidden = now();
    counted.free();
    after_counted = now();
    const quiet hidden;
    hidden_for_quiet.free();
    counted_for_quiet.free();
    after_all = now();
  });
  const usage end = now();
  const usage process_end = process_now();
  CHECK(same_events(after_hidden, usage{}));
  CHECK(after_counted.live_bytes == -all_bytes);
  CHECK(after_counted.deallocations == count);
  CHECK(after_all.live_bytes == -2 * all_bytes);
  CHECK(after_all.live_blocks == -2 * all_blocks);
  CHECK(after_all.allocations == 0);
  CHECK(end.live_bytes - before.live_bytes == 2 * all_bytes);  // freed elsewhere: this thread's account keeps them
  CHECK(process_end.live_bytes == process_before.live_bytes);
  CHECK(process_end.live_blocks == process_before.live_blocks);
  // The thread's slot may be new, and is the library's own.
  CHECK(tidemark::self().own_bytes - own_before < 2 * sizeof(tidemark::detail::slot));
}

TEST_CASE("a block allocated inside quiet by a thread that is gone stays uncounted") {
  const usage before = process_now();
  blocks left;
  elsewhere([&] {
    const quiet hidden;  // before the thread's first event
    left.allocate();
  });
  left.free();
  CHECK(same_events(process_now(), before));
}

TEST_CASE("a thread that ends inside quiet leaves none of it to the next thread") {
  if (!has_hook()) return;
  alignas(quiet) unsigned char room[sizeof(quiet)];
  elsewhere([&] { new (room) quiet; });  // never closed
  usage there;
  elsewhere([&] {
    blocks counted;
    counted.allocate();
    there = now();
    counted.free();
  });
  CHECK(there.live_bytes == all_bytes);
}

TEST_CASE("quiet works in the destructor of a thread-local, where the thread's end is near") {
  if (!has_hook()) return;
  static usage before;
  static usage inside;
  static usage after;
  struct late {
    blocks hidden;
    blocks counted;
    ~late() {
      before = now();
      {
        const quiet q;
        hidden.allocate();
        counted.free();
        inside = now();
      }
      hidden.free();
      after = now();
    }
  };
  elsewhere([] {
    thread_local late l;
    l.counted.allocate();
  });
  CHECK(before.live_bytes == all_bytes);
  CHECK(inside.live_bytes == 0);
  CHECK(inside.allocations == count);
  CHECK(same_events(after, inside));
}

TEST_CASE("what quiet hides moves no peak and no window") {
  if (!has_hook()) return;
  blocks hidden;
  tidemark::detail::thread_account& account = tidemark::detail::current_slot()->account;
  tidemark::detail::window_node w;
  account.open(w);
  {
    const quiet q;
    hidden.allocate();
  }
  const tidemark::window_usage during = account.read(w);
  hidden.free();
  const tidemark::window_usage u = account.close(w);
  for (const tidemark::window_usage& seen : {during, u}) {
    CHECK(seen.peak_growth() == 0);
    CHECK(seen.net_bytes() == 0);
    CHECK(seen.largest_bytes == 0);
    CHECK(seen.allocations + seen.deallocations == 0);
  }
}

TEST_CASE("blocks born quiet and counted, freed by whoever gets them, leave every balance where it was") {
  if (!has_hook()) return;
  constexpr std::size_t threads = 4;
  constexpr std::size_t rounds = 20'000;
  static std::atomic<void*> exchange[16];
  const usage before = process_now();
  const tidemark::self_report own_before = tidemark::self();
  static std::atomic<std::uint64_t> counted_allocations;
  {
    const quiet hidden;
    std::thread workers[threads];
    for (std::size_t t = 0; t < threads; ++t) {
      workers[t] = std::thread([t] {
        std::uint64_t state = t + 1;
        std::uint64_t counted = 0;
        const auto next = [&] { return (state = state * 6'364'136'223'846'793'005U + 1) >> 40; };
        const auto one = [&] {
          void* p = ::operator new(static_cast<std::size_t>(next() % 300));
          escape(p);
          ::operator delete(exchange[next() % 16].exchange(p));
        };
        for (std::size_t i = 0; i < rounds; ++i) {
          if (next() % 2 == 0) {
            const quiet q;
            one();
          } else {
            one();
            ++counted;
          }
        }
        counted_allocations += counted;
      });
    }
    for (std::thread& w : workers) w.join();
  }
  for (std::atomic<void*>& p : exchange) ::operator delete(p.exchange(nullptr));
  const usage end = process_now();
  const tidemark::self_report own_end = tidemark::self();
  CHECK(end.allocations - before.allocations == counted_allocations);
  CHECK(end.deallocations - before.deallocations == counted_allocations);
  CHECK(end.live_bytes == before.live_bytes);
  CHECK(own_end.own_bytes - own_before.own_bytes < (threads + 1) * sizeof(tidemark::detail::slot));
  CHECK(own_end.stamp_bytes == own_before.stamp_bytes);
  CHECK(own_end.foreign_frees == own_before.foreign_frees);
}
