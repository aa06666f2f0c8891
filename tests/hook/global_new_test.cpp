// SPDX-License-Identifier: MIT
#include <tidemark/hook/global_new.hpp>

#include <cstdlib>

#include "operators.hpp"

TEST_CASE("over plain glibc, sizes come from the word in front of the block") {
#if defined(__GLIBC__) && defined(__x86_64__)
  // Another allocator, or valgrind's, comes in by preloading; a sanitizer's comes with the compiler's flags.
  const bool is_plain = std::getenv("LD_PRELOAD") == nullptr && !TIDEMARK_HAS_SANITIZER_ALLOCATOR();
  CHECK(tidemark::detail::ledger().ask_sizes == (!is_plain && !hooked::is_sanitizer_listening));
#endif
}
