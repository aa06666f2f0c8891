// SPDX-License-Identifier: MIT
#include <tidemark/hook/global_new.hpp>
#include <tidemark/object/weak_view.hpp>

#include <atomic>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "standard_error.hpp"
#include "test.hpp"

#if TIDEMARK_HAS_POSIX()
  #include <sys/wait.h>
  #include <unistd.h>
#endif

using tidemark::weak_source;
using tidemark::weak_view;

namespace {

std::int64_t heap_bytes() { return tidemark::thread_usage().value().live_bytes; }

struct part {
  int p = 1;
};
struct connection : part {
  explicit connection(bool checks = true) : source(this, checks) {}
  std::string name = "a name that is too long for the short string optimisation";
  weak_source<connection> source;  // last
};

/// Looks at itself through a view while its members end.
struct looker {
  struct member {
    weak_view<looker> view;
    bool* has_seen;
    ~member() { *has_seen = view.get() != nullptr; }
  };
  member first;
  weak_source<looker> source{this};
};

#if TIDEMARK_HAS_POSIX()
/// The signal that ends a fork child which runs `f`, or 0; and what it says.
template <class F>
std::pair<int, std::string> end_of_child(F f) {
  standard_error error;
  const pid_t child = ::fork();
  if (child == 0) {
    std::signal(SIGABRT, SIG_DFL);  // not doctest's
    f();
    ::_exit(0);
  }
  int status = -1;
  ::waitpid(child, &status, 0);
  return {WIFSIGNALED(status) ? WTERMSIG(status) : 0, error.text()};
}
#endif

}  // namespace

static_assert(sizeof(weak_view<connection>) == 16);

TEST_CASE("a view sees its object until that ends") {
  auto s = std::make_unique<connection>();
  const weak_view<connection> v = s->source.view();
  const weak_view<connection> copy = v;
  CHECK((v.get() == s.get()));
  CHECK(v.maybe_valid());
  CHECK_FALSE(v.was_invalidated());
  s.reset();
  CHECK((v.get() == nullptr));
  CHECK((copy.get() == nullptr));
  CHECK_FALSE(v.maybe_valid());
  CHECK(v.was_invalidated());
  CHECK_FALSE(v.is_null());
}

TEST_CASE("a null view is not one that was invalidated") {
  weak_view<connection> v;
  CHECK(v.is_null());
  CHECK((v.get() == nullptr));
  CHECK_FALSE(v.maybe_valid());
  CHECK_FALSE(v.was_invalidated());
  connection s;
  v = s.source.view();
  CHECK_FALSE(v.is_null());
  weak_view<connection> moved = std::move(v);
  CHECK(v.is_null());  // NOLINT: what a move leaves is documented
  CHECK((moved.get() == &s));
  moved = {};
  CHECK(moved.is_null());
}

TEST_CASE("invalidate_all() ends the views made so far, not those made later") {
  connection s;
  const weak_view<connection> before = s.source.view();
  s.source.invalidate_all();
  const weak_view<connection> after = s.source.view();
  CHECK(before.was_invalidated());
  CHECK((after.get() == &s));
  s.source.invalidate_all();
  s.source.invalidate_all();
  CHECK(after.was_invalidated());
}

TEST_CASE("while the members of an object end, no view sees it") {
  bool has_seen = true;
  {
    looker l{{{}, &has_seen}};
    l.first.view = l.source.view();
    CHECK((l.first.view.get() == &l));
  }
  CHECK_FALSE(has_seen);
}

TEST_CASE("a view converts to a view of a base") {
  connection s;
  const weak_view<part> v = s.source.view();
  CHECK((v.get() == &s));
  s.source.invalidate_all();
  CHECK(v.was_invalidated());
}

TEST_CASE("the flag is the library's memory, made with the first view, and goes with the last of all") {
  const auto own = [] { return static_cast<std::int64_t>(tidemark::self().own_bytes); };
  auto s = std::make_unique<connection>();
  std::vector<weak_view<connection>> views(100);
  const std::int64_t bytes = heap_bytes();
  const std::int64_t before = own();
  views[0] = s->source.view();
  const std::int64_t of_one = own() - before;
  for (auto& v : views) v = s->source.view();
  const std::int64_t of_all = own() - before;
  s->source.invalidate_all();
  const std::int64_t of_dead = own() - before;
  views[0] = {};
  const std::int64_t of_most = own() - before;
  for (auto& v : views) v = {};
  const std::int64_t of_none = own() - before;
  CHECK(heap_bytes() == bytes);
#if !TIDEMARK_HAS_SANITIZER_ALLOCATOR()  // whose blocks are noted in a table that grows
  CHECK(of_one == 16);
#endif
  CHECK(of_all == of_one);
  CHECK(of_dead == of_one);
  CHECK(of_most == of_one);
  CHECK(of_none == of_one - 16);
}

TEST_CASE("views are copied and ended on other threads, which may ask whether they are valid") {
  auto s = std::make_unique<connection>();
  std::atomic<int> started{0};
  std::vector<std::thread> all;
  for (int t = 0; t < 4; ++t) {
    all.emplace_back([&started, v = s->source.view()] {
      ++started;
      while (v.maybe_valid()) {
        const weak_view<connection> copy = v;
        if (copy.is_null()) std::abort();
      }
      if (!v.was_invalidated()) std::abort();
    });
  }
  while (started < 4) std::this_thread::yield();
  s.reset();
  for (std::thread& t : all) t.join();
}

TEST_CASE("a source without the check leaves the thread to its users") {
  connection s(false);
  const weak_view<connection> v = s.source.view();
  std::thread other([&] { CHECK((v.get() == &s)); });
  other.join();
}

#if TIDEMARK_HAS_POSIX()
TEST_CASE("with the check, get() on another thread ends the program and says why") {
  connection s;
  const weak_view<connection> v = s.source.view();
  const auto [signal, text] = end_of_child([&v] { std::thread([&v] { static_cast<void>(v.get()); }).join(); });
  CHECK(signal == SIGABRT);
  CHECK(text.find("weak_view::get was called on another thread") != std::string::npos);
}

TEST_CASE("with the check, view() on another thread, and an end there while views are left, end the program") {
  connection s;
  CHECK(end_of_child([&s] { std::thread([&s] { static_cast<void>(s.source.view()); }).join(); }).first == SIGABRT);

  auto unseen = std::make_unique<connection>();
  CHECK(end_of_child([&unseen] { std::thread([&unseen] { unseen.reset(); }).join(); }).first == 0);
  static_cast<void>(unseen->source.view());  // ended at once
  CHECK(end_of_child([&unseen] { std::thread([&unseen] { unseen.reset(); }).join(); }).first == 0);
  const auto v = unseen->source.view();
  CHECK(end_of_child([&unseen] { std::thread([&unseen] { unseen.reset(); }).join(); }).first == SIGABRT);
}
#endif

TEST_CASE("whether threads are checked follows NDEBUG where the source is made") {
#if TIDEMARK_HAS_POSIX()
  struct plain {
    weak_source<plain> source{this};
  };
  plain p;
  const weak_view<plain> v = p.source.view();
  const int signal = end_of_child([&v] { std::thread([&v] { static_cast<void>(v.get()); }).join(); }).first;
  #if defined(NDEBUG)
  CHECK(signal == 0);
  #else
  CHECK(signal == SIGABRT);
  #endif
#endif
}
