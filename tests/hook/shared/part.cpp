// SPDX-License-Identifier: MIT
// A shared object that measures: a library linked to program.cpp, or a plugin that it opens.
#include "part.hpp"

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <tidemark/sink/ring.hpp>
#include <tidemark/tidemark.hpp>

namespace {

thread_local int touched = 0;

std::shared_ptr<tidemark::ring_sink> ring;
tidemark::attachment attached;

void touch() {
  ++touched;
  tidemark::escape(&touched);
}

part_view look() { return {tidemark::thread_usage(), tidemark::process_usage(), tidemark::this_ledger()}; }

char* make(std::size_t bytes) {
  char* block = new char[bytes];
  tidemark::escape(block);
  return block;
}

void discard(char* block) { delete[] block; }

tidemark::scope_record scope(const char* name, std::size_t bytes, char** kept, void (*within)()) {
  tidemark::scope s(name);
  char* block = bytes == 0 ? nullptr : make(bytes);
  if (within != nullptr) within();
  if (kept == nullptr) {
    discard(block);
  } else {
    *kept = block;
  }
  return s.close();
}

char* make_quietly(std::size_t bytes) {
  const tidemark::quiet hidden;
  return make(bytes);
}

void attach() {
  const tidemark::quiet hidden;
  ring = std::make_shared<tidemark::ring_sink>(std::size_t{8});
  attached = tidemark::attach(ring);
}

std::vector<std::string> detach() {
  const tidemark::quiet hidden;
  attached.detach();
  std::vector<std::string> paths;
  for (const tidemark::scope_record& r : ring->scopes()) paths.push_back(r.path);
  ring.reset();
  return paths;
}

void close_elsewhere() {
  std::optional<tidemark::scope> s(std::in_place, "elsewhere");
  std::thread([&s] { s.reset(); }).join();
}

constexpr part table{touch,
                     look,
                     scope,
                     make,
                     discard,
                     make_quietly,
                     [](tidemark::ledger_handle h) { return tidemark::use_ledger(h); },
                     attach,
                     detach,
                     close_elsewhere};

}  // namespace

const part* test_part() { return &table; }
