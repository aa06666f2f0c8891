// SPDX-License-Identifier: MIT
// A signal asks for a dump: a monitor's thread writes it, or the next check; handlers that were there go on.
#include <tidemark/monitor/dump.hpp>

#include <chrono>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <tidemark/hook/global_new.hpp>
#include <tidemark/monitor/monitor.hpp>

#include "files.hpp"
#include "monitor_support.hpp"
#include "standard_error.hpp"
#include "test.hpp"

using namespace tidemark;

namespace {

volatile sig_atomic_t calls_before = 0;

bool is_dump(const std::string& text) {
  return text.find("tidemark: where the memory of process " + std::to_string(::getpid()) + " is, ") == 0 &&
         text.find("\nrequested\n") != std::string::npos && text.find("  unaccounted") != std::string::npos;
}

}  // namespace

TEST_CASE("a signal makes a monitor write a dump, and the handler before it is called too") {
  temporary_directory place;
  const std::string path = place.file("dump.txt");
  struct sigaction mine = {};
  mine.sa_handler = [](int) { calls_before = calls_before + 1; };
  ::sigaction(SIGUSR1, &mine, nullptr);
  dump_on_signal(SIGUSR1, path);
  dump_on_signal(SIGUSR1);  // changes nothing
  const auto sink = std::make_shared<keeping_sink>();
  const attachment attached = attach(sink);
  {
    monitor_options o = by_hand();
    o.interval = std::chrono::hours(1);
    monitor m(o);
    sink->wait_for_samples(1);
    CHECK(content(path).empty());
    ::raise(SIGUSR1);
    sink->wait_for_flushes(1);  // which come after the dump
    CHECK(is_dump(content(path)));
    CHECK(calls_before == 1);
    CHECK(sink->samples().size() == 1);  // it woke the monitor, and was no sample
  }
  // Without a thread the next check writes it.
  const std::string before = content(path);
  monitor m(by_hand());
  ::raise(SIGUSR1);
  ::raise(SIGUSR1);
  CHECK(content(path) == before);
  m.check();
  CHECK(is_dump(content(path).substr(before.size())));
  const std::string after = content(path);
  m.check();
  CHECK(content(path) == after);  // once, however many signals came
  // Someone else takes the signal, and it is asked for again.
  ::signal(SIGUSR1, SIG_IGN);
  dump_on_signal(SIGUSR1);
  ::raise(SIGUSR1);
  m.check();
  CHECK(content(path).size() > after.size());
  const std::string again = content(path);
  // A second signal.
  dump_on_signal(SIGUSR2);
  ::raise(SIGUSR2);
  m.check();
  CHECK(content(path).size() > again.size());
}

#if !TIDEMARK_HAS_TSAN()  // which lets a fork child begin no thread, and drivers are asked on one

TEST_CASE("a fork child dumps its own memory") {
  temporary_directory place;
  const std::string path = place.file("dump.txt");
  monitor m(by_hand());
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(60);
    standard_error said;
    dump_on_signal(SIGUSR1);
    detail::find_registry<detail::dump_target>()->path.clear();
    ::raise(SIGUSR1);
    m.check();
    ::_exit(is_dump(said.text()) ? 0 : 1);
  }
  int status = -1;
  ::waitpid(child, &status, 0);
  CHECK(status == 0);
}

#endif

TEST_CASE("a handler that came later and calls this one is not called by it") {
  static struct sigaction under = {};
  static volatile sig_atomic_t later = 0;
  dump_on_signal(SIGUSR2);
  struct sigaction theirs = {};
  theirs.sa_handler = [](int number) {
    later = later + 1;
    under.sa_sigaction(number, nullptr, nullptr);
  };
  ::sigaction(SIGUSR2, &theirs, &under);
  dump_on_signal(SIGUSR2);
  ::raise(SIGUSR2);
  CHECK(later == 1);
}

TEST_CASE("a signal that nobody may handle is refused") {
#if TIDEMARK_HAS_EXCEPTIONS()
  CHECK_THROWS_AS(dump_on_signal(SIGKILL), std::invalid_argument);
  CHECK_THROWS_AS(dump_on_signal(SIGSEGV), std::invalid_argument);
  CHECK_THROWS_AS(dump_on_signal(0), std::invalid_argument);
  CHECK_THROWS_AS(dump_on_signal(-1), std::invalid_argument);
  CHECK_THROWS_AS(dump_on_signal(1'000), std::invalid_argument);
#endif
}
