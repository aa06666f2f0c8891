// SPDX-License-Identifier: MIT
#include <tidemark/hook/global_new.hpp>
#include <tidemark/scope/scope.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <list>
#include <memory>
#include <new>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#if defined(__GLIBC__)
  #include <malloc.h>
#endif
#include <sys/syscall.h>
#include <unistd.h>

#include <tidemark/core/gate.hpp>
#include <tidemark/core/sink.hpp>
#include <tidemark/scope/meter.hpp>
#include <tidemark/sink/callback.hpp>
#include <tidemark/sink/ring.hpp>

#include "heap_block.hpp"
#include "test.hpp"

namespace meter = tidemark::meter;
using tidemark::basic_scope;
using tidemark::reading;
using tidemark::scope;
using tidemark::scope_record;
using tidemark::window_usage;

namespace {

std::uint64_t system_thread_id() { return static_cast<std::uint64_t>(syscall(SYS_gettid)); }

/// What the outermost scope of that name, and all below it, still own.
std::int64_t owned_by(std::string_view name) { return scope(name).close().owned_bytes.value_or(-1); }

/// Everything a test attaches, to look at the records of scopes that end by their destructor.
struct recorder {
  std::shared_ptr<tidemark::ring_sink> ring = std::make_shared<tidemark::ring_sink>(64);
  tidemark::attachment attached = tidemark::attach(ring);

  [[nodiscard]] scope_record last() const {
    const auto all = ring->scopes();
    return all.empty() ? scope_record{} : all.back();
  }
};

}  // namespace

// ---- hand-written sequences ----

