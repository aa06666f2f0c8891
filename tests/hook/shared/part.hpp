// SPDX-License-Identifier: MIT
// What a shared object of the test offers to its program, whether it is linked or opened.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include <tidemark/core/handover.hpp>
#include <tidemark/core/reading.hpp>
#include <tidemark/core/record.hpp>
#include <tidemark/core/usage.hpp>

/// What a part sees without a scope of its own. Taking one allocates nothing.
struct part_view {
  tidemark::reading<tidemark::usage> thread;
  tidemark::reading<tidemark::usage> process;
  tidemark::ledger_handle ledger;
};

struct part {
  void (*touch)();  // its thread-local storage, without the library: the system allocates it at the first touch
  part_view (*look)();
  /// Opens a scope, allocates, calls `within` and closes. The block is `*kept`'s, or freed where that is null.
  tidemark::scope_record (*scope)(const char* name, std::size_t bytes, char** kept, void (*within)());
  char* (*make)(std::size_t bytes);
  void (*discard)(char* block);
  char* (*make_quietly)(std::size_t bytes);
  tidemark::reading<tidemark::ledger_handle> (*use)(tidemark::ledger_handle);
  void (*attach)();
  std::vector<std::string> (*detach)();  // the paths of the records that came meanwhile
  /// Closes one on the wrong thread: the reason why it has no reading is a text of the part's.
  void (*close_elsewhere)();
};

extern "C" __attribute__((visibility("default"))) const part* test_part();
