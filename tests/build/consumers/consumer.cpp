// SPDX-License-Identifier: MIT
// A user's program: it measures what it allocates, here and in other.cpp, and prints the version it was compiled with.
#include <tidemark/hook/global_new.hpp>
#include <tidemark/tidemark.hpp>

#include <cstdint>
#include <cstdio>
#include <memory>

std::int64_t growth_in_other();

namespace {

std::int64_t growth_here() {
  tidemark::scope scope("here");
  const auto block = std::make_unique<char[]>(1'000);
  const auto usage = scope.close().meters.front().usage;
  return usage ? usage->net_bytes() : -1;
}

}  // namespace

int main() {
  std::printf("%d.%d.%d\n", TIDEMARK_VERSION_MAJOR, TIDEMARK_VERSION_MINOR, TIDEMARK_VERSION_PATCH);
  const std::int64_t here = growth_here();
  const std::int64_t other = growth_in_other();
  if (here == 1'000 && other == 2'000) return 0;
  std::printf("measured %lld and %lld bytes, not 1000 and 2000\n", static_cast<long long>(here),
              static_cast<long long>(other));
  return 1;
}
