// SPDX-License-Identifier: MIT
#define TIDEMARK_OPT_ASK_SIZES 1
#include <tidemark/hook/global_new.hpp>

#include "operators.hpp"

TEST_CASE("TIDEMARK_OPT_ASK_SIZES makes the hook ask the allocator for every size") {
  CHECK(tidemark::detail::ledger().ask_sizes == !hooked::is_sanitizer_listening);
}
