// SPDX-License-Identifier: MIT
// Threads that allocate, resize, free and pass blocks to each other through every kind of function, against sums kept by
// hand. With hook/malloc, or with the header that STORM_HOOK names.
//
// usage: storm OPERATIONS THREADS [SEED [LIBRARY]]: that many operations on each thread; LIBRARY is a part of the file name
// of the allocator that must lie below the hook. Prints one line of counts, which with one thread depend on the seed alone,
// and what does not hold; then it exits with 1.
#if !defined(STORM_HOOK)
  #define STORM_HOOK <tidemark/hook/malloc.hpp>
#endif
#include STORM_HOOK

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>

#include <dlfcn.h>
#include <malloc.h>
#include <pthread.h>

#include <tidemark/core/ledger.hpp>

#include "../support/barrier.hpp"
#include "../support/dice.hpp"

namespace {

using tidemark::usage;

constexpr bool is_listening = TIDEMARK_OPT_SANITIZER_HOOKS && TIDEMARK_HAS_SANITIZER_ALLOCATOR();

std::atomic<int> failures{0};

void expect(bool holds, const char* what) {
  if (holds) return;
  failures.fetch_add(1);
  std::fprintf(stderr, "it does not hold that %s\n", what);
}

enum kind : unsigned { by_malloc, by_calloc, by_realloc, by_aligned, by_posix, by_memalign, by_new, by_array, by_wide };
constexpr unsigned kinds = 9;

bool is_of_new(kind k) { return k >= by_new; }

/// Whether this hook sees blocks of that kind.
bool is_counted(kind k) {
  if (tidemark::hook_state() == tidemark::hook_kind::global_new) return is_of_new(k);
  // ThreadSanitizer does not report these.
  const bool is_aligned = k == by_aligned || k == by_posix || k == by_memalign;
  return !(is_listening && TIDEMARK_HAS_TSAN() && is_aligned);
}

/// AddressSanitizer makes a byte of none.
std::int64_t counted_bytes(std::size_t n) {
  return is_listening && TIDEMARK_HAS_ASAN() && n == 0 ? 1 : static_cast<std::int64_t>(n);
}

struct block {
  unsigned char* p = nullptr;
  std::size_t n = 0;
  std::size_t alignment = 16;
  kind of = by_malloc;
  unsigned char first = 0;
  unsigned char last = 0;
};

void* make(kind k, std::size_t n, std::size_t alignment) {
  void* p = nullptr;
  switch (k) {
    case by_malloc:
      p = std::malloc(n);
      break;
    case by_calloc:
      p = std::calloc(n, 1);
      break;
    case by_realloc:
      p = std::realloc(nullptr, n);
      break;
    case by_aligned:
      p = std::aligned_alloc(alignment, n);
      break;
    case by_posix:
      return ::posix_memalign(&p, alignment, n) == 0 ? p : nullptr;
    case by_memalign:
      p = ::memalign(alignment, n);
      break;
    case by_new:
      p = ::operator new(n);
      break;
    case by_array:
      p = ::operator new[](n);
      break;
    case by_wide:
      p = ::operator new (n, std::align_val_t{alignment});
      break;
  }
  tidemark::escape(p);
  return p;
}

void unmake(const block& b) {
  void* p = b.p;
  asm volatile("" : "+r"(p) : : "memory");
  if (b.of == by_wide) return ::operator delete (p, std::align_val_t{b.alignment});
  if (b.of == by_array) return ::operator delete[](p);
  if (b.of == by_new) return ::operator delete(p);
  std::free(p);
}

/// Kept by hand.
struct sums {
  std::int64_t bytes = 0;
  std::int64_t blocks = 0;
  std::uint64_t allocations = 0;
  std::uint64_t deallocations = 0;

