// SPDX-License-Identifier: MIT
// What happens to programs that use a hook for long: forks while threads allocate, a profiling timer, the ways to end, keys
// whose destructors allocate to the last round, no memory for the library itself. With hook/malloc, or with hook/global_new
// where SURVIVE_GLOBAL_NEW is defined. usage: survive; prints what does not hold, and exits with 1.
//
// Without doctest: these count a whole process, and forked children must end by themselves.
#if defined(SURVIVE_GLOBAL_NEW)
  #include <tidemark/hook/global_new.hpp>
#else
  #include <tidemark/hook/malloc.hpp>
#endif

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

#include <pthread.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <tidemark/core/ledger.hpp>
#include <tidemark/scope/scope.hpp>
#include <tidemark/sink/callback.hpp>

#include "../support/dice.hpp"

namespace {

int failures = 0;

void expect(bool holds, const char* what) {
  if (holds) return;
  ++failures;
  std::fprintf(stderr, "it does not hold that %s\n", what);
}

void* make(std::size_t n) {
#if defined(SURVIVE_GLOBAL_NEW)
  void* p = ::operator new(n);
#else
  void* p = std::malloc(n);
#endif
  tidemark::escape(p);
  return p;
}

void unmake(void* p) {
#if defined(SURVIVE_GLOBAL_NEW)
  ::operator delete(p);
#else
  std::free(p);
#endif
}

std::int64_t live() { return tidemark::process_usage()->live_bytes; }

/// Allocates, frees and passes blocks to other threads until told to stop; in the end nothing is left.
class workers {
 public:
  explicit workers(int count) {
    for (int i = 0; i < count; ++i) {
      threads_.emplace_back([this, i] { work(static_cast<std::uint64_t>(i)); });
    }
  }
  ~workers() {
    stop_.store(true);
    for (std::thread& t : threads_) t.join();
    for (std::atomic<void*>& p : shared_) unmake(p.load());
  }
  [[nodiscard]] std::uint64_t rounds() const { return rounds_.load(); }

