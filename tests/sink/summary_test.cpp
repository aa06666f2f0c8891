// SPDX-License-Identifier: MIT
#include <tidemark/hook/global_new.hpp>
#include <tidemark/sink/summary.hpp>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>
#include <tidemark/scope/meter.hpp>
#include <tidemark/scope/scope.hpp>

#include "barrier.hpp"
#include "dice.hpp"
#include "records.hpp"
#include "test.hpp"

using namespace std::string_literals;
using tidemark::attach;
using tidemark::attachment;
using tidemark::format_bytes;
using tidemark::reading;
using tidemark::scope;
using tidemark::scope_record;
using tidemark::summary_sink;
using tidemark::window_usage;
namespace meter = tidemark::meter;

namespace {

bool has_hook() { return tidemark::hook_state() != tidemark::hook_kind::none; }

/// A heap block of the scope it is made in.
class block {
 public:
  explicit block(std::size_t bytes) : p_(::operator new(bytes)), size_(bytes) { tidemark::escape(p_); }
  block(block&& other) noexcept : p_(std::exchange(other.p_, nullptr)), size_(other.size_) {}
  block& operator=(block&& other) noexcept {
    std::swap(p_, other.p_);
    std::swap(size_, other.size_);
    return *this;
  }
  block(const block&) = delete;
  block& operator=(const block&) = delete;
  ~block() { ::operator delete(p_); }
  [[nodiscard]] std::int64_t size() const { return static_cast<std::int64_t>(size_); }

 private:
  void* p_;
  std::size_t size_;
};

/// A stream that forgets, for tests that read `table()`. The destructor of an attachment writes there.
std::FILE* nowhere() {
  static std::FILE* stream = std::fopen("/dev/null", "w");
  return stream;
}

struct attached_summary {
  std::shared_ptr<summary_sink> sink = std::make_shared<summary_sink>(nowhere());
  attachment to = attach(sink);
  [[nodiscard]] std::string table() const { return sink->table(); }
};

using cells = std::vector<std::string>;

/// Two blanks or more are between columns.
cells split(std::string_view line) {
  cells out;
  while (true) {
    const std::size_t begin = line.find_first_not_of(' ');
    if (begin == std::string_view::npos) return out;
    line.remove_prefix(begin);
    const std::size_t end = line.find("  ");
    out.emplace_back(line.substr(0, end));
    if (end == std::string_view::npos) return out;
    line.remove_prefix(end);
  }
}

struct row {
  std::size_t indent;
  cells c;  // name, calls, time, meter, peak growth, net, allocations, still owned, note

  [[nodiscard]] std::string at(std::size_t i) const { return i < c.size() ? c[i] : "(no cell)"; }
};

/// The lines of the table itself, below its titles.
std::vector<std::string> row_lines(const std::string& table) {
  std::vector<std::string> lines = lines_of(table.substr(0, table.find("\n\n")));
  lines.erase(lines.begin(), lines.begin() + std::min<std::ptrdiff_t>(2, static_cast<std::ptrdiff_t>(lines.size())));
  return lines;
}

std::vector<row> rows_of(const std::string& table) {
  std::vector<row> rows;
  for (const std::string& line : row_lines(table)) rows.push_back({line.find_first_not_of(' '), split(line)});
  return rows;
}

row find(const std::string& table, const std::string& name) {
  row found{0, {}};
  for (const row& r : rows_of(table)) {
    if (r.at(0) == name) found = r;
  }
  return found;
}

std::string change(std::int64_t bytes) { return (bytes < 0 ? "" : "+") + format_bytes(bytes); }

scope_record made(const std::string& path, std::vector<tidemark::meter_reading> meters = {}) {
  scope_record r;
  r.path = path;
  r.name = path.substr(path.rfind('/') + 1);
  r.duration_ns = 1'000;
  r.meters = std::move(meters);
  return r;
}

window_usage change_of(std::int64_t growth, std::int64_t net, std::uint64_t allocations = 0) {
  window_usage u;
  u.entry_bytes = 100;
  u.exit_bytes = 100 + net;
  u.peak_bytes = 100 + growth;
  u.allocations = allocations;
  return u;
}

std::size_t count_of(std::string_view text, std::string_view part) {
  std::size_t n = 0;
  for (std::size_t at = 0; (at = text.find(part, at)) != std::string_view::npos; at += part.size()) ++n;
  return n;
}

/// Valid UTF-8 without a control character but newlines. Source: RFC 3629, section 4.
bool is_clean(std::string_view text) {
  for (std::size_t i = 0; i < text.size();) {
    const auto byte = [&](std::size_t at) { return at < text.size() ? static_cast<unsigned char>(text[at]) : 0U; };
    const unsigned first = byte(i);
    if (first == 0x7F || (first < 0x20 && first != '\n') || (first == 0xC2 && byte(i + 1) < 0xA0)) return false;
    const std::size_t length = first < 0x80   ? 1
                               : first < 0xC2 ? 0
                               : first < 0xE0 ? 2
                               : first < 0xF0 ? 3
                               : first < 0xF5 ? 4
                                              : 0;
    if (length == 0) return false;
    for (std::size_t k = 1; k < length; ++k) {
      if (byte(i + k) < 0x80 || byte(i + k) > 0xBF) return false;
    }
    if ((first == 0xE0 && byte(i + 1) < 0xA0) || (first == 0xED && byte(i + 1) > 0x9F) ||
        (first == 0xF0 && byte(i + 1) < 0x90) || (first == 0xF4 && byte(i + 1) > 0x8F)) {
      return false;
    }
    i += length;
  }
  return true;
}

/// What was written to a file of its own.
class written_file {
 public:
  written_file() : path_(folder_.file("summary")), stream_(std::fopen(path_.c_str(), "w")) {}
  ~written_file() { std::fclose(stream_); }
  written_file(const written_file&) = delete;
  written_file& operator=(const written_file&) = delete;
  [[nodiscard]] std::FILE* stream() const { return stream_; }
  [[nodiscard]] std::string text() const { return content(path_); }
  [[nodiscard]] std::size_t tables() const { return count_of(text(), "tidemark summary: "); }

