// SPDX-License-Identifier: MIT
// Known amounts are mapped, allocated and touched, or not touched, and must be found in their row.
#include <tidemark/monitor/where.hpp>

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <tidemark/core/domain.hpp>
#include <tidemark/hook/global_new.hpp>
#include <tidemark/scope/scope.hpp>

#include "resident_support.hpp"
#include "test.hpp"

using namespace tidemark;

namespace {

std::int64_t row(const std::vector<memory_row>& rows, std::string_view name) {
  for (const memory_row& r : rows) {
    if (r.name == name) return r.bytes.value_or(-1);
  }
  return -2;
}

}  // namespace

TEST_CASE("the rows of the resident column sum to what the page tables hold") {
  const memory_report r = where_is_my_memory();
  std::int64_t sum = 0;
  for (const memory_row& one : r.resident) sum += one.bytes.value();
  CHECK(sum == r.resident_bytes.value());
  CHECK(is_near(sum, pages_present(), 2 * MiB));
  CHECK(r.resident.size() == 6);
  CHECK(row(r.resident, "code") > 0);
  const std::int64_t most = row(r.resident, "heap and anonymous") - row(r.requested, "tidemark's own") -
                            row(r.requested, process_usage().has_value() ? "heap live" : "allocator in use");
  if (r.unaccounted_bytes.has_value()) {
    CHECK(*r.unaccounted_most_bytes == most);
    CHECK(*r.unaccounted_bytes == most - row(r.requested, "allocator retained"));
  }
  CHECK(row(r.resident, "stacks") > 0);
}

TEST_CASE("touched pages that nobody asked the heap for are unaccounted, untouched blocks count against them") {
  if (has_noise) return;
  const memory_report before = where_is_my_memory();
  const pages p(32 * MiB);
  p.touch();
  const memory_report mapped = where_is_my_memory();
  CHECK(is_near(row(mapped.resident, "heap and anonymous") - row(before.resident, "heap and anonymous"), 32 * MiB,
                noise));
  CHECK(is_near(*mapped.unaccounted_bytes - *before.unaccounted_bytes, 32 * MiB, noise));
  const std::unique_ptr<char[]> block(new char[80 * MiB]);
  escape(block.get());
  const memory_report allocated = where_is_my_memory();
  CHECK(row(allocated.requested, "heap live") - row(mapped.requested, "heap live") == 80 * MiB);
  CHECK(is_near(*allocated.unaccounted_bytes - *mapped.unaccounted_bytes, -80 * MiB, noise));
  CHECK(*allocated.unaccounted_bytes < 0);
  CHECK(allocated.table().find("allocated, never touched") != std::string::npos);
  CHECK(mapped.table().find("by how much of what is retained is resident") != std::string::npos);
}

TEST_CASE("what the allocator gave back does not hide what nobody asked for") {
  if (has_noise) return;
  const memory_report before = where_is_my_memory();
  const pages p(40 * MiB);
  p.touch();
  {
    std::vector<std::unique_ptr<char[]>> blocks;
    for (int i = 0; i < 640; ++i) {
      blocks.push_back(std::make_unique<char[]>(100 * 1'024));  // zeroed: touched
      escape(blocks.back().get());
    }
    std::unique_ptr<char[]> last(new char[1'000]);  // keeps glibc from shrinking the heap as a whole
    escape(last.get());
    blocks.clear();
    static_cast<void>(trim_heap());
    const memory_report r = where_is_my_memory();
    CHECK(*r.unaccounted_most_bytes - *before.unaccounted_most_bytes >= 40 * MiB - 2 * noise);
    CHECK(*r.unaccounted_bytes <= *r.unaccounted_most_bytes);
    CHECK(r.table().find("never touched") == std::string::npos);
  }
}

TEST_CASE("domains and scopes are named with what they hold") {
  domain weights("weights");
  domain pool("pool\n", {-1, nullptr, true});
  weights.allocated(1'000);
  pool.allocated(2'000);
  std::unique_ptr<char[]> kept;
  {
    const scope outer("load");
    const scope inner("tokens");
    kept.reset(new char[5 * MiB]);
    escape(kept.get());
  }
  const memory_report r = where_is_my_memory();
  CHECK(row(r.domains, "weights") == 1'000);
  CHECK(row(r.domains, "pool\n (external)") == 2'000);
  if (process_usage().has_value()) {
    REQUIRE(!r.scopes.empty());
    CHECK(r.scopes[0].name == "load/tokens");
    CHECK(r.scopes[0].bytes.value() == 5 * MiB);
  }
  const std::string table = r.table();
  CHECK(table.find("weights") != std::string::npos);
  CHECK(table.find("pool\n (") == std::string::npos);  // a name breaks no line
  CHECK(table.find("5.0 MiB") != std::string::npos);
  weights.freed(1'000);
  pool.freed(2'000);
}

TEST_CASE("a device that is not there is a reason, in data and in the table") {
  const memory_report r = where_is_my_memory();
  if (!r.devices.empty()) return;
  CHECK(!r.why_no_devices.empty());
  CHECK(r.table().find("devices: none (" + r.why_no_devices) != std::string::npos);
}

TEST_CASE("what is not known is never 0") {
  memory_report r;
  CHECK(!r.resident_bytes.has_value());
  CHECK(r.table().find("unknown") != std::string::npos);
  CHECK(r.table().find("not read") != std::string::npos);
  device_report d;
  d.name = "H200";
  d.uuid = "GPU-1";
  d.my_allocations_bytes = 3 * MiB;
  r.devices.push_back(d);
  const std::string table = r.table();
  CHECK(table.find("device H200 GPU-1") != std::string::npos);
  CHECK(table.find("3.0 MiB") != std::string::npos);
}