 private:
  void work(std::uint64_t seed) {
    dice d(seed + 1);
    while (!stop_.load(std::memory_order_relaxed)) {
      const tidemark::scope s("work");
      for (int i = 0; i < 200; ++i) {
        void* p = make(d.below(50) == 0 ? d.below(200'000) : d.below(400));
        unmake(shared_[d.below(64)].exchange(p));
      }
      rounds_.fetch_add(1);
    }
  }

  std::atomic<void*> shared_[64] = {};
  std::atomic<bool> stop_{false};
  std::atomic<std::uint64_t> rounds_{0};
  std::vector<std::thread> threads_;
};

/// Runs `f` in a child. Returns its wait status.
template <class F>
int in_child(F f) {
  const pid_t child = fork();
  if (child == 0) {
    failures = 0;  // the parent's are its own
    f();
    _exit(failures == 0 ? 0 : 1);
  }
  int status = 0;
  expect(child > 0 && waitpid(child, &status, 0) == child, "a child can be made");
  return status;
}

std::atomic<int> records{0};

void forks() {
  int bad = 0;
  const auto sink = std::make_shared<tidemark::callback_sink>([](const tidemark::scope_record&) { records.fetch_add(1); });
  const tidemark::attachment attached = tidemark::attach(sink);
  workers busy(4);
  for (int i = 0; i < 100; ++i) {
    bad += in_child([i] {
      const int seen = records.load();
      const std::int64_t before = tidemark::thread_usage()->live_bytes;
      void* p = make(70'000);
      expect(tidemark::thread_usage()->live_bytes - before == 70'000, "a child counts");
      unmake(p);
      expect(records.load() == seen, "a child repeats no record");
      { const tidemark::scope s("in the child"); }
      expect(records.load() == seen + 1, "a child's scope leaves one record");
      if (i % 5 == 0) {
        std::thread([] { unmake(make(200'000)); }).join();
        expect(tidemark::self().foreign_frees == 0, "a child's thread frees what it allocates");
      }
    }) != 0;
  }
  expect(bad == 0, "100 children of a process whose threads allocate end well");
  expect(busy.rounds() > 0, "the threads worked meanwhile");
}

std::atomic<std::uint64_t> ticks{0};

void profiled() {
  struct sigaction on_tick {};
  on_tick.sa_handler = [](int) { ticks.fetch_add(1); };
  on_tick.sa_flags = SA_RESTART;
  sigaction(SIGPROF, &on_tick, nullptr);
  const itimerval each_ms{{0, 1'000}, {0, 1'000}};
  setitimer(ITIMER_PROF, &each_ms, nullptr);
  {
    workers busy(4);
    while (ticks.load() < 300) unmake(make(100));
  }
  const itimerval never{};
  setitimer(ITIMER_PROF, &never, nullptr);
  signal(SIGPROF, SIG_IGN);
}

void ends() {
  const int exited = in_child([] {
    make(100);
    _exit(7);
  });
  expect(WIFEXITED(exited) && WEXITSTATUS(exited) == 7, "_exit ends a process with its status");
  const int aborted = in_child([] {
    const rlimit no_core{0, 0};
    setrlimit(RLIMIT_CORE, &no_core);
    make(100);
    std::abort();
  });
  expect(WIFSIGNALED(aborted) && WTERMSIG(aborted) == SIGABRT, "abort ends a process by its signal");
  const int executed = in_child([] {
    workers busy(2);
    while (busy.rounds() < 2) std::this_thread::yield();
    execl("/bin/sh", "sh", "-c", "exit 9", static_cast<char*>(nullptr));
  });
  expect(WIFEXITED(executed) && WEXITSTATUS(executed) == 9, "exec while threads allocate starts the other program");
  const int ended = in_child([] {
    auto* left_behind = new workers(2);  // still allocating while static objects are destroyed
    while (left_behind->rounds() < 2) std::this_thread::yield();
    std::exit(5);
  });
  expect(WIFEXITED(ended) && WEXITSTATUS(ended) == 5, "exit while threads allocate ends well");
}

int* make_number(int n) {
  int* p = static_cast<int*>(make(sizeof n));
  *p = n;
  return p;
}

pthread_key_t late_key;
std::atomic<int> late_calls{0};

// Re-armed as often as it is called: the last call is in the thread's last round.
void late(void* p) {
  late_calls.fetch_add(1);
  const int round = *static_cast<int*>(p) + 1;
  unmake(p);
  unmake(make(90'000));
  if (round < PTHREAD_DESTRUCTOR_ITERATIONS) pthread_setspecific(late_key, make_number(round));
}

void threads_that_end_late() {
  pthread_key_create(&late_key, late);
  const int before = late_calls.load();
  for (int i = 0; i < 50; ++i) {
    std::thread([] { pthread_setspecific(late_key, make_number(0)); }).join();
  }
  expect(late_calls.load() - before == 50 * PTHREAD_DESTRUCTOR_ITERATIONS, "each key ran in every round");
  pthread_key_delete(late_key);
}

void* allocate_a_lot(void* meet) {
  pthread_barrier_wait(static_cast<pthread_barrier_t*>(meet));
  for (int i = 0; i < 1'000; ++i) unmake(make(static_cast<std::size_t>(16 + i % 100)));
  pthread_barrier_wait(static_cast<pthread_barrier_t*>(meet));
  return nullptr;
}

void* only_meet(void* meet) {
  pthread_barrier_wait(static_cast<pthread_barrier_t*>(meet));
  pthread_barrier_wait(static_cast<pthread_barrier_t*>(meet));
  return nullptr;
}

void together(void* (*f)(void*)) {
  constexpr int count = 4;
  pthread_barrier_t meet;
  pthread_barrier_init(&meet, nullptr, count);
  pthread_t ids[count];
  for (pthread_t& id : ids) pthread_create(&id, nullptr, f, &meet);
  for (pthread_t& id : ids) pthread_join(id, nullptr);
  pthread_barrier_destroy(&meet);
}

void no_memory_for_the_library() {
  const int status = in_child([] {
    together(only_meet);  // the system keeps their stacks, and makes no slot for a thread without an event
    void* room = make(100'000);
    unmake(room);
    const auto before = *tidemark::process_usage();
    const rlimit none{0, 0};
    setrlimit(RLIMIT_DATA, &none);
    together(allocate_a_lot);
    const auto after = *tidemark::process_usage();
    expect(after.allocations - before.allocations >= 4'000, "events are counted where no slot can be made");
    expect(after.live_bytes == before.live_bytes, "and evenly");
    expect(tidemark::self().foreign_frees == 0, "no free is foreign for want of memory");
  });
  expect(status == 0, "a process without memory for the library goes on");
}

// Before the library's own handler is registered, so that it runs while the library holds its locks.
void allocate_at_fork() {
  for (int i = 0; i < 40; ++i) unmake(make(10'000));
  void* kept[20];
  for (void*& p : kept) p = make(10'000);
  for (void* p : kept) unmake(p);
}
__attribute__((constructor(101))) void register_first() { pthread_atfork(allocate_at_fork, nullptr, nullptr); }

}  // namespace

int main() {
  using scenario = void (*)();
  for (const scenario run : {forks, profiled, threads_that_end_late}) {
    run();  // the first time makes what is kept: stacks, names, paths
    const std::int64_t before = live();
    const std::int64_t blocks = tidemark::process_usage()->live_blocks;
    run();
    expect(live() == before, "the second time leaves no byte behind");
    expect(tidemark::process_usage()->live_blocks == blocks, "nor a block");
    if (live() != before) std::fprintf(stderr, "  %lld bytes\n", static_cast<long long>(live() - before));
  }
  ends();
  no_memory_for_the_library();
  expect(tidemark::self().foreign_frees == 0, "no free was foreign");
  expect(tidemark::self().dropped_records == 0, "no record was dropped");
  return failures == 0 ? 0 : 1;
}