 private:
  temporary_directory folder_;
  std::string path_;
  std::FILE* stream_;
};

}  // namespace

// ---- the sums of a path ----

TEST_CASE("a table adds up the records of a path, and is laid out as shown") {
  summary_sink s(nowhere());
  CHECK(s.table().find("tidemark summary: 0 scopes ended\n\n") == 0);
  for (int i = 0; i < 1'234; ++i) {
    s.on_scope(made("made/step", {{"heap", change_of(100 + i, i % 2 == 0 ? 10 : -12, 3), "bytes"}}));
  }
  scope_record last = made("made", {{"heap", change_of(5'000'000, -2'048), "bytes"}});
  last.duration_ns = 12'345'678'901;
  last.left_by_exception = true;
  last.owned_bytes = std::int64_t{4'096};
  s.on_scope(last);
  const std::string want =
      "tidemark summary: 1,235 scopes ended\n"
      "scope   calls     time  meter  peak growth       net  allocations  still owned\n"
      "made        1   12.3 s  heap      +4.8 MiB  -2.0 KiB            0      4.0 KiB  1 left by an exception\n"
      "  step  1,234  1.23 ms  heap      +1.3 KiB  -1.2 KiB        3,702            -\n";
  const std::string table = s.table();
  CHECK(table.substr(0, want.size()) == want);
  CHECK(table.substr(want.size(), 1) == "\n");
}

TEST_CASE("a single scope is one scope") {
  summary_sink s(nowhere());
  s.on_scope(made("made alone"));
  CHECK(s.table().find("tidemark summary: 1 scope ended\n") == 0);
  CHECK(find(s.table(), "made alone").c == cells{"made alone", "1", "1.00 us", "-", "-", "-", "-"});
}

TEST_CASE("each term that a column is called by is explained under the table") {
  summary_sink s(nowhere());
  s.on_scope(made("made explained"));
  const std::string table = s.table();
  const std::string under = table.substr(table.rfind("\n\n"));
  for (const char* term : {"calls", "time", "peak growth", "net", "still owned"}) {
    CAPTURE(term);
    CHECK(count_of(under, term + ": "s) == 1);
  }
  CHECK(under.back() == '\n');
}

namespace {

/// One scope path, as brute force knows it.
struct model_path {
  std::uint64_t calls = 0;
  std::uint64_t allocations = 0;
  std::int64_t growth = 0;
  std::int64_t net = 0;
  std::int64_t own = 0;
};

/// A thread that opens scopes and makes and frees blocks at random, and knows what each path must show. What it keeps for
/// itself is in nobody's numbers.
class walker {
 public:
  walker(std::uint64_t seed, std::size_t number)
      : random_(seed * 100 + number), top_("walker " + std::to_string(number)) {}

  void run(int steps) {
    for (int i = 0; i < steps; ++i) step();
    const tidemark::quiet hidden;
    while (!open_.empty()) close();
  }
  /// On any thread, after the run.
  void free_half() {
    for (std::size_t i = 0; i < blocks_.size(); i += 2) {
      paths[blocks_[i].first].own -= blocks_[i].second->size();
      blocks_[i].second.reset();
    }
  }

  std::map<std::string, model_path> paths;

 private:
  // A scope that is open, and what brute force saw in it.
  struct frame {
    std::unique_ptr<scope> s;
    std::string path;
    std::int64_t entry;
    std::int64_t peak;
    std::uint64_t allocations;
  };

  void step() {
    const std::uint64_t what = random_.below(6);
    if (what < 2 && !open_.empty()) return allocate();
    const tidemark::quiet hidden;
    if (what < 4 && open_.size() < 5) return open();
    if (what == 4 && !open_.empty()) return close();
    if (!blocks_.empty()) free_one();
  }
  void open() {
    constexpr const char* names[] = {"a", "b/c", "d%"};
    constexpr const char* escaped[] = {"a", "b%2Fc", "d%25"};
    const auto i = static_cast<std::size_t>(random_.below(3));
    frame f;
    f.path = open_.empty() ? top_ : open_.back().path + "/" + escaped[i];
    f.entry = f.peak = live_;
    f.allocations = 0;
    f.s = std::make_unique<scope>(open_.empty() ? std::string_view(top_) : names[i]);
    open_.push_back(std::move(f));
  }
  void close() {
    frame f = std::move(open_.back());
    open_.pop_back();
    f.s.reset();
    model_path& m = paths[f.path];
    ++m.calls;
    m.allocations += f.allocations;
    m.growth = std::max(m.growth, f.peak - f.entry);
    m.net += live_ - f.entry;
  }
  void allocate() {
    const std::uint64_t bytes = random_.below(random_.below(4) == 0 ? 100'000 : 900);
    block b(static_cast<std::size_t>(bytes));
    const tidemark::quiet hidden;
    live_ += b.size();
    paths[open_.back().path].own += b.size();
    for (frame& f : open_) {
      ++f.allocations;
      f.peak = std::max(f.peak, live_);
    }
    blocks_.emplace_back(open_.back().path, std::move(b));
  }
  void free_one() {
    const auto i = static_cast<std::size_t>(random_.below(blocks_.size()));
    live_ -= blocks_[i].second->size();
    paths[blocks_[i].first].own -= blocks_[i].second->size();
    blocks_[i].first.swap(blocks_.back().first);
    blocks_[i].second.swap(blocks_.back().second);
    blocks_.pop_back();
  }

  dice random_;
  std::string top_;
  std::deque<frame> open_;
  std::vector<std::pair<std::string, std::optional<block>>> blocks_;
  std::int64_t live_ = 0;
};

/// The paths of a table, as its indentation says, without the column of the time.
std::map<std::string, cells> cells_by_path(const std::string& table) {
  std::map<std::string, cells> paths;
  std::vector<std::string> stack;
  for (const row& r : rows_of(table)) {
    std::string name;
    for (const char c : r.at(0)) name += c == '/' ? "%2F"s : c == '%' ? "%25"s : std::string(1, c);
    stack.resize(r.indent / 2);
    const std::string path = stack.empty() ? name : stack.back() + "/" + name;
    stack.push_back(path);
    cells c = r.c;
    c.erase(c.begin(), c.begin() + 1);
    if (c.size() > 1) c.erase(c.begin() + 1);
    paths[path] = c;
  }
  return paths;
}

}  // namespace

TEST_CASE("of random trees of scopes on one to four threads, each cell is what brute force says") {
  if (!has_hook()) return;
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    CAPTURE(seed);
    const attached_summary s;
    const std::size_t threads = 1 + seed % 4;
    std::deque<walker> walkers;
    for (std::size_t t = 0; t < threads; ++t) walkers.emplace_back(seed, t);
    {
      std::vector<std::thread> workers;
      for (walker& w : walkers) workers.emplace_back([&w] { w.run(250); });
      for (std::thread& w : workers) w.join();
    }
    for (const bool is_later : {false, true}) {
      CAPTURE(is_later);
      if (is_later) {
        for (walker& w : walkers) w.free_half();
      }
      const std::map<std::string, cells> found = cells_by_path(s.table());
      std::map<std::string, cells> want;
      for (const walker& w : walkers) {
        for (const auto& [path, m] : w.paths) {
          std::int64_t owned = 0;
          for (const auto& [other, of_other] : w.paths) {
            if (other == path || other.compare(0, path.size() + 1, path + "/") == 0) owned += of_other.own;
          }
          want[path] = {std::to_string(m.calls),       "thread_heap",      change(m.growth), change(m.net),
                        std::to_string(m.allocations), format_bytes(owned)};
        }
      }
      CHECK(found == want);
      // Each path's own bytes, with the longest list that top() can give.
      const std::vector<row> top = rows_of("\n" + s.sink->top(10'000));
      std::map<std::string, std::string> own;
      for (const row& r : top) own[r.at(0)] = r.at(7);
      for (const walker& w : walkers) {
        for (const auto& [path, m] : w.paths) CHECK(own[path] == format_bytes(m.own));
      }
    }
  }
}

// ---- what is still owned ----

TEST_CASE("bytes are owned until someone frees them: later, or on another thread") {
  if (!has_hook()) return;
  const attached_summary s;
  std::vector<block> kept;
  kept.reserve(3);
  {
    const scope outer("owner");
    kept.emplace_back(1'000);
    const scope inner("below");
    kept.emplace_back(200);
    kept.emplace_back(30);
  }
  CHECK(find(s.table(), "owner").at(7) == "1.2 KiB");
  CHECK(find(s.table(), "below").at(7) == "230 B");
  std::thread([&] { kept.pop_back(); }).join();
  CHECK(find(s.table(), "owner").at(7) == "1.2 KiB");
  CHECK(find(s.table(), "below").at(7) == "200 B");
  kept.pop_back();
  CHECK(find(s.table(), "owner").at(7) == "1000 B");
  CHECK(find(s.table(), "below").at(7) == "0 B");
  kept.clear();
  CHECK(find(s.table(), "owner").at(7) == "0 B");
  // The growth and the net are of the calls, which are over.
  CHECK(find(s.table(), "owner").at(5) == "+1.2 KiB");
}

TEST_CASE("a summary that is attached late tells what earlier calls own, and no more of them") {
  if (!has_hook()) return;
  std::optional<block> kept;
  {
    const scope outer("early");
    const scope inner("keeper");
    kept.emplace(500);
  }
  { const scope gone("early and gone"); }
  const attached_summary s;
  CHECK(find(s.table(), "keeper").c == cells{"keeper", "-", "-", "-", "-", "-", "500 B"});
  CHECK(find(s.table(), "early").at(6) == "500 B");
  CHECK(s.table().find("early and gone") == std::string::npos);
  CHECK(s.table().find("0 scopes ended\n") != std::string::npos);
  { const scope outer("early"); }
  CHECK(find(s.table(), "early").at(1) == "1");
  CHECK(find(s.table(), "early").at(7) == "500 B");
}

TEST_CASE("the heap is told in whole, and what no scope owns apart") {
  if (!has_hook()) return;
  const attached_summary s;
  const block outside(3'000'000);
  std::optional<scope> in(std::in_place, "inside");
  std::optional<block> inside(std::in_place, std::size_t{5'000'000});
  const tidemark::usage all = tidemark::process_usage().value();
  const std::string table = s.table();
  inside.reset();
  in.reset();  // what doctest says of a check that fails is nobody's
  const std::string want = "\nheap: " + format_bytes(all.live_bytes) + " live in " + std::to_string(all.live_blocks) +
                           " blocks, peak " + format_bytes(all.peak_bytes);
  CHECK(table.find(want) != std::string::npos);
  CHECK(table.find("; allocated outside every scope and still live: " + format_bytes(all.live_bytes - 5'000'000) +
                   "\n") != std::string::npos);
  CHECK(all.live_bytes > 8'000'000);
}

TEST_CASE("a table and a list are in nobody's numbers, and neither is what the summary keeps") {
  if (!has_hook()) return;
  const attached_summary s;
  const tidemark::usage before = tidemark::thread_usage().value();
  {
    const scope kept("not counted with a name that is long enough for the heap");
    const std::string table = s.table();
    const std::string top = s.sink->top(5);
    const tidemark::usage after = tidemark::thread_usage().value();
    CHECK(!table.empty());
    CHECK(!top.empty());
    CHECK(after.allocations == before.allocations);
    CHECK(after.live_bytes == before.live_bytes);
  }
  CHECK(tidemark::thread_usage()->allocations == before.allocations);
  CHECK(find(s.table(), "not counted with a name that is long enough for the heap").at(7) == "0 B");
}

// ---- open scopes ----

TEST_CASE("scopes that are open are listed with their number and what they own, on every thread") {
  if (!has_hook()) return;
  const attached_summary s;
  { const scope ended("open here"); }
  std::optional<scope> outer(std::in_place, "open here");
  std::optional<block> kept(std::in_place, std::size_t{77});
  barrier meet(4);
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([&] {
      const scope there("open there");
      const scope inner("inner");
      const block b(100);
      meet.arrive_and_wait();
      meet.arrive_and_wait();
    });
  }
  meet.arrive_and_wait();
  const std::string table = s.table();
  meet.arrive_and_wait();
  for (std::thread& t : threads) t.join();
  const std::string after = s.table();
  kept.reset();
  outer.reset();
  CHECK(table.find("tidemark summary: 1 scope ended, 7 still open\n") == 0);
  const row here = find(table, "open here");
  CHECK(here.at(1) == "1");
  CHECK(here.at(8).find("1 still open, for ") == 0);
  const row there = find(table, "open there");
  CHECK(there.at(1) == "0");
  CHECK(there.at(2) == "-");
  CHECK(there.at(6) == "300 B");
  CHECK(there.at(7).find("3 still open, for ") == 0);
  CHECK(find(table, "inner").at(7).find("3 still open, for ") == 0);
  CHECK(after.find("tidemark summary: 7 scopes ended, 1 still open\n") == 0);
  CHECK(find(after, "inner").at(1) == "3");
  CHECK(find(after, "inner").at(7) == "0 B");
}

TEST_CASE("a scope that ended on another thread than it began on is not open") {
  const attached_summary s;
  barrier meet(2);
  std::optional<scope> passed;
  std::thread opener([&] {
    passed.emplace("ended elsewhere");
    meet.arrive_and_wait();
    meet.arrive_and_wait();
  });
  meet.arrive_and_wait();
  passed.reset();
  const std::string table = s.table();
  meet.arrive_and_wait();
  opener.join();
  CHECK(table.find("tidemark summary: 1 scope ended\n") == 0);
  CHECK(find(table, "ended elsewhere").at(1) == "1");
  CHECK(table.find("still open") == std::string::npos);
}

TEST_CASE("scopes that end out of order are open until their own end") {
  const attached_summary s;
  std::optional<scope> outer(std::in_place, "left first");
  std::optional<scope> inner(std::in_place, "stays");
  outer.reset();
  const std::string table = s.table();
  inner.reset();
  CHECK(find(table, "left first").c.back().find("still open") == std::string::npos);
  CHECK(find(table, "stays").c.back().find("1 still open, for ") == 0);
}

#if TIDEMARK_HAS_EXCEPTIONS()
TEST_CASE("scopes that an exception left are counted") {
  const attached_summary s;
  for (int i = 0; i < 3; ++i) {
    try {
      const scope left("left");
      if (i > 0) throw i;
    } catch (int) {
    }
  }
  CHECK(find(s.table(), "left").at(1) == "3");
  CHECK(find(s.table(), "left").c.back() == "2 left by an exception");
}
#endif

// ---- the most, and too many ----

TEST_CASE("top() lists the paths that own most by themselves, those below them apart") {
  if (!has_hook()) return;
  const attached_summary s;
  std::vector<block> kept;
  kept.reserve(4);
  {
    const scope a("top a");
    const scope b("b");
    kept.emplace_back(100);
    {
      const scope c("c");
      kept.emplace_back(300);
    }
    { const scope d("d"); }
    kept.emplace_back(100);
  }
  const auto list = [&](std::size_t n) {
    std::vector<std::string> shown;
    for (const row& r : rows_of("\n" + s.sink->top(n))) shown.push_back(r.at(0) + ": " + r.at(7));
    return shown;
  };
  using names = std::vector<std::string>;
  CHECK(list(0).empty());
  CHECK(list(1) == names{"top a/b/c: 300 B"});
  CHECK(list(2) == names{"top a/b/c: 300 B", "top a/b: 200 B"});
  // Those that own nothing come by their growth.
  CHECK(list(1'000) == names{"top a/b/c: 300 B", "top a/b: 200 B", "top a: 0 B", "top a/b/d: 0 B"});
  // The same stands below the table, where there are such.
  CHECK(s.table().find("\nowns most by itself: top a/b/c (300 B), top a/b (200 B)\n") != std::string::npos);
  kept.clear();
  CHECK(list(2) == names{"top a: 0 B", "top a/b: 0 B"});
  CHECK(s.table().find("owns most") == std::string::npos);
}

TEST_CASE("of 5,000 paths a table shows 1,000 and says how many more there are; top() chooses among all") {
  summary_sink s(nowhere());
  for (int i = 0; i < 5'000; ++i) {
    const std::string name = "many " + std::to_string(i);
    s.on_scope(made(name, {{"heap", change_of(i == 4'321 ? 1'000'000 : 10, 0), "bytes"}}));
  }
  const std::string table = s.table();
  const std::vector<std::string> lines = row_lines(table);
  CHECK(table.find("tidemark summary: 5,000 scopes ended\n") == 0);
  const bool is_long = lines.size() == 1'001;
  REQUIRE(is_long);
  CHECK(lines.back() == "... and 4,000 more paths");
  CHECK(split(lines.front())[0] == "many 0");
  CHECK(split(lines[999])[0] == "many 999");
  CHECK(rows_of("\n" + s.top(1))[0].at(0) == "many 4321");
  summary_sink full(nowhere());
  for (int i = 0; i < 1'000; ++i) full.on_scope(made("exactly " + std::to_string(i)));
  CHECK(full.table().find("more paths") == std::string::npos);
}

TEST_CASE("scopes without a name are one row each, whatever lies below them") {
  summary_sink s(nowhere());
  scope_record r;
  for (const std::string_view path : {"/x", "/y", "//z", "a//b", "a//c", "a/", ""}) {
    r.path = path;
    s.on_scope(r);
  }
  std::vector<std::string> shown;
  const std::string table = s.table();
  for (const std::string& line : lines_of(std::string_view(table).substr(0, table.find("\n\n")))) {
    shown.push_back(line.substr(0, line.find("  ", line.find_first_not_of(' '))));
  }
  const std::vector<std::string> wanted{"tidemark summary: 7 scopes ended",
                                        "scope",
                                        "\"\"",
                                        "  x",
                                        "  y",
                                        "  \"\"",
                                        "    z",
                                        "a",
                                        "  \"\"",
                                        "    b",
                                        "    c"};
  CHECK(shown == wanted);
}

#if !TIDEMARK_HAS_TSAN() && !TIDEMARK_HAS_ASAN()  // which need more of a stack
TEST_CASE("a path of 1,000 levels needs no more of the stack than one of two") {
  summary_sink s(nowhere());
  std::string path = "deep";
  for (int i = 1; i < 1'000; ++i) path += "/deep";
  scope_record r;
  r.name = "deep";
  r.path = path;
  struct work {
    summary_sink& sink;
    const scope_record& record;
  } const both{s, r};
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, 64 * 1024);
  pthread_t thread{};
  const auto deliver = [](void* p) -> void* {
    const auto* w = static_cast<const work*>(p);
    w->sink.on_scope(w->record);
    return nullptr;
  };
  work copy = both;
  REQUIRE(pthread_create(&thread, &attributes, deliver, &copy) == 0);
  pthread_join(thread, nullptr);
  pthread_attr_destroy(&attributes);
  CHECK(s.table().find("tidemark summary: 1 scope ended\n") == 0);
}
#endif

TEST_CASE("200 levels are 200 rows, each below the one that it lies in") {
  const attached_summary s;
  {
    std::vector<std::unique_ptr<scope>> open;
    for (int i = 0; i < 200; ++i) open.push_back(std::make_unique<scope>("level " + std::to_string(i)));
    while (!open.empty()) open.pop_back();  // the innermost first
  }
  const std::vector<row> rows = rows_of(s.table());
  const bool are_all_there = rows.size() == 200;
  REQUIRE(are_all_there);
  for (std::size_t i = 0; i < 200; ++i) {
    CHECK(rows[i].at(0) == "level " + std::to_string(i));
    CHECK(rows[i].indent == 2 * std::min<std::size_t>(i, 20));
    CHECK(rows[i].at(1) == "1");
  }
}

// ---- names ----

TEST_CASE("names of any content are one row each, in the order they came, and leave the columns where they are") {
  const std::vector<std::string> names = {"",
                                          "two\nlines",
                                          "\x1b[31mred",
                                          "tab\tcr\rnul"s + '\0' + "end",
                                          "\"quoted\" 'and' `so`",
                                          "a/b",
                                          "50%",
                                          "%2F",
                                          "\xff\xfe broken \xe2\x82",
                                          std::string(10'000, 'x'),
                                          "\xc2\x85 next line",
                                          "  blanks  ",
                                          std::string(300, '\n')};
  const attached_summary s;
  for (const std::string& n : names) {
    const scope outer(n);
    const scope inner(n);
  }
  const std::string table = s.table();
  CHECK(is_clean(table));
  CHECK(is_clean(s.sink->top(100)));
  const std::vector<std::string> lines = row_lines(table);
  const bool has_all_rows = lines.size() == 2 * names.size();
  REQUIRE(has_all_rows);
  for (const std::string& line : lines) {
    CHECK(count_of(line, "  thread_heap  ") == 1);
    CHECK(line.size() < 250);
  }
  CHECK(lines_of(s.sink->top(100)).size() >= 1 + 2 * names.size());
  CHECK(lines[2].find("two\\nlines  ") == 0);
  CHECK(lines[3].find("  two\\nlines  ") == 0);
  CHECK(lines[4].find("\\x1b[31mred  ") == 0);
  CHECK(lines[10].find("a/b  ") == 0);
  CHECK(lines[12].find("50%  ") == 0);
  CHECK(lines[14].find("%2F  ") == 0);
  CHECK(lines[18].find(std::string(59, 'x') + "\xE2\x80\xA6  ") == 0);
}

TEST_CASE("columns line up behind names of every width") {
  // The columns are by hand. A terminal that does not join emoji shows the parts of the last one apart.
  const std::vector<std::pair<std::string, std::size_t>> names = {{"abc", 3},
                                                                  {"\xE8\xA8\x93\xE7\xB7\xB4", 4},
                                                                  {"e\xCC\x81", 1},
                                                                  {"\xC3\xA9t\xC3\xA9", 3},
                                                                  {"\xED\x95\x9C\xEA\xB5\xAD", 4},
                                                                  {"\xEF\xBE\x8A\xEF\xBE\x9D", 2},
                                                                  {"\xEF\xBC\xA1", 2},
                                                                  {"\xF0\x9F\x9A\x80", 2},
                                                                  {"\xE2\x9D\xA4\xEF\xB8\x8F", 2},
                                                                  {"\xE2\x9D\xA4", 1},
                                                                  {"\xF0\x9F\x91\xA9\xE2\x80\x8D\xF0\x9F\x9A\x80", 4},
                                                                  {"0123456789", 10}};
  summary_sink s(nowhere());
  for (const auto& [name, columns] : names) s.on_scope(made(name));
  const std::vector<std::string> lines = row_lines(s.table());
  REQUIRE(lines.size() == names.size());
  for (std::size_t i = 0; i < names.size(); ++i) {
    CAPTURE(i);
    // The number of calls ends where its title does: 2 blanks and 5 columns behind the widest name.
    const std::string want = names[i].first + std::string(10 - names[i].second + 2 + 4, ' ') + "1  ";
    CHECK(lines[i].substr(0, want.size()) == want);
  }
}

// ---- meters ----

TEST_CASE("a meter without a reading is absent with a number, and each reason stands once below the table") {
  summary_sink s(nowhere());
  const auto none = [](std::string why) { return reading<window_usage>::absent(std::move(why)); };
  s.on_scope(made("made none",
                  {{"heap", none("the first reason"), "bytes"}, {"resident", none("the second\nreason"), "bytes"}}));
  s.on_scope(made("made other",
                  {{"heap", none("the second\nreason"), "bytes"}, {"resident", none("the first reason"), "bytes"}}));
  s.on_scope(made("made some", {{"heap", none("the first reason"), "bytes"}}));
  s.on_scope(made("made some", {{"heap", change_of(7, 5, 2), "bytes"}}));
  const std::string table = s.table();
  CHECK(find(table, "made none").c == cells{"made none", "1", "1.00 us", "heap", "absent [1]", "-", "-", "-"});
  CHECK(find(table, "made other").at(4) == "absent [2]");
  const std::vector<row> rows = rows_of(table);
  REQUIRE(rows.size() == 5);
  CHECK(rows[1].c == cells{"resident", "absent [2]", "-", "-"});
  CHECK(rows[3].c == cells{"resident", "absent [1]", "-", "-"});
  CHECK(find(table, "made some").c ==
        cells{"made some", "2", "2.00 us", "heap", "+7 B", "+5 B", "2", "-", "some calls absent [1]"});
  CHECK(count_of(table, "[1] the first reason\n") == 1);
  CHECK(count_of(table, "[2] the second\\nreason\n") == 1);
  CHECK(table.find("[3]") == std::string::npos);
  const std::string top = s.top(10);
  CHECK(count_of(top, "\n[1] ") == 1);
  CHECK(count_of(top, "\n[2] ") == 1);
}

TEST_CASE("each meter of a scope has a row, in its own unit and with its own bound") {
  summary_sink s(nowhere());
  window_usage heap = change_of(2'048, 1'024, 3);
  heap.error_bound_bytes = 262'144;
  window_usage wider = change_of(10, -1'024, 4);
  wider.error_bound_bytes = 524'288;
  window_usage tokens = change_of(12, 2);
  tokens.counts_events = false;
  s.on_scope(made("made two", {{"heap", heap, "bytes"}, {"kv", tokens, "tokens"}}));
  s.on_scope(made("made two", {{"heap", wider, "bytes"}, {"kv", tokens, "tokens"}}));
  s.on_scope(made("made two", {{"heap", heap, "bytes"}}));
  const std::vector<row> rows = rows_of(s.table());
  REQUIRE(rows.size() == 2);
  CHECK(rows[0].c ==
        cells{"made two", "3", "3.00 us", "heap", "+2.0 KiB", "+1.0 KiB", "10", "-", "each within 512.0 KiB"});
  CHECK(rows[1].c == cells{"kv", "+12 tokens", "+4 tokens", "-"});
}

TEST_CASE("a process scope has a row for the heap and one for the resident set") {
  if (!has_hook()) return;
  const attached_summary s;
  std::optional<block> kept;
  {
    const tidemark::process_scope p("whole process");
    kept.emplace(4'000'000);
  }
  const std::vector<row> rows = rows_of(s.table());
  REQUIRE(rows.size() == 2);
  CHECK(rows[0].at(0) == "whole process");
  CHECK(rows[0].at(3) == "process_heap");
  CHECK(rows[0].at(4) == "+3.8 MiB");
  CHECK(rows[0].at(6) == "1");
  CHECK(rows[0].at(7) == "3.8 MiB");
  CHECK(rows[1].at(0) == "resident");
}

TEST_CASE("domains have a row in each scope that measures them, and a table of their own") {
  tidemark::domain weights("weights of a table", {1'048'576});
  tidemark::domain device("device of a table", {-1, nullptr, true});
  const attached_summary s;
  weights.allocated(1'000);
  {
    const tidemark::basic_scope<meter::domains> d("fed");
    weights.allocated(500);
    weights.freed(300);
    device.allocated(70'000);
  }
  const std::string table = s.table();
  const row fed = find(table, "fed");
  CHECK(fed.at(3) == "domain:weights of a table");
  CHECK(fed.at(4) == "+500 B");
  CHECK(fed.at(5) == "+200 B");
  CHECK(fed.at(6) == "1");
  const row second = find(table, "domain:device of a table");
  CHECK(second.c == cells{"domain:device of a table", "+68.4 KiB", "+68.4 KiB", "1"});
  std::vector<cells> domains;
  for (const std::string& line : lines_of(table)) {
    if (line.find(" of a table  ") != std::string::npos && line.find("domain:") == std::string::npos) {
      domains.push_back(split(line));
    }
  }
  REQUIRE(domains.size() == 2);
  CHECK(domains[0] == cells{"weights of a table", "1.2 KiB", "1.5 KiB", "1.0 MiB", "2"});
  CHECK(domains[1] == cells{"device of a table", "68.4 KiB", "68.4 KiB", "-", "1", "not in the heap"});
  weights.freed(1'200);
  device.freed(70'000);
}

TEST_CASE("a domain that is part of another says so, and one that is gone is told when it was fed") {
  tidemark::domain whole("whole of a model");
  tidemark::domain part("part of a model", {-1, &whole});
  {
    tidemark::domain fed("gone of a model");
    fed.allocated(3'000);
    fed.freed(3'000);
    const tidemark::domain unused("unused of a model");
  }
  part.allocated(1'000);
  whole.allocated(24);
  const std::string table = summary_sink(nowhere()).table();
  part.freed(1'000);
  whole.freed(24);
  std::map<std::string, cells> rows;
  for (const std::string& line : lines_of(table)) {
    const cells c = split(line);
    if (!c.empty() && c[0].find(" of a model") != std::string::npos) rows[c[0]] = c;
  }
  CHECK(rows.size() == 3);
  CHECK(rows["whole of a model"] == cells{"whole of a model", "1.0 KiB", "1.0 KiB", "-", "2"});
  CHECK(rows["part of a model"] == cells{"part of a model", "1000 B", "1000 B", "-", "1", "part of whole of a model"});
  CHECK(rows["gone of a model"] == cells{"gone of a model", "0 B", "2.9 KiB", "-", "1"});
}

// ---- attaching and flushing ----

TEST_CASE("a summary that is attached twice counts each scope twice, and writes one table") {
  const written_file out;
  const auto sink = std::make_shared<summary_sink>(out.stream());
  attachment first = attach(sink);
  attachment second = attach(sink);
  { const scope twice("twice"); }
  CHECK(find(sink->table(), "twice").at(1) == "2");
  first.detach();
  CHECK(out.tables() == 1);
  second.detach();
  CHECK(out.tables() == 1);
  CHECK(find(out.text(), "twice").at(1) == "2");
}

TEST_CASE("a flush writes the table once for the same records, and again with later ones") {
  const written_file out;
  const auto sink = std::make_shared<summary_sink>(out.stream());
  const attachment a = attach(sink);
  tidemark::flush_sinks();
  CHECK(out.text().empty());
  { const scope one("flushed"); }
  static_cast<void>(sink->table());
  CHECK(out.text().empty());
  tidemark::flush_sinks();
  tidemark::flush_sinks();
  CHECK(out.tables() == 1);
  { const scope one("flushed"); }
  sink->flush();
  CHECK(out.tables() == 2);
  const std::string text = out.text();
  CHECK(find(text, "flushed").at(1) == "1");
  CHECK(find(text.substr(text.rfind("tidemark summary: ")), "flushed").at(1) == "2");
}

TEST_CASE("a flush of one's own allocates in nobody's name") {
  if (!has_hook()) return;
  summary_sink s(nowhere());
  { const scope around("around"); }
  scope_record r;
  r.name = r.path = "recorded";
  s.on_scope(r);
  const scope open("while it is flushed");
  s.flush();
  CHECK(open.usage().value().allocations == 0);
}

TEST_CASE("the end of an attachment writes the table; a summary without scopes writes nothing") {
  const written_file out;
  { const attachment idle = attach(std::make_shared<summary_sink>(out.stream())); }
  CHECK(out.text().empty());
  {
    const attachment a = attach(std::make_shared<summary_sink>(out.stream()));
    const scope told("told");
  }
  CHECK(out.tables() == 1);
}

TEST_CASE("what cannot be written is said once, and written whole when it can") {
  const written_file out;
  std::FILE* stream = std::fopen("/dev/full", "w");
  REQUIRE(stream != nullptr);
  standard_error said;
  summary_sink s(stream);
  s.on_scope(made("made for a full disk"));
  const std::uint64_t dropped = tidemark::self().dropped_records;
  s.flush();
  s.flush();
  CHECK(tidemark::self().dropped_records > dropped);
  ::dup2(::fileno(out.stream()), ::fileno(stream));
  s.flush();
  s.flush();
  std::fclose(stream);
  const std::string text = said.text();
  CHECK(lines_of(text).size() == 1);
  CHECK(text.find("summary_sink cannot write to the stream: No space left on device") != std::string::npos);
  CHECK(out.tables() == 1);
  CHECK(find(out.text(), "made for a full disk").at(1) == "1");
}

TEST_CASE("a summary on no stream says so, and can be asked all the same") {
  standard_error said;
  summary_sink s(nullptr);
  s.on_scope(made("made for nobody"));
  s.flush();
  s.flush();
  CHECK(lines_of(said.text()).size() == 1);
  CHECK(find(s.table(), "made for nobody").at(1) == "1");
}

TEST_CASE("threads deliver, ask and flush at once while attachments come and go; no record is lost") {
  constexpr int threads = 4;
  constexpr int rounds = 200;
  const written_file out;
  const auto lasting = std::make_shared<summary_sink>(nowhere());
  const auto passing = std::make_shared<summary_sink>(nowhere());
  const attachment a = attach(lasting);
  barrier start(threads + 1);
  std::vector<std::thread> workers;
  for (int t = 0; t < threads; ++t) {
    workers.emplace_back([&, t] {
      start.arrive_and_wait();
      const std::string mine = "thread " + std::to_string(t);
      for (int i = 0; i < rounds; ++i) {
        const scope common("at once");
        const block b(10);
        const scope own(mine);
      }
    });
  }
  start.arrive_and_wait();
  for (int i = 0; i < 30; ++i) {
    attachment brief = attach(passing);
    static_cast<void>(lasting->table());
    static_cast<void>(passing->top(3));
    tidemark::flush_sinks();
    brief.detach();
  }
  for (std::thread& w : workers) w.join();
  const std::string table = lasting->table();
  CHECK(table.find("tidemark summary: 1,600 scopes ended\n") == 0);
  CHECK(find(table, "at once").at(1) == "800");
  for (int t = 0; t < threads; ++t) CHECK(find(table, "thread " + std::to_string(t)).at(1) == "200");
  if (has_hook()) CHECK(find(table, "at once").at(6) == "800");
}

#if TIDEMARK_HAS_POSIX() && !TIDEMARK_HAS_SANITIZER_ALLOCATOR()  // whose locks a fork may leave held
TEST_CASE("a child that is forked while other threads deliver and ask has a table of its own") {
  const auto sink = std::make_shared<summary_sink>(nowhere());
  const attachment a = attach(sink);
  { const scope before("of the parent"); }
  std::atomic<bool> is_over{false};
  std::vector<std::thread> busy;
  busy.emplace_back([&] {
    while (!is_over) const scope s("busy");
  });
  busy.emplace_back([&] {
    while (!is_over) {
      static_cast<void>(sink->table());
      for (int i = 0; i < 100; ++i) const scope s("asking");  // the lock is not fair: a loop of nothing else keeps it
    }
  });
  int failed = 0;
  for (int i = 0; i < 20; ++i) {
    const pid_t child = ::fork();
    if (child == 0) {
      ::alarm(20);  // rather than wait for ever
      { const scope s("of the child"); }
      const std::string table = sink->table();
      const bool is_own = table.find("tidemark summary: 1 scope ended\n") == 0 &&
                          find(table, "of the child").at(1) == "1" && table.find("of the parent") == std::string::npos;
      ::_exit(is_own ? 0 : 1);
    }
    int status = 1;
    ::waitpid(child, &status, 0);
    failed += status == 0 ? 0 : 1;
  }
  is_over = true;
  for (std::thread& b : busy) b.join();
  CHECK(failed == 0);
  CHECK(find(sink->table(), "of the parent").at(1) == "1");
}
#endif
