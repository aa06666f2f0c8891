// SPDX-License-Identifier: MIT
// What a test tells the fake drivers to say, and what they saw. Each library exports a function that gives its state;
// the layouts of the real libraries are written down again in the fakes, apart from the library's own.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>

#include <pthread.h>
#include <signal.h>

/// Where a call waits until the test lets it go.
class gate_of_calls {
 public:
  void shut() {
    const std::lock_guard<std::mutex> held(mutex_);
    is_shut_ = true;
  }
  void open() {
    const std::lock_guard<std::mutex> held(mutex_);
    is_shut_ = false;
    changed_.notify_all();
  }
  void pass() {
    std::unique_lock<std::mutex> held(mutex_);
    if (!is_shut_) return;
    waiting.fetch_add(1);
    changed_.wait(held, [this] { return !is_shut_; });
    waiting.fetch_sub(1);
  }
  std::atomic<int> waiting{0};

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool is_shut_ = false;
};

/// Who called.
struct seen_calls {
  std::atomic<int> count{0};
  std::atomic<bool> is_of_many_threads{false};
  std::atomic<bool> lets_signals_in{false};
  pthread_t thread{};

  void note() {
    if (count.fetch_add(1) == 0) thread = pthread_self();
    if (pthread_equal(thread, pthread_self()) == 0) is_of_many_threads.store(true);
    sigset_t blocked;
    pthread_sigmask(SIG_SETMASK, nullptr, &blocked);
    if (sigismember(&blocked, SIGTERM) == 0 || sigismember(&blocked, SIGUSR1) == 0) lets_signals_in.store(true);
  }
};

struct fake_process {
  std::uint32_t pid;
  std::uint64_t used;
};

struct fake_gpu {
  const char* uuid = "";
  const char* name = "Fake GPU";
  const char* address = "";
  std::uint64_t total = 0, reserved = 0, free = 0, used = 0;
  int handle_answer = 0;
  int memory_answer = 0;
  int memory_v2_answer = 0;       // of the second ABI alone
  bool is_divided = false;        // MIG
  int parent = -1;                // of a MIG instance
  fake_process lists[3][4] = {};  // compute, graphics, MPS; ends at number 0
};

struct fake_nvml_state {
  seen_calls calls;
  gate_of_calls init_gate, memory_gate;
  std::atomic<int> inits{0}, memory_calls{0}, list_calls{0};
  int init_answer = 0;
  std::uint32_t count = 0;  // what is said
  int gpus = 0;             // what there is
  fake_gpu gpu[8];
  int growth = 0;                    // how often a list has grown when it is asked for
  std::uint32_t needed_instead = 0;  // said in place of the number of entries
  std::uint32_t count_instead = 0;   // the same, of what was written
  bool has_details = true;           // false: the call answers that it is of no such version
  bool has_all_mode = true;
};

struct fake_cuda_gpu {
  unsigned char uuid[16] = {};
  const char* address = "";
  int is_integrated = 0;
  int is_active = 0;
  int has_pools = 1;
  std::size_t free = 0, total = 0;
  std::uint64_t pool[9] = {};   // by attribute
  std::uint64_t graph[4] = {};  // by attribute
  int pool_number = 0;
};

struct fake_cuda_state {
  seen_calls calls;
  std::atomic<int> inits{0}, contexts_made{0}, retains{0}, releases{0}, pushes{0}, pops{0}, sets{0};
  int is_initialised = 0;
  int answer = 0;  // of everything, where it is not 0
  int gpus = 0;
  fake_cuda_gpu gpu[4];
};
