// SPDX-License-Identifier: MIT
// Devices that the kernel tells of in /sys and /proc, in folders of the test's own. The numbers are made up, and summed
// by hand.
#include <tidemark/gpu/device.hpp>
#include <tidemark/gpu/meter.hpp>
#include <tidemark/gpu/process.hpp>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <unistd.h>

#include <tidemark/gpu/detail/drm_figures.hpp>
#include <tidemark/gpu/pool.hpp>

#include "gpu_tree.hpp"
#include "test.hpp"

using namespace tidemark;
namespace driver = tidemark::detail::driver;

namespace {

constexpr std::int64_t MiB = 1'048'576;

/// Without any library, whatever this machine has.
class no_libraries {
 public:
  no_libraries() { driver::use_resolver(&none); }
  ~no_libraries() { driver::use_resolver(nullptr); }
  no_libraries(const no_libraries&) = delete;
  no_libraries& operator=(const no_libraries&) = delete;

 private:
  static constexpr driver::resolver none{[](const char*, bool) -> void* { return nullptr; },
                                         [](void*, const char*) -> void* { return nullptr; },
                                         [](const char*) -> const char* { return nullptr; }};
};

struct fixture {
  no_libraries libraries;
  gpu_tree tree;

  void card(const std::string& name, const std::string& driver_name, const std::string& address) const {
    const std::string folder = "/sys/class/drm/" + name + "/device/";
    tree.put(folder + "uevent", "DRIVER=" + driver_name + "\nPCI_CLASS=30000\nPCI_SLOT_NAME=" + address + "\n");
    tree.put(folder + "device", "0x744c\n");
  }
  void number(const std::string& name, const std::string& file, std::int64_t value) const {
    tree.put("/sys/class/drm/" + name + "/device/" + file, std::to_string(value) + "\n");
  }
  void discrete_amd() const {
    card("card0", "amdgpu", "0000:03:00.0");
    number("card0", "mem_info_vram_total", 16'000 * MiB);
    number("card0", "mem_info_vram_used", 1'000 * MiB);
    number("card0", "mem_info_gtt_total", 8'000 * MiB);
    number("card0", "mem_info_gtt_used", 50 * MiB);
    tree.put("/sys/class/drm/card0/device/unique_id", "a1b2c3d4e5f60718\n");
    tree.put("/sys/class/drm/card0/device/product_name", "Fake Radeon\n");
  }
  void apu() const {
    card("card1", "amdgpu", "0000:c4:00.0");
    number("card1", "mem_info_vram_total", 512 * MiB);
    number("card1", "mem_info_vram_used", 100 * MiB);
    number("card1", "mem_info_gtt_total", 16'000 * MiB);
    number("card1", "mem_info_gtt_used", 700 * MiB);
  }
  void descriptor(int number, const std::string& link, const std::string& info) const {
    tree.link("/proc/self/fd/" + std::to_string(number), link);
    tree.put("/proc/self/fdinfo/" + std::to_string(number),
             "pos:\t0\nflags:\t02100002\nmnt_id:\t26\nino:\t407\n" + info);
  }
};

gpu::device only() {
  const auto all = gpu::devices();
  REQUIRE_MESSAGE(all.has_value(), all.why());
  REQUIRE(all->size() == 1);
  return all->front();
}

std::string_view code(std::string_view why) { return why.substr(0, why.find(':')); }

/// Asks until a new answer comes; one of the last millisecond is given again.
void sample(const gpu::device& d, std::int64_t expected) {
  while (gpu::memory(d).used_bytes.value_or(-1) != expected) {
  }
}

}  // namespace

// ---- devices ----

TEST_CASE_FIXTURE(fixture, "an AMD device is told by sysfs, with the system memory that it may use apart") {
  discrete_amd();
  const gpu::device d = only();
  CHECK(d.uuid == "GPU-a1b2c3d4e5f60718");
  CHECK(d.name == "Fake Radeon");
  CHECK(d.pci_address == "0000:03:00.0");
  CHECK(d.driver == "amdgpu");
  CHECK(d.unified.value_or(true) == false);
  CHECK(code(d.cuda_ordinal.why()) == "not_supported");
  const gpu::device_memory m = gpu::memory(d);
  CHECK(m.total_bytes.value_or(-1) == 16'000 * MiB);
  CHECK(m.used_bytes.value_or(-1) == 1'000 * MiB);
  CHECK(m.free_bytes.value_or(-1) == 15'000 * MiB);
  CHECK(m.shared_total_bytes.value_or(-1) == 8'000 * MiB);
  CHECK(m.shared_used_bytes.value_or(-1) == 50 * MiB);
  CHECK(code(m.reserved_bytes.why()) == "not_supported");
  CHECK(m.source == "sysfs");
  CHECK(code(gpu::memory_pool(d).used_bytes.why()) == "not_supported");
}

TEST_CASE_FIXTURE(fixture, "of an AMD device that shares the system's memory both parts are its own") {
  apu();
  const gpu::device d = only();
  CHECK(d.uuid == "");
  CHECK(d.unified.value_or(false) == true);
  const gpu::device_memory m = gpu::memory(d);
  CHECK(m.total_bytes.value_or(-1) == 16'512 * MiB);
  CHECK(m.used_bytes.value_or(-1) == 800 * MiB);
  CHECK(m.free_bytes.value_or(-1) == 15'712 * MiB);
  CHECK(m.shared_total_bytes.value_or(-1) == 16'000 * MiB);
}

TEST_CASE_FIXTURE(fixture, "devices are listed by address, without connectors, render nodes and other drivers' cards") {
  apu();
  discrete_amd();
  card("card2", "i915", "0000:00:02.0");
  card("card3", "xe", "0000:0a:00.0");
  card("card4", "nouveau", "0000:0b:00.0");
  tree.put("/sys/class/drm/card5/device/uevent", "DRIVER=vkms\n");
  card("card0-HDMI-A-1", "amdgpu", "0000:03:00.0");
  tree.put("/sys/class/drm/renderD128/device/uevent", "DRIVER=amdgpu\nPCI_SLOT_NAME=0000:03:00.0\n");
  tree.put("/sys/class/drm/version", "drm 1.1.0\n");
  std::string all;
  const auto listed = gpu::devices();
  REQUIRE(listed);
  for (const gpu::device& d : *listed) all += std::string(d.driver) + " " + d.pci_address + "\n";
  CHECK(all == "i915 0000:00:02.0\namdgpu 0000:03:00.0\nxe 0000:0a:00.0\namdgpu 0000:c4:00.0\n");
}

TEST_CASE_FIXTURE(fixture, "without a driver there is no list, but a reason") {
  CHECK(code(gpu::devices().why()) == "no_library");
  tree.put("/sys/class/drm/version", "drm 1.1.0\n");
  CHECK(code(gpu::devices().why()) == "no_library");
}

TEST_CASE_FIXTURE(fixture, "a device that is gone is lost, and one whose files lack or lie is not known") {
  discrete_amd();
  const gpu::device d = only();
  number("card0", "mem_info_vram_used", 16'001 * MiB);
  driver::memory_figures f;
  REQUIRE(driver::read_memory(driver::query_of(d), true, f) == nullptr);
  CHECK(f.used.value == 16'001 * MiB);
  CHECK(code(f.free.told().why()) == "not_supported");
  for (const char* text : {"", "\n", "lots\n", "-1\n", "99999999999999999999\n"}) {
    tree.put("/sys/class/drm/card0/device/mem_info_vram_used", text);
    CHECK(code(driver::read_memory(driver::query_of(d), true, f)) == "not_supported");
  }
  tree.put("/sys/class/drm/card0/device/mem_info_vram_used", "18446744073709551615\n");
  REQUIRE(driver::read_memory(driver::query_of(d), true, f) == nullptr);
  CHECK(code(f.used.told().why()) == "not_supported");
  tree.remove_all("/sys/class/drm/card0");
  CHECK(code(driver::read_memory(driver::query_of(d), true, f)) == "device_lost");
}

TEST_CASE_FIXTURE(fixture,
                  "an Intel device in the processor has the system's memory; of one of its own the kernel is silent") {
  card("card0", "i915", "0000:00:02.0");
  tree.put("/proc/meminfo",
           "MemTotal:       1000 kB\nMemFree:         100 kB\nMemAvailable:    600 kB\nBuffers: 1 kB\n");
  const gpu::device in_processor = only();
  CHECK(in_processor.unified.value_or(false));
  const gpu::device_memory m = gpu::memory(in_processor);
  CHECK(m.total_bytes.value_or(-1) == 1'024'000);
  CHECK(m.free_bytes.value_or(-1) == 614'400);
  CHECK(m.used_bytes.value_or(-1) == 409'600);
  CHECK(m.source == "meminfo");
  tree.remove_all("/sys/class/drm/card0");
  card("card0", "xe", "0000:0a:00.0");
  CHECK(code(gpu::memory(only()).used_bytes.why()) == "not_supported");
}

// ---- this process ----

TEST_CASE_FIXTURE(fixture,
                  "of this process each client of the device counts once, with what is resident in device memory") {
  discrete_amd();
  const gpu::device d = only();
  const std::string head = "drm-driver:\tamdgpu\ndrm-pdev:\t0000:03:00.0\n";
  descriptor(0, "/dev/null", "");
  descriptor(3, "/dev/dri/renderD128",
             head +
                 "drm-client-id:\t7\ndrm-total-vram:\t999 MiB\ndrm-resident-vram:\t4096 KiB\ndrm-shared-vram:\t1 MiB\n"
                 "drm-memory-vram:\t5 MiB\ndrm-resident-gtt:\t8 MiB\ndrm-resident-cpu:\t2 MiB\n");
  descriptor(4, "/dev/dri/renderD128", head + "drm-client-id:\t7\ndrm-resident-vram:\t4096 KiB\n");  // a duplicate
  descriptor(5, "/dev/dri/card0", head + "drm-client-id:\t8\ndrm-memory-vram:\t2048 KiB\n");         // older keys
  descriptor(6, "/dev/dri/renderD129",
             "drm-pdev:\t0000:c4:00.0\ndrm-client-id:\t9\ndrm-resident-vram:\t64 MiB\n");        // another device
  descriptor(7, "/dev/dri/renderD128", head + "drm-client-id:\t10\ndrm-resident-vram:\t100\n");  // bytes
  descriptor(8, "socket:[1]", head + "drm-client-id:\t11\ndrm-resident-vram:\t1 MiB\n");
  CHECK(gpu::process_memory(d).value_or(-1) == 4 * MiB + 2 * MiB + 100);
}

TEST_CASE_FIXTURE(fixture, "of a device that shares the system's memory the process's part of that counts too") {
  apu();
  descriptor(3, "/dev/dri/renderD128",
             "drm-pdev:\t0000:c4:00.0\ndrm-client-id:\t7\ndrm-resident-vram:\t5 MiB\ndrm-resident-gtt:\t240 MiB\n"
             "drm-resident-cpu:\t9 MiB\n");
  CHECK(gpu::process_memory(only()).value_or(-1) == 245 * MiB);
}

TEST_CASE_FIXTURE(fixture,
                  "Intel's regions count: local and vram as the device's, system and stolen where it has no other") {
  card("card0", "xe", "0000:0a:00.0");
  descriptor(3, "/dev/dri/renderD128",
             "drm-pdev:\t0000:0a:00.0\ndrm-client-id:\t1\ndrm-resident-vram0:\t3 MiB\ndrm-resident-gtt:\t5 MiB\n"
             "drm-resident-system:\t7 MiB\ndrm-resident-stolen:\t11 MiB\n");
  CHECK(gpu::process_memory(only()).value_or(-1) == 3 * MiB);
  tree.remove_all("/sys/class/drm/card0");
  card("card0", "i915", "0000:00:02.0");
  descriptor(4, "/dev/dri/renderD129",
             "drm-pdev:\t0000:00:02.0\ndrm-client-id:\t2\ndrm-resident-system0:\t13 MiB\n"
             "drm-resident-stolen-system0:\t17 MiB\n");
  CHECK(gpu::process_memory(only()).value_or(-1) == 30 * MiB);
}

TEST_CASE_FIXTURE(
    fixture,
    "a process without a descriptor of the device has nothing there; with one that says nothing nobody knows") {
  discrete_amd();
  const gpu::device d = only();
  CHECK(code(gpu::process_memory(d).why()) == "not_supported");  // no /proc
  descriptor(0, "/dev/null", "");
  CHECK(gpu::process_memory(d).value_or(-1) == 0);
  descriptor(3, "/dev/dri/renderD128", "");
  CHECK(code(gpu::process_memory(d).why()) == "not_supported");
  tree.remove_all("/proc/self/fdinfo/3");
  CHECK(code(gpu::process_memory(d).why()) == "not_supported");
  tree.remove_all("/proc/self/fd/3");
  descriptor(3, "/dev/dri/renderD128", "drm-pdev:\t0000:03:00.0\ndrm-client-id:\t1\ndrm-engine-gfx:\t5 ns\n");
  CHECK(code(gpu::process_memory(d).why()) == "not_supported");
  tree.remove_all("/proc/self/fd/3");
  descriptor(3, "/dev/dri/renderD128", "drm-pdev:\t0000:03:00.0\ndrm-client-id:\t1\ndrm-resident-vram:\t0\n");
  CHECK(gpu::process_memory(d).value_or(-1) == 0);
}

TEST_CASE_FIXTURE(fixture,
                  "KFD's figure counts where it says more than fdinfo, but not by another namespace's number") {
  discrete_amd();
  const gpu::device d = only();
  descriptor(3, "/dev/dri/renderD128", "drm-pdev:\t0000:03:00.0\ndrm-client-id:\t1\ndrm-resident-vram:\t4 MiB\n");
  const std::string nodes = "/sys/class/kfd/kfd/topology/nodes/";
  tree.put(nodes + "0/gpu_id", "0\n");
  tree.put(nodes + "1/gpu_id", "111\n");
  tree.put(nodes + "1/properties", "cpu_cores_count 0\nlocation_id 50176\ndomain 0\n");  // c4:00.0
  tree.put(nodes + "2/gpu_id", "222\n");
  tree.put(nodes + "2/properties", "cpu_cores_count 0\nlocation_id 768\ndomain 0\n");  // 03:00.0
  const std::string mine = "/sys/class/kfd/kfd/proc/" + std::to_string(::getpid());
  tree.put(mine + "/vram_111", "1048576000\n");
  tree.put(mine + "/vram_222", "9437184\n");
  tree.be_outermost();
  CHECK(gpu::process_memory(d).value_or(-1) == 9 * MiB);
  tree.put(mine + "/vram_222", "1048576\n");
  CHECK(gpu::process_memory(d).value_or(-1) == 4 * MiB);
  tree.put(mine + "/vram_222", "9437184\n");
  tree.remove_all("/proc/self/ns/pid");
  tree.be_container();
  CHECK(gpu::process_memory(d).value_or(-1) == 4 * MiB);
}

// ---- windows ----

TEST_CASE_FIXTURE(fixture,
                  "without NVIDIA's devices a meter's ordinal is the place in the list, and samples raise its peak") {
  apu();
  discrete_amd();
  meter::device<0>::window first;
  meter::device<1>::window second;
  meter::device<2>::window none;
  CHECK(code(none.usage().why()) == "no_device");
  const auto listed = gpu::devices();
  REQUIRE(listed);
  number("card0", "mem_info_vram_used", 1'600 * MiB);
  sample(listed->at(0), 1'600 * MiB);
  number("card0", "mem_info_vram_used", 1'200 * MiB);
  const reading<window_usage> u = first.close();
  REQUIRE_MESSAGE(u.has_value(), u.why());
  CHECK(u->entry_bytes == 1'000 * MiB);
  CHECK(u->exit_bytes == 1'200 * MiB);
  CHECK(u->peak_bytes == 1'600 * MiB);
  CHECK_FALSE(u->counts_events);
  CHECK(u->peak_bytes + u->error_bound_bytes == 16'000 * MiB);  // unseen it may have been all that there is
  const reading<window_usage> other = second.close();
  REQUIRE(other);
  CHECK(other->peak_bytes == 800 * MiB);
  CHECK(code(second.close().why()) == "closed");
}

// ---- texts ----

TEST_CASE("a number of bytes has a unit that is known, or none") {
  const auto bytes = [](std::string_view text) {
    std::uint64_t n = 0;
    return driver::take_bytes(text, n) ? std::to_string(n) : std::string("none");
  };
  CHECK(bytes("\t12") == "12");
  CHECK(bytes("  3 KiB") == "3072");
  CHECK(bytes("2 MiB") == "2097152");
  CHECK(bytes("1 GiB") == "1073741824");
  CHECK(bytes("1 kB") == "none");
  CHECK(bytes("1KiB") == "none");
  CHECK(bytes("KiB") == "none");
  CHECK(bytes("18446744073709551615") == "18446744073709551615");
  CHECK(bytes("18446744073709551616") == "none");
  CHECK(bytes("18446744073709551615 KiB") == "none");
}

TEST_CASE("an address is written as Linux writes it, whoever says it") {
  CHECK(driver::linux_pci_address("00000000:3B:00.0") == "0000:3b:00.0");
  CHECK(driver::linux_pci_address("0000:3b:00.0") == "0000:3b:00.0");
  CHECK(driver::linux_pci_address("00010000:01:00.0") == "10000:01:00.0");
  CHECK(driver::linux_pci_address("0000:01:00") == "0000:01:00.0");
  CHECK(driver::linux_pci_address("") == "");
  CHECK(driver::linux_pci_address("gpu") == "");
  CHECK(driver::linux_pci_address(":00.0") == "");
  CHECK(driver::linux_pci_address("soc@0:gpu") == "");
  CHECK(driver::pci_address_of(0, 0x0300) == "0000:03:00.0");
  CHECK(driver::pci_address_of(1, 0xC4FB) == "0001:c4:1f.3");
}
