// SPDX-License-Identifier: MIT
// A program with a shared object, linked or opened. Prints a line for each expectation that fails.
//   program MODE [PLUGIN [global]]   MODE: shared, handed, late, split, part_hook, no_hook, disabled,
//                                    fork_handler
//   program WHAT.HOW PLUGIN          WHAT: rounds, closed, sink, text; HOW: shared, handed, split
#include <atomic>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <dlfcn.h>
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include <tidemark/sink/ring.hpp>
#include <tidemark/tidemark.hpp>

#include "part.hpp"

extern "C" __attribute__((weak)) const part* test_part();  // null: none is linked

namespace {

constexpr std::string_view split_reason = "this part of the program keeps a ledger of its own";
constexpr std::string_view no_hook_reason = "no heap hook: include <tidemark/hook/global_new.hpp>";

std::atomic<int> wrong{0};

void expect(bool holds, const char* what) {
  if (holds) return;
  ++wrong;
  std::printf("%s\n", what);
  std::fflush(stdout);
}

void expect_same(std::string_view is, std::string_view wanted, const char* what) {
  if (is == wanted) return;
  ++wrong;
  std::printf("%s: \"%.*s\" instead of \"%.*s\"\n", what, static_cast<int>(is.size()), is.data(),
              static_cast<int>(wanted.size()), wanted.data());
  std::fflush(stdout);
}

void expect_begins(std::string_view is, std::string_view wanted, const char* what) {
  expect_same(is.substr(0, wanted.size()), wanted, what);
}

void expect_equal(long long is, long long wanted, const char* what) {
  if (is == wanted) return;
  ++wrong;
  std::printf("%s: %lld instead of %lld\n", what, is, wanted);
  std::fflush(stdout);
}

bool is_same(const tidemark::usage& a, const tidemark::usage& b) {
  return a.live_bytes == b.live_bytes && a.peak_bytes == b.peak_bytes && a.live_blocks == b.live_blocks &&
         a.allocations == b.allocations && a.deallocations == b.deallocations &&
         a.allocated_bytes == b.allocated_bytes && a.freed_bytes == b.freed_bytes;
}

char* make(std::size_t bytes) {
  char* block = new char[bytes];
  tidemark::escape(block);
  return block;
}

/// The scope's own reading; a failed expectation, and nothing, where it is absent.
tidemark::window_usage heap_of(const tidemark::scope_record& r, const char* what) {
  const tidemark::meter_reading* m = r.find("thread_heap");
  if (m != nullptr && m->usage) return *m->usage;
  expect_same(m == nullptr ? "no such meter" : m->usage.why(), "a reading", what);
  return {};
}

void expect_child_ends(void (*in_child)(), const char* what) {
  std::fflush(stdout);
  const pid_t child = fork();
  if (child == 0) {
    in_child();
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  expect(WIFEXITED(status) && WEXITSTATUS(status) == 0, what);
}

std::string near_path;

void near_scope() {
  tidemark::scope s("near");
  delete[] make(300);
  const tidemark::scope_record r = s.close();
  const tidemark::quiet hidden;
  near_path = r.path;
}

// ---- one ledger ----

void check_same_numbers(const part& p) {
  char* block = make(100);
  const part_view v = p.look();
  const tidemark::reading<tidemark::usage> thread = tidemark::thread_usage();
  const tidemark::reading<tidemark::usage> process = tidemark::process_usage();
  expect(v.ledger.state == tidemark::this_ledger().state, "the part uses another ledger");
  expect_same(v.thread.why(), "", "the part's thread usage is absent");
  expect_same(v.process.why(), "", "the part's process usage is absent");
  expect_same(thread.why(), "", "the program's thread usage is absent");
  expect_same(process.why(), "", "the program's process usage is absent");
  if (v.thread && thread) expect(is_same(*v.thread, *thread), "the part reads another thread usage");
  if (v.process && process) expect(is_same(*v.process, *process), "the part reads another process usage");
  delete[] block;
  const part_view after = p.look();
  if (v.thread && after.thread) {
    expect_equal(after.thread->live_bytes, v.thread->live_bytes - 100, "the part misses a free in the program");
  }
}

void check_nested_paths(const part& p) {
  char* kept = nullptr;
  tidemark::scope outer("outer");
  const tidemark::scope_record inner = p.scope("inner", 1'000, &kept, near_scope);
  const tidemark::scope_record out = outer.close();
  expect_same(inner.path, "outer/inner", "path of a scope in the part");
  expect_same(near_path, "outer/inner/near", "path of a scope in the program inside one of the part");
  expect_equal(inner.depth, 1, "its depth");
  const tidemark::window_usage in = heap_of(inner, "a scope in the part");
  expect_equal(static_cast<long long>(in.allocated_bytes), 1'300, "allocated in the part's scope");
  expect_equal(static_cast<long long>(in.allocations), 2, "allocations in the part's scope");
  expect_equal(in.net_bytes(), 1'000, "net of the part's scope");
  expect_equal(static_cast<long long>(heap_of(out, "a scope around it").allocated_bytes), 1'300,
               "allocated in the program's scope around it");
  expect_equal(inner.owned_bytes.value_or(-1), 1'000, "owned by the part's scope");
  expect_equal(out.owned_bytes.value_or(-1), 1'000, "owned by the program's scope around it");

  delete[] kept;
  tidemark::scope again("outer");
  expect_equal(p.scope("inner", 0, nullptr, nullptr).owned_bytes.value_or(-1), 0,
               "owned by the part's scope after a free in the program");
}

void check_blocks_cross(const part& p) {
  const tidemark::usage before = tidemark::thread_usage().value_or({});
  p.discard(make(500));
  expect_equal(tidemark::thread_usage().value_or({}).live_bytes, before.live_bytes,
               "live after the part freed a block");
  char* hidden_block = p.make_quietly(700);
  char* also_hidden = nullptr;
  {
    const tidemark::quiet hidden;
    also_hidden = p.make(900);
  }
  const tidemark::usage quiet_usage = tidemark::thread_usage().value_or({});
  expect_equal(static_cast<long long>(quiet_usage.allocated_bytes - before.allocated_bytes), 500,
               "allocated with two hidden blocks");
  delete[] hidden_block;
  p.discard(also_hidden);
  expect_equal(tidemark::thread_usage().value_or({}).live_bytes, before.live_bytes,
               "live after hidden blocks are freed");
}

std::string joined(const std::vector<std::string>& paths) {
  std::string text;
  for (const std::string& path : paths) text += path + ' ';
  return text;
}

void check_sinks(const part& p) {
  const auto ring = std::make_shared<tidemark::ring_sink>(std::size_t{8});
  tidemark::attachment attached = tidemark::attach(ring);
  p.attach();
  { tidemark::scope ours("ours"); }
  static_cast<void>(p.scope("theirs", 10, nullptr, nullptr));
  const std::vector<std::string> part_saw = p.detach();
  static_cast<void>(p.scope("later", 10, nullptr, nullptr));
  attached.detach();
  { tidemark::scope unseen("unseen"); }
  std::vector<std::string> program_saw;
  for (const tidemark::scope_record& r : ring->scopes()) program_saw.push_back(r.path);
  expect_same(joined(program_saw), "ours theirs later ", "records in the program's sink");
  expect_same(joined(part_saw), "ours theirs ", "records in the part's sink");
}

/// The part is the first to use the library on a thread.
void* begin_in_part(void* p) {
  const part& plugin = *static_cast<const part*>(p);
  char* kept = nullptr;
  const tidemark::scope_record r = plugin.scope("thread", 1'000, &kept, nullptr);
  expect_same(r.path, "thread", "path of a thread's first scope, in the part");
  expect_equal(static_cast<long long>(heap_of(r, "a thread's first scope").allocated_bytes), 1'000,
               "allocated in a thread's first scope");
  delete[] kept;
  return nullptr;
}

void run_thread(void* (*f)(void*), const part& p) {
  pthread_t thread{};
  if (pthread_create(&thread, nullptr, f, const_cast<part*>(&p)) != 0) std::abort();
  pthread_join(thread, nullptr);
}

void check_fork(const part& p) {
  static const part* in_child = &p;
  expect_child_ends(
      [] {
        wrong = 0;
        check_same_numbers(*in_child);
        check_nested_paths(*in_child);
        check_sinks(*in_child);
        run_thread(begin_in_part, *in_child);
        if (wrong != 0) _exit(1);
      },
      "in a fork child: as above, or it did not end");
}

void check_shared(const part& p) {
  p.touch();
  // The first scopes make what is made once.
  static_cast<void>(p.scope("first", 1, nullptr, near_scope));
  check_same_numbers(p);
  check_nested_paths(p);
  check_blocks_cross(p);
  check_sinks(p);
  run_thread(begin_in_part, p);
  check_fork(p);
  check_same_numbers(p);
}

// ---- two ledgers, of which the part's knows that it is none ----

void check_absent(const part& p, std::string_view reason) {
  tidemark::scope outer("outer");
  const part_view v = p.look();
  const tidemark::scope_record r = p.scope("inner", 1'000, nullptr, nullptr);
  expect_begins(v.thread.why(), reason, "why the part has no thread usage");
  expect_begins(v.process.why(), reason, "why the part has no process usage");
  const tidemark::meter_reading* m = r.find("thread_heap");
  expect_begins(m == nullptr ? "no such meter" : m->usage.why(), reason, "why the part's scope has no reading");
  expect_begins(r.owned_bytes.why(), reason, "why the part's scope owns nothing");
  if (reason == split_reason) {
    expect(v.thread.why().find("-rdynamic") != std::string_view::npos, "the reason does not name -rdynamic");
    expect(v.thread.why().find("use_ledger()") != std::string_view::npos, "the reason does not name use_ledger()");
  }
}

void check_own_numbers(const part& p) {
  tidemark::scope s("own");
  char* block = make(100);
  char* parts = p.make(1'000);
  p.discard(block);
  const tidemark::scope_record r = s.close();
  const tidemark::window_usage u = heap_of(r, "the program's own scope");
  expect_equal(static_cast<long long>(u.allocated_bytes), 1'100, "allocated in the program's own scope");
  expect_equal(u.net_bytes(), 1'000, "net of the program's own scope");
  expect_equal(r.owned_bytes.value_or(-1), 1'000, "owned by the program's own scope");
  expect_same(r.path, "own", "path of the program's own scope");
  delete[] parts;
}

void check_split(const part& p, std::string_view reason) {
  check_own_numbers(p);
  check_absent(p, reason);
  check_own_numbers(p);
  expect(p.look().ledger.state != tidemark::this_ledger().state, "the part has no ledger of its own");
  // It has no account, and is of no more use to a thread that begins there.
  run_thread(
      [](void* q) -> void* {
        check_absent(*static_cast<const part*>(q), {});
        check_own_numbers(*static_cast<const part*>(q));
        return nullptr;
      },
      p);
}

void check_refused(const part& p, tidemark::ledger_handle handle, std::string_view reason) {
  const tidemark::reading<tidemark::ledger_handle> used = p.use(handle);
  expect(!used, "a hand-over is not refused");
  expect_begins(used.why(), reason, "why a hand-over is refused");
}

void check_handed(const part& p) {
  const tidemark::ledger_handle mine = tidemark::this_ledger();
  tidemark::ledger_handle other = mine;
  other.state = nullptr;
  check_refused(p, other, "the handle names no ledger");
  other = mine;
  ++other.version;
  check_refused(p, other, "the other ledger is of a version of tidemark with another layout");
  other = mine;
  other.state_bytes -= 8;
  check_refused(p, other, "the other ledger is of a version of tidemark with another layout");
  for (int i = 0; i < 2; ++i) {
    const tidemark::reading<tidemark::ledger_handle> used = p.use(mine);
    expect_same(used.why(), "", i == 0 ? "a hand-over is refused" : "handing over the ledger in use is refused");
    if (used) expect(used->state == mine.state, "the hand-over answers another ledger");
  }
  check_shared(p);
}

void check_late(const part& p) {
  static_cast<void>(p.scope("first", 1, nullptr, nullptr));
  check_refused(p, tidemark::this_ledger(), "this part of the program has used a ledger already");
  check_split(p, split_reason);
}

// A fork handler that was there before the library's runs while the library holds its locks: it may take them again.

const part* used_in_fork_handler = nullptr;

void use_in_fork_handler() {
  if (used_in_fork_handler != nullptr) {
    static_cast<void>(used_in_fork_handler->scope("fork handler", 10, nullptr, near_scope));
  }
}

__attribute__((constructor(101))) void set_fork_handler() { pthread_atfork(use_in_fork_handler, nullptr, nullptr); }

void check_fork_handler(const part& p) {
  expect_same(p.use(tidemark::this_ledger()).why(), "", "a hand-over is refused");
  used_in_fork_handler = &p;
  expect_child_ends([] { tidemark::scope s("child"); }, "a fork child ends badly");
  used_in_fork_handler = nullptr;
}

// ---- plugins that come and go ----

enum class way { shared, handed, split };

struct plugin {
  void* handle = nullptr;
  const part* p = nullptr;

  plugin(const char* file, way w, int flags = RTLD_LAZY | RTLD_LOCAL) {
    handle = dlopen(file, flags);
    if (handle == nullptr) {
      std::printf("dlopen: %s\n", dlerror());
      std::exit(1);
    }
    p = reinterpret_cast<const part* (*)()>(dlsym(handle, "test_part"))();
    if (w != way::handed) return;
    const auto used = p->use(tidemark::this_ledger());
    expect_same(used.why(), "", "a plugin opened again refuses the hand-over");
  }
  void close() { expect(dlclose(handle) == 0, "dlclose fails"); }
};

void check_once(const plugin& opened, way w) {
  char* kept = nullptr;
  const tidemark::scope_record r = opened.p->scope("round", 1'000, &kept, nullptr);
  if (w == way::split) {
    expect(!r.find("thread_heap")->usage && !r.owned_bytes, "a number in a plugin with a ledger of its own");
  } else {
    expect_equal(static_cast<long long>(heap_of(r, "the plugin's scope").allocated_bytes), 1'000,
                 "allocated in the plugin's scope");
  }
  opened.p->discard(kept);
}

/// Opens and closes the plugin while two threads allocate.
void run_rounds(const char* file, way w, int rounds) {
  std::atomic<bool> is_over{false};
  const auto allocate = [&is_over] {
    while (!is_over.load()) {
      tidemark::scope s("other");
      char* a = make(100);
      char* b = make(10'000);
      delete[] a;
      delete[] b;
    }
  };
  std::thread first(allocate);
  std::thread second(allocate);
  for (int i = 0; i < rounds; ++i) {
    plugin opened(file, w);
    check_once(opened, w);
    opened.close();
  }
  is_over.store(true);
  first.join();
  second.join();
}

/// Makes each of the process's registries in the program, so that nothing of a plugin's must stay for them.
void make_registries() {
  tidemark::attachment attached = tidemark::attach(std::make_shared<tidemark::ring_sink>(std::size_t{1}));
  tidemark::scope s("before");
}

void check_rounds(const char* file, way w) {
  make_registries();
  run_rounds(file, w, 3);  // what the system keeps for itself is there: thread-local storage, stacks
  const tidemark::usage before = tidemark::process_usage().value_or({});
  run_rounds(file, w, 1'000);
  const tidemark::usage after = tidemark::process_usage().value_or({});
  expect_equal(after.live_bytes, before.live_bytes, "live bytes after 1,000 rounds");
  expect_equal(after.live_blocks, before.live_blocks, "live blocks after 1,000 rounds");
  expect_equal(static_cast<long long>(tidemark::self().foreign_frees), 0, "foreign frees");
}

/// Threads and forks outlive a plugin that they used.
void check_closed(const char* file, way w) {
  make_registries();
  std::atomic<int> used{0};
  std::atomic<bool> is_closed{false};
  plugin opened(file, w);
  const auto outlive = [&] {
    check_once(opened, w);
    ++used;
    while (!is_closed.load()) std::this_thread::yield();
    tidemark::scope s("after");
    delete[] make(100);
    expect_equal(static_cast<long long>(heap_of(s.close(), "a scope after the plugin is closed").allocated_bytes), 100,
                 "allocated after the plugin is closed");
  };
  std::thread first(outlive);
  std::thread second(outlive);
  while (used.load() != 2) std::this_thread::yield();
  check_once(opened, w);
  opened.close();
  is_closed.store(true);
  first.join();
  second.join();
  expect_child_ends([] { tidemark::scope s("child"); }, "a fork child after the plugin is closed ends badly");
}

/// A plugin attaches a sink, detaches it and is closed: the program's own sinks were in the same list meanwhile.
void check_sink_gone(const char* file, way w) {
  make_registries();
  const auto ring = std::make_shared<tidemark::ring_sink>(std::size_t{8});
  tidemark::attachment attached = tidemark::attach(ring);
  plugin opened(file, w);
  opened.p->attach();
  check_once(opened, w);
  static_cast<void>(opened.p->detach());
  opened.close();
  { tidemark::scope s("after"); }
  attached.detach();
  { tidemark::scope s("unseen"); }
  const std::vector<tidemark::scope_record> records = ring->scopes();
  expect_same(records.empty() ? "none" : records.back().path, "after", "the record after the plugin is closed");
}

/// The program's sink keeps a record that a plugin made, with a reason in it, until the plugin is closed.
void check_text_gone(const char* file, way w) {
  make_registries();
  const auto ring = std::make_shared<tidemark::ring_sink>(std::size_t{8});
  const tidemark::attachment attached = tidemark::attach(ring);
  plugin opened(file, w);
  opened.p->close_elsewhere();
  opened.close();
  const std::vector<tidemark::scope_record> records = ring->scopes();
  if (w == way::split) return;
  expect_same(records.empty() ? "none" : records[0].path, "elsewhere", "the record of a closed plugin");
  expect_same(std::string_view(records.at(0).where.file_name()).substr(0, 1), "/", "its place");
  expect_begins(records.at(0).find("thread_heap")->usage.why(), "not on the thread that opened it", "its reason");
}

int run_opened(std::string_view what, std::string_view name, const char* file) {
  const way w = name == "shared" ? way::shared : name == "handed" ? way::handed : way::split;
  if (what == "rounds") {
    check_rounds(file, w);
  } else if (what == "closed") {
    check_closed(file, w);
  } else if (what == "sink") {
    check_sink_gone(file, w);
  } else if (what == "text") {
    check_text_gone(file, w);
  } else {
    return 1;
  }
  return 0;
}

int run_with(std::string_view mode, const part& p) {
  if (mode == "shared") {
    const auto used = p.use(tidemark::this_ledger());
    expect_same(used.why(), "", "handing over the ledger that is shared is refused");
    check_shared(p);
  } else if (mode == "handed") {
    check_handed(p);
  } else if (mode == "late") {
    check_late(p);
  } else if (mode == "fork_handler") {
    check_fork_handler(p);
  } else if (mode == "split") {
    p.touch();
    static_cast<void>(p.scope("first", 1, nullptr, nullptr));
    check_split(p, split_reason);
  } else if (mode == "part_hook") {
    check_refused(p, tidemark::this_ledger(), "this part of the program has the heap hook");
    check_split(p, "the heap hook is linked, but ");
  } else if (mode == "no_hook") {
    check_absent(p, no_hook_reason);
    expect_begins(tidemark::thread_usage().why(), no_hook_reason, "why the program has no thread usage");
  } else if (mode == "disabled") {
    p.touch();
    check_refused(p, tidemark::this_ledger(), "disabled");
    check_absent(p, "disabled");
    check_own_numbers(p);
  } else {
    return 1;
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) return 2;
  const std::string_view mode = argv[1];
  int unknown = 0;
  if (argc == 2) {
    if (test_part == nullptr) return 2;
    unknown = run_with(mode, *test_part());
  } else if (const std::size_t border = mode.find('.'); border != std::string_view::npos) {
    unknown = run_opened(mode.substr(0, border), mode.substr(border + 1), argv[2]);
  } else {
    const bool is_global = argc > 3 && std::string_view(argv[3]) == "global";
    plugin opened(argv[2], way::split, RTLD_LAZY | (is_global ? RTLD_GLOBAL : RTLD_LOCAL));
    unknown = run_with(mode, *opened.p);
  }
  if (unknown != 0) return 2;
  return wrong == 0 ? 0 : 1;
}
