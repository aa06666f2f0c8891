// SPDX-License-Identifier: MIT
#include <tidemark/core/sink.hpp>
#include <tidemark/scope/scope.hpp>

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdio>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "test.hpp"

#if TIDEMARK_HAS_POSIX()
  #include <sys/wait.h>
  #include <unistd.h>
#endif

using tidemark::attach;
using tidemark::attachment;
using tidemark::scope;
using tidemark::scope_record;
using tidemark::sink;
using tidemark::detail::attached_sink;

namespace {

/// A flag that threads wait for.
class event {
 public:
  void set() {
    const std::lock_guard<std::mutex> held(mutex_);
    is_set_ = true;
    changed_.notify_all();
  }
  void wait() {
    std::unique_lock<std::mutex> held(mutex_);
    changed_.wait(held, [&] { return is_set_; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool is_set_ = false;
};

/// Keeps what it is given, and does what a case wants done inside its calls.
class probe : public sink {
 public:
  void on_scope(const scope_record& r) override {
    {
      const std::lock_guard<std::mutex> held(mutex_);
      names_.push_back(r.name);
    }
    if (inside) inside(r);
  }
  void flush() override {
    ++flushes;
    if (in_flush) in_flush();
  }

  std::function<void(const scope_record&)> inside;
  std::function<void()> in_flush;
  std::atomic<int> flushes{0};

  [[nodiscard]] std::vector<std::string> names() const {
    const std::lock_guard<std::mutex> held(mutex_);
    return names_;
  }

 private:
  mutable std::mutex mutex_;
  std::vector<std::string> names_;
};

using names = std::vector<std::string>;

void deliver(const std::string& name) {
  scope_record r;
  r.name = name;
  tidemark::detail::deliver(&sink::on_scope, r);
}

/// The one attached sink.
std::shared_ptr<attached_sink> only_attached() {
  const auto list = tidemark::detail::registry<tidemark::detail::sink_registry>()->list();
  return list != nullptr && list->size() == 1 ? list->front() : nullptr;
}

/// Until `a` is being detached: the detaching thread is past all but its wait and the flush.
void wait_until_detaching(const attached_sink& a) {
  const auto is_listed = [&] {
    const auto list = tidemark::detail::registry<tidemark::detail::sink_registry>()->list();
    if (list == nullptr) return false;
    for (const auto& s : *list) {
      if (s.get() == &a) return true;
    }
    return false;
  };
  while (!a.detached || is_listed()) std::this_thread::yield();
}

}  // namespace

TEST_CASE("a sink gets the records between its attachment and its end, in order, and is flushed then") {
  const auto p = std::make_shared<probe>();
  deliver("before");
  CHECK(!tidemark::detail::has_sinks());
  {
    const attachment a = attach(p);
    CHECK(tidemark::detail::has_sinks());
    for (int i = 0; i < 100; ++i) deliver(std::to_string(i));
    CHECK(p->flushes == 0);
  }
  CHECK(!tidemark::detail::has_sinks());
  CHECK(p->flushes == 1);
  deliver("after");
  names want;
  for (int i = 0; i < 100; ++i) want.push_back(std::to_string(i));
  CHECK(p->names() == want);
  CHECK(p.use_count() == 1);
}

TEST_CASE("scopes arrive innermost first, each as it ends, without the hook too") {
  const auto p = std::make_shared<probe>();
  const attachment a = attach(p);
  std::vector<std::string> paths;
  p->inside = [&](const scope_record& r) {
    paths.push_back(r.path);
    const bool is_there = r.find("thread_heap") != nullptr;
    CHECK(is_there);
    CHECK(!r.find("thread_heap")->usage.has_value());
  };
  {
    const scope outer("outer");
    { const scope inner("inner"); }
    scope early("early");
    CHECK(early.close().name == "early");
  }
  CHECK(p->names() == names{"inner", "early", "outer"});
  CHECK(paths == names{"outer/inner", "outer/early", "outer"});
}

TEST_CASE("several sinks each get every record, in the order they were attached") {
  std::vector<std::string> calls;
  std::vector<std::shared_ptr<probe>> probes;
  std::vector<attachment> attachments;
  for (const char* name : {"a", "b", "c"}) {
    probes.push_back(std::make_shared<probe>());
    probes.back()->inside = [&calls, name](const scope_record& r) { calls.push_back(name + r.name); };
    attachments.push_back(attach(probes.back()));
  }
  deliver("1");
  deliver("2");
  attachments[1].detach();
  deliver("3");
  CHECK(calls == names{"a1", "b1", "c1", "a2", "b2", "c2", "a3", "c3"});
  CHECK(probes[0]->flushes == 0);
  CHECK(probes[1]->flushes == 1);
}

TEST_CASE("a sink attached twice gets each record twice, and once after one of the two ends") {
  const auto p = std::make_shared<probe>();
  attachment first = attach(p);
  const attachment second = attach(p);
  deliver("twice");
  first.detach();
  CHECK(p->flushes == 1);
  deliver("once");
  CHECK(p->names() == names{"twice", "twice", "once"});
}

TEST_CASE("an attachment moves: what it is moved onto ends, and what it is moved from holds nothing") {
  const auto p = std::make_shared<probe>();
  const auto q = std::make_shared<probe>();
  attachment a = attach(p);
  attachment b = std::move(a);
  deliver("1");
  a.detach();  // NOLINT: it holds nothing now
  deliver("2");
  CHECK(p->flushes == 0);
  attachment c = attach(q);
  b = std::move(c);
  CHECK(p->flushes == 1);
  CHECK(q->flushes == 0);
  deliver("3");
  attachment& same = b;
  b = std::move(same);
  deliver("4");
  b = attachment();
  CHECK(q->flushes == 1);
  b.detach();
  b.detach();
  deliver("5");
  CHECK(q->flushes == 1);
  CHECK(p->names() == names{"1", "2"});
  CHECK(q->names() == names{"3", "4"});
}

#if TIDEMARK_HAS_EXCEPTIONS()
TEST_CASE("attaching a null sink is wrong use, and attaches nothing") {
  CHECK_THROWS_AS(static_cast<void>(attach(nullptr)), std::invalid_argument);
  CHECK(!tidemark::detail::has_sinks());
}
#endif

TEST_CASE("an attachment keeps its sink alive, and no longer") {
  auto p = std::make_shared<probe>();
  const std::weak_ptr<probe> watch = p;
  attachment a = attach(std::move(p));
  deliver("x");
  CHECK(!watch.expired());
  a.detach();
  CHECK(watch.expired());
}

TEST_CASE("detaching waits for the call that runs in another thread, and no later one starts") {
  for (int round = 0; round < 5; ++round) {
    const auto p = std::make_shared<probe>();
    attachment a = attach(p);
    const std::shared_ptr<attached_sink> inner = only_attached();
    const bool is_attached = inner != nullptr;
    REQUIRE(is_attached);
    event is_inside;
    std::atomic<bool> has_returned{false};
    std::atomic<bool> has_finished{false};
    std::atomic<bool> returned_early{false};
    p->inside = [&](const scope_record&) {
      is_inside.set();
      wait_until_detaching(*inner);
      for (int i = 0; i < 20; ++i) std::this_thread::yield();  // chances to return too early
      returned_early = returned_early || has_returned;
      has_finished = true;
    };
    p->in_flush = [&] { returned_early = returned_early || !has_finished; };
    std::thread delivering([&] {
      deliver("caught");
      deliver("too late");
    });
    is_inside.wait();
    a.detach();
    has_returned = true;
    const bool finished_first = has_finished;
    delivering.join();
    CHECK(finished_first);
    CHECK(!returned_early);
    CHECK(p->names() == names{"caught"});
  }
}

#if TIDEMARK_HAS_POSIX() && !TIDEMARK_HAS_SANITIZER_ALLOCATOR()  // whose locks a fork may leave held
TEST_CASE("a child that is forked while another thread waits for a call to end does not wait for it") {
  const auto p = std::make_shared<probe>();
  auto* a = new attachment(attach(p));
  const std::shared_ptr<attached_sink> inner = only_attached();
  event is_inside;
  event may_end;
  p->inside = [&](const scope_record&) {
    is_inside.set();
    may_end.wait();
  };
  std::thread delivering([&] { deliver("caught"); });
  is_inside.wait();
  std::thread detaching([&] { a->detach(); });
  wait_until_detaching(*inner);
  for (int i = 0; i < 100; ++i) std::this_thread::yield();  // chances to take it off the list
  const pid_t child = fork();
  if (child == 0) {
    alarm(20);  // rather than wait for ever
    delete a;   // as the destruction of a static attachment would
    _exit(0);
  }
  int status = 1;
  waitpid(child, &status, 0);
  may_end.set();
  delivering.join();
  detaching.join();
  delete a;
  CHECK(status == 0);
}
#endif

TEST_CASE("a sink may detach itself inside its own call, and gets nothing more") {
  const auto p = std::make_shared<probe>();
  const auto later = std::make_shared<probe>();
  attachment a = attach(p);
  const attachment b = attach(later);
  p->inside = [&](const scope_record&) { a.detach(); };
  deliver("1");
  CHECK(p->flushes == 1);
  deliver("2");
  CHECK(p->names() == names{"1"});
  CHECK(later->names() == names{"1", "2"});
}

TEST_CASE("a sink that only its attachment holds may detach itself, and lives to the end of the call") {
  attachment a;
  bool is_alive = true;
  bool was_alive = false;
  auto token = std::shared_ptr<void>(&is_alive, [](void* p) { *static_cast<bool*>(p) = false; });
  auto p = std::make_shared<probe>();
  p->inside = [&a, &is_alive, &was_alive, kept = std::move(token)](const scope_record&) {
    a.detach();
    was_alive = is_alive;
  };
  a = attach(std::move(p));
  deliver("1");
  CHECK(was_alive);
  CHECK(!is_alive);
}

TEST_CASE("a sink that another one detaches in the same delivery is not called in it any more") {
  const auto first = std::make_shared<probe>();
  const auto second = std::make_shared<probe>();
  const attachment a = attach(first);
  attachment b = attach(second);
  first->inside = [&](const scope_record&) { b.detach(); };
  deliver("1");
  CHECK(second->names().empty());
  CHECK(second->flushes == 1);
}

TEST_CASE("a thread inside a sink call detaches another sink without waiting for the calls into it") {
  const auto busy = std::make_shared<probe>();
  attachment of_busy = attach(busy);
  const auto detaching = std::make_shared<probe>();
  event is_inside;
  event may_end;
  std::atomic<bool> has_ended{false};
  busy->inside = [&](const scope_record& r) {
    if (r.name != "long") return;
    is_inside.set();
    may_end.wait();
    has_ended = true;
  };
  std::thread delivering([] { deliver("long"); });
  is_inside.wait();
  bool ended_first = true;
  detaching->inside = [&](const scope_record&) {
    of_busy.detach();  // a wait here would never end
    ended_first = has_ended;
    may_end.set();
  };
  const attachment of_detaching = attach(detaching);
  deliver("short");
  delivering.join();
  CHECK(!ended_first);
  CHECK(busy->names() == names{"long", "short"});
}

TEST_CASE("a sink may attach another in its call, which gets the next record and not this one") {
  const auto p = std::make_shared<probe>();
  const auto added = std::make_shared<probe>();
  attachment of_added;
  p->inside = [&](const scope_record& r) {
    if (r.name == "1") of_added = attach(added);
  };
  const attachment a = attach(p);
  deliver("1");
  deliver("2");
  CHECK(p->names() == names{"1", "2"});
  CHECK(added->names() == names{"2"});
}

TEST_CASE("a scope inside a sink is measured but delivered to no sink, in its flush neither") {
  const auto p = std::make_shared<probe>();
  const auto q = std::make_shared<probe>();
  int depth = -1;
  int closed = 0;
  const auto nested = [&] {
    const scope dropped_unseen("in the sink");
    scope s("also in the sink");
    const scope_record r = s.close();
    depth = r.depth;
    closed += r.name == "also in the sink" ? 1 : 0;
  };
  p->inside = [&](const scope_record&) { nested(); };
  p->in_flush = nested;
  attachment a = attach(p);
  const attachment b = attach(q);
  { const scope s("outside"); }
  deliver("record");
  a.detach();
  CHECK(closed == 3);
  CHECK(depth == 1);
  CHECK(p->names() == names{"outside", "record"});
  CHECK(q->names() == names{"outside", "record"});
  // Another thread is inside no call while this one is.
  q->inside = [&](const scope_record& r) {
    if (r.name == "start") std::thread([] { deliver("elsewhere"); }).join();
  };
  deliver("start");
  CHECK(q->names() == names{"outside", "record", "start", "elsewhere"});
}

TEST_CASE("every call comes inside quiet") {
  const auto p = std::make_shared<probe>();
  int loud = 0;
  const auto look = [&] { loud += tidemark::detail::this_thread().quiet_depth > 0 ? 0 : 1; };
  p->inside = [&](const scope_record&) { look(); };
  p->in_flush = look;
  attachment a = attach(p);
  { const scope s("x"); }
  deliver("y");
  a.detach();
  CHECK(p->names().size() == 2);
  CHECK(loud == 0);
  CHECK(tidemark::detail::this_thread().quiet_depth == 0);
}

#if TIDEMARK_HAS_EXCEPTIONS() && TIDEMARK_HAS_POSIX()

namespace {

/// What is written to the standard error while it lives.
class captured_stderr {
 public:
  captured_stderr() : file_(std::tmpfile()), saved_(dup(STDERR_FILENO)) {
    std::fflush(stderr);
    dup2(fileno(file_), STDERR_FILENO);
  }
  ~captured_stderr() {
    restore();
    std::fclose(file_);
  }
  captured_stderr(const captured_stderr&) = delete;
  captured_stderr& operator=(const captured_stderr&) = delete;

  std::string text() {
    restore();
    std::string all;
    std::rewind(file_);
    for (int c = std::fgetc(file_); c != EOF; c = std::fgetc(file_)) all += static_cast<char>(c);
    return all;
  }

 private:
  void restore() {
    if (saved_ < 0) return;
    dup2(saved_, STDERR_FILENO);
    close(saved_);
    saved_ = -1;
  }
  std::FILE* file_;
  int saved_;
};

std::uint64_t dropped() { return tidemark::self().dropped_records; }

std::size_t lines_in(const std::string& text) {
  std::size_t lines = 0;
  for (const char c : text) lines += c == '\n' ? 1U : 0U;
  return lines;
}

}  // namespace

TEST_CASE("a sink that throws disturbs no other; each lost record is counted, and the first is said on one line") {
  const auto before = std::make_shared<probe>();
  const auto failing = std::make_shared<probe>();
  const auto after = std::make_shared<probe>();
  failing->inside = [](const scope_record& r) { throw std::runtime_error("disk full at " + r.name); };
  const attachment a = attach(before);
  attachment b = attach(failing);
  const attachment c = attach(after);
  const std::uint64_t start = dropped();
  captured_stderr captured;
  {
    const scope s("scope");  // its destructor delivers
  }
  deliver("2");
  deliver("3");
  scope closed("4");
  const scope_record r = closed.close();
  const std::string said = captured.text();
  CHECK(r.name == "4");
  CHECK(dropped() - start == 4);
  CHECK(before->names() == names{"scope", "2", "3", "4"});
  CHECK(failing->names() == names{"scope", "2", "3", "4"});
  CHECK(after->names() == names{"scope", "2", "3", "4"});
  CHECK(lines_in(said) == 1);
  CHECK(said.back() == '\n');
  CHECK(said.substr(0, 10) == "tidemark: ");
  CHECK(said.find("disk full at scope") != std::string::npos);
  b.detach();
  CHECK(failing->flushes == 1);
}

TEST_CASE("an exception that is no std::exception is contained as well, whatever its sink is doing") {
  const auto failing = std::make_shared<probe>();
  const auto after = std::make_shared<probe>();
  failing->inside = [](const scope_record&) { throw 42; };
  failing->in_flush = [] { throw "flush"; };
  const std::uint64_t start = dropped();
  captured_stderr captured;
  {
    const attachment a = attach(failing);
    const attachment b = attach(after);
    deliver("1");
    deliver("2");
  }
  const std::string said = captured.text();
  CHECK(dropped() - start == 3);
  CHECK(lines_in(said) == 1);
  CHECK(after->names() == names{"1", "2"});
  CHECK(after->flushes == 1);
}

TEST_CASE("a sink that failed in a call may still be detached in it, and works again when it is attached again") {
  const auto p = std::make_shared<probe>();
  attachment a = attach(p);
  bool fails = true;
  p->inside = [&](const scope_record&) {
    if (!fails) return;
    a.detach();
    throw std::runtime_error("after the detach");
  };
  const std::uint64_t start = dropped();
  captured_stderr captured;
  deliver("1");
  deliver("2");
  fails = false;
  a = attach(p);
  deliver("3");
  const std::string said = captured.text();
  CHECK(lines_in(said) == 1);
  CHECK(dropped() - start == 1);
  CHECK(p->names() == names{"1", "3"});
}

TEST_CASE("a long reason is cut, and is one line still") {
  const auto p = std::make_shared<probe>();
  p->inside = [](const scope_record&) { throw std::runtime_error(std::string(5'000, 'x')); };
  const attachment a = attach(p);
  captured_stderr captured;
  deliver("1");
  const std::string said = captured.text();
  CHECK(lines_in(said) == 1);
  CHECK(said.back() == '\n');
  CHECK(said.size() <= 1'024);
  p->inside = nullptr;
}

TEST_CASE("threads that fail at once are all counted, and one line is said") {
  const auto p = std::make_shared<probe>();
  p->inside = [](const scope_record&) { throw std::runtime_error("no"); };
  attachment a = attach(p);
  const std::uint64_t start = dropped();
  captured_stderr captured;
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([] {
      for (int i = 0; i < 50; ++i) deliver("x");
    });
  }
  for (std::thread& t : threads) t.join();
  a.detach();
  const std::string said = captured.text();
  CHECK(lines_in(said) == 1);
  CHECK(dropped() - start == 400);
}

#endif

namespace {

/// Knows the order of each thread's records, and whether it may be called.
class ordered : public sink {
 public:
  static constexpr std::size_t threads = 8;

  void on_scope(const scope_record& r) override {
    if (is_over) ++late;
    const auto thread = static_cast<std::size_t>(r.depth);
    // One thread's calls never overlap: a plain number would do, but for the reading afterwards.
    if (r.start_ns <= last_[thread].load()) ++out_of_order;
    last_[thread] = r.start_ns;
    ++calls;
  }
  void flush() override {
    if (is_over) ++late;
  }

  std::atomic<bool> is_over{false};
  std::atomic<std::uint64_t> late{0};
  std::atomic<std::uint64_t> out_of_order{0};
  std::atomic<std::uint64_t> calls{0};

 private:
  std::atomic<std::int64_t> last_[threads] = {};
};

}  // namespace

TEST_CASE("eight threads deliver in order while another attaches and detaches 1,000 times") {
  const auto lasting = std::make_shared<ordered>();
  attachment of_lasting = attach(lasting);
  std::atomic<bool> is_done{false};
  std::vector<std::thread> threads;
  std::vector<std::uint64_t> sent(ordered::threads, 0);
  for (std::size_t t = 0; t < ordered::threads; ++t) {
    threads.emplace_back([&, t] {
      scope_record r;
      r.depth = static_cast<int>(t);
      while (!is_done || sent[t] < 1'000) {
        r.start_ns = static_cast<std::int64_t>(++sent[t]);
        tidemark::detail::deliver(&sink::on_scope, r);
        std::this_thread::yield();  // or a detach waits for whole turns of the processor
      }
    });
  }
  std::uint64_t late = 0;
  std::uint64_t out_of_order = 0;
  std::uint64_t passing_calls = 0;
  std::vector<std::shared_ptr<ordered>> passing;
  for (int i = 0; i < 1'000; ++i) {
    passing.push_back(std::make_shared<ordered>());
    attachment a = attach(passing.back());
    if (i % 10 == 0) {
      while (passing.back()->calls == 0) std::this_thread::yield();  // one that surely was in use
    }
    a.detach();
    passing.back()->is_over = true;
  }
  is_done = true;
  for (std::thread& t : threads) t.join();
  std::uint64_t all_sent = 0;
  for (const std::uint64_t n : sent) all_sent += n;
  for (const auto& p : passing) {
    late += p->late;
    out_of_order += p->out_of_order;
    passing_calls += p->calls;
  }
  of_lasting.detach();
  CHECK(late == 0);
  CHECK(out_of_order == 0);
  CHECK(passing_calls >= 100);
  CHECK(lasting->calls == all_sent);
  CHECK(lasting->out_of_order == 0);
  CHECK(!tidemark::detail::has_sinks());
}

TEST_CASE("threads that attach and detach at once lose none of each other's") {
  constexpr int threads = 8;
  std::atomic<int> ready{0};
  std::atomic<int> missed{0};
  std::vector<std::thread> workers;
  for (int t = 0; t < threads; ++t) {
    workers.emplace_back([&] {
      ++ready;
      while (ready != threads) std::this_thread::yield();
      for (int i = 0; i < 400; ++i) {
        std::vector<std::shared_ptr<ordered>> mine;
        std::vector<attachment> attachments;
        for (int k = 0; k < 8; ++k) {
          mine.push_back(std::make_shared<ordered>());
          attachments.push_back(attach(mine.back()));
          std::this_thread::yield();  // what another thread publishes now must have these in it
        }
        deliver("for all");
        for (const auto& m : mine) missed += m->calls == 0 ? 1 : 0;
      }
    });
  }
  for (std::thread& w : workers) w.join();
  CHECK(missed == 0);
  CHECK(!tidemark::detail::has_sinks());
}

// ---- flushing ----

TEST_CASE("flush_sinks() flushes each attached sink once, in the order they were attached, and no other") {
  tidemark::flush_sinks();  // nobody is there
  names calls;
  std::vector<std::shared_ptr<probe>> probes;
  std::vector<attachment> attachments;
  for (const char* name : {"a", "b", "c"}) {
    probes.push_back(std::make_shared<probe>());
    probes.back()->in_flush = [&calls, name] { calls.emplace_back(name); };
    attachments.push_back(attach(probes.back()));
  }
  tidemark::flush_sinks();
  CHECK(calls == names{"a", "b", "c"});
  attachments[1].detach();
  CHECK(calls == names{"a", "b", "c", "b"});
  tidemark::flush_sinks();
  CHECK(calls == names{"a", "b", "c", "b", "a", "c"});
  for (const auto& p : probes) CHECK(p->names().empty());
}

TEST_CASE("flush_sinks() inside a sink's call does nothing, also for the other sinks") {
  const auto p = std::make_shared<probe>();
  const auto q = std::make_shared<probe>();
  p->inside = [](const scope_record&) { tidemark::flush_sinks(); };
  p->in_flush = [] { tidemark::flush_sinks(); };
  const attachment a = attach(p);
  const attachment b = attach(q);
  deliver("1");
  CHECK(p->flushes == 0);
  CHECK(q->flushes == 0);
  tidemark::flush_sinks();
  CHECK(p->flushes == 1);
  CHECK(q->flushes == 1);
}

TEST_CASE("a flush comes inside quiet") {
  const auto p = std::make_shared<probe>();
  const attachment a = attach(p);
  int loud = 0;
  p->in_flush = [&] { loud += tidemark::detail::this_thread().quiet_depth > 0 ? 0 : 1; };
  tidemark::flush_sinks();
  CHECK(p->flushes == 1);
  CHECK(loud == 0);
}

TEST_CASE("a sink may detach itself when it is flushed, which flushes it once more") {
  const auto p = std::make_shared<probe>();
  attachment a = attach(p);
  p->in_flush = [&] {
    if (p->flushes < 10) a.detach();  // rather than for ever
  };
  tidemark::flush_sinks();
  tidemark::flush_sinks();
  CHECK(p->flushes == 2);
  CHECK(!tidemark::detail::has_sinks());
}

#if TIDEMARK_HAS_EXCEPTIONS() && TIDEMARK_HAS_POSIX()
TEST_CASE("a sink that throws when it is flushed leaves the others flushed, and the caller alone") {
  const auto failing = std::make_shared<probe>();
  const auto after = std::make_shared<probe>();
  failing->in_flush = [] { throw std::runtime_error("cannot flush"); };
  attachment a = attach(failing);
  const attachment b = attach(after);
  const std::uint64_t start = dropped();
  captured_stderr captured;
  tidemark::flush_sinks();
  tidemark::flush_sinks();
  failing->in_flush = nullptr;
  a.detach();
  const std::string said = captured.text();
  CHECK(after->flushes == 2);
  CHECK(dropped() - start == 2);
  CHECK(lines_in(said) == 1);
  CHECK(said.find("cannot flush") != std::string::npos);
}
#endif

TEST_CASE("threads flush while others deliver and attachments end; no flush comes after the detaching one") {
  constexpr int rounds = 200;
  const auto lasting = std::make_shared<ordered>();
  const attachment of_lasting = attach(lasting);
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([t] {
      scope_record r;
      r.depth = t;
      for (int i = 1; i <= rounds; ++i) {
        tidemark::flush_sinks();
        r.start_ns = i;
        tidemark::detail::deliver(&sink::on_scope, r);
      }
    });
  }
  std::vector<std::shared_ptr<ordered>> passing;
  for (int i = 0; i < rounds; ++i) {
    passing.push_back(std::make_shared<ordered>());
    attachment a = attach(passing.back());
    a.detach();
    passing.back()->is_over = true;
  }
  for (std::thread& t : threads) t.join();
  std::uint64_t late = 0;
  for (const auto& p : passing) late += p->late;
  CHECK(late == 0);
  CHECK(lasting->calls == 3 * rounds);
  CHECK(lasting->out_of_order == 0);
}

TEST_CASE("asking for the flush at the end sets one terminate handler, in front of the one that was there") {
  const std::terminate_handler before = std::get_terminate();
  tidemark::detail::flush_sinks_at_the_end();
  const std::terminate_handler chained = std::get_terminate();
  tidemark::detail::flush_sinks_at_the_end();
  const bool is_set = chained != before;
  const bool is_set_once = std::get_terminate() == chained;
  const bool leads_on = tidemark::detail::registry<tidemark::detail::sink_registry>()->next_terminate_handler == before;
  CHECK(is_set);
  CHECK(is_set_once);
  CHECK(leads_on);
}
