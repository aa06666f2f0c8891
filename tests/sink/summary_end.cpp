// SPDX-License-Identifier: MIT
// Programs with a summary, each ending in the way that its first argument names. For summary_end_check.py, which knows what
// every block of them is.
#include <tidemark/hook/global_new.hpp>
#include <tidemark/tidemark.hpp>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <iterator>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "barrier.hpp"

namespace {

using tidemark::scope;

char* keep(std::size_t bytes) {
  auto* p = static_cast<char*>(::operator new(bytes));
  tidemark::escape(p);
  return p;
}

/// Straight to the descriptor: the buffers of streams are for nobody to flush at an abort.
void say(const char* text) {
  const std::string line = std::string(text) + "\n";
  if (::write(STDOUT_FILENO, line.data(), line.size()) < 0) std::_Exit(99);
}

/// 3 calls of train/step: each keeps 1,000 bytes and is 4,000 higher for a while.
void work() {
  const scope train("train");
  for (int i = 0; i < 3; ++i) {
    const scope step("step");
    keep(1'000);
    ::operator delete(keep(4'000));
  }
}

/// Two threads that stand in two scopes of one path, each with 500 bytes, and never leave them.
void stand_open() {
  auto* meeting = new barrier(3);
  for (int t = 0; t < 2; ++t) {
    std::thread([meeting] {
      const scope outer("serve");
      const scope inner("request");
      keep(500);
      meeting->arrive_and_wait();
      meeting->arrive_and_wait();  // nobody else comes
    }).detach();
  }
  meeting->arrive_and_wait();
}

/// Owns no heap block, so that what a scope owns stays known.
struct uncaught : std::exception {
  [[nodiscard]] const char* what() const noexcept override { return "nobody catches it"; }
};

[[noreturn]] void die_of_nobody_catching() { throw uncaught(); }

/// Runs `f` on a thread of its own, whose making is in nobody's numbers, and waits.
template <class F>
void elsewhere(F f) {
  std::optional<tidemark::quiet> hidden(std::in_place);
  std::thread t(f);
  hidden.reset();
  t.join();
}

void limit_address_space() {
  std::FILE* status = std::fopen("/proc/self/statm", "r");
  unsigned long pages = 0;
  const int found = status == nullptr ? 0 : std::fscanf(status, "%lu", &pages);
  if (found != 1) std::_Exit(98);
  std::fclose(status);
  const rlim_t now = static_cast<rlim_t>(pages) * static_cast<rlim_t>(::sysconf(_SC_PAGESIZE));
  const rlimit limit{now + (rlim_t{16} << 20), RLIM_INFINITY};
  if (::setrlimit(RLIMIT_AS, &limit) != 0) std::_Exit(98);
}

/// Until not even the smallest block is to be had. In "greedy", a linked list.
[[noreturn]] void take_all_memory() {
  const scope greedy("greedy");
  void* last = nullptr;
  for (std::size_t size = std::size_t{1} << 20;;) {
    auto* p = static_cast<void**>(::operator new(size, std::nothrow));
    if (p == nullptr) {
      if (size == sizeof(void*)) break;
      size /= 2;
      continue;
    }
    *p = last;
    last = p;
  }
  tidemark::escape(last);
  throw std::bad_alloc();
}

void make_paths(int count) {
  for (int i = 0; i < count; ++i) {
    const std::string name = "path " + std::to_string(i);
    const scope s(name);
  }
}

[[noreturn]] void my_handler() {
  say("my handler");
  std::abort();
}

std::terminate_handler handler_before_mine = nullptr;

[[noreturn]] void my_chaining_handler() {
  say("my chaining handler");
  handler_before_mine();
  std::abort();
}

struct dies_late {
  ~dies_late() {
    const scope s("static destructor");
    keep(300);
  }
};

struct allocates_at_a_thread_end {
  ~allocates_at_a_thread_end() {
    const scope s("thread destructor");
    keep(200);
  }
};

tidemark::domain& small_domain() {
  static tidemark::domain d("kv cache", {1'000});
  return d;
}

void fork_and_wait(void (*in_child)()) {
  const pid_t child = ::fork();
  if (child == 0) {
    in_child();
    std::exit(0);
  }
  int status = 1;
  ::waitpid(child, &status, 0);
  if (status != 0) std::_Exit(97);
}

// A name for a way to end, and the way. What returns ends main with 7.
struct ending {
  const char* name;
  void (*run)();
};
const ending endings[] = {
    {"return", [] { work(); }},
    {"nothing", [] {}},
    {"exit",
     [] {
       work();
       stand_open();
       const scope s("main");
       keep(70);
       std::exit(3);
     }},
    {"exit elsewhere",
     [] {
       work();
       const scope s("main");
       elsewhere([] {
         const scope inner("leaver");
         std::exit(4);
       });
     }},
    {"only open",
     [] {
       const scope s("main");
       keep(70);
       std::exit(3);
     }},
    {"only open, throw",
     [] {
       const scope s("main");
       keep(70);
       die_of_nobody_catching();
     }},
    {"open after the last table",
     [] {
       work();
       tidemark::flush_sinks();
       const scope s("second part");
       keep(70);
       std::exit(3);
     }},
    {"throw",
     [] {
       work();
       stand_open();
       const scope s("main");
       keep(70);
       die_of_nobody_catching();
     }},
    {"throw elsewhere",
     [] {
       work();
       const scope s("main");
       elsewhere([] {
         const scope inner("thrower");
         keep(70);
         die_of_nobody_catching();
       });
     }},
    {"noexcept",
     [] {
       work();
       const auto never_throws = []() noexcept {
         const scope s("promise");
         die_of_nobody_catching();
       };
       never_throws();
     }},
    {"terminate",
     [] {
       work();
       const scope s("main");
       std::terminate();
     }},
    {"over budget",
     [] {
       work();
       const scope s("filling");
       small_domain().allocated(900);
       small_domain().allocated(101);
     }},
    {"one large block",
     [] {
       work();
       const scope s("greedy");
       limit_address_space();
       keep(std::size_t{64} << 20);
     }},
    {"no memory at all",
     [] {
       work();
       limit_address_space();
       take_all_memory();
     }},
    {"no memory for 600 paths",
     [] {
       work();
       make_paths(600);
       limit_address_space();
       take_all_memory();
     }},
    {"no memory elsewhere",
     [] {
       work();
       elsewhere([] {
         limit_address_space();
         take_all_memory();
       });
     }},
    {"handler before",
     [] {
       work();
       die_of_nobody_catching();
     }},
    {"handler after",
     [] {
       std::set_terminate(my_handler);
       work();
       die_of_nobody_catching();
     }},
    {"chaining handler after",
     [] {
       handler_before_mine = std::set_terminate(my_chaining_handler);
       work();
       die_of_nobody_catching();
     }},
    {"abort",
     [] {
       work();
       std::abort();
     }},
    {"quick_exit",
     [] {
       work();
       std::quick_exit(5);
     }},
    {"_Exit",
     [] {
       work();
       std::_Exit(6);
     }},
    {"fork, nothing in the child",
     [] {
       work();
       fork_and_wait([] {});
     }},
    {"fork, a scope in the child",
     [] {
       work();
       fork_and_wait([] { const scope s("child"); });
       const scope s("parent");
     }},
    {"fork in a scope",
     [] {
       work();
       stand_open();
       const scope s("main");
       fork_and_wait([] { const scope inner("child"); });
     }},
    {"fork after a table",
     [] {
       work();
       tidemark::flush_sinks();
       fork_and_wait([] { const scope s("child"); });
     }},
    {"flush twice",
     [] {
       work();
       tidemark::flush_sinks();
       tidemark::flush_sinks();
     }},
    {"flush, and more",
     [] {
       work();
       tidemark::flush_sinks();
       work();
     }},
    {"late",
     [] {
       static const dies_late d;  // after the attachment, so destroyed before it
       work();
     }},
    {"thread's end",
     [] {
       work();
       elsewhere([] {
         thread_local const allocates_at_a_thread_end a;
         tidemark::escape(&a);
       });
     }},
    // Descriptor 3 is a file that works; 2 is what the check gave.
    {"heal",
     [] {
       work();
       tidemark::flush_sinks();
       tidemark::flush_sinks();
       ::dup2(3, STDERR_FILENO);
     }},
};

}  // namespace

int main(int count, char** arguments) {
  if (count < 2) return 96;
  const std::string how = arguments[1];
  if (how == "handler before") std::set_terminate(my_handler);
  const std::string more = how != "names" && count > 2 ? arguments[2] : "";
  tidemark::attachment made = tidemark::attach(std::make_shared<tidemark::summary_sink>());
  if (more == "kept") {
    tidemark::escape(new tidemark::attachment(std::move(made)));  // which nothing ends
  } else {
    static tidemark::attachment attached = std::move(made);
  }
  if (more == "two") {  // a second one sets no second handler
    static tidemark::attachment again = tidemark::attach(std::make_shared<tidemark::summary_sink>(stdout));
  }
  if (how == "names") {
    for (int i = 2; i < count; ++i) const scope s(arguments[i]);
    return 7;
  }
  for (const ending& e : endings) {
    if (how != e.name) continue;
    e.run();
    return 7;
  }
  return 96;
}
