// SPDX-License-Identifier: MIT
// What a sanitizer build counts, by each function of the family, in threads, inside quiet and across a fork. Without
// doctest and streams: MemorySanitizer needs every library that it runs instrumented, and libstdc++ is not.
// usage: sanitized; prints what does not hold, and exits with 1.
#if defined(SANITIZED_MALLOC)
  #include <tidemark/hook/malloc.hpp>
#else
  #include <tidemark/hook/global_new.hpp>
#endif

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include <malloc.h>
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include <tidemark/core/gate.hpp>
#include <tidemark/core/ledger.hpp>
#include <tidemark/core/path.hpp>
#include <tidemark/scope/detail/frame.hpp>

namespace {

using tidemark::usage;

int failures = 0;

void expect(bool holds, const char* what) {
  if (holds) return;
  ++failures;
  std::printf("it does not hold that %s\n", what);
}

usage thread_now() { return tidemark::detail::current_slot()->account.lifetime(); }
std::uint64_t foreign_frees() { return tidemark::self().foreign_frees; }

/// Runs `make`, then frees the block. Each sanitizer reports some of it, and says which not.
template <class Make>
void counts(const char* what, std::int64_t bytes, Make make) {
  const usage before = thread_now();
  void* p = make();
  tidemark::escape(p);
  const usage during = thread_now();
  std::free(p);
  const usage after = thread_now();
  const bool is_right = during.live_bytes - before.live_bytes == bytes && after.live_bytes == before.live_bytes &&
                        after.live_blocks == before.live_blocks;
  if (is_right) return;
  ++failures;
  std::printf("%s: live %+lld where %+lld is expected, and %+lld after the free\n", what,
              static_cast<long long>(during.live_bytes - before.live_bytes), static_cast<long long>(bytes),
              static_cast<long long>(after.live_bytes - before.live_bytes));
}

constexpr bool is_asan = TIDEMARK_HAS_ASAN();
constexpr bool is_tsan = TIDEMARK_HAS_TSAN();
constexpr bool is_msan = TIDEMARK_HAS_MSAN();

/// What hook_reason() says that this runtime leaves out.
constexpr std::int64_t aligned(std::int64_t n) { return is_tsan ? 0 : n; }

template <class T>
T* launder(T* p) {
  asm volatile("" : "+r"(p) : : "memory");
  return p;
}

void each_function() {
  counts("malloc(100)", 100, [] { return std::malloc(100); });
  counts("malloc(0)", is_asan ? 1 : 0, [] { return std::malloc(0); });
  counts("calloc(3, 7)", 21, [] { return std::calloc(3, 7); });
  counts("realloc(nullptr, 70)", 70, [] { return std::realloc(nullptr, 70); });
  counts("realloc to more", 70'000, [] { return std::realloc(launder(std::malloc(100)), 70'000); });
  // MemorySanitizer does not report one that stays in place; the size at the free is the one that was counted.
  counts("realloc to less", is_msan ? 100 : 10, [] { return std::realloc(launder(std::malloc(100)), 10); });
  counts("reallocarray", 45, [] { return ::reallocarray(launder(std::malloc(20)), 5, 9); });
  counts("strdup", 6, [] { return static_cast<void*>(::strdup("hello")); });
  counts("aligned_alloc", aligned(128), [] { return std::aligned_alloc(64, 128); });
  counts("memalign", aligned(100), [] { return ::memalign(64, 100); });
  counts("valloc", aligned(100), [] { return ::valloc(100); });
  counts("posix_memalign", aligned(321), [] {
    void* p = nullptr;
    return ::posix_memalign(&p, 64, 321) == 0 ? p : nullptr;
  });

  const usage before = thread_now();
  int* array = new int[10];
  tidemark::escape(array);
  struct alignas(64) wide {
    char bytes[64];
  };
  wide* over_aligned = new wide;
  tidemark::escape(over_aligned);
  expect(thread_now().live_bytes - before.live_bytes == 104, "new counts its bytes, aligned or not");
  expect(thread_now().allocations - before.allocations == 2, "new is one allocation, not a malloc on top");
  delete[] array;
  delete over_aligned;
  expect(thread_now().live_bytes == before.live_bytes, "delete takes them off");
}

void* allocate_and_free(void* blocks) {
  auto** held = static_cast<void**>(blocks);
  for (int i = 0; i < 20'000; ++i) {
    void* p = std::malloc(static_cast<std::size_t>(16 + i % 200));
    tidemark::escape(p);
    // Into a place that another thread may take it from and free.
    void* was = __atomic_exchange_n(&held[i % 64], p, __ATOMIC_ACQ_REL);
    std::free(was);
  }
  return nullptr;
}

void threads() {
  tidemark::detail::settle_own();
  const std::int64_t before = thread_now().live_bytes;
  void* held[64] = {};
  pthread_t ids[8];
  for (pthread_t& id : ids) pthread_create(&id, nullptr, allocate_and_free, held);
  for (pthread_t& id : ids) pthread_join(id, nullptr);
  for (void* p : held) std::free(p);
  // What the threads still owe each other evens out: the process is where it was, but for what a thread's start keeps.
  tidemark::detail::settle_own();
  const usage process = tidemark::detail::own_ledger.process.lifetime(0);
  const std::int64_t kept = process.live_bytes - before;
  expect(kept >= 0 && kept < 8 * 1'024, "every block of the threads was subtracted where it was freed");
  expect(is_tsan || foreign_frees() == 0, "no free was foreign");
}

void hidden() {
  const usage before = thread_now();
  void* p = nullptr;
  {
    const tidemark::quiet q;
    p = std::malloc(1'000);
    tidemark::escape(p);
  }
  expect(thread_now().live_bytes == before.live_bytes, "quiet hides an allocation");
  std::free(p);
  expect(thread_now().live_bytes == before.live_bytes, "its free is hidden as well");
}

void owned() {
  using namespace tidemark::detail;
  const path_node* path = registry<path_tree>()->child(nullptr, "sanitized");
  slot* s = current_slot();
  thread_frame* f = s->open_frame(path, path->id, 0, ledger().memory, ledger().table_lock);
  void* p = std::malloc(500);
  tidemark::escape(p);
  s->drop(*f);
  expect(owned_bytes(*path) == 500, "a block belongs to the path that was open");
  std::free(p);
  expect(owned_bytes(*path) == 0, "and is taken off it by a free outside");
}

void forked() {
  const usage before = thread_now();
  const pid_t child = fork();
  if (child == 0) {
    const usage at_start = thread_now();  // ThreadSanitizer's own fork allocates
    void* p = std::malloc(300);
    tidemark::escape(p);
    const bool counted = thread_now().live_bytes - at_start.live_bytes == 300;
    std::free(p);
    _exit(counted && thread_now().live_bytes == at_start.live_bytes ? 0 : 1);
  }
  int status = 1;
  waitpid(child, &status, 0);
  expect(status == 0, "a fork child goes on counting");
  expect(thread_now().live_bytes == before.live_bytes, "and the parent does not notice");
}

}  // namespace

int main() {
  std::setvbuf(stdout, nullptr, _IONBF, 0);  // a buffer would be an allocation of its own
  static_cast<void>(tidemark::detail::current_slot());
  expect(tidemark::hook_state() == tidemark::hook_kind::sanitizer, "the hook listens to the sanitizer");
  expect(tidemark::detail::ledger().hook_reason[0] != '\0', "the hook says what it does not see");
  each_function();
  hidden();
  owned();
  forked();
  threads();
  return failures == 0 ? 0 : 1;
}
