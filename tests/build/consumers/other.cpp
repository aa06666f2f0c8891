// SPDX-License-Identifier: MIT
// A second translation unit that includes tidemark, without the hook.
#include <tidemark/scope/scope.hpp>

#include <cstdint>
#include <memory>

std::int64_t growth_in_other();

std::int64_t growth_in_other() {
  const tidemark::scope scope("other");
  const auto block = std::make_unique<char[]>(2'000);
  const auto usage = scope.usage();
  return usage ? usage->net_bytes() : -1;
}
