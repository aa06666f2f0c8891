// SPDX-License-Identifier: MIT
// A program without doctest: its checks run after main, down to a function that runs when every static object is gone and
// decides the exit status.
#include <tidemark/hook/global_new.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <thread>

#include <unistd.h>

#include <tidemark/scope/meter.hpp>
#include <tidemark/scope/scope.hpp>
#include <tidemark/sink/callback.hpp>

namespace {

// Constant-initialised and never destroyed: usable at any time.
int failures = 0;
int stages = 0;
bool is_scope_left_open = false;  // in the main thread
std::atomic<bool> stop{false};
std::atomic<bool> has_stopped{false};

void say(const char* text) {
  if (::write(STDERR_FILENO, text, std::strlen(text)) < 0) ++failures;
}

void expect(bool holds, const char* stage, const char* what) {
  if (holds) return;
  ++failures;
  say(stage);
  say(": it does not hold that ");
  say(what);
  say("\n");
}

void* make(std::size_t n) {
  void* p = ::operator new(n);
  std::memset(p, 'x', n);
  tidemark::escape(p);
  return p;
}

/// At this stage of the program's end, events of this thread are exact in its account, in scopes and in their records.
void visit(const char* stage) {
  ++stages;
  expect(tidemark::hook_state() != tidemark::hook_kind::none, stage, "the hook is there");
  const bool is_inner = is_scope_left_open && ::gettid() == ::getpid();
  const std::string path = (is_inner ? "left open by main/" : "") + std::string(stage);
  const tidemark::reading<tidemark::usage> before = tidemark::thread_usage();
  if (!before.has_value()) return expect(false, stage, "the thread has an account");
  const std::uint64_t foreign_before = tidemark::self().foreign_frees;
  void* p = make(3'000);
  tidemark::scope s(stage);
  ::operator delete(p);
  void* q = make(100'000);
  void* aligned = ::operator new (500, std::align_val_t{256});
  tidemark::escape(aligned);
  const tidemark::scope_record r = s.close();
  const tidemark::reading<tidemark::window_usage>& u = r.meters[0].usage;
  expect(u.has_value() && u->net_bytes() == 97'500 && u->peak_growth() == 97'500 && u->allocations == 2 &&
             u->deallocations == 1,
         stage, "a scope is exact");
  expect(r.depth == (is_inner ? 1 : 0) && r.path == path, stage, "a scope knows its path");
  expect(r.owned_bytes.value_or(-1) == 100'500, stage, "a scope owns what it left behind");
  ::operator delete(q);
  ::operator delete (aligned, std::align_val_t{256});
  const tidemark::reading<tidemark::usage> after = tidemark::thread_usage();
  expect(after.has_value() && after->live_bytes == before->live_bytes && after->live_blocks == before->live_blocks &&
             after->allocations == before->allocations + 3,
         stage, "the thread's account is exact");
  expect(tidemark::process_usage().has_value(), stage, "the process has an account");
  expect(tidemark::self().foreign_frees == foreign_before, stage, "no free is foreign");
}

void visit_in_thread(const char* stage) {
  std::thread([=] { visit(stage); }).join();
}

// The first to be constructed, and so the last static object to be destroyed.
struct outlives_the_others {
  void* made_in_constructor = make(1'000);
  void* made_in_main = nullptr;

  ~outlives_the_others() {
    visit("the last static object's destructor");
    visit_in_thread("a thread of the last static object's destructor");
      const std::int64_t before = tidemark::thread_usage()->live_bytes;
    ::operator delete(made_in_constructor);
    ::operator delete(made_in_main);
    expect(tidemark::thread_usage()->live_bytes == before - 1'000 - 2'000, "the last static object's destructor",
           "blocks from before main and from main are freed");
  }
};

outlives_the_others oldest;

// Attached before main, detached after it.
struct attached_throughout {
  int records = 0;  // of the main thread
  tidemark::attachment attachment =
      tidemark::attach(std::make_shared<tidemark::callback_sink>([this](const tidemark::scope_record& r) {
        if (r.thread == static_cast<std::uint64_t>(::getpid())) ++records;
      }));

  ~attached_throughout() {
    const int before = records;
    visit("a static object's destructor, a sink attached");
    expect(records == before + 1, "a static object's destructor",
           "an attached sink is given records");
    attachment.detach();
    visit("a static object's destructor, the sink detached");
    expect(records == before + 1, "a static object's destructor", "a detached sink is given none");
  }
};

attached_throughout with_sink;

struct left_open_by_main {
  std::unique_ptr<tidemark::scope> scope;

  ~left_open_by_main() {
      const tidemark::scope_record r = scope->close();
    is_scope_left_open = false;
    expect(r.meters[0].usage.has_value() && r.meters[0].usage->net_bytes() == 2'000, "a static object's destructor",
           "a scope that main left open is exact");
  }
};

left_open_by_main open_scope;

struct tls_visitor {
  bool is_used = false;
  ~tls_visitor() {
    if (is_used) visit("the main thread's thread-local destructor");
  }
};

thread_local tls_visitor visitor;

// A thread that main leaves behind does not care that the static objects go.
void run_to_the_end() {
  while (!stop.load(std::memory_order_relaxed)) {
    tidemark::scope s("left behind");
    void* p = make(400);
    void* q = make(80'000);
    ::operator delete(p);
    const tidemark::reading<tidemark::window_usage> u = s.usage();
    if (!u.has_value() || u->net_bytes() != 80'000 || u->peak_growth() != 80'400) break;
    ::operator delete(q);
  }
  expect(stop.load(), "a thread left behind", "its scopes are exact all the time");
  has_stopped.store(true, std::memory_order_release);  // pairs with the last function's load
}

// Runs after every static object's destructor and every atexit function.
__attribute__((destructor(101))) void last() {
  visit("the last destructor function");
  visit_in_thread("a thread of the last destructor function");
  stop.store(true);
  while (!has_stopped.load(std::memory_order_acquire)) std::this_thread::yield();
  expect(stages == 9, "the end", "every stage was reached");
  ::_exit(failures == 0 ? 0 : 1);
}

}  // namespace

int main() {
  std::atexit([] { visit("an atexit function"); });
  visitor.is_used = true;
  visit("main");
  std::thread(run_to_the_end).detach();
  open_scope.scope = std::make_unique<tidemark::scope>("left open by main");
  is_scope_left_open = true;
  oldest.made_in_main = make(2'000);
  return 2;  // stands only if the last function did not run
}
