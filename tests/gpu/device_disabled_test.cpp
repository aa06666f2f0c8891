// SPDX-License-Identifier: MIT
// In a translation unit with TIDEMARK_OPT_DISABLE the meters do nothing, and queries, being program logic, go on.
#define TIDEMARK_OPT_DISABLE 1
#include <tidemark/gpu/device.hpp>
#include <tidemark/gpu/meter.hpp>
#include <tidemark/gpu/pool.hpp>
#include <tidemark/gpu/process.hpp>

#include <string_view>

#include <tidemark/core/ledger.hpp>

#include "test.hpp"

using namespace tidemark;
namespace driver = tidemark::detail::driver;

namespace {

constexpr driver::resolver none{[](const char*, bool) -> void* { return nullptr; },
                                [](void*, const char*) -> void* { return nullptr; },
                                [](const char*) -> const char* { return nullptr; }};

std::string_view code(std::string_view why) { return why.substr(0, why.find(':')); }

}  // namespace

TEST_CASE("windows are absent and ask nothing, and queries answer as ever") {
  driver::use_resolver(&none);
  meter::device<>::window device;
  meter::device_pool<>::window pool;
  CHECK(device.usage().why() == "disabled");
  CHECK(device.close().why() == "disabled");
  CHECK(pool.close().why() == "disabled");
  CHECK(detail::find_registry<driver::device_registry>() == nullptr);
  const gpu::device d{"GPU-some", "", ""};
  CHECK(code(gpu::memory(d).used_bytes.why()) == "no_library");
  CHECK(code(gpu::process_memory(d).why()) == "no_library");
  CHECK(code(gpu::memory_pool(d).used_bytes.why()) == "cuda_not_initialised");
  gpu::domain_of(d).allocated(5);
  CHECK(gpu::domain_of(d).current().live_bytes == 5);
  gpu::domain_of(d).freed(5);
  driver::use_resolver(nullptr);
}