  void born(const block& b) {
    if (!is_counted(b.of)) return;
    bytes += counted_bytes(b.n);
    ++blocks;
    ++allocations;
  }
  void died(const block& b) {
    if (!is_counted(b.of)) return;
    bytes -= counted_bytes(b.n);
    --blocks;
    ++deallocations;
  }
};

constexpr std::size_t shared_places = 512;
constexpr std::size_t own_places = 64;
constexpr int most_threads = 64;

// A block in a shared place is whoever's who takes it out.
std::atomic<block*> shared[shared_places];
block all_blocks[shared_places + own_places * most_threads];

class worker {
 public:
  void start(int number, std::uint64_t seed, long operations) {
    dice_ = dice(seed * 1'000 + static_cast<std::uint64_t>(number));
    operations_ = operations;
    for (std::size_t i = 0; i < own_places; ++i) {
      own_[i] = &all_blocks[shared_places + own_places * static_cast<std::size_t>(number) + i];
    }
  }

  void run() {
    const usage before = *tidemark::thread_usage();
    for (long i = 0; i < operations_; ++i) step();
    const usage after = *tidemark::thread_usage();
    expect(after.live_bytes - before.live_bytes == kept_.bytes, "a thread's live bytes are what it keeps by hand");
    expect(after.live_blocks - before.live_blocks == kept_.blocks, "a thread's live blocks are what it keeps by hand");
    expect(after.allocations - before.allocations == kept_.allocations, "each allocation of a thread is one");
    expect(after.deallocations - before.deallocations == kept_.deallocations, "each free of a thread is one");
    expect(refused_ == 0, "there is memory");
    expect(spoiled_ == 0, "blocks keep what is written into them");
  }

  [[nodiscard]] const sums& kept() const { return kept_; }

 private:
  void step() {
    block*& place = own_[dice_.below(own_places)];
    // Releases what this thread wrote into the block, and acquires what the other one did.
    if (dice_.below(3) == 0) place = shared[dice_.below(shared_places)].exchange(place, std::memory_order_acq_rel);
    block& b = *place;
    const std::size_t n = a_size();
    if (b.p == nullptr) {
      b.of = static_cast<kind>(dice_.below(kinds));
      b.alignment = std::size_t{16} << dice_.below(9);
      // AddressSanitizer takes no other size from aligned_alloc.
      b.n = b.of == by_aligned ? (n + b.alignment - 1) & ~(b.alignment - 1) : n;
      b.p = static_cast<unsigned char*>(make(b.of, b.n, b.alignment));
      if (b.p == nullptr) {
        ++refused_;
        return;
      }
      if (b.of == by_calloc && n > 0 && (b.p[0] | b.p[n / 2] | b.p[n - 1]) != 0) ++spoiled_;
      kept_.born(b);
      stamp(b);
    } else if (n > 0 && !is_of_new(b.of) && dice_.below(3) == 0) {
      resize(b, n);
    } else {
      check(b);
      kept_.died(b);
      unmake(b);
      b.p = nullptr;
    }
  }

  void resize(block& b, std::size_t n) {
    check(b);
    const std::size_t was = b.n;
    auto* p = static_cast<unsigned char*>(std::realloc(b.p, n));
    tidemark::escape(p);
    if (p == nullptr) {
      ++refused_;
      return;
    }
    kept_.died(b);
    b.p = p;
    b.of = by_realloc;
    b.n = n;
    kept_.born(b);
    if (was > 0 && (b.p[0] != b.first || (n >= was && b.p[was - 1] != b.last))) ++spoiled_;
    stamp(b);
  }

  // Mostly small, now and then larger than a thread's cache holds, seldom a mapping.
  std::size_t a_size() {
    const std::uint64_t r = dice_.below(4'096);
    if (r == 0) return dice_.below(2'000'000);
    if (r < 32) return dice_.below(200'000);
    if (r < 512) return dice_.below(8'000);
    return dice_.below(400);
  }

  void stamp(block& b) {
    b.last = static_cast<unsigned char>(dice_.below(256));
    b.first = b.n == 1 ? b.last : static_cast<unsigned char>(dice_.below(256));
    if (b.n == 0) return;
    b.p[0] = b.first;
    b.p[b.n - 1] = b.last;
  }

  void check(const block& b) {
    if (b.n > 0 && (b.p[0] != b.first || b.p[b.n - 1] != b.last)) ++spoiled_;
  }

  dice dice_{0};
  long operations_ = 0;
  block* own_[own_places] = {};
  sums kept_;
  int spoiled_ = 0;
  int refused_ = 0;
};

worker workers[most_threads];
int thread_count = 0;
bool is_rehearsal = false;
barrier* all_here = nullptr;

void* run_worker(void* w) {
  all_here->arrive_and_wait();
  if (!is_rehearsal) static_cast<worker*>(w)->run();
  return nullptr;
}

// All at once, each with a stack so small that the C library keeps it, and what it allocates with it, for the next round.
void run_threads() {
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, 262'144);
  pthread_t ids[most_threads];
  for (int i = 0; i < thread_count; ++i) {
    expect(pthread_create(&ids[i], &attributes, run_worker, &workers[i]) == 0, "a thread can be made");
  }
  for (int i = 0; i < thread_count; ++i) pthread_join(ids[i], nullptr);
  pthread_attr_destroy(&attributes);
}

void run_all() {
  if (thread_count == 1) return workers[0].run();
  run_threads();
}

/// Whether the allocator below lies in that library.
bool is_below(const char* library) {
#if TIDEMARK_OPT_SANITIZER_HOOKS && TIDEMARK_HAS_SANITIZER_ALLOCATOR()
  return library == nullptr;
#else
  Dl_info info{};
  return dladdr(reinterpret_cast<void*>(tidemark::detail::hook::below.malloc), &info) != 0 &&
         std::strstr(info.dli_fname, library) != nullptr;
#endif
}

}  // namespace

int main(int argc, char** argv) {
  std::setvbuf(stdout, nullptr, _IONBF, 0);  // a buffer would be a block of its own
  const long operations = argc > 1 ? std::atol(argv[1]) : 0;
  thread_count = argc > 2 ? std::atoi(argv[2]) : 0;
  const std::uint64_t seed = argc > 3 ? std::strtoull(argv[3], nullptr, 10) : 1;
  if (operations <= 0 || thread_count <= 0 || thread_count > most_threads) {
    std::fprintf(stderr, "usage: storm OPERATIONS THREADS [SEED [LIBRARY]], with at most %d threads\n", most_threads);
    return 2;
  }
  barrier all(static_cast<std::size_t>(thread_count));
  all_here = &all;
  for (std::size_t i = 0; i < shared_places; ++i)
    shared[i].store(&all_blocks[i], std::memory_order_relaxed);  // no threads yet
  for (int i = 0; i < thread_count; ++i) workers[i].start(i, seed, operations);
  if (thread_count > 1) {
    is_rehearsal = true;
    run_threads();
    is_rehearsal = false;
  }

  const usage before = *tidemark::process_usage();
  const std::uint64_t events_before = tidemark::self().events;
  run_all();
  const usage storm = *tidemark::process_usage();
  const std::uint64_t events = tidemark::self().events - events_before;

  std::int64_t bytes = 0;
  std::int64_t blocks = 0;
  for (int i = 0; i < thread_count; ++i) {
    bytes += workers[i].kept().bytes;
    blocks += workers[i].kept().blocks;
  }
  for (block& b : all_blocks) {
    if (b.p != nullptr) unmake(b);
  }
  const usage after = *tidemark::process_usage();
  const std::uint64_t foreign = tidemark::self().foreign_frees;

  expect(storm.live_bytes - before.live_bytes == bytes, "the process's live bytes are the sum of what is left");
  expect(storm.live_blocks - before.live_blocks == blocks, "the process's live blocks are what is left");
  expect(after.live_bytes == before.live_bytes, "the live bytes return to the start");
  expect(after.live_blocks == before.live_blocks, "the live blocks return to the start");

  expect(foreign == 0, "no free is foreign");
  if (argc > 4) expect(is_below(argv[4]), "the allocator below the hook is the one that was named");
  std::printf("events %llu allocations %llu live %lld foreign %llu\n", static_cast<unsigned long long>(events),
              static_cast<unsigned long long>(storm.allocations - before.allocations), static_cast<long long>(bytes),
              static_cast<unsigned long long>(foreign));
  return failures.load() == 0 ? 0 : 1;
}
