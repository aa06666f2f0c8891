// SPDX-License-Identifier: MIT
// Allocates and frees a known amount, and prints what the allocator says of it, one "name value" a line: a number, or
// "?" and a reason. With hook/malloc where WITH_HOOK is defined.
#if defined(WITH_HOOK)
  #include <tidemark/hook/malloc.hpp>
#endif

#include <array>
#include <cinttypes>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>
#include <thread>

#include <unistd.h>

#include <tidemark/core/ledger.hpp>
#include <tidemark/sys/allocator.hpp>

namespace {

void say(const char* name, const tidemark::reading<std::int64_t>& r) {
  if (r) std::printf("%s %" PRId64 "\n", name, *r);
  if (!r) std::printf("%s ? %s\n", name, std::string(r.why()).c_str());
}

std::int64_t resident() {
  std::ifstream file("/proc/self/statm");
  std::int64_t pages = 0;
  file >> pages >> pages;
  return pages * sysconf(_SC_PAGESIZE);
}

}  // namespace

int main() {
  static std::array<void*, 4'000> blocks;
  static_cast<void>(resident());
  const tidemark::allocator_reading first = tidemark::allocator_info();
  const std::string kind(first.kind ? tidemark::name_of(*first.kind) : first.kind.why());
  std::printf("kind %s%s\n", first.kind ? "" : "? ", kind.c_str());
  const auto allocate = [](std::size_t from, std::size_t to) {
    for (std::size_t b = from; b < to; ++b) {
      blocks[b] = std::malloc(40'000);
      for (std::size_t i = 0; i < 40'000; i += 512) static_cast<volatile char*>(blocks[b])[i] = 1;
    }
  };
  std::thread(allocate, 0, blocks.size() / 2).join();  // many allocators have a part of the heap for each thread
  allocate(blocks.size() / 2, blocks.size());
  const tidemark::allocator_reading full = tidemark::allocator_info();
  for (std::size_t b = 0; b < blocks.size(); ++b) {
    const bool is_last_of_thread = (b + 1) % (blocks.size() / 2) == 0;  // it keeps a heap from shrinking by itself
    if (!is_last_of_thread) std::free(blocks[b]);
  }
  const tidemark::allocator_reading freed = tidemark::allocator_info();
  const std::int64_t before = resident();
  const tidemark::reading<tidemark::usage> counted = tidemark::process_usage();
  const tidemark::reading<std::int64_t> given = tidemark::trim_heap();
  static_cast<void>(tidemark::allocator_info());
  const tidemark::reading<tidemark::usage> counted_again = tidemark::process_usage();
  const std::int64_t after = resident();
  say("in_use_first", first.in_use_bytes);
  say("in_use_full", full.in_use_bytes);
  say("in_use_freed", freed.in_use_bytes);
  say("retained_full", full.retained_bytes);
  say("retained_freed", freed.retained_bytes);
  say("given", given);
  say("fell", before - after);
  if (counted) say("counted", static_cast<std::int64_t>(counted_again->allocations - counted->allocations));
}
