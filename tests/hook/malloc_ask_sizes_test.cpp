// SPDX-License-Identifier: MIT
#define TIDEMARK_OPT_ASK_SIZES 1
#include <tidemark/hook/malloc.hpp>

#include "malloc_family.hpp"

TEST_CASE("TIDEMARK_OPT_ASK_SIZES makes hook/malloc ask the allocator for every size") {
  CHECK(tidemark::detail::ledger().ask_sizes == !family::is_listening);
}
