// SPDX-License-Identifier: MIT
// Each line is worked out by hand from the rules of CUDA's guide and of PyTorch's reader.
#include <tidemark/gpu/detail/visible_devices.hpp>

#include <string>
#include <string_view>
#include <vector>

#include <tidemark/gpu/detail/device_list.hpp>

#include "test.hpp"

namespace {

using namespace tidemark::detail::driver;

/// "2 0" where the third is ordinal 0 and the first ordinal 1.
std::string visible(const char* text, const std::vector<std::string_view>& uuids) {
  std::string all;
  for (const std::size_t i : visible_of(parse_visible_devices(text), uuids)) {
    all += (all.empty() ? "" : " ") + std::to_string(i);
  }
  return all;
}

const std::vector<std::string_view> four = {"GPU-aaaa1111", "GPU-aabb2222", "GPU-cccc3333", "GPU-dddd4444"};

/// "0 hidden 1": the ordinal of each device, or the code of its reason.
std::string ordinals(std::vector<listed_device> all, bool is_whole, const char* text, const char* order) {
  number_by_environment(all, is_whole, text, order);
  std::string told;
  for (const listed_device& d : all) {
    const std::string_view why = d.why_no_ordinal;
    told += (told.empty() ? "" : " ") +
            (d.ordinal >= 0 ? std::to_string(d.ordinal) : std::string(why.substr(0, why.find(':'))));
  }
  return told;
}

listed_device made(const char* uuid, const char* address, const char* parent = "") {
  listed_device d;
  d.uuid = uuid;
  d.pci_address = address;
  d.parent_uuid = parent;
  return d;
}

}  // namespace

TEST_CASE("a variable that is not set hides nothing, and an empty one everything") {
  CHECK(visible(nullptr, four) == "0 1 2 3");
  CHECK(visible("", four) == "");
}

TEST_CASE("numbers choose devices in their order, up to the first that is none, negative or out of range") {
  CHECK(visible("0", four) == "0");
  CHECK(visible("2,0", four) == "2 0");
  CHECK(visible(" 1 , 3 ", four) == "1 3");
  CHECK(visible("1,-1,2", four) == "1");
  CHECK(visible("-1", four) == "");
  CHECK(visible("1,x,2", four) == "1");
  CHECK(visible("1,,2", four) == "1");
  CHECK(visible("1,4,2", four) == "1");
  CHECK(visible("1,99999999999999999999,2", four) == "1");
  CHECK(visible("NoDevFiles", four) == "");
  CHECK(visible("1gpu2,2ampere", four) == "1 2");
  CHECK(visible("+1", four) == "1");
}

TEST_CASE("a number that is there twice leaves nothing visible") {
  CHECK(visible("1,1", four) == "");
  CHECK(visible("0,1,0", four) == "");
  CHECK(visible("0,-1,0", four) == "0");  // the list has ended before
}

TEST_CASE("UUIDs choose by their beginnings, up to the first that fits none or several") {
  CHECK(visible("GPU-cccc3333", four) == "2");
  CHECK(visible("GPU-c", four) == "2");
  CHECK(visible("GPU-dddd,GPU-aab", four) == "3 1");
  CHECK(visible("GPU-aa", four) == "");
  CHECK(visible("GPU-c,GPU-aa,GPU-d", four) == "2");
  CHECK(visible("GPU-c,GPU-nothing,GPU-d", four) == "2");
}

TEST_CASE("a list of UUIDs ends at the first other element, and a duplicate empties it") {
  CHECK(visible("GPU-c,1,GPU-d", four) == "2");
  CHECK(visible("GPU-c,MIG-x", four) == "2");
  CHECK(visible("1,GPU-c", four) == "1");
  CHECK(visible("GPU-c,GPU-c", four) == "");
  CHECK(visible("GPU-c,GPU-cccc", four) == "");
}

