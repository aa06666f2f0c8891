// SPDX-License-Identifier: MIT
#include <tidemark/sys/file.hpp>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <map>
#include <sstream>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "files.hpp"
#include "test.hpp"

using tidemark::append_file;

namespace {

void write_file(const std::string& path, std::string_view text) { std::ofstream(path, std::ios::binary) << text; }

/// A pipe, or with O_DIRECT one whose every read gives one write.
struct pipe_pair {
  explicit pipe_pair(int flags = 0) { made = ::pipe2(ends, flags | O_CLOEXEC) == 0; }
  ~pipe_pair() {
    close_read();
    if (ends[1] >= 0) ::close(ends[1]);
  }
  pipe_pair(const pipe_pair&) = delete;
  pipe_pair& operator=(const pipe_pair&) = delete;

  void close_read() {
    if (ends[0] >= 0) ::close(ends[0]);
    ends[0] = -1;
  }
  [[nodiscard]] std::string read_once() const {
    char buffer[65'536];
    const ssize_t n = ::read(ends[0], buffer, sizeof buffer);
    return n > 0 ? std::string(buffer, static_cast<std::size_t>(n)) : std::string();
  }
  /// The write end as a stream, which closes it.
  [[nodiscard]] std::FILE* take_stream() {
    std::FILE* f = ::fdopen(ends[1], "w");
    ends[1] = -1;
    return f;
  }

  bool made = false;
  int ends[2] = {-1, -1};
};

/// How many system calls this thread made to write; -1 where the kernel does not count them.
/// Source: proc(5), /proc/[pid]/io, "syscw".
std::int64_t write_calls() {
  const int fd = ::open("/proc/thread-self/io", O_RDONLY | O_CLOEXEC);
  if (fd < 0) return -1;
  char buffer[1'024] = {};
  const ssize_t n = ::read(fd, buffer, sizeof buffer - 1);
  ::close(fd);
  const std::string text(buffer, n > 0 ? static_cast<std::size_t>(n) : 0);
  const std::size_t at = text.find("syscw: ");
  return at == std::string::npos ? -1 : std::strtoll(text.c_str() + at + 7, nullptr, 10);
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

bool is_pending(int signal) {
  sigset_t set;
  sigpending(&set);
  return sigismember(&set, signal) == 1;
}
bool is_blocked(int signal) {
  sigset_t set;
  pthread_sigmask(SIG_SETMASK, nullptr, &set);
  return sigismember(&set, signal) == 1;
}
sigset_t only(int signal) {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, signal);
  return set;
}

std::atomic<int> signals_seen{0};

/// Counts a signal for as long as it stands.
class counted_signal {
 public:
  explicit counted_signal(int signal) : signal_(signal) {
    signals_seen = 0;
    struct sigaction count = {};
    count.sa_handler = [](int) { ++signals_seen; };
    ::sigaction(signal, &count, &before_);
  }
  ~counted_signal() { ::sigaction(signal_, &before_, nullptr); }
  counted_signal(const counted_signal&) = delete;
  counted_signal& operator=(const counted_signal&) = delete;

 private:
  int signal_;
  struct sigaction before_ = {};
};

/// A child that has nothing of this process's output to repeat.
pid_t fork_cleanly() {
  std::fflush(nullptr);
  return ::fork();
}

/// "process thread number xxxx\n", as long as its number says.
std::string numbered_line(int process, int thread, int number) {
  std::string line = std::to_string(process) + ' ' + std::to_string(thread) + ' ' + std::to_string(number) + ' ';
  line.append(static_cast<std::size_t>(number % 97) * 11, static_cast<char>('a' + thread));
  return line + '\n';
}

}  // namespace

// ---- one write per line ----

TEST_CASE("each line is one write") {
  pipe_pair pipe(O_DIRECT);
  REQUIRE(pipe.made);
  std::FILE* stream = pipe.take_stream();
  {
    append_file f(stream);
    CHECK(f.append("first\n") == 0);
    CHECK(f.append(std::string(3'000, 'x') + "\n") == 0);
    CHECK(f.append("two\nlines at once\n") == 0);
  }
  CHECK(pipe.read_once() == "first\n");
  CHECK(pipe.read_once() == std::string(3'000, 'x') + "\n");
  CHECK(pipe.read_once() == "two\nlines at once\n");
  std::fclose(stream);
}

TEST_CASE("a line to a path, of any length, is one system call that writes") {
  temporary_directory directory;
  const std::string path = directory.file("lines");
  append_file f(path);
  const std::string large(1'000'000, 'y');
  const std::int64_t before = write_calls();
  int failed = f.append("short\n");
  failed += f.append(large + "\n");
  const std::int64_t after = write_calls();
  CHECK(failed == 0);
  if (before < 0) {
    MESSAGE("the kernel does not count the calls that write");
  } else {
    CHECK(after - before == 2);
  }
  CHECK(content(path) == "short\n" + large + "\n");
}

TEST_CASE("a path is appended to, and made if need be") {
  temporary_directory directory;
  const std::string path = directory.file("log");
  write_file(path, "before\n");
  {
    append_file f(path);
    CHECK(f.error() == 0);
    CHECK(f.name() == "'" + path + "'");
    CHECK(f.append("one\n") == 0);
    write_file(path, "");  // someone empties it: the next line is at its start, not beyond it
    CHECK(f.append("two\n") == 0);
  }
  CHECK(content(path) == "two\n");
  append_file fresh(directory.file("fresh"));
  CHECK(fresh.append("three\n") == 0);
  CHECK(content(directory.path() + "/fresh") == "three\n");
  CHECK(fresh.append("") == 0);
  CHECK(content(directory.path() + "/fresh") == "three\n");
}

TEST_CASE("a path is not inherited by programs that are started") {
  temporary_directory directory;
  const int next = ::dup(0);
  ::close(next);
  append_file f(directory.file("closed on exec"));
  CHECK((::fcntl(next, F_GETFD) & FD_CLOEXEC) != 0);
}

TEST_CASE("lines of 8 threads in each of 2 processes never mix") {
  constexpr int processes = 2;
  constexpr int threads = 8;
  constexpr int lines = 400;
  temporary_directory directory;
  const std::string path = directory.file("shared");
  const auto write_all = [&path](int process) {
    append_file f(path);
    std::atomic<int> failures{0};
    std::vector<std::thread> writers;
    for (int t = 0; t < threads; ++t) {
      writers.emplace_back([&f, &failures, process, t] {
        for (int i = 0; i < lines; ++i) failures += f.append(numbered_line(process, t, i)) == 0 ? 0 : 1;
      });
    }
    for (std::thread& w : writers) w.join();
    return failures.load();
  };
  const pid_t child = fork_cleanly();
  if (child == 0) ::_exit(write_all(1) == 0 ? 0 : 1);
  CHECK(write_all(0) == 0);
  int status = -1;
  ::waitpid(child, &status, 0);
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);

  std::istringstream in(content(path));
  std::map<std::pair<int, int>, int> next;  // in order within each thread
  int wrong = 0;
  int count = 0;
  for (std::string line; std::getline(in, line); ++count) {
    int process = -1, thread = -1, number = -1;
    const int read = std::sscanf(line.c_str(), "%d %d %d", &process, &thread, &number);
    const bool known =
        read == 3 && process >= 0 && process < processes && thread >= 0 && thread < threads && number >= 0;
    if (!known || line + '\n' != numbered_line(process, thread, number) || next[{process, thread}]++ != number) ++wrong;
  }
  CHECK(wrong == 0);
  CHECK(count == processes * threads * lines);
}

TEST_CASE("lines of 8 threads through one stream never mix") {
  constexpr int threads = 8;
  constexpr int lines = 300;
  temporary_directory directory;
  const std::string path = directory.file("stream");
  std::FILE* stream = std::fopen(path.c_str(), "a");
  REQUIRE(stream != nullptr);
  std::atomic<int> failures{0};
  {
    append_file f(stream);
    std::vector<std::thread> writers;
    for (int t = 0; t < threads; ++t) {
      writers.emplace_back([&f, &failures, t] {
        for (int i = 0; i < lines; ++i) failures += f.append(numbered_line(0, t, i)) == 0 ? 0 : 1;
      });
    }
    for (std::thread& w : writers) w.join();
  }
  std::fclose(stream);
  CHECK(failures == 0);
  std::istringstream in(content(path));
  int wrong = 0;
  int count = 0;
  for (std::string line; std::getline(in, line); ++count) {
    int process = -1, thread = -1, number = -1;
    const int read = std::sscanf(line.c_str(), "%d %d %d", &process, &thread, &number);
    if (read != 3 || thread < 0 || number < 0 || line + '\n' != numbered_line(process, thread, number)) ++wrong;
  }
  CHECK(wrong == 0);
  CHECK(count == threads * lines);
}

// ---- what a system cuts short ----

TEST_CASE("a file-size limit is EFBIG without a signal, and after it the next line begins on a line of its own") {
  temporary_directory directory;
  const std::string path = directory.file("limited");
  append_file f(path);
  int torn = 0, at_limit = 0;
  bool pending = true;
  {
    const counted_signal counted(SIGXFSZ);
    const size_limit limit(20);
    CHECK(f.append("whole line\n") == 0);
    torn = f.append("cut short by the limit\n");
    at_limit = f.append("nothing of this\n");
    pending = is_pending(SIGXFSZ);
    CHECK(signals_seen == 0);
  }
  CHECK(torn == EFBIG);
  CHECK(at_limit == EFBIG);
  CHECK(!pending);
  CHECK(!is_blocked(SIGXFSZ));
  CHECK(content(path) == "whole line\ncut short");
  CHECK(f.append("next\n") == 0);
  CHECK(f.append("after\n") == 0);
  CHECK(content(path) == "whole line\ncut short\nnext\nafter\n");
}

TEST_CASE("a limit does not end a program that has no handler for its signal") {
  temporary_directory directory;
  const std::string path = directory.file("limited");
  const pid_t child = fork_cleanly();
  if (child == 0) {
    ::signal(SIGXFSZ, SIG_DFL);
    ::signal(SIGPIPE, SIG_DFL);
    bool as_expected = false;
    {
      const size_limit limit(4);
      append_file f(path);
      as_expected = f.append("too long\n") == EFBIG && f.append("too long\n") == EFBIG;
    }
    pipe_pair pipe;
    std::FILE* stream = pipe.take_stream();
    pipe.close_read();
    append_file to_pipe(stream);
    ::_exit(as_expected && to_pipe.append("line\n") == EPIPE ? 7 : 1);
  }
  int status = -1;
  ::waitpid(child, &status, 0);
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 7);
}

TEST_CASE("what a stream still holds is not lost to a limit without a word") {
  temporary_directory directory;
  const std::string path = directory.file("limited stream");
  std::FILE* stream = std::fopen(path.c_str(), "w");
  REQUIRE(stream != nullptr);
  int failed = 0;
  {
    append_file f(stream);
    const size_limit limit(3);
    std::fputs("held\n", stream);
    failed = f.append("line\n");
  }
  CHECK(failed == EFBIG);
  CHECK(!is_pending(SIGXFSZ));
  std::fclose(stream);
}

// ---- pipes and signals ----

TEST_CASE("a closed pipe is EPIPE without a signal, each time") {
  pipe_pair pipe;
  std::FILE* stream = pipe.take_stream();
  pipe.close_read();
  {
    append_file f(stream);
    const counted_signal counted(SIGPIPE);
    errno = 42;
    CHECK(f.append("line\n") == EPIPE);
    CHECK(errno == 42);
    CHECK(f.append("line\n") == EPIPE);
    CHECK(signals_seen == 0);
    CHECK(!is_pending(SIGPIPE));
    CHECK(!is_blocked(SIGPIPE));
    // The program's own broken pipe still raises its signal.
    CHECK(::write(::fileno(stream), "x", 1) == -1);
    CHECK(signals_seen == 1);
  }
  const counted_signal counted(SIGPIPE);
  std::fclose(stream);
}

TEST_CASE("a SIGPIPE that was pending stays pending, and what was blocked stays blocked") {
  pipe_pair pipe;
  std::FILE* stream = pipe.take_stream();
  pipe.close_read();
  const sigset_t set = only(SIGPIPE);
  for (const bool to_process : {false, true}) {
    CAPTURE(to_process);
    append_file f(stream);
    const counted_signal counted(SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &set, nullptr);
    to_process ? ::kill(::getpid(), SIGPIPE) : pthread_kill(pthread_self(), SIGPIPE);
    const bool before = is_pending(SIGPIPE);
    const int failed = f.append("line\n");
    const bool after = is_pending(SIGPIPE);
    const bool blocked = is_blocked(SIGPIPE);
    // It is delivered once the program lets it be.
    pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
    CHECK(before);
    CHECK(failed == EPIPE);
    CHECK(after);
    CHECK(blocked);
    CHECK(signals_seen >= 1);
    CHECK(!is_pending(SIGPIPE));
  }
  {
    append_file f(stream);
    pthread_sigmask(SIG_BLOCK, &set, nullptr);
    const int failed = f.append("line\n");
    const bool pending = is_pending(SIGPIPE);
    const bool blocked = is_blocked(SIGPIPE);
    pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
    CHECK(failed == EPIPE);
    CHECK(!pending);
    CHECK(blocked);
  }
  const counted_signal counted(SIGPIPE);
  std::fclose(stream);
}

TEST_CASE("an ignored SIGPIPE is EPIPE too") {
  pipe_pair pipe;
  std::FILE* stream = pipe.take_stream();
  pipe.close_read();
  struct sigaction ignore = {};
  struct sigaction before = {};
  ignore.sa_handler = SIG_IGN;
  ::sigaction(SIGPIPE, &ignore, &before);
  {
    append_file f(stream);
    CHECK(f.append("line\n") == EPIPE);
  }
  std::fclose(stream);
  ::sigaction(SIGPIPE, &before, nullptr);
}

// ---- full disks and paths that cannot be opened ----

TEST_CASE("a full disk is ENOSPC, by path and by stream") {
  append_file by_path(std::string("/dev/full"));
  CHECK(by_path.error() == 0);
  CHECK(by_path.append("line\n") == ENOSPC);
  CHECK(by_path.append("line\n") == ENOSPC);
  std::FILE* stream = std::fopen("/dev/full", "w");
  REQUIRE(stream != nullptr);
  {
    append_file by_stream(stream);
    CHECK(by_stream.append("line\n") == ENOSPC);
    std::fputs("held", stream);
    CHECK(by_stream.append("line\n") == ENOSPC);
  }
  std::fclose(stream);
}

TEST_CASE("a path that cannot be opened answers every append with the reason") {
  temporary_directory directory;
  const std::string plain = directory.file("plain");
  write_file(plain, "");
  const std::string loop = directory.file("loop");
  CHECK(::symlink(loop.c_str(), loop.c_str()) == 0);
  struct row {
    std::string path;
    int error;
  };
  for (const row& r : {row{"", ENOENT}, row{directory.path() + "/missing/file", ENOENT}, row{directory.path(), EISDIR},
                       row{plain + "/below a file", ENOTDIR}, row{loop, ELOOP},
                       row{directory.path() + "/" + std::string(300, 'n'), ENAMETOOLONG}}) {
    CAPTURE(r.path);
    errno = 42;
    append_file f(r.path);
    CHECK(errno == 42);
    CHECK(f.error() == r.error);
    CHECK(f.append("line\n") == r.error);
    CHECK(f.append("line\n") == r.error);
    CHECK(f.name() == "'" + r.path + "'");
  }
  if (::geteuid() != 0) {
    const std::string forbidden = directory.file("forbidden");
    write_file(forbidden, "");
    ::chmod(forbidden.c_str(), 0400);
    CHECK(append_file(forbidden).error() == EACCES);
  }
  CHECK(append_file::describe(ENOSPC) == "No space left on device");
  CHECK(content(plain).empty());
}

TEST_CASE("a stream that is null, or only read, answers that it cannot be written") {
  append_file null(static_cast<std::FILE*>(nullptr));
  CHECK(null.error() == EBADF);
  CHECK(null.append("line\n") == EBADF);
  std::FILE* in = std::fopen("/dev/null", "r");
  REQUIRE(in != nullptr);
  append_file read_only(in);
  CHECK(read_only.append("line\n") == EBADF);
  std::fclose(in);
}

// ---- streams ----

TEST_CASE("a stream stays open and the caller's, and what it holds comes before the line") {
  temporary_directory directory;
  const std::string path = directory.file("mixed");
  for (const char* mode : {"w", "a", "w+", "a+"}) {
    CAPTURE(mode);
    std::FILE* stream = std::fopen(path.c_str(), mode);
    REQUIRE(stream != nullptr);
    if (mode[0] == 'a') CHECK(::ftruncate(::fileno(stream), 0) == 0);
    std::setvbuf(stream, nullptr, _IOFBF, 4'096);
    std::fputs("held by the stream, ", stream);
    {
      append_file f(stream);
      CHECK(f.name() == "the stream");
      CHECK(f.append("then the line\n") == 0);
      std::fputs("more of the caller's\n", stream);
      CHECK(f.append("a second line\n") == 0);
    }
    CHECK(std::fputs("still open\n", stream) >= 0);
    CHECK(std::fclose(stream) == 0);
    CHECK(content(path) == "held by the stream, then the line\nmore of the caller's\na second line\nstill open\n");
  }
}

TEST_CASE("a fork child repeats nothing of what was written before") {
  temporary_directory directory;
  const std::string path = directory.file("forked");
  std::FILE* stream = std::fopen(path.c_str(), "a");
  REQUIRE(stream != nullptr);
  append_file f(stream);
  CHECK(f.append("parent\n") == 0);
  const pid_t child = fork_cleanly();
  if (child == 0) {
    const int failed = f.append("child\n");
    std::fclose(stream);
    ::_exit(failed);
  }
  int status = -1;
  ::waitpid(child, &status, 0);
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
  std::fclose(stream);
  CHECK(content(path) == "parent\nchild\n");
}

TEST_CASE("a stream without a descriptor is written and flushed, and says when it is full") {
  char buffer[16] = {};
  std::FILE* stream = ::fmemopen(buffer, sizeof buffer, "w");
  REQUIRE(stream != nullptr);
  {
    append_file f(stream);
    CHECK(f.error() == 0);
    CHECK(f.append("seven\n") == 0);
    CHECK(std::string(buffer) == "seven\n");
    CHECK(f.append("does not fit at all\n") != 0);
    CHECK(f.append("nor does this line\n") != 0);
  }
  std::fclose(stream);

  char* text = nullptr;
  std::size_t size = 0;
  std::FILE* growing = ::open_memstream(&text, &size);
  REQUIRE(growing != nullptr);
  {
    std::fputs("held, ", growing);
    append_file f(growing);
    CHECK(f.append("line\n") == 0);
    CHECK(std::string(text, size) == "held, line\n");
  }
  std::fclose(growing);
  std::free(text);
}

TEST_CASE("a pipe that nobody reads is an error, not a wait") {
  temporary_directory place;
  const std::string pipe = place.file("pipe");
  REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);
  append_file unread(pipe);
  CHECK(unread.error() == ENXIO);
  const int reader = ::open(pipe.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  append_file read(pipe);
  CHECK(read.append("a line\n") == 0);
  char text[16] = "";
  CHECK(::read(reader, text, sizeof text) == 7);
  ::close(reader);
}
