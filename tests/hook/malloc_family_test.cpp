// SPDX-License-Identifier: MIT
#include <tidemark/hook/malloc.hpp>

#include "malloc_family.hpp"

TEST_CASE("over plain glibc, sizes come from the word in front of the block, under hook/malloc as well") {
#if defined(__GLIBC__) && defined(__x86_64__)
  // Another allocator, or valgrind's, comes in by preloading; a sanitizer's comes with the compiler's flags.
  CHECK(tidemark::detail::ledger().ask_sizes == (!family::is_over_glibc() && !family::is_listening));
#endif
}