TEST_CASE("one device has ordinal 0 in any order; several need an order that is fixed") {
  CHECK(ordinals({made("GPU-a", "0000:01:00.0")}, true, nullptr, nullptr) == "0");
  CHECK(ordinals({made("GPU-a", "0000:01:00.0")}, true, "", nullptr) == "hidden");
  const std::vector<listed_device> two = {made("GPU-a", "0000:41:00.0"), made("GPU-b", "0000:01:00.0")};
  CHECK(ordinals(two, true, nullptr, nullptr) == "cuda_not_initialised cuda_not_initialised");
  CHECK(ordinals(two, true, "", nullptr) == "hidden hidden");
  CHECK(ordinals(two, false, "-1", nullptr) == "hidden hidden");
  CHECK(ordinals(two, true, "0", "FASTEST_FIRST") == "cuda_not_initialised cuda_not_initialised");
  CHECK(ordinals(two, true, nullptr, "PCI_BUS_ID") == "1 0");
  CHECK(ordinals(two, true, "1", "PCI_BUS_ID") == "0 hidden");
  CHECK(ordinals(two, true, "GPU-b,GPU-a", nullptr) == "1 0");
  CHECK(ordinals(two, true, "GPU-b", nullptr) == "hidden 0");
}

TEST_CASE("where a device could not be listed, numbers tell nothing") {
  CHECK(ordinals({made("GPU-a", "0000:01:00.0")}, false, nullptr, nullptr) == "cuda_not_initialised");
  CHECK(ordinals({made("GPU-a", "0000:01:00.0")}, false, nullptr, "PCI_BUS_ID") == "cuda_not_initialised");
  CHECK(ordinals({made("GPU-a", "0000:01:00.0")}, false, "GPU-a", nullptr) == "0");
}

TEST_CASE("of a divided GPU the variable must name the instance, and the first that it names is the one") {
  const std::vector<listed_device> divided = {made("GPU-a", "0000:01:00.0"), made("MIG-x", "0000:01:00.0", "GPU-a"),
                                              made("MIG-y", "0000:01:00.0", "GPU-a")};
  CHECK(ordinals(divided, true, nullptr, "PCI_BUS_ID") ==
        "cuda_not_initialised cuda_not_initialised cuda_not_initialised");
  CHECK(ordinals(divided, true, "MIG-y", nullptr) == "hidden hidden 0");
  CHECK(ordinals(divided, true, "MIG-y,MIG-x", nullptr) == "hidden hidden 0");
}

TEST_CASE("CUDA's devices are found by UUID, written either way, and by address only where no UUID fits") {
  const auto numbered = [](std::vector<listed_device> all, const std::vector<cuda_listed>& visible) {
    number_by_cuda(all, visible);
    std::string told;
    for (const listed_device& d : all) told += (told.empty() ? "" : " ") + std::to_string(d.ordinal);
    return told;
  };
  const auto seen = [](const char* uuid, const char* address) {
    cuda_listed c;
    c.uuid = uuid;
    c.pci_address = address;
    return c;
  };
  const std::vector<listed_device> two = {made("GPU-a", "0000:41:00.0"), made("GPU-b", "0000:01:00.0")};
  CHECK(numbered(two, {seen("GPU-b", ""), seen("GPU-a", "")}) == "1 0");
  CHECK(numbered(two, {seen("GPU-b", "0000:41:00.0")}) == "-1 0");
  CHECK(numbered(two, {seen("", "0000:01:00.0"), seen("GPU-x", "0000:41:00.0")}) == "1 0");
  CHECK(numbered(two, {seen("GPU-x", "0000:99:00.0"), seen("", "")}) == "-1 -1");
  std::vector<listed_device> divided = {made("GPU-a", "0000:01:00.0"), made("MIG-x", "0000:01:00.0", "GPU-a"),
                                        made("MIG-y", "0000:01:00.0", "GPU-a")};
  divided[0].is_mig_parent = true;
  CHECK(numbered(divided, {seen("GPU-y", "0000:01:00.0")}) == "-1 -1 0");
  CHECK(numbered(divided, {seen("GPU-unknown", "0000:01:00.0")}) == "-1 -1 -1");
}
