// SPDX-License-Identifier: MIT
// What the C library's allocator says of itself, against blocks whose sizes are known and the kernel's count of
// pages; and what is said under a sanitizer. allocator_check.py runs the others.
#include <tidemark/sys/allocator.hpp>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>
#include <thread>

#include <tidemark/core/ledger.hpp>

#include "barrier.hpp"
#include "resident_support.hpp"
#include "test.hpp"

using namespace tidemark;

namespace {

// glibc before 2.33 counts in 32 bits, and a sanitizer's allocator counts too much.
#if defined(__GLIBC__)
constexpr bool has_figures = !TIDEMARK_HAS_SANITIZER_ALLOCATOR() && __GLIBC_PREREQ(2, 33);
#else
constexpr bool has_figures = false;
#endif

constexpr std::size_t block_bytes = 20'000;
constexpr std::int64_t chunk_bytes = 20'016;  // with glibc's word in front, in steps of 16

/// What looking up a name leaves with the thread for its next small block.
constexpr std::int64_t small_blocks = 4'096;

/// Blocks that glibc takes from an arena, every page of them touched.
struct blocks {
  std::array<void*, 1'000> all{};

  void allocate() {
    for (void*& p : all) {
      p = std::calloc(1, block_bytes);
      for (std::size_t i = 0; i < block_bytes; i += 512) static_cast<volatile char*>(p)[i] = 1;
    }
  }
  /// The last keeps the heap from shrinking by itself.
  void free_but_last() {
    for (std::size_t i = 0; i + 1 < all.size(); ++i) std::free(all[i]);
  }
};

std::int64_t in_use() { return allocator_info().in_use_bytes.value_or(-1); }
std::int64_t retained() { return allocator_info().retained_bytes.value_or(-1); }

}  // namespace

TEST_CASE("the allocator that runs is named") {
#if TIDEMARK_HAS_SANITIZER_ALLOCATOR()
  const std::string_view expected = "sanitizer";
#elif defined(__GLIBC__)
  const std::string_view expected = "glibc";
#else
  const std::string_view expected = "musl";
#endif
  const allocator_reading r = allocator_info();
  CHECK(name_of(r.kind.value()) == expected);
  CHECK(r.in_use_bytes.has_value() == has_figures);
  CHECK(r.retained_bytes.has_value() == has_figures);
  CHECK(r.in_use_bytes.why().empty() == has_figures);
}

TEST_CASE("blocks are in use while they are allocated, and retained once they are freed") {
  if (!has_figures) return;
  const std::int64_t before = in_use();
  blocks b;
  b.allocate();
  const std::int64_t grown = in_use() - before;
  const auto count = static_cast<std::int64_t>(b.all.size());
  CHECK(grown >= count * chunk_bytes);
  CHECK(grown <= count * (chunk_bytes + 16));  // a remainder of 16 bytes stays with its block
  const std::int64_t retained_before = retained();
  b.free_but_last();
  CHECK(is_near(in_use() - before, chunk_bytes, small_blocks));
  CHECK(is_near(retained() - retained_before, (count - 1) * chunk_bytes, small_blocks));
  std::free(b.all.back());
}

TEST_CASE("a block in a mapping of its own is in use") {
  if (!has_figures) return;
  const std::int64_t before = in_use();
  void* const p = std::malloc(64 * MiB);
  escape(p);
  CHECK(is_near(in_use() - before, 64 * MiB, page_bytes() + small_blocks));
  std::free(p);
  CHECK(is_near(in_use(), before, small_blocks));
}

TEST_CASE("what another thread has in an arena of its own is in use") {
  if (!has_figures) return;
  blocks b;
  barrier both(2);
  std::thread t([&] {
    both.arrive_and_wait();
    b.allocate();
    both.arrive_and_wait();
    both.arrive_and_wait();
    for (void* p : b.all) std::free(p);
  });
  const std::int64_t before = in_use();
  both.arrive_and_wait();
  both.arrive_and_wait();
  CHECK(in_use() - before >= static_cast<std::int64_t>(b.all.size()) * chunk_bytes);
  both.arrive_and_wait();
  t.join();
}

TEST_CASE("trimming gives back freed blocks, and says how much as the page tables do") {
  if (!has_figures) return;
  blocks b;
  b.allocate();
  b.free_but_last();
  const std::int64_t before = pages_present();
  const reading<std::int64_t> given = trim_heap();
  const std::int64_t after = pages_present();
  const auto freed = static_cast<std::int64_t>((b.all.size() - 1) * block_bytes);
  CHECK(given.value() >= freed - counters_error() - noise);
  CHECK(is_near(given.value(), before - after, 2 * counters_error() + noise));
  CHECK(is_near(trim_heap().value(), 0, counters_error() + noise));
  std::free(b.all.back());
}

TEST_CASE("a trim whose effect cannot be measured has a reason, and is made") {
  if (!has_figures) return;
  struct result {
    bool is_refused;
    told_bytes given;
    std::int64_t fell;
  };
  const result r = in_child([] {
    blocks b;
    b.allocate();
    b.free_but_last();
    const std::int64_t before = statm_resident();
    result told{};
    // The first file descriptor that is to be had is none.
    const rlimit none = {0, 0};
    rlimit was{};
    told.is_refused = ::getrlimit(RLIMIT_NOFILE, &was) == 0 && ::setrlimit(RLIMIT_NOFILE, &none) == 0;
    const rlimit again = {was.rlim_max, was.rlim_max};
    told.given = trim_heap();
    ::setrlimit(RLIMIT_NOFILE, &again);
    told.fell = before - statm_resident();
    return told;
  });
  if (!r.is_refused) return;
  CHECK(r.given.says("no file descriptor is left"));
  CHECK(r.fell >= static_cast<std::int64_t>(999 * block_bytes) - counters_error() - noise);
}

TEST_CASE("errno is as before") {
  errno = 77;
  static_cast<void>(allocator_info());
  static_cast<void>(trim_heap());
  CHECK(errno == 77);
}
