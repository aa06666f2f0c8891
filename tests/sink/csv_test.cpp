// SPDX-License-Identifier: MIT
// What a row says, where the header comes, and what happens where none can be written. csv_check.py reads rows with a parser
// of its own.
#include <tidemark/hook/global_new.hpp>
#include <tidemark/sink/csv.hpp>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <tidemark/core/sink.hpp>
#include <tidemark/scope/scope.hpp>
#include <tidemark/sink/ring.hpp>

#include "records.hpp"
#include "test.hpp"

using tidemark::csv_sink;
using tidemark::reading;
using tidemark::scope;
using tidemark::scope_record;

namespace {

const std::string header_line(csv_sink::header().substr(0, csv_sink::header().size() - 1));

/// The field of that name in the row of a record of that name.
std::string field_of(std::string_view name) {
  scope_record r;
  r.path = std::string(name);
  const std::string row = csv_sink::rows(r);
  const std::size_t end = row.find(",,,0,");
  return end == std::string::npos ? "not a row: " + row : row.substr(0, end);
}

scope_record record_named(std::string name) {
  scope_record r;
  r.name = r.path = std::move(name);
  return r;
}

std::string row_of(const std::string& name) { return csv_sink::rows(record_named(name)); }

std::size_t headers_in(const std::vector<std::string>& lines) {
  return static_cast<std::size_t>(std::count(lines.begin(), lines.end(), header_line));
}

std::uint64_t dropped() { return tidemark::self().dropped_records; }

/// What `f` returns in a fork child.
template <class F>
int in_child(F f) {
  std::fflush(nullptr);  // the child has nothing to repeat
  const pid_t child = ::fork();
  if (child == 0) ::_exit(f());
  int status = -1;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/// A file-size limit for as long as it stands.
class size_limit {
 public:
  explicit size_limit(rlim_t bytes) {
    ::getrlimit(RLIMIT_FSIZE, &before_);
    rlimit lowered = before_;
    lowered.rlim_cur = bytes;
    ::setrlimit(RLIMIT_FSIZE, &lowered);
  }
  ~size_limit() { ::setrlimit(RLIMIT_FSIZE, &before_); }
  size_limit(const size_limit&) = delete;
  size_limit& operator=(const size_limit&) = delete;

 private:
  rlimit before_{};
};

/// The standard error as a pipe, which no file-size limit reaches.
class piped_error {
 public:
  piped_error() : kept_(::dup(STDERR_FILENO)) {
    if (::pipe2(ends_, O_CLOEXEC | O_NONBLOCK) == 0) ::dup2(ends_[1], STDERR_FILENO);
  }
  ~piped_error() {
    ::dup2(kept_, STDERR_FILENO);
    for (const int fd : {kept_, ends_[0], ends_[1]}) ::close(fd);
  }
  piped_error(const piped_error&) = delete;
  piped_error& operator=(const piped_error&) = delete;

  [[nodiscard]] std::string text() const {
    char buffer[4'096];
    const ssize_t n = ::read(ends_[0], buffer, sizeof buffer);
    return n > 0 ? std::string(buffer, static_cast<std::size_t>(n)) : std::string();
  }

 private:
  int kept_;
  int ends_[2] = {-1, -1};
};

}  // namespace

// ---- rows ----

TEST_CASE("a record is a row for each meter, with every field in its column") {
  CHECK(csv_sink::header() ==
        "path,name,file,line,pid,thread,depth,start_ns,duration_ns,exception,owned_bytes,owned_absent,meter,unit,"
        "entry_bytes,exit_bytes,peak_bytes,net_bytes,peak_growth_bytes,allocations,deallocations,allocated_bytes,"
        "freed_bytes,largest_bytes,error_bound_bytes,absent\n");
  const std::string common = "train step/forward,forward,model.cpp,42," + std::to_string(::getpid()) +
                             ",4242,1,123456789012345,1840999,false,640,,";
  CHECK(csv_sink::rows(record_by_hand()) ==
        common + "thread_heap,bytes,1000,900,13003343,-100,13002343,34,35,20000001,20000101,4096,0,\n" +  //
            common + "process_heap,bytes,1000,900,13003343,-100,13002343,1,35,20000001,20000101,4096,262144,\n" +
            common + "kv_tokens,tokens,7,9,12,2,5,,,,,,0,\n" +  //
            common + "resident,bytes,,,,,,,,,,,,no /proc\n");
}

TEST_CASE("every row has as many columns as the header") {
  const auto columns = [](std::string_view row) { return std::count(row.begin(), row.end(), ','); };
  for (const std::string& row : lines_of(csv_sink::rows(record_by_hand()))) CHECK(columns(row) == columns(header_line));
  CHECK(columns(row_of("no meters at all")) == columns(header_line));
}

TEST_CASE("an empty record, an exception and what is not owned have their row too") {
  scope_record r;
  r.left_by_exception = true;
  CHECK(csv_sink::rows(r) ==
        ",,,0," + std::to_string(::getpid()) + ",0,0,0,0,true,,not asked,,,,,,,,,,,,,,no meters\n");
}

TEST_CASE("the largest and smallest numbers are written whole") {
  scope_record r;
  r.thread = 18'446'744'073'709'551'615U;
  r.start_ns = 9'223'372'036'854'775'807;
  r.duration_ns = -9'223'372'036'854'775'807 - 1;
  CHECK(csv_sink::rows(r).find(",18446744073709551615,0,9223372036854775807,-9223372036854775808,") !=
        std::string::npos);
}

TEST_CASE("a field is quoted where RFC 4180 asks for it and kept where it does not") {
  CHECK(field_of("") == "");
  CHECK(field_of("plain / name's; \\ \xC3\xA9") == "plain / name's; \\ \xC3\xA9");
  CHECK(field_of("a,b") == R"("a,b")");
  CHECK(field_of(R"(say "no")") == R"("say ""no""")");
  CHECK(field_of(R"(")") == R"("""")");
  CHECK(field_of(R"(",")") == R"(""",""")");
}

TEST_CASE("a control character shows as text, so that a row stays one line") {
  CHECK(field_of("a\nb\r\tc") == R"(a\nb\x0d\x09c)");
  CHECK(field_of(std::string_view("a\0b\x1b[0m\x7f\xC2\x85", 10)) == R"(a\x00b\x1b[0m\x7f\x85)");
  CHECK(field_of("\xFF\xC3") == "\xEF\xBF\xBD\xEF\xBF\xBD");
}

TEST_CASE("a name that a spreadsheet would run as a formula begins with a single quote") {
  CHECK(field_of("=1+1") == "'=1+1");
  CHECK(field_of("+1") == "'+1");
  CHECK(field_of("-O2") == "'-O2");
  CHECK(field_of("@SUM(A1)") == "'@SUM(A1)");
  CHECK(field_of("\t=1") == R"(\x09=1)");  // begins with no tab any more
  CHECK(field_of("\r=1") == R"(\x0d=1)");
  CHECK(field_of("\xEF\xBC\x9D"
                 "1") ==
        "'\xEF\xBC\x9D"
        "1");
  CHECK(field_of("\xEF\xBC\xA0") == "'\xEF\xBC\xA0");
  CHECK(field_of("=A1,B1") == R"("'=A1,B1")");
  CHECK(field_of("1-1=0") == "1-1=0");
  scope_record r;
  r.meters.push_back({"=m", reading<tidemark::window_usage>::absent("-why"), "+u"});
  r.where = tidemark::location::current("@file", 1, "");
  r.owned_bytes = reading<std::int64_t>::absent("=o");
  CHECK(csv_sink::rows(r) ==
        ",,'@file,1," + std::to_string(::getpid()) + ",0,0,0,0,false,,'=o,'=m,'+u,,,,,,,,,,,,'-why\n");
}

// ---- the header ----

TEST_CASE("a file has one header, first, however often it is opened") {
  temporary_directory directory;
  const std::string path = directory.file("records.csv");
  for (int round = 0; round < 3; ++round) {
    csv_sink sink(path);
    CHECK(headers_in(lines_of(content(path))) == 1);
    sink.on_scope(record_by_hand());
  }
  CHECK(content(path) == header_line + "\n" + csv_sink::rows(record_by_hand()) + csv_sink::rows(record_by_hand()) +
                             csv_sink::rows(record_by_hand()));
}

TEST_CASE("an empty file gets the header, one that holds something does not") {
  temporary_directory directory;
  const std::string empty = directory.file("empty.csv");
  const std::string full = directory.file("full.csv");
  std::ofstream(empty).close();
  std::ofstream(full) << "x\n";
  csv_sink(empty).on_scope(record_named("n"));
  csv_sink(full).on_scope(record_named("n"));
  CHECK(content(empty) == header_line + "\n" + row_of("n"));
  CHECK(content(full) == "x\n" + row_of("n"));
}

TEST_CASE("a stream gets the header once, before the first row and after what it holds, and stays the caller's") {
  temporary_directory directory;
  const std::string path = directory.file("stream.csv");
  std::FILE* stream = std::fopen(path.c_str(), "w");
  REQUIRE(stream != nullptr);
  std::fputs("held\n", stream);
  {
    csv_sink sink(stream);
    sink.on_scope(record_named("one"));
    sink.on_scope(record_named("two"));
  }
  std::fputs("still open\n", stream);
  std::fclose(stream);
  CHECK(content(path) == "held\n" + header_line + "\n" + row_of("one") + row_of("two") + "still open\n");
}

TEST_CASE("a stream without a descriptor has a header too") {
  char* text = nullptr;
  std::size_t size = 0;
  std::FILE* stream = ::open_memstream(&text, &size);
  REQUIRE(stream != nullptr);
  csv_sink(stream).on_scope(record_named("one"));
  CHECK(std::string(text, size) == header_line + "\n" + row_of("one"));
  std::fclose(stream);
  std::free(text);
}

TEST_CASE("of processes that open a file at once, one writes the header, and before every row") {
  constexpr int processes = 6;
  temporary_directory directory;
  for (int round = 0; round < 40; ++round) {
    const std::string path = directory.file("shared" + std::to_string(round) + ".csv");
    int gate[2] = {-1, -1};
    REQUIRE(::pipe2(gate, O_CLOEXEC) == 0);
    std::fflush(nullptr);
    std::vector<pid_t> children;
    for (int i = 0; i < processes; ++i) {
      children.push_back(::fork());
      if (children.back() == 0) {
        ::close(gate[1]);
        char none = 0;
        if (::read(gate[0], &none, 1) != 0) ::_exit(1);  // until the last writer is gone
        csv_sink sink(path);
        sink.on_scope(record_named("row"));
        ::_exit(0);
      }
    }
    ::close(gate[0]);
    ::close(gate[1]);
    int failed = 0;
    for (const pid_t child : children) {
      int status = -1;
      ::waitpid(child, &status, 0);
      failed += status == 0 ? 0 : 1;
    }
    CHECK(failed == 0);
    const std::vector<std::string> lines = lines_of(content(path));
    CHECK(lines.size() == processes + 1);
    CHECK(headers_in(lines) == 1);
    CHECK(lines.at(0) == header_line);
  }
}

TEST_CASE("a lock that someone else keeps on the file holds no program up") {
  temporary_directory directory;
  const std::string path = directory.file("locked.csv");
  const int fd = ::open(path.c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
  REQUIRE(::flock(fd, LOCK_EX) == 0);
  csv_sink(path).on_scope(record_named("n"));
  ::close(fd);
  CHECK(content(path) == header_line + "\n" + row_of("n"));
}

TEST_CASE("a file is locked no longer than its header takes") {
  temporary_directory directory;
  const std::string path = directory.file("free.csv");
  const csv_sink sink(path);
  const int fd = ::open(path.c_str(), O_WRONLY | O_CLOEXEC);
  CHECK(::flock(fd, LOCK_EX | LOCK_NB) == 0);
  ::close(fd);
}

TEST_CASE("a fork child's row carries the child's pid and comes without a header, by path and by stream") {
  temporary_directory directory;
  const std::string by_path = directory.file("forked.csv");
  const std::string by_stream = directory.file("forked stream.csv");
  std::FILE* stream = std::fopen(by_stream.c_str(), "a");
  REQUIRE(stream != nullptr);
  pid_t child = -1;
  {
    const auto first = tidemark::attach(std::make_shared<csv_sink>(by_path));
    const auto second = tidemark::attach(std::make_shared<csv_sink>(stream));
    // Before the first row of the parent.
    CHECK(in_child([] {
            { const scope s("child"); }
            return 0;
          }) == 0);
    { const scope s("parent"); }
    std::fflush(nullptr);
    child = ::fork();
    if (child == 0) {
      { const scope s("second child"); }
      ::_exit(0);
    }
    int status = -1;
    ::waitpid(child, &status, 0);
    CHECK(status == 0);
  }
  std::fclose(stream);
  for (const std::string& path : {by_path, by_stream}) {
    CAPTURE(path);
    const std::vector<std::string> lines = lines_of(content(path));
    CHECK(lines.size() == 4);
    CHECK(lines.at(0) == header_line);
    CHECK(headers_in(lines) == 1);
    CHECK(lines.at(1).find("child,child,") == 0);
    CHECK(lines.at(1).find("," + std::to_string(::getpid()) + ",") == std::string::npos);
    CHECK(lines.at(2).find("parent,parent,") == 0);
    CHECK(lines.at(2).find("," + std::to_string(::getpid()) + ",") != std::string::npos);
    CHECK(lines.at(3).find("second child,second child,") == 0);
    CHECK(lines.at(3).find("," + std::to_string(child) + ",") != std::string::npos);
  }
}

// ---- files ----

TEST_CASE("the rows of a record are one write") {
  int ends[2] = {-1, -1};
  REQUIRE(::pipe2(ends, O_DIRECT | O_CLOEXEC) == 0);  // every read gives one write
  std::FILE* stream = ::fdopen(ends[1], "w");
  csv_sink(stream).on_scope(record_by_hand());
  std::string got[2];
  char buffer[65'536];
  for (std::string& one : got) {
    const ssize_t n = ::read(ends[0], buffer, sizeof buffer);
    one.assign(buffer, n > 0 ? static_cast<std::size_t>(n) : 0);
  }
  CHECK(got[0] == csv_sink::header());
  CHECK(got[1] == csv_sink::rows(record_by_hand()));
  std::fclose(stream);
  ::close(ends[0]);
}

TEST_CASE("every scope appends its rows, with the numbers that its record has") {
  temporary_directory directory;
  const std::string path = directory.file("scopes.csv");
  std::string expected = header_line + "\n";
  {
    const auto attached = tidemark::attach(std::make_shared<csv_sink>(path));
    tidemark::basic_scope<tidemark::meter::thread_heap, tidemark::meter::process_heap> outer("outer");
    scope inner("inner");
    expected += csv_sink::rows(inner.close());
    expected += csv_sink::rows(outer.close());
  }
  CHECK(content(path) == expected);
  CHECK(lines_of(expected).size() == 4);
}

TEST_CASE("rows of 8 threads do not mix") {
  constexpr int threads = 8;
  constexpr int scopes = 200;
  temporary_directory directory;
  const std::string path = directory.file("threads.csv");
  {
    const auto attached = tidemark::attach(std::make_shared<csv_sink>(path));
    std::vector<std::thread> workers;
    for (int t = 0; t < threads; ++t) {
      workers.emplace_back([t] {
        const std::string name(static_cast<std::size_t>(t) * 30 + 1, static_cast<char>('a' + t));
        for (int i = 0; i < scopes; ++i) {
          const tidemark::basic_scope<tidemark::meter::thread_heap, tidemark::meter::process_heap> s(name);
        }
      });
    }
    for (std::thread& w : workers) w.join();
  }
  int whole = 0;
  const std::vector<std::string> lines = lines_of(content(path));
  CHECK(lines.at(0) == header_line);
  for (std::size_t i = 1; i + 1 < lines.size(); i += 2) {  // the two rows of a record stay together
    const std::string name = lines[i].substr(0, lines[i].find(','));
    const std::string common = lines[i].substr(0, lines[i].find(",thread_heap,"));
    whole += name == std::string(static_cast<std::size_t>(name.front() - 'a') * 30 + 1, name.front()) &&
                     lines[i + 1].find(common + ",process_heap,") == 0 && lines[i].back() == ',' &&
                     lines[i + 1].back() == ','
                 ? 1
                 : 0;
  }
  CHECK(lines.size() == 2 * threads * scopes + 1);
  CHECK(whole == threads * scopes);
}

TEST_CASE("what the sink keeps is not in the user's numbers") {
  const std::string path = "/dev/null";
  const std::string missing = "/a directory that is not there, with a long name/records.csv";
  const standard_error silenced;
  const auto live = [] { return tidemark::thread_usage().value_or(tidemark::usage{}); };
  std::string given[] = {path, missing};
  const tidemark::usage before = live();
  alignas(csv_sink) unsigned char place[2][sizeof(csv_sink)];
  auto* first = new (place[0]) csv_sink(std::move(given[0]));
  auto* second = new (place[1]) csv_sink(std::move(given[1]));
  const tidemark::usage made = live();
  first->~csv_sink();
  second->~csv_sink();
  // The strings that were given are gone with the constructors.
  CHECK(made.live_bytes - before.live_bytes <= 0);
  CHECK(made.live_blocks - before.live_blocks <= 0);
}

// ---- what a system cuts short ----

TEST_CASE("a header that is cut short, or not written at all, is completed before the next row that can be written") {
  temporary_directory directory;
  for (const bool is_path : {true, false}) {
    for (const rlim_t room : {rlim_t{0}, rlim_t{20}}) {
      CAPTURE(is_path);
      CAPTURE(room);
      const std::string path = directory.file("limited" + std::to_string(room) + (is_path ? ".csv" : " stream.csv"));
      std::FILE* stream = is_path ? nullptr : std::fopen(path.c_str(), "w");
      const std::uint64_t before = dropped();
      std::unique_ptr<csv_sink> sink;
      std::string said;
      {
        const size_limit limit(room);
        piped_error captured;
        sink = is_path ? std::make_unique<csv_sink>(path) : std::make_unique<csv_sink>(stream);
        sink->on_scope(record_named("lost"));
        said = captured.text();
      }
      CHECK(content(path) == header_line.substr(0, room));
      CHECK(dropped() - before == 1);  // the header is no record
      CHECK(lines_of(said).size() == 1);
      sink->on_scope(record_named("kept"));
      sink->on_scope(record_named("too"));
      CHECK(content(path) == header_line + "\n" + row_of("kept") + row_of("too"));
      sink.reset();
      if (stream != nullptr) std::fclose(stream);
    }
  }
}

TEST_CASE("threads that find the header still due at the same time write it once, before their rows") {
  constexpr int threads = 4;
  temporary_directory directory;
  int wrong = 0;
  for (int round = 0; round < 300; ++round) {
    const std::string path = directory.file("due.csv");
    std::FILE* stream = round % 2 == 0 ? nullptr : std::fopen(path.c_str(), "w");
    std::unique_ptr<csv_sink> sink;
    {
      const size_limit limit(0);
      const piped_error silenced;
      sink = stream == nullptr ? std::make_unique<csv_sink>(path) : std::make_unique<csv_sink>(stream);
    }
    std::atomic<int> waiting{threads};
    std::vector<std::thread> writers;
    for (int t = 0; t < threads; ++t) {
      writers.emplace_back([&] {
        for (--waiting; waiting > 0;) std::this_thread::yield();  // they begin together
        sink->on_scope(record_named("n"));
      });
    }
    for (std::thread& w : writers) w.join();
    sink.reset();
    if (stream != nullptr) std::fclose(stream);
    const std::vector<std::string> lines = lines_of(content(path));
    wrong += lines.size() == threads + 1 && lines.at(0) == header_line && headers_in(lines) == 1 ? 0 : 1;
    ::unlink(path.c_str());
  }
  CHECK(wrong == 0);
}

TEST_CASE("a row that is cut within its quotes is closed, so that the next rows are read as rows") {
  temporary_directory directory;
  struct row {
    std::string_view name;
    std::size_t room;
    std::string_view left;
  };
  int n = 0;
  for (const row& r : {row{"a,b", 2, "\"a\"\n"},            // within the quotes
                       row{"a,b", 5, "\"a,b\"\n"},          // behind them
                       row{"plain", 3, "pla\n"},            // without
                       row{"say \"no\"", 6, "\"say \"\n"},  // between the halves of a doubled one
                       row{"say \"no\"", 7, "\"say \"\"\"\n"}}) {
    CAPTURE(r.name);
    CAPTURE(r.room);
    const std::string path = directory.file("cut" + std::to_string(n++) + ".csv");
    csv_sink sink(path);
    const std::size_t before = content(path).size();
    {
      const size_limit limit(before + r.room);
      const piped_error silenced;
      sink.on_scope(record_named(std::string(r.name)));
      sink.on_scope(record_named("nothing of this"));
    }
    sink.on_scope(record_named("next"));
    sink.on_scope(record_named("after"));
    CHECK(content(path).substr(before) == std::string(r.left) + row_of("next") + row_of("after"));
  }
}

TEST_CASE("rows that are cut between two lines leave no empty line") {
  temporary_directory directory;
  const std::string path = directory.file("between.csv");
  csv_sink sink(path);
  const std::string first = lines_of(csv_sink::rows(record_by_hand())).at(0) + "\n";
  {
    const size_limit limit(csv_sink::header().size() + first.size());
    const piped_error silenced;
    sink.on_scope(record_by_hand());
  }
  sink.on_scope(record_named("next"));
  CHECK(content(path) == header_line + "\n" + first + row_of("next"));
}

// ---- failures ----

namespace {

/// Attaches a sink that cannot write next to one that can, closes scopes, and gives what was said.
std::string said_while_failing(const std::function<std::shared_ptr<tidemark::sink>()>& make) {
  standard_error captured;
  const std::uint64_t before = dropped();
  const auto ring = std::make_shared<tidemark::ring_sink>(16);
  std::size_t kept = 0;
  {
    const auto failing = tidemark::attach(make());
    const auto working = tidemark::attach(ring);
    for (int i = 0; i < 5; ++i) const scope s("measured");
    kept = ring->scopes().size();
  }
  std::string said = captured.text();
  CHECK(dropped() - before == 5);
  CHECK(kept == 5);
  return said;
}

void check_one_line(const std::string& said, std::string_view path, std::string_view reason) {
  CAPTURE(said);
  CHECK(lines_of(said).size() == 1);
  CHECK(said.find("tidemark: csv_sink cannot write to ") == 0);
  CHECK(said.find(path) != std::string::npos);
  CHECK(said.find(reason) != std::string::npos);
  CHECK(said.find("self().dropped_records") != std::string::npos);
  CHECK(said.back() == '\n');
}

}  // namespace

TEST_CASE("a path that cannot be written is said once with its reason, its records are counted, other sinks go on") {
  temporary_directory directory;
  struct row {
    std::string path;
    std::string_view reason;
  };
  for (const row& r : {row{directory.path() + "/missing/records.csv", "No such file or directory"},
                       row{directory.path(), "Is a directory"}, row{"", "No such file or directory"},
                       row{"/dev/full", "No space left on device"}}) {
    const std::string said = said_while_failing([&r] { return std::make_shared<csv_sink>(r.path); });
    check_one_line(said, "'" + r.path + "'", r.reason);
  }
}

TEST_CASE("a full disk and a closed pipe under a stream are said once as well, without a signal") {
  std::FILE* full = std::fopen("/dev/full", "w");
  REQUIRE(full != nullptr);
  check_one_line(said_while_failing([full] { return std::make_shared<csv_sink>(full); }), "the stream",
                 "No space left on device");
  std::fclose(full);

  int ends[2] = {-1, -1};
  REQUIRE(::pipe2(ends, O_CLOEXEC) == 0);
  ::close(ends[0]);
  std::FILE* broken = ::fdopen(ends[1], "w");
  check_one_line(said_while_failing([broken] { return std::make_shared<csv_sink>(broken); }), "the stream",
                 "Broken pipe");
  std::fclose(broken);

  check_one_line(said_while_failing([] { return std::make_shared<csv_sink>(static_cast<std::FILE*>(nullptr)); }),
                 "the stream", "Bad file descriptor");
}