TEST_CASE("a scope knows its entry, peak, exit, counts and largest block") {
  heap_block held(1'000);
  const tidemark::usage before = this_threads_usage();
  scope s("sequence");
  {
    heap_block a(100);
    heap_block b(50);
  }
  heap_block c(30);
  held.free();
  heap_block d(7);
  const scope_record r = s.close();
  const window_usage u = usage_in(r);
  CHECK(u.entry_bytes == before.live_bytes);
  CHECK(u.peak_bytes == before.live_bytes + 150);
  CHECK(u.exit_bytes == before.live_bytes + 30 - 1'000 + 7);
  CHECK(u.net_bytes() == -963);
  CHECK(u.peak_growth() == 150);
  CHECK(u.allocations == 4);
  CHECK(u.allocated_bytes == 187);
  CHECK(u.deallocations == 3);
  CHECK(u.freed_bytes == 1'150);
  CHECK(u.largest_bytes == 100);
  CHECK(u.counts_events);
  CHECK(u.error_bound_bytes == 0);
}

TEST_CASE("an empty scope reads zeros around its entry") {
  const heap_block held(500);
  const std::int64_t live = this_threads_usage().live_bytes;
  const window_usage u = usage_in(scope("empty").close());
  CHECK(u.entry_bytes == live);
  CHECK(u.peak_bytes == live);
  CHECK(u.exit_bytes == live);
  CHECK(u.allocations + u.deallocations + u.allocated_bytes + u.freed_bytes + u.largest_bytes == 0);
}

TEST_CASE("a scope that only frees has a negative net and no growth") {
  heap_block a(4'000);
  heap_block b(70'000);
  scope s("frees");
  a.free();
  b.free();
  const window_usage u = usage_in(s.close());
  CHECK(u.net_bytes() == -74'000);
  CHECK(u.peak_growth() == 0);
  CHECK(u.peak_bytes == u.entry_bytes);
  CHECK(u.largest_bytes == 0);
  CHECK(u.deallocations == 2);
}

TEST_CASE("an allocation of no bytes is an allocation") {
  scope s("nothing");
  { heap_block none(0); }
  const window_usage u = usage_in(s.close());
  CHECK(u.allocations == 1);
  CHECK(u.deallocations == 1);
  CHECK(u.allocated_bytes == 0);
  CHECK(u.peak_growth() == 0);
}

TEST_CASE("a single block far beyond what a thread holds back is counted whole") {
  scope s("large");
  { heap_block large(std::size_t{300} << 20); }
  const window_usage u = usage_in(s.close());
  CHECK(u.peak_growth() == std::int64_t{300} << 20);
  CHECK(u.largest_bytes == std::uint64_t{300} << 20);
  CHECK(u.net_bytes() == 0);
}

TEST_CASE("a parent's peak includes its child's") {
  scope parent("parent");
  window_usage inner;
  {
    scope child("child");
    { heap_block b(9'000); }
    inner = usage_in(child.close());
  }
  { heap_block b(10); }
  const window_usage outer = usage_in(parent.close());
  CHECK(inner.peak_growth() == 9'000);
  CHECK(outer.peak_growth() == 9'000);
  CHECK(outer.largest_bytes == 9'000);
  CHECK(outer.allocations == 2);
}

TEST_CASE("a peak before a scope opens and one after it closes are not its own") {
  { heap_block b(5'000); }
  scope s("between");
  { heap_block b(40); }
  const window_usage u = usage_in(s.close());
  { heap_block b(6'000); }
  CHECK(u.peak_growth() == 40);
  CHECK(u.largest_bytes == 40);
}

TEST_CASE("a child that outlives its parent keeps its own peak and the parent has what came before its end") {
  std::optional<scope> parent(std::in_place, "first");
  std::optional<scope> child(std::in_place, "second");
  { heap_block b(300); }
  const window_usage outer = usage_in(parent->close());
  { heap_block b(800); }
  const window_usage inner = usage_in(child->close());
  CHECK(outer.peak_growth() == 300);
  CHECK(outer.allocations == 1);
  CHECK(inner.peak_growth() == 800);
  CHECK(inner.allocations == 2);
}

TEST_CASE("a grandparent knows the peak of scopes that were closed out of order") {
  scope top("top");
  std::optional<scope> a(std::in_place, "a");
  std::optional<scope> b(std::in_place, "b");
  { heap_block x(2'000); }
  a.reset();  // no sink is attached: dropped unread
  { heap_block x(3'000); }
  b.reset();
  CHECK(usage_in(top.close()).peak_growth() == 3'000);
}

// ---- random traces against brute force ----

namespace {

/// A scope path in a fixed place, so that the model allocates nothing.
struct short_path {
  char text[64] = {};
  std::size_t size = 0;

  [[nodiscard]] std::string_view view() const { return {text, size}; }
  [[nodiscard]] short_path child(char name) const {
    short_path p = *this;
    if (p.size > 0) p.text[p.size++] = '/';
    p.text[p.size++] = name;
    return p;
  }
  /// Whether this path is `top` or below it.
  [[nodiscard]] bool is_within(const short_path& top) const {
    return size >= top.size && std::memcmp(text, top.text, top.size) == 0 && (size == top.size || text[top.size] == '/');
  }
};

struct model_block {
  std::int64_t bytes = 0;
  short_path owner;
  bool is_live = false;
};

struct model_window {
  short_path path;
  int depth = 0;
  std::int64_t entry = 0, peak = 0;
  std::uint64_t allocations = 0, deallocations = 0, allocated_bytes = 0, freed_bytes = 0, largest = 0;
  int opened_as = -1;  // -1: not open
};

/// What a person would do with paper: every event is entered into every open window.
class brute_force {
 public:
  static constexpr std::size_t window_count = 10;
  static constexpr std::size_t holder = 200;  // blocks from here on hold a scope
  static constexpr std::size_t block_count = holder + window_count;

  void allocated(std::size_t block, std::size_t bytes) {
    blocks_[block] = {static_cast<std::int64_t>(bytes), innermost() == nullptr ? short_path{} : innermost()->path, true};
    live_ += static_cast<std::int64_t>(bytes);
    for (model_window& w : windows_) {
      ++w.allocations;
      w.allocated_bytes += bytes;
      if (bytes > w.largest) w.largest = bytes;
      if (live_ > w.peak) w.peak = live_;
    }
  }
  void freed(std::size_t block) {
    blocks_[block].is_live = false;
    live_ -= blocks_[block].bytes;
    for (model_window& w : windows_) {
      ++w.deallocations;
      w.freed_bytes += static_cast<std::uint64_t>(blocks_[block].bytes);
    }
  }
  void opened(std::size_t window, char name) {
    const model_window* outer = innermost();
    model_window w;
    w.path = (outer == nullptr ? short_path{} : outer->path).child(name);
    w.depth = outer == nullptr ? 0 : outer->depth + 1;
    w.entry = w.peak = live_;
    w.opened_as = next_++;
    windows_[window] = w;
  }
  void closed(std::size_t window) { windows_[window].opened_as = -1; }

  [[nodiscard]] std::int64_t owned(const short_path& top) const {
    std::int64_t sum = 0;
    for (const model_block& b : blocks_) sum += b.is_live && b.owner.is_within(top) ? b.bytes : 0;
    return sum;
  }
  [[nodiscard]] bool is_live(std::size_t block) const { return blocks_[block].is_live; }
  [[nodiscard]] bool is_open(std::size_t window) const { return windows_[window].opened_as >= 0; }

  /// Whether a record says what this says, `offset` being what lived before this began.
  [[nodiscard]] bool agrees(std::size_t window, const scope_record& r, std::int64_t offset) const {
    const model_window& w = windows_[window];
    const window_usage u = usage_in(r);
    return u.error_bound_bytes == 0 && u.entry_bytes == w.entry + offset && u.exit_bytes == live_ + offset &&
           u.peak_bytes == w.peak + offset && u.allocations == w.allocations && u.deallocations == w.deallocations &&
           u.allocated_bytes == w.allocated_bytes && u.freed_bytes == w.freed_bytes && u.largest_bytes == w.largest &&
           r.path == w.path.view() && r.name == w.path.view().substr(w.path.size - 1) && r.depth == w.depth &&
           r.owned_bytes.value_or(-1) == owned(w.path);
  }
  [[nodiscard]] std::int64_t live() const { return live_; }

 private:
  [[nodiscard]] const model_window* innermost() const {
    const model_window* newest = nullptr;
    for (const model_window& w : windows_) {
      if (w.opened_as >= 0 && (newest == nullptr || w.opened_as > newest->opened_as)) newest = &w;
    }
    return newest;
  }

  model_window windows_[window_count];
  model_block blocks_[block_count];
  std::int64_t live_ = 0;
  int next_ = 0;
};

/// The trace that runs, for the list's nodes to be entered into its model.
brute_force* current_model = nullptr;
std::size_t current_holder = 0;

template <class T>
struct entering_allocator {
  using value_type = T;
  entering_allocator() = default;
  template <class U>
  explicit entering_allocator(const entering_allocator<U>&) noexcept {}
  T* allocate(std::size_t n) {
    current_model->allocated(current_holder, n * sizeof(T));
    return static_cast<T*>(::operator new(n * sizeof(T)));
  }
  void deallocate(T* p, std::size_t) noexcept {
    current_model->freed(current_holder);
    ::operator delete(p);
  }
  friend bool operator==(const entering_allocator&, const entering_allocator&) { return true; }
  friend bool operator!=(const entering_allocator&, const entering_allocator&) { return false; }
};

/// A scope in one of the three things that hold scopes.
class held_scope {
 public:
  void open(std::size_t kind, std::string_view name) {
    kind_ = kind;
    if (kind == 0) {
      in_optional_.emplace(name);
    } else if (kind == 1) {
      in_list_.emplace_back(name);
    } else {
      current_model->allocated(current_holder, sizeof(scope));
      in_pointer_ = std::make_unique<scope>(name);
      tidemark::escape(in_pointer_.get());
    }
  }
  [[nodiscard]] scope& get() {
    return kind_ == 0 ? *in_optional_ : kind_ == 1 ? in_list_.front() : *in_pointer_;
  }
  void destroy() {
    in_optional_.reset();
    in_list_.clear();
    if (in_pointer_ != nullptr) {
      current_model->freed(current_holder);
      in_pointer_.reset();
    }
  }

 private:
  std::size_t kind_ = 0;
  std::optional<scope> in_optional_;
  std::list<scope, entering_allocator<scope>> in_list_;
  std::unique_ptr<scope> in_pointer_;
};

std::size_t random_size(random_numbers& random) {
  switch (random.below(8)) {
    case 0: return random.below(3);
    case 1: return 60'000 + random.below(12'000);   // around what a thread holds back
    case 2: return 130'000 + random.below(70'000);  // a mapping of its own
    default: return 1 + random.below(3'000);
  }
}

}  // namespace

TEST_CASE("1,000 random traces of nested, overlapping and out-of-order scopes agree with brute force") {
  constexpr std::size_t plain_blocks = 40;
  static_assert(plain_blocks <= brute_force::holder);
  heap_block blocks[plain_blocks];
  held_scope scopes[brute_force::window_count];
  const auto last = std::make_shared<scope_record>();
  const auto on_end = std::make_shared<tidemark::callback_sink>([last](const scope_record& r) { *last = r; });
  brute_force model;  // blocks outlive the trace that made them
  current_model = &model;
  std::uint64_t closed_by_call = 0;
  std::uint64_t closed_by_end = 0;

  for (std::uint64_t trace = 0; trace < 1'000; ++trace) {
    random_numbers random(trace);
    const auto attached = tidemark::attach(on_end);
    const std::int64_t offset = this_threads_usage().live_bytes - model.live();
    int wrong = 0;
    const auto end_scope = [&](std::size_t i) {
      current_holder = brute_force::holder + i;
      if (random.below(2) == 0) {
        const scope_record r = scopes[i].get().close();
        wrong += model.agrees(i, r, offset) ? 0 : 1;
        model.closed(i);
        scopes[i].destroy();
        ++closed_by_call;
        return;
      }
      // The destructor ends it before the memory that holds it is freed, so the answer is taken before.
      const brute_force at_end = model;
      model.closed(i);
      scopes[i].destroy();
      wrong += at_end.agrees(i, *last, offset) ? 0 : 1;
      ++closed_by_end;
    };
    for (int step = 0; step < 60; ++step) {
      const std::size_t what = random.below(10);
      const std::size_t i = random.below(brute_force::window_count);
      const std::size_t b = random.below(plain_blocks);
      if (what < 2 && !model.is_open(i)) {
        const char name = static_cast<char>('a' + random.below(3));
        current_holder = brute_force::holder + i;
        scopes[i].open(random.below(3), std::string_view(&name, 1));
        model.opened(i, name);
      } else if (what < 4 && model.is_open(i)) {
        end_scope(i);
      } else if (model.is_live(b)) {
        model.freed(b);
        blocks[b].free();
      } else {
        const std::size_t bytes = random_size(random);
        model.allocated(b, bytes);
        blocks[b] = heap_block(bytes);
      }
    }
    const std::size_t first = random.below(brute_force::window_count);
    for (std::size_t k = 0; k < brute_force::window_count; ++k) {
      const std::size_t i = (first + k * 3) % brute_force::window_count;  // 3 and the count have no common factor
      if (model.is_open(i)) end_scope(i);
    }
    CAPTURE(trace);
    CHECK(wrong == 0);
  }
  CHECK(closed_by_call > 2'000);
  CHECK(closed_by_end > 2'000);
  current_model = nullptr;
}

// ---- ownership ----

TEST_CASE("what an ended scope left behind is freed in another scope and every balance stays right") {
  heap_block left;
  heap_block kept;
  const std::int64_t live = this_threads_usage().live_bytes;
  scope maker("maker");
  left = heap_block(1'200);
  kept = heap_block(34);
  const scope_record made = maker.close();
  CHECK(usage_in(made).net_bytes() == 1'234);
  CHECK(made.owned_bytes.value_or(-1) == 1'234);

  scope freer("freer");
  left.free();
  const heap_block own(5);
  const scope_record freed = freer.close();
  CHECK(usage_in(freed).net_bytes() == -1'195);
  CHECK(usage_in(freed).peak_growth() == 0);
  CHECK(freed.owned_bytes.value_or(-1) == 5);
  CHECK(owned_by("maker") == 34);
  CHECK(this_threads_usage().live_bytes == live + 34 + 5);
  kept.free();
  CHECK(owned_by("maker") == 0);
}

TEST_CASE("owned_bytes sums the path, what is below it, and all calls so far") {
  heap_block blocks[6];
  for (std::size_t call = 0; call < 2; ++call) {
    scope outer("family");
    blocks[3 * call] = heap_block(100);
    {
      scope inner("child");
      blocks[3 * call + 1] = heap_block(20);
      {
        scope innermost("grandchild");
        blocks[3 * call + 2] = heap_block(3);
      }
      const auto calls = static_cast<std::int64_t>(call + 1);
      CHECK(inner.close().owned_bytes.value_or(-1) == calls * 23);
    }
    CHECK(outer.close().owned_bytes.value_or(-1) == static_cast<std::int64_t>(call + 1) * 123);
  }
  {
    scope other("not the family");
    scope same_name("child");
    CHECK(same_name.close().owned_bytes.value_or(-1) == 0);
    CHECK(other.close().owned_bytes.value_or(-1) == 0);
  }
  blocks[0].free();
  blocks[5].free();
  CHECK(owned_by("family") == 143);
  for (heap_block& b : blocks) b.free();
  CHECK(owned_by("family") == 0);
}

TEST_CASE("owned_bytes falls whoever frees, and rises whichever thread allocates in the path") {
  heap_block mine;
  {
    scope s("shared path");
    mine = heap_block(70'000);
  }
  heap_block theirs;
  std::thread([&mine, &theirs] {
    mine.free();
    scope s("shared path");
    theirs = heap_block(11);
  }).join();
  CHECK(owned_by("shared path") == 11);
  theirs.free();
  CHECK(owned_by("shared path") == 0);
}

TEST_CASE("a block belongs to the innermost scope that is open, also after scopes ended out of order") {
  std::optional<scope> a(std::in_place, "owner a");
  std::optional<scope> b(std::in_place, "owner b");
  std::optional<scope> c(std::in_place, "owner c");
  b.reset();
  heap_block in_c(1);
  c.reset();
  heap_block in_a(20);
  a.reset();
  heap_block in_none(300);
  scope top("owner a");
  scope below("owner b");
  scope bottom("owner c");
  CHECK(bottom.close().owned_bytes.value_or(-1) == 1);
  CHECK(below.close().owned_bytes.value_or(-1) == 1);
  CHECK(top.close().owned_bytes.value_or(-1) == 21);
}

// ---- records ----

TEST_CASE("a record says what, where, when and on which thread") {
  using std::chrono::duration_cast;
  using std::chrono::nanoseconds;
  const auto now = [] {
    return std::int64_t{duration_cast<nanoseconds>(std::chrono::steady_clock::now().time_since_epoch()).count()};
  };
  const std::int64_t before = now();
  scope outer("train step");
  const std::uint32_t line = __LINE__ + 1;
  scope inner("forward");
  const scope_record r = inner.close();
  const std::int64_t after = now();
  CHECK(r.name == "forward");
  CHECK(r.path == "train step/forward");
  CHECK(std::string_view(r.where.file_name()) == __FILE__);
  CHECK(r.where.line() == line);
  CHECK(r.thread == system_thread_id());
  CHECK(r.depth == 1);
  CHECK(before <= r.start_ns);
  CHECK(r.duration_ns >= 0);
  CHECK(r.start_ns + r.duration_ns <= after);
  CHECK(!r.left_by_exception);
  CHECK(r.meters.size() == 1);
  CHECK(r.find("thread_heap") == &r.meters[0]);
  CHECK(r.find("process_heap") == nullptr);
  CHECK(r.find("") == nullptr);
  CHECK(r.find("thread_hea") == nullptr);
  CHECK(r.meters[0].unit == "bytes");
  CHECK(outer.close().depth == 0);
}

TEST_CASE("a location given by hand is the record's") {
  constexpr tidemark::location here = tidemark::location::current("elsewhere.cpp", 42, "f");
  const scope_record r = scope("located", here).close();
  CHECK(std::string_view(r.where.file_name()) == "elsewhere.cpp");
  CHECK(std::string_view(r.where.function_name()) == "f");
  CHECK(r.where.line() == 42);
}

TEST_CASE("names keep their bytes and paths their separators") {
  scope outer("50%/half");
  const std::string with_nul("a\0b", 3);
  const scope_record r = scope(with_nul).close();
  CHECK(r.name == with_nul);
  CHECK(r.path == "50%25%2Fhalf/" + with_nul);
  CHECK(outer.close().name == "50%/half");
  CHECK(scope("").close().path.empty());
  CHECK(scope(std::string(10'000, 'x')).close().name == std::string(252, 'x') + "\xE2\x80\xA6");
}

TEST_CASE("depth and path follow the innermost scope that is still open") {
  std::optional<scope> a(std::in_place, "a");
  std::optional<scope> b(std::in_place, "b");
  CHECK(a->close().path == "a");
  std::optional<scope> c(std::in_place, "c");
  const scope_record closed_b = b->close();
  CHECK(closed_b.path == "a/b");
  CHECK(closed_b.depth == 1);
  scope d("d");
  const scope_record closed_c = c->close();
  CHECK(closed_c.path == "a/b/c");
  CHECK(closed_c.depth == 2);
  const scope_record closed_d = d.close();
  CHECK(closed_d.path == "a/b/c/d");
  CHECK(closed_d.depth == 3);
  const scope_record fresh = scope("e").close();
  CHECK(fresh.path == "e");
  CHECK(fresh.depth == 0);
}

TEST_CASE("a scope delivers its record once, at its end or at its close") {
  const recorder records;
  { scope s("ended"); }
  CHECK(records.last().name == "ended");
  {
    scope s("closed");
    const scope_record r = s.close();
    CHECK(records.last().path == r.path);
    CHECK(records.last().duration_ns == r.duration_ns);
  }
  CHECK(records.ring->scopes().size() == 2);
}

#if TIDEMARK_HAS_EXCEPTIONS()
TEST_CASE("a second close is a logic error and changes nothing") {
  const recorder records;
  scope s("once");
  const heap_block b(10);
  CHECK(usage_in(s.close()).net_bytes() == 10);
  CHECK_THROWS_AS(static_cast<void>(s.close()), std::logic_error);
  CHECK_THROWS_AS(static_cast<void>(s.close()), std::logic_error);
  CHECK(records.ring->scopes().size() == 1);
  scope next("once");
  CHECK(next.close().depth == 0);
}
#endif

TEST_CASE("usage reads the window so far, and says why not once it is closed") {
  scope s("read");
  const heap_block a(10);
  { heap_block b(90); }
  const auto so_far = s.usage();
  CHECK(so_far.has_value());
  CHECK(so_far.value_or(window_usage{}).net_bytes() == 10);
  CHECK(so_far.value_or(window_usage{}).peak_growth() == 100);
  const heap_block c(200);
  CHECK(s.usage<meter::thread_heap>().value_or(window_usage{}).peak_growth() == 210);
  CHECK(usage_in(s.close()).peak_growth() == 210);
  CHECK(!s.usage().has_value());
  CHECK(s.usage().why() == "the scope is closed");
}

TEST_CASE("reading an outer scope changes nothing that the inner one knows") {
  scope outer("outer");
  { heap_block b(1'000); }
  scope inner("inner");
  { heap_block b(400); }
  CHECK(outer.usage().value_or(window_usage{}).peak_growth() == 1'000);
  { heap_block b(500); }
  CHECK(inner.usage().value_or(window_usage{}).peak_growth() == 500);
  CHECK(inner.usage().value_or(window_usage{}).largest_bytes == 500);
  CHECK(usage_in(inner.close()).peak_growth() == 500);
  CHECK(usage_in(outer.close()).largest_bytes == 1'000);
}

// ---- exceptions ----

#if TIDEMARK_HAS_EXCEPTIONS()
TEST_CASE("a scope that an exception leaves reports, and says so") {
  const recorder records;
  heap_block kept;
  try {
    scope s("thrown out");
    kept = heap_block(64);
    throw 1;
  } catch (int) {
  }
  const scope_record r = records.last();
  CHECK(r.path == "thrown out");
  CHECK(r.left_by_exception);
  CHECK(usage_in(r).net_bytes() == 64);
  CHECK(scope("after it").close().depth == 0);
}

TEST_CASE("every scope on the way of an exception says so, and none beyond the handler") {
  const recorder records;
  {
    scope outside("handler");
    try {
      scope outer("outer");
      scope inner("inner");
      throw 1;
    } catch (int) {
    }
  }
  const auto all = records.ring->scopes();
  CHECK(all.size() == 3);
  CHECK(all.at(0).path == "handler/outer/inner");
  CHECK(all.at(0).left_by_exception);
  CHECK(all.at(1).left_by_exception);
  CHECK(!all.at(2).left_by_exception);
}

TEST_CASE("a scope that ends by bad_alloc reports what it took until then") {
  const recorder records;
  volatile std::size_t too_much = (std::size_t{1} << 62);
  try {
    scope s("out of memory");
    const heap_block b(640);
    const heap_block none(too_much);
  } catch (const std::bad_alloc&) {
  }
  const scope_record r = records.last();
  CHECK(r.path == "out of memory");
  CHECK(r.left_by_exception);
  CHECK(usage_in(r).peak_growth() == 640);
  CHECK(usage_in(r).allocations == 1);
  CHECK(usage_in(r).net_bytes() == 0);
}

namespace {

struct scope_while_dying {
  bool throws = false;
  ~scope_while_dying() {
    try {
      scope s(throws ? "thrown while unwinding" : "calm while unwinding");
      if (throws) throw 2;
    } catch (int) {
    }
  }
};

}  // namespace

TEST_CASE("a scope opened in a handler or while another exception unwinds is marked only if its own body throws") {
  const recorder records;
  try {
    throw 1;
  } catch (int) {
    { scope s("calm in a handler"); }
    CHECK(!records.last().left_by_exception);
    try {
      scope s("thrown in a handler");
      throw;
    } catch (int) {
    }
    CHECK(records.last().left_by_exception);
  }
  for (const bool throws : {false, true}) {
    try {
      scope_while_dying d;
      d.throws = throws;
      throw 1;
    } catch (int) {
    }
    CHECK(records.last().name == (throws ? "thrown while unwinding" : "calm while unwinding"));
    CHECK(records.last().left_by_exception == throws);
  }
}
#endif

// ---- threads ----

TEST_CASE("a scope closed on another thread has no thread reading, and everything else") {
  const heap_block before(10);
  auto s = std::make_unique<basic_scope<meter::thread_heap, meter::process_heap>>("travels");
  const heap_block b(500'000);
  scope_record r;
  reading<window_usage> elsewhere = reading<window_usage>::absent("not asked");
  std::thread([&] {
    const heap_block first(1);  // it has an account of its own
    elsewhere = s->usage();
    r = s->close();
  }).join();
  CHECK(!elsewhere.has_value());
  CHECK(elsewhere.why().find("not on the thread that opened it") != std::string_view::npos);
  const tidemark::meter_reading* heap = r.find("thread_heap");
  CHECK(heap != nullptr);
  CHECK(!heap->usage.has_value());
  CHECK(heap->usage.why().find("not on the thread that opened it") != std::string_view::npos);
  const window_usage process = usage_in(r, "process_heap");
  CHECK(process.error_bound_bytes > 0);
  CHECK(process.net_bytes() >= 500'000 - process.error_bound_bytes);
  CHECK(process.net_bytes() <= 500'000 + process.error_bound_bytes);
  CHECK(process.allocations >= 1);
  CHECK(r.path == "travels");
  CHECK(r.depth == 0);
  CHECK(r.thread == system_thread_id());
  CHECK(r.owned_bytes.value_or(-1) >= 500'000);
  s.reset();
  const scope_record next = scope("stays").close();
  CHECK(next.path == "stays");
  CHECK(next.depth == 0);
}

TEST_CASE("a scope destroyed on another thread delivers its record there and disturbs no other scope") {
  const recorder records;
  scope outer("at home");
  auto s = std::make_unique<scope>("moved out");
  { heap_block b(3'000); }
  std::thread([&] {
    const scope own("theirs");
    s.reset();
  }).join();
  scope after("after");
  { heap_block b(200); }
  const scope_record r = after.close();
  const window_usage at_home = usage_in(outer.close());
  CHECK(records.ring->scopes().at(0).path == "at home/moved out");
  CHECK(!records.ring->scopes().at(0).meters.at(0).usage.has_value());
  CHECK(r.path == "at home/after");
  CHECK(usage_in(r).peak_growth() == 200);
  CHECK(at_home.peak_growth() >= 3'000 + static_cast<std::int64_t>(sizeof(scope)));
  CHECK(at_home.peak_growth() < 3'000 + static_cast<std::int64_t>(sizeof(scope)) + 200);
}

TEST_CASE("a scope whose thread has ended is closed by another, also when a new thread has its place") {
  std::unique_ptr<scope> s;
  std::thread([&] { s = std::make_unique<scope>("orphan"); }).join();
  scope_record r;
  std::thread([&] {
    scope own("newcomer");
    const heap_block b(77);
    r = s->close();
    const scope_record mine = own.close();
    CHECK(mine.path == "newcomer");
    CHECK(usage_in(mine).allocated_bytes == 77);
  }).join();
  CHECK(r.path == "orphan");
  CHECK(!r.meters.at(0).usage.has_value());
}

TEST_CASE("threads open, close and hand over scopes at the same time and keep their own numbers") {
  constexpr int rounds = 300;
  const recorder records;
  std::vector<std::thread> threads;
  std::vector<int> wrong(4);
  for (std::size_t t = 0; t < 4; ++t) {
    threads.emplace_back([&wrong, t] {
      for (int i = 0; i < rounds; ++i) {
        scope outer("round");
        auto travels = std::make_unique<scope>("travels");
        const heap_block b(t * 100 + 1);
        std::unique_ptr<scope> taken = std::move(travels);
        if (i % 50 == 0) {
          std::thread([&taken] { taken.reset(); }).join();
        } else {
          const scope_record inner = taken->close();
          wrong[t] += usage_in(inner).allocated_bytes == t * 100 + 1 && inner.path == "round/travels" ? 0 : 1;
        }
        const scope_record r = outer.close();
        wrong[t] += usage_in(r).largest_bytes >= t * 100 + 1 && r.path == "round" && r.depth == 0 ? 0 : 1;
      }
    });
  }
  for (std::thread& t : threads) t.join();
  CHECK(wrong == std::vector<int>(4));
  CHECK(owned_by("round") == 0);
}

// ---- costs ----

TEST_CASE("scopes that end on another thread leave nothing behind on their own") {
  constexpr std::size_t at_a_time = 100;
  std::vector<std::unique_ptr<scope>> scopes(at_a_time);
  std::uint64_t own_bytes = 0;
  for (int round = 0; round < 40; ++round) {
    for (auto& s : scopes) s = std::make_unique<scope>("sent away");
    std::thread([&scopes] {
      const scope own("taken in");
      for (auto& s : scopes) s.reset();
    }).join();
    CHECK(scope("at home").close().path == "at home");
    if (round == 4) own_bytes = tidemark::self().own_bytes;
  }
  CHECK(tidemark::self().own_bytes == own_bytes);
}

TEST_CASE("scopes allocate nothing after their first use while no sink is attached") {
  std::optional<scope> a;
  std::optional<scope> b;
  const auto run = [&a, &b] {
    for (int i = 0; i < 1'000; ++i) {
      const scope outer("free of charge");
      const basic_scope<meter::process_heap, meter::thread_heap> inner("inside");
      a.emplace("one");
      b.emplace("two");
      a.reset();
      b.reset();
    }
  };
  run();
  const tidemark::usage before = this_threads_usage();
#if defined(__GLIBC__) && __GLIBC_PREREQ(2, 33)
  const std::size_t in_use_before = mallinfo2().uordblks;
  run();
  const std::size_t in_use = mallinfo2().uordblks;
#else
  const std::size_t in_use_before = 0;
  run();
  const std::size_t in_use = 0;
#endif
  const tidemark::usage after = this_threads_usage();
  CHECK(after.allocations == before.allocations);
  CHECK(after.deallocations == before.deallocations);
  CHECK(in_use == in_use_before);
}

TEST_CASE("the record that close returns is in none of the user's numbers, nor is what sinks keep") {
  const recorder records;
  const std::string name(200, 'n');
  const tidemark::usage before = this_threads_usage();
  const tidemark::usage process_before = tidemark::process_usage().value_or(tidemark::usage{});
  scope outer("counts");
  {
    scope s(name);
    const scope_record r = s.close();
    const scope_record moved = scope(name).close();
    { scope ended(name); }
    tidemark::escape(&r);
    tidemark::escape(&moved);
  }
  const window_usage u = usage_in(outer.close());
  const tidemark::usage after = this_threads_usage();
  const tidemark::usage process_after = tidemark::process_usage().value_or(tidemark::usage{});
  CHECK(u.allocations == 0);
  CHECK(u.deallocations == 0);
  CHECK(u.peak_growth() == 0);
  CHECK(after.allocations == before.allocations);
  CHECK(after.deallocations == before.deallocations);
  CHECK(after.live_bytes == before.live_bytes);
  CHECK(process_after.allocations == process_before.allocations);
  CHECK(process_after.live_bytes == process_before.live_bytes);
}

TEST_CASE("10,000 nested scopes know their depth, their path and their children's peak") {
  constexpr std::size_t count = 10'000;
  for (const bool from_outermost : {false, true}) {
    std::vector<std::unique_ptr<scope>> nest(count);
    for (auto& s : nest) s = std::make_unique<scope>("n");
    { heap_block b(1'000'000); }
    scope_record innermost;
    scope_record outermost;
    for (std::size_t k = 0; k < count; ++k) {
      const std::size_t i = from_outermost ? k : count - 1 - k;
      if (i == count - 1) innermost = nest[i]->close();
      // Asked before its own memory goes: the bytes owned by 10,000 paths are summed only twice.
      if (i == 0) outermost = nest[i]->close();
      nest[i].reset();
    }
    CHECK(innermost.depth == static_cast<int>(count) - 1);
    CHECK(innermost.path.size() == 2 * count - 1);
    CHECK(usage_in(innermost).peak_growth() == 1'000'000);
    CHECK(outermost.depth == 0);
    CHECK(usage_in(outermost).peak_growth() ==
          1'000'000 + static_cast<std::int64_t>((count - 1) * sizeof(scope)));
    CHECK(usage_in(outermost).allocations == count);
    CHECK(scope("after the nest").close().depth == 0);
  }
}

// ---- meters ----

namespace {

std::int64_t tokens = 0;

struct kv_tokens {
  static constexpr const char* name = "kv_tokens";
  static constexpr const char* unit = "tokens";
  static constexpr bool counts_events = false;

  class window {
   public:
    window() noexcept : entry_(tokens) {}
    [[nodiscard]] reading<window_usage> usage() const {
      window_usage u;
      u.entry_bytes = entry_;
      u.exit_bytes = tokens;
      u.peak_bytes = tokens > entry_ ? tokens : entry_;
      return u;
    }
    reading<window_usage> close() noexcept { return usage(); }

   private:
    std::int64_t entry_;
  };
};

struct no_sensor {
  static constexpr const char* name = "sensor";
  static constexpr const char* unit = "mW";
  static constexpr bool counts_events = false;
  struct window {
    [[nodiscard]] reading<window_usage> usage() const { return reading<window_usage>::absent("no sensor"); }
    reading<window_usage> close() noexcept { return usage(); }
  };
};

}  // namespace

TEST_CASE("a meter that counts no events says so in every reading, though its windows leave that to their default") {
  basic_scope<kv_tokens> s("no events");
  CHECK(!s.usage().value_or(window_usage{}).counts_events);
  CHECK(!usage_in(s.close(), "kv_tokens").counts_events);
}

TEST_CASE("a meter of the user's stands next to the library's in one scope, in the order of their names") {
  basic_scope<kv_tokens, meter::thread_heap, meter::process_heap, no_sensor> s("decode");
  tokens += 128;
  const heap_block b(256);
  CHECK(s.usage().value_or(window_usage{}).net_bytes() == 128);
  CHECK(s.usage<kv_tokens>().value_or(window_usage{}).net_bytes() == 128);
  CHECK(s.usage<no_sensor>().why() == "no sensor");
  const std::int64_t checks = s.usage<meter::thread_heap>().value_or(window_usage{}).net_bytes() - 256;
  tokens -= 200;
  const scope_record r = s.close();
  CHECK(checks >= 0);
  CHECK(r.meters.size() == 4);
  CHECK(r.meters.at(0).meter == "kv_tokens");
  CHECK(r.meters.at(0).unit == "tokens");
  CHECK(r.meters.at(1).meter == "thread_heap");
  CHECK(r.meters.at(2).meter == "process_heap");
  CHECK(r.meters.at(3).unit == "mW");
  CHECK(r.meters.at(3).usage.why() == "no sensor");
  CHECK(usage_in(r, "kv_tokens").net_bytes() == -72);
  CHECK(!usage_in(r, "kv_tokens").counts_events);
  CHECK(usage_in(r).allocated_bytes >= 256);
  CHECK(usage_in(r, "process_heap").error_bound_bytes == 0);
  CHECK(usage_in(r, "process_heap").allocated_bytes == usage_in(r).allocated_bytes);
  CHECK(usage_in(r, "process_heap").peak_growth() == usage_in(r).peak_growth());
}

// ---- macros ----

namespace {

void named_function() {
  TIDEMARK_FUNCTION();
  TIDEMARK_SCOPE("a part");
  const heap_block b(12);
}

}  // namespace

TEST_CASE("the macros open a scope to the end of the block, with their own place") {
  const recorder records;
  const std::uint32_t line = __LINE__ + 2;
  {
    TIDEMARK_SCOPE("by macro");
    TIDEMARK_SCOPE("and below");
    const heap_block b(9);
  }
  const auto all = records.ring->scopes();
  CHECK(all.size() == 2);
  CHECK(all.at(0).path == "by macro/and below");
  CHECK(all.at(1).path == "by macro");
  CHECK(all.at(1).where.line() == line);
  CHECK(std::string_view(all.at(1).where.file_name()) == __FILE__);
  CHECK(usage_in(all.at(1)).allocated_bytes == 9);
  named_function();
  CHECK(records.last().path == "named_function");
  CHECK(records.last().name == "named_function");
  CHECK(std::string_view(records.last().where.function_name()) == "named_function");
}
