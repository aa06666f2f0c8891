// SPDX-License-Identifier: MIT
// The translation unit that switches the library off, in a program that has it on elsewhere.
#undef TIDEMARK_OPT_DISABLE
#define TIDEMARK_OPT_DISABLE 1
#include "disable_other.hpp"

#include <memory>
#include <new>
#include <stdexcept>
#include <utility>

#include <tidemark/tidemark.hpp>

#include "disable_sizes.hpp"
#include "heap_block.hpp"

namespace meter = tidemark::meter;
using tidemark::basic_scope;
using tidemark::scope;

namespace {

void named_function(std::size_t bytes) {
  TIDEMARK_FUNCTION();
  TIDEMARK_SCOPE("disabled macro");
  const heap_block b(bytes);
}

}  // namespace

std::vector<std::size_t> disabled_side::sizes() { return sizes_here(); }

void disabled_side::run_scopes(std::size_t bytes) {
  const scope a("disabled a");
  alignas(scope) unsigned char held[sizeof(scope)];
  auto* b = new (held) scope("disabled b");
  const basic_scope<meter::process_heap, counted_steps> c("disabled c");
  named_function(bytes);
  b->~basic_scope();
}

tidemark::scope_record disabled_side::close_scope(std::size_t bytes) {
  basic_scope<meter::thread_heap, meter::process_heap, counted_steps> s("disabled close");
  const heap_block b(bytes);
  return s.close();
}

std::vector<std::string> disabled_side::reasons() {
  scope s("disabled usage");
  tidemark::reset_process_peak();
  std::vector<std::string> why;
  why.emplace_back(s.usage().why());
  static_cast<void>(s.close());
  why.emplace_back(s.usage().why());
  why.emplace_back(tidemark::thread_usage().why());
  why.emplace_back(tidemark::process_usage().why());
  why.emplace_back(tidemark::hook_reason());
  meter::thread_heap::window thread;
  meter::process_heap::window process;
  why.emplace_back(thread.usage().why());
  why.emplace_back(thread.close().why());
  why.emplace_back(process.usage().why());
  why.emplace_back(process.close().why());
  meter::resident::window resident;
  why.emplace_back(resident.usage().why());
  why.emplace_back(resident.close().why());
  tidemark::task_scope task("disabled task");
  if (task.token()) why.emplace_back("a token");
  const tidemark::join_task joined(task.token());
  why.emplace_back(task.usage().why());
  why.emplace_back(task.close().meters.at(0).usage.why());
  basic_scope<meter::domains> domains("disabled domains");
  for (const tidemark::meter_reading& m : domains.close().meters) why.emplace_back(m.usage.why());
  if (tidemark::hook_state() != tidemark::hook_kind::none) why.emplace_back("a hook");
  return why;
}

bool disabled_side::refuses_second_close() {
#if TIDEMARK_HAS_EXCEPTIONS()
  scope s("disabled twice");
  static_cast<void>(s.close());
  try {
    static_cast<void>(s.close());
    return false;
  } catch (const std::logic_error&) {
    return true;
  }
#else
  return true;
#endif
}

std::vector<int> disabled_side::results(std::int64_t& duration_ns, std::string& why) {
  int ran = 0;
  auto m = tidemark::measure([](std::unique_ptr<int> n) { return *n; }, std::make_unique<int>(1));
  const auto nothing = tidemark::measure<meter::process_heap>([&ran] { ran = 2; });
  duration_ns = m.duration_ns + nothing.duration_ns;
  why = m.usage.why() == nothing.usage.why() ? std::string(m.usage.why()) : std::string("they differ");
  auto counter = tidemark::monitored("disabled monitored", [n = 2]() mutable { return ++n; });
  const int third = counter();
  return {m.result, ran, third, counter()};
}

void disabled_side::attach_there(const std::shared_ptr<tidemark::sink>& s, void (*meanwhile)()) {
  auto attached = tidemark::attach(s);
  run_scopes(10);
  static_cast<void>(close_scope(10));
  meanwhile();
  tidemark::attachment moved = std::move(attached);
  moved.detach();
}

void disabled_side::inside_scope(void (*f)()) {
  const scope s("disabled around");
  f();
}
