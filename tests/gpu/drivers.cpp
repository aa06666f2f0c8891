// SPDX-License-Identifier: MIT
// Fake drivers, asked through the public interface as a program asks the real ones: loaded by name. drivers_check.py
// builds them and runs each case in a process of its own, since a driver is loaded once.
#include <tidemark/gpu/device.hpp>
#include <tidemark/gpu/meter.hpp>
#include <tidemark/gpu/pool.hpp>
#include <tidemark/gpu/process.hpp>

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <dlfcn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <tidemark/core/ledger.hpp>
#include <tidemark/hook/global_new.hpp>
#include <tidemark/monitor/monitor.hpp>
#include <tidemark/monitor/where.hpp>
#include <tidemark/scope/scope.hpp>

#include "fake_drivers.hpp"
#include "gpu_tree.hpp"
#include "test.hpp"

using namespace tidemark;

namespace {

constexpr std::uint64_t MiB = 1'048'576;

std::string_view code(std::string_view why) { return why.empty() ? "known" : why.substr(0, why.find(':')); }

template <class State>
State& state_of(const char* library, const char* function) {
  void* const handle = ::dlopen(library, RTLD_LAZY | RTLD_LOCAL);
  REQUIRE_MESSAGE(handle != nullptr, ::dlerror());
  void* const address = ::dlsym(handle, function);
  REQUIRE(address != nullptr);
  State* (*get)() = nullptr;
  std::memcpy(&get, &address, sizeof get);
  return *get();
}
fake_nvml_state& nvml() { return state_of<fake_nvml_state>("libnvidia-ml.so.1", "fake_nvml"); }
/// As a program that uses CUDA has it loaded.
fake_cuda_state& cuda() { return state_of<fake_cuda_state>("libcuda.so.1", "fake_cuda"); }

const char* const uuid_of_a = "GPU-aaaaaaaa-0000-1111-2222-333333333333";
const char* const uuid_of_b = "GPU-bbbbbbbb-0000-1111-2222-333333333333";
const char* const uuid_of_instance = "MIG-cccccccc-0000-1111-2222-333333333333";

/// Two GPUs; the first that NVML lists is the second on the bus.
struct machine {
  machine() {
    gpu::set_driver_deadline_ns(60'000'000'000);
    tree.be_outermost();
    fake_nvml_state& s = nvml();
    s.count = 2;
    s.gpus = 2;
    make(s.gpu[0], uuid_of_a, "00000000:41:00.0");
    make(s.gpu[1], uuid_of_b, "00000000:01:00.0");
  }
  static void make(fake_gpu& g, const char* uuid, const char* address) {
    g.uuid = uuid;
    g.address = address;
    g.total = 80'000 * MiB;
    g.reserved = 700 * MiB;
    g.used = 1'000 * MiB;
    g.free = 78'300 * MiB;
  }
  void make_cuda(bool is_initialised, bool is_active) const {
    fake_cuda_state& c = cuda();
    c.is_initialised = is_initialised ? 1 : 0;
    c.gpus = 2;
    for (int i = 0; i < 2; ++i) {
      fake_cuda_gpu& g = c.gpu[i];
      std::memset(g.uuid, i == 0 ? 0xBB : 0xAA, 4);
      const unsigned char rest[12] = {0, 0, 0x11, 0x11, 0x22, 0x22, 0x33, 0x33, 0x33, 0x33, 0x33, 0x33};
      std::memcpy(g.uuid + 4, rest, sizeof rest);
      g.address = i == 0 ? "0000:01:00.0" : "0000:41:00.0";
      g.is_active = is_active ? 1 : 0;
      g.total = 80'000 * MiB;
      g.free = 77'000 * MiB;
      g.pool[5] = 64 * MiB;
      g.pool[6] = 256 * MiB;
      g.pool[7] = 10 * MiB;
      g.pool[8] = 200 * MiB;
      g.graph[0] = 1 * MiB;
      g.graph[1] = 2 * MiB;
      g.graph[2] = 3 * MiB;
      g.graph[3] = 4 * MiB;
    }
  }
  /// Nothing was done to CUDA that a program would notice.
  void require_passive() const {
    const fake_cuda_state& c = cuda();
    CHECK(c.inits == 0);
    CHECK(c.contexts_made == 0);
    CHECK(c.retains == c.releases);
    CHECK(c.pushes == c.pops);
    CHECK(c.sets == 0);
  }

  gpu_tree tree;
};

std::vector<gpu::device> listed() {
  const auto all = gpu::devices();
  REQUIRE_MESSAGE(all.has_value(), all.why());
  return *all;
}

std::string_view why_no_memory(const gpu::device& d) { return code(gpu::memory(d).used_bytes.why()); }

/// The answer to a question that was just asked is given again for a millisecond.
void let_it_age() {
  const std::int64_t end = tidemark::detail::os::steady_ns() + 1'100'000;
  while (tidemark::detail::os::steady_ns() < end) {
  }
}

/// The exit status of a child that runs `f`.
template <class F>
int in_child(F f) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(60);
    ::_exit(f());
  }
  int status = -1;
  REQUIRE(::waitpid(child, &status, 0) == child);
  REQUIRE(WIFEXITED(status));
  return WEXITSTATUS(status);
}

// A driver of any age answers these; the others are of what older ones do not have.
const doctest::test_suite of_any_age("any age");

const auto own_pid = static_cast<std::uint32_t>(::getpid());

}  // namespace

// ---- devices ----

TEST_CASE_FIXTURE(machine,
                  "devices are told as the driver tells them, and all calls come from one thread without signals" *
                      of_any_age) {
  const std::vector<gpu::device> all = listed();
  REQUIRE(all.size() == 2);
  CHECK(all[0].uuid == uuid_of_a);
  CHECK(all[0].name == "Fake GPU");
  CHECK(all[0].pci_address == "0000:41:00.0");
  CHECK(all[0].driver == "nvidia");
  CHECK(all[0].unified.value_or(true) == false);
  CHECK(all[1].uuid == uuid_of_b);
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&all] {
      for (const gpu::device& d : all) {
        static_cast<void>(gpu::memory(d));
        static_cast<void>(gpu::process_memory(d));
      }
    });
  }
  for (std::thread& t : threads) t.join();
  CHECK(nvml().calls.count > 10);
  CHECK_FALSE(nvml().calls.is_of_many_threads);
  CHECK_FALSE(nvml().calls.lets_signals_in);
  CHECK(nvml().inits == 1);
}

TEST_CASE_FIXTURE(machine,
                  "a device that the user may not see is left out, and a count that lies adds none" * of_any_age) {
  nvml().gpu[1].handle_answer = 4;
  nvml().count = 200;
  const std::vector<gpu::device> all = listed();
  REQUIRE(all.size() == 1);
  CHECK(all[0].uuid == uuid_of_a);
  CHECK(code(all[0].cuda_ordinal.why()) == "cuda_not_initialised");  // CUDA may count what is hidden here
}

TEST_CASE_FIXTURE(machine, "a driver without devices has an empty list, and one whose only device is dead says so" *
                               of_any_age) {
  nvml().count = 0;
  CHECK(listed().empty());
  nvml().count = 1;
  nvml().gpu[0].handle_answer = 15;
  CHECK(code(gpu::devices().why()) == "device_lost");
  nvml().gpu[0].handle_answer = 4;
  CHECK(listed().empty());
}

TEST_CASE_FIXTURE(machine, "ordinals follow the environment where that fixes them") {
  const auto ordinals = [] {
    std::string text;
    for (const gpu::device& d : listed()) {
      text += (text.empty() ? "" : " ") +
              (d.cuda_ordinal ? std::to_string(*d.cuda_ordinal) : std::string(code(d.cuda_ordinal.why())));
    }
    return text;
  };
  ::unsetenv("CUDA_VISIBLE_DEVICES");
  ::unsetenv("CUDA_DEVICE_ORDER");
  CHECK(ordinals() == "cuda_not_initialised cuda_not_initialised");
  ::setenv("CUDA_DEVICE_ORDER", "PCI_BUS_ID", 1);
  CHECK(ordinals() == "1 0");
  ::setenv("CUDA_VISIBLE_DEVICES", "1", 1);
  CHECK(ordinals() == "0 hidden");
  ::unsetenv("CUDA_DEVICE_ORDER");
  ::setenv("CUDA_VISIBLE_DEVICES", "GPU-bbbb", 1);
  CHECK(ordinals() == "hidden 0");
  ::setenv("CUDA_VISIBLE_DEVICES", "", 1);
  CHECK(ordinals() == "hidden hidden");
}

TEST_CASE_FIXTURE(machine,
                  "ordinals are CUDA's own where the program has initialised it, matched by UUID and not by place") {
  ::setenv("CUDA_VISIBLE_DEVICES", "0", 1);  // CUDA knows better
  make_cuda(true, false);
  const std::vector<gpu::device> all = listed();
  CHECK(all[0].cuda_ordinal.value_or(-1) == 1);
  CHECK(all[1].cuda_ordinal.value_or(-1) == 0);
  cuda().gpus = 1;
  CHECK(code(listed()[0].cuda_ordinal.why()) == "hidden");
  CHECK(listed()[1].cuda_ordinal.value_or(-1) == 0);
  cuda().gpu[0].is_integrated = 1;
  CHECK(listed()[1].unified.value_or(false));
  require_passive();
}

TEST_CASE_FIXTURE(machine, "a divided GPU is listed with its instances, which are asked in its place") {
  nvml().gpu[1].is_divided = true;
  nvml().gpu[1].memory_answer = 4;
  nvml().gpus = 3;
  fake_gpu& instance = nvml().gpu[2];
  make(instance, uuid_of_instance, "00000000:01:00.0");
  instance.parent = 1;
  instance.name = "Fake GPU MIG 1g.10gb";
  instance.used = 42 * MiB;
  ::setenv("CUDA_VISIBLE_DEVICES", uuid_of_instance, 1);
  const std::vector<gpu::device> all = listed();
  REQUIRE(all.size() == 3);
  CHECK(all[1].is_mig_parent);
  CHECK(all[2].uuid == uuid_of_instance);
  CHECK(all[2].name == "Fake GPU MIG 1g.10gb");
  CHECK(all[2].parent_uuid == uuid_of_b);
  CHECK(all[2].cuda_ordinal.value_or(-1) == 0);
  CHECK(code(all[1].cuda_ordinal.why()) == "mig_parent");
  CHECK(why_no_memory(all[1]) == "mig_parent");
  CHECK(code(gpu::process_memory(all[1]).why()) == "mig_parent");
  CHECK(code(gpu::memory_pool(all[1]).used_bytes.why()) == "mig_parent");
  CHECK(gpu::memory(all[2]).used_bytes.value_or(-1) == 42 * MiB);
  nvml().gpu[1].memory_answer = 0;  // to an administrator
  let_it_age();
  CHECK(gpu::memory(all[1]).used_bytes.value_or(-1) == 1'000 * MiB);
}

// ---- memory ----

TEST_CASE_FIXTURE(machine, "memory is as the driver says: what is free is never made up of the rest") {
  const gpu::device d = listed()[0];
  const gpu::device_memory m = gpu::memory(d);
  CHECK(m.total_bytes.value_or(-1) == 80'000 * MiB);
  CHECK(m.free_bytes.value_or(-1) == 78'300 * MiB);
  CHECK(m.used_bytes.value_or(-1) == 1'000 * MiB);
  CHECK(m.reserved_bytes.value_or(-1) == 700 * MiB);
  CHECK(code(m.shared_used_bytes.why()) == "not_supported");
  CHECK(m.source == "nvml");
  nvml().gpu[0].free = 5;  // inconsistent, and the driver's to say
  let_it_age();
  CHECK(gpu::memory(d).free_bytes.value_or(-1) == 5);
  CHECK(gpu::memory({uuid_of_b, "", ""}).total_bytes.value_or(-1) == 80'000 * MiB);  // no list needed
  CHECK(why_no_memory({"GPU-of nobody", "", ""}) == "device_lost");
}

TEST_CASE_FIXTURE(machine, "a driver that refuses the second ABI of the question is asked the first") {
  const gpu::device d = listed()[0];
  for (const int answer : {13, 25}) {
    nvml().gpu[0].memory_v2_answer = answer;
    let_it_age();
    const gpu::device_memory m = gpu::memory(d);
    CHECK(m.used_bytes.value_or(-1) == 1'700 * MiB);
    CHECK(m.free_bytes.value_or(-1) == 78'300 * MiB);
    CHECK(code(m.reserved_bytes.why()) == "not_supported");
    CHECK(m.source == "nvml");
  }
}

TEST_CASE_FIXTURE(machine, "a driver of the first ABI does not tell its own part" * doctest::test_suite("first ABI")) {
  const gpu::device d = listed()[0];
  const gpu::device_memory m = gpu::memory(d);
  CHECK(m.total_bytes.value_or(-1) == 80'000 * MiB);
  CHECK(m.used_bytes.value_or(-1) == 1'700 * MiB);
  CHECK(m.free_bytes.value_or(-1) == 78'300 * MiB);
  CHECK(code(m.reserved_bytes.why()) == "not_supported");
}

TEST_CASE_FIXTURE(machine, "an answer is given again for a millisecond") {
  const gpu::device d = listed()[0];
  bool is_shared = false;
  for (int i = 0; i < 1'000 && !is_shared; ++i) {  // unless the test was held up between the two
    let_it_age();
    const int before = nvml().memory_calls;
    static_cast<void>(gpu::memory(d));
    static_cast<void>(gpu::memory(d));
    is_shared = nvml().memory_calls == before + 1;
  }
  CHECK(is_shared);
  const int before = nvml().memory_calls;
  let_it_age();
  static_cast<void>(gpu::memory(d));
  CHECK(nvml().memory_calls == before + 1);
}

TEST_CASE_FIXTURE(machine, "where the driver has no figure the memory is the system's, unless CUDA can be asked") {
  nvml().gpu[0].memory_answer = 3;
  tree.put("/proc/meminfo", "MemTotal:       1000 kB\nMemFree:         100 kB\nMemAvailable:    600 kB\n");
  const gpu::device d = listed()[0];
  CHECK(d.unified.value_or(false));
  const gpu::device_memory m = gpu::memory(d);
  CHECK(m.total_bytes.value_or(-1) == 1'024'000);
  CHECK(m.free_bytes.value_or(-1) == 614'400);
  CHECK(m.source == "meminfo");
  make_cuda(true, true);
  let_it_age();
  const gpu::device_memory by_cuda = gpu::memory(d);
  CHECK(by_cuda.free_bytes.value_or(-1) == 77'000 * MiB);
  CHECK(by_cuda.used_bytes.value_or(-1) == 3'000 * MiB);
  CHECK(by_cuda.source == "cuda");
  require_passive();
}

TEST_CASE_FIXTURE(machine, "a device that is lost says so, and is found again when it is back") {
  const gpu::device d = listed()[0];
  const auto answers = [&](int answer) {
    nvml().gpu[0].memory_answer = answer;
    let_it_age();
    return std::string(why_no_memory(d));
  };
  CHECK(answers(0) == "known");
  CHECK(answers(15) == "device_lost");
  CHECK(answers(16) == "device_lost");
  CHECK(answers(4) == "no_permission");
  CHECK(answers(17) == "no_permission");
  CHECK(answers(10) == "timeout");
  CHECK(answers(999) == "driver_error");
  CHECK(std::string(gpu::memory(d).used_bytes.why()) == "driver_error: NVML answered 999, Unknown Error");
  CHECK(answers(0) == "known");
  CHECK(answers(15) == "device_lost");
  nvml().gpus = 3;  // after a reset the driver has another handle for it
  make(nvml().gpu[2], uuid_of_a, "00000000:41:00.0");
  nvml().gpu[0].uuid = "GPU-gone";
  CHECK(answers(15) == "known");
  nvml().gpu[2].total = ~std::uint64_t{0};
  let_it_age();
  CHECK(why_no_memory(d) == "known");
  CHECK(code(gpu::memory(d).total_bytes.why()) == "not_supported");
}

TEST_CASE_FIXTURE(machine, "a driver that the program shut down is started again") {
  const gpu::device d = listed()[0];
  nvml().gpu[0].memory_answer = 1;
  CHECK(why_no_memory(d) == "driver_error");
  nvml().gpu[0].memory_answer = 0;
  let_it_age();
  CHECK(why_no_memory(d) == "known");
  CHECK(nvml().inits == 2);
}

// ---- this process ----

TEST_CASE_FIXTURE(machine, "a process in several lists counts once, with the most that one of them says" * of_any_age) {
  fake_gpu& g = nvml().gpu[0];
  const gpu::device d = listed()[0];
  CHECK(gpu::process_memory(d).value_or(-1) == 0);  // the host's list is whole: it has nothing there
  g.lists[0][0] = {own_pid + 1, 900 * MiB};
  g.lists[0][1] = {own_pid + 2, 800 * MiB};
  g.lists[0][2] = {own_pid, 500 * MiB};
  g.lists[1][0] = {own_pid, 300 * MiB};
  g.lists[2][0] = {own_pid, 400 * MiB};
  CHECK(gpu::process_memory(d).value_or(-1) == 500 * MiB);
  nvml().has_all_mode = false;
  CHECK(gpu::process_memory(d).value_or(-1) == 500 * MiB);
  nvml().has_details = false;  // then the lists of entries of one size
  CHECK(gpu::process_memory(d).value_or(-1) == 500 * MiB);
  CHECK(gpu::process_memory(listed()[1]).value_or(-1) == 0);
}

TEST_CASE_FIXTURE(machine, "a list that grows between two calls is asked again, and one that never stops is no list" *
                               of_any_age) {
  fake_gpu& g = nvml().gpu[0];
  const gpu::device d = listed()[0];
  g.lists[0][0] = {own_pid, 300 * MiB};
  for (const bool has_details : {true, false}) {
    nvml().has_details = has_details;
    nvml().growth = 3;
    CHECK(gpu::process_memory(d).value_or(-1) == 300 * MiB);
    nvml().growth = 1'000;
    CHECK(code(gpu::process_memory(d).why()) == "driver_error");
    nvml().growth = 0;
  }
}

TEST_CASE_FIXTURE(machine, "counts that lie make the library read nothing that it did not give room for" * of_any_age) {
  fake_gpu& g = nvml().gpu[0];
  const gpu::device d = listed()[0];
  g.lists[0][0] = {own_pid, 300 * MiB};
  for (const bool has_details : {true, false}) {
    nvml().has_details = has_details;
    nvml().count_instead = 4'000'000'000U;
    CHECK(gpu::process_memory(d).value_or(-1) == 300 * MiB);
    nvml().count_instead = 0;
    nvml().needed_instead = 4'000'000'000U;
    CHECK(code(gpu::process_memory(d).why()) == "driver_error");
    nvml().needed_instead = 0;
  }
}

TEST_CASE_FIXTURE(machine, "what the driver does not say of a process is not nothing") {
  nvml().gpu[0].lists[0][0] = {own_pid, ~std::uint64_t{0}};
  CHECK(code(gpu::process_memory(listed()[0]).why()) == "not_available_wddm");
}

TEST_CASE_FIXTURE(machine, "in a container a list is only believed where its numbers are processes here") {
  tree.remove_all("/proc/self/ns/pid");
  tree.be_container();
  const gpu::device d = listed()[0];
  CHECK(code(gpu::process_memory(d).why()) == "pid_namespace");  // an empty list may hide it
  fake_gpu& g = nvml().gpu[0];
  g.lists[0][0] = {own_pid, 300 * MiB};
  CHECK(code(gpu::process_memory(d).why()) == "pid_namespace");  // another process may have that number on the host
  tree.put("/proc/" + std::to_string(own_pid) + "/stat", "1 (x) S 0\n");
  CHECK(gpu::process_memory(d).value_or(-1) == 300 * MiB);
  g.lists[0][1] = {777'777, 300 * MiB};
  CHECK(code(gpu::process_memory(d).why()) == "pid_namespace");
}

// ---- CUDA ----

TEST_CASE_FIXTURE(machine, "CUDA that the program has not loaded stays unloaded") {
  const gpu::device d = listed()[0];
  static_cast<void>(gpu::memory(d));
  static_cast<void>(gpu::process_memory(d));
  CHECK(code(gpu::memory_pool(d).used_bytes.why()) == "cuda_not_initialised");
  CHECK(code(gpu::graph_pool(d).used_bytes.why()) == "cuda_not_initialised");
  CHECK(::dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD) == nullptr);
}

TEST_CASE_FIXTURE(machine, "CUDA that is loaded and not initialised stays so, and one without a context gets none") {
  make_cuda(false, false);
  const gpu::device d = listed()[0];
  CHECK(why_no_memory(d) == "known");
  CHECK(code(gpu::memory_pool(d).used_bytes.why()) == "cuda_not_initialised");
  CHECK(code(gpu::reset_pool_peak(d).used_bytes.why()) == "cuda_not_initialised");
  CHECK(cuda().is_initialised == 0);
  cuda().is_initialised = 1;
  CHECK(code(gpu::memory_pool(d).used_bytes.why()) == "no_context");
  CHECK(code(gpu::graph_pool(d).used_bytes.why()) == "no_context");
  nvml().gpu[0].memory_answer = 4;
  let_it_age();
  CHECK(why_no_memory(d) == "no_permission");
  CHECK(cuda().retains == 0);
  require_passive();
  CHECK_FALSE(cuda().calls.is_of_many_threads);
}

TEST_CASE_FIXTURE(machine, "pools and graphs are read in the program's own context, which is as it was afterwards") {
  make_cuda(true, true);
  const gpu::device d = listed()[0];
  const gpu::pool_memory p = gpu::memory_pool(d);
  CHECK(p.reserved_bytes.value_or(-1) == 64 * MiB);
  CHECK(p.reserved_peak_bytes.value_or(-1) == 256 * MiB);
  CHECK(p.used_bytes.value_or(-1) == 10 * MiB);
  CHECK(p.used_peak_bytes.value_or(-1) == 200 * MiB);
  const gpu::pool_memory g = gpu::graph_pool(d);
  CHECK(g.used_bytes.value_or(-1) == 1 * MiB);
  CHECK(g.used_peak_bytes.value_or(-1) == 2 * MiB);
  CHECK(g.reserved_bytes.value_or(-1) == 3 * MiB);
  CHECK(g.reserved_peak_bytes.value_or(-1) == 4 * MiB);
  CHECK(cuda().retains == 2);
  require_passive();
  cuda().gpu[1].has_pools = 0;
  CHECK(code(gpu::memory_pool(d).used_bytes.why()) == "not_supported");
}

TEST_CASE_FIXTURE(machine, "a reset gives what the marks were, and they start again at what is current") {
  make_cuda(true, true);
  const gpu::device d = listed()[0];
  CHECK(gpu::reset_pool_peak(d).used_peak_bytes.value_or(-1) == 200 * MiB);
  CHECK(cuda().sets == 2);
  CHECK(gpu::memory_pool(d).used_peak_bytes.value_or(-1) == 10 * MiB);
  CHECK(gpu::memory_pool(d).reserved_peak_bytes.value_or(-1) == 64 * MiB);
  CHECK(gpu::reset_graph_pool_peak(d).reserved_peak_bytes.value_or(-1) == 4 * MiB);
  CHECK(gpu::graph_pool(d).reserved_peak_bytes.value_or(-1) == 3 * MiB);
  CHECK(cuda().gpu[0].pool[8] == 200 * MiB);  // the other device's
}

TEST_CASE_FIXTURE(machine, "CUDA that is gone, a stub, or without devices says which") {
  make_cuda(true, true);
  const gpu::device d = listed()[0];
  const auto answers = [&](int answer) {
    cuda().answer = answer;
    return std::string(code(gpu::memory_pool(d).used_bytes.why()));
  };
  CHECK(answers(0) == "known");
  CHECK(answers(4) == "cuda_deinitialised");
  CHECK(answers(34) == "no_library");
  CHECK(answers(100) == "no_device");
  CHECK(answers(999) == "driver_error");
  CHECK(answers(0) == "known");
}

TEST_CASE_FIXTURE(machine, "a child of fork() starts the driver's library anew, and leaves CUDA alone") {
  make_cuda(true, true);
  const gpu::device d = listed()[0];
  REQUIRE(code(gpu::memory_pool(d).used_bytes.why()) == "known");
  const int calls = cuda().calls.count;
  const int inits = nvml().inits;
  const int failed = in_child([&] {
    if (why_no_memory(d) != "known") return 1;
    if (nvml().inits != inits + 1) return 2;
    if (code(gpu::memory_pool(d).used_bytes.why()) != "forked") return 3;
    if (gpu::devices()->size() != 2) return 4;
    return cuda().calls.count == calls ? 0 : 5;
  });
  CHECK(failed == 0);
  CHECK(code(gpu::memory_pool(d).used_bytes.why()) == "known");
}

TEST_CASE_FIXTURE(
    machine,
    "a child of fork() that is the first to ask leaves CUDA alone too, where the kernel tells that it is one") {
  make_cuda(true, true);
  const gpu::device d{uuid_of_a, "", ""};
  const int failed = in_child([&] {
    detail::os::use_system_root("");  // the kernel's own /proc
    return code(gpu::memory_pool(d).used_bytes.why()) == "forked" && cuda().calls.count == 0 ? 0 : 1;
  });
  CHECK(failed == 0);
}

TEST_CASE_FIXTURE(machine, "a child of fork() may use CUDA that it loaded itself") {
  const gpu::device d = listed()[0];
  const int failed = in_child([&] {
    if (code(gpu::memory_pool(d).used_bytes.why()) != "cuda_not_initialised") return 1;
    make_cuda(true, true);
    return code(gpu::memory_pool(d).used_bytes.why()) == "known" ? 0 : 2;
  });
  CHECK(failed == 0);
}

// ---- drivers that do not start ----

TEST_CASE_FIXTURE(machine, "a driver that does not start says why, and is not tried at every question") {
  nvml().init_answer = 18;
  CHECK(code(gpu::devices().why()) == "driver_mismatch");
  CHECK(why_no_memory({uuid_of_a, "", ""}) == "driver_mismatch");
  CHECK(code(gpu::process_memory({uuid_of_a, "", ""}).why()) == "driver_mismatch");
  CHECK(nvml().inits == 1);
}

TEST_CASE_FIXTURE(machine, "a driver that is not loaded is none, but does not hide other devices") {
  nvml().init_answer = 9;
  CHECK(code(gpu::devices().why()) == "driver_not_loaded");
  tree.put("/sys/class/drm/card0/device/uevent", "DRIVER=amdgpu\nPCI_SLOT_NAME=0000:03:00.0\n");
  const std::vector<gpu::device> all = listed();
  REQUIRE(all.size() == 1);
  CHECK(all[0].driver == "amdgpu");
}

TEST_CASE_FIXTURE(machine, "a driver that hangs when it starts is a timeout until it has started") {
  nvml().init_gate.shut();
  gpu::set_driver_deadline_ns(20'000'000);
  CHECK(code(gpu::devices().why()) == "timeout");
  gpu::set_driver_deadline_ns(60'000'000'000);
  CHECK(code(gpu::devices().why()) == "timeout");
  CHECK(code(gpu::process_memory({uuid_of_a, "", ""}).why()) == "timeout");
  CHECK(code(meter::device<>::window().usage().why()) == "timeout");
  CHECK(in_child([] {
          gpu::set_driver_deadline_ns(20'000'000);  // it hangs there too
          return code(gpu::devices().why()) == "timeout" ? 0 : 1;
        }) == 0);
  nvml().init_gate.open();
  while (!gpu::devices()) std::this_thread::yield();
  CHECK(nvml().inits == 1);
}

TEST_CASE_FIXTURE(machine, "CUDA alone tells its devices where there is no other library") {
  ::setenv("LIB_NVML_PATH", "/nowhere/libnvidia-ml.so.1", 1);
  CHECK(std::string(gpu::devices().why()).find("LIB_NVML_PATH") != std::string::npos);
  make_cuda(true, true);
  const std::vector<gpu::device> all = listed();
  REQUIRE(all.size() == 2);
  CHECK(all[0].uuid == uuid_of_b);
  CHECK(all[0].cuda_ordinal.value_or(-1) == 0);
  CHECK(gpu::memory(all[0]).source == "cuda");
  CHECK(code(gpu::process_memory(all[0]).why()) == "no_library");
  require_passive();
}

// ---- windows ----

TEST_CASE_FIXTURE(machine, "a device's window has the highest of its edges and of what was asked meanwhile") {
  ::setenv("CUDA_DEVICE_ORDER", "PCI_BUS_ID", 1);
  fake_gpu& g = nvml().gpu[1];  // the first on the bus
  meter::device<0>::window w;
  g.used = 3'000 * MiB;
  let_it_age();
  REQUIRE(gpu::memory({uuid_of_b, "", ""}).used_bytes.value_or(-1) == 3'000 * MiB);  // as a monitor would
  g.used = 2'000 * MiB;
  const reading<window_usage> u = w.close();
  REQUIRE_MESSAGE(u.has_value(), u.why());
  CHECK(u->entry_bytes == 1'000 * MiB);
  CHECK(u->exit_bytes == 2'000 * MiB);
  CHECK(u->peak_bytes == 3'000 * MiB);
  CHECK(u->error_bound_bytes == 77'000 * MiB);
  CHECK_FALSE(u->counts_events);
  CHECK(code(meter::device<2>::window().usage().why()) == "no_device");
}

TEST_CASE_FIXTURE(machine, "a device that is gone has given its ordinal away") {
  ::setenv("CUDA_VISIBLE_DEVICES", "GPU-aaaa,GPU-bbbb", 1);
  nvml().gpu[1].used = 5'000 * MiB;
  CHECK(meter::device<0>::window().usage().value().entry_bytes == 1'000 * MiB);
  CHECK(meter::device<1>::window().usage().value().entry_bytes == 5'000 * MiB);
  nvml().gpu[0].handle_answer = 15;
  nvml().gpu[0].memory_answer = 15;
  ::setenv("CUDA_VISIBLE_DEVICES", "GPU-bbbb", 1);
  CHECK(listed().size() == 1);
  CHECK(meter::device<0>::window().usage().value_or({}).entry_bytes == 5'000 * MiB);
  CHECK(code(meter::device<1>::window().usage().why()) == "no_device");
}

TEST_CASE_FIXTURE(machine, "a window whose source changed is absent, and one whose device hangs at the end says so") {
  ::setenv("CUDA_VISIBLE_DEVICES", uuid_of_a, 1);
  make_cuda(true, true);
  meter::device<0>::window w;  // CUDA's first is B
  REQUIRE(w.usage());
  nvml().gpu[1].memory_answer = 4;
  CHECK(code(w.close().why()) == "source_changed");
  nvml().gpu[1].memory_answer = 0;
  meter::device<0>::window hanging;
  nvml().memory_gate.shut();
  gpu::set_driver_deadline_ns(20'000'000);
  CHECK(code(hanging.close().why()) == "timeout");
  nvml().memory_gate.open();
}

TEST_CASE_FIXTURE(machine, "a scope carries devices and pools, and what the drivers allocate is in no number of its") {
  make_cuda(true, true);
  static_cast<void>(listed());
  basic_scope<meter::thread_heap, meter::process_heap, meter::device<>, meter::device_pool<1>> step("step");
  cuda().gpu[1].pool[7] = 90 * MiB;
  cuda().gpu[1].pool[8] = 900 * MiB;
  const scope_record r = step.close();
  const meter_reading* const device = r.find("device:0");
  REQUIRE(device != nullptr);
  CHECK(device->usage.value().entry_bytes == 1'000 * MiB);
  CHECK(device->unit == "bytes");
  const meter_reading* const pool = r.find("device_pool:1");
  REQUIRE(pool != nullptr);
  CHECK(pool->usage.value().entry_bytes == 10 * MiB);
  CHECK(pool->usage.value().exit_bytes == 90 * MiB);
  CHECK(pool->usage.value().peak_bytes == 900 * MiB);
  CHECK(pool->usage.value().error_bound_bytes == 0);
  CHECK(r.find("thread_heap")->usage.value().allocations == 0);
  CHECK(r.find("process_heap")->usage.value().allocations == 0);
  require_passive();
}

TEST_CASE_FIXTURE(machine, "a pool that was reset through the library keeps its open windows right") {
  make_cuda(true, true);
  const gpu::device d{uuid_of_b, "", ""};
  static_cast<void>(listed());
  meter::device_pool<0>::window w;
  cuda().gpu[0].pool[8] = 700 * MiB;
  static_cast<void>(gpu::reset_pool_peak(d));
  const reading<window_usage> u = w.usage();
  REQUIRE_MESSAGE(u.has_value(), u.why());
  CHECK(u->peak_bytes == 700 * MiB);
  CHECK(u->error_bound_bytes == 0);
  cuda().gpu[0].pool[8] = 1 * MiB;  // someone else's reset
  CHECK(code(w.close().why()) == "mark_reset");
}

// ---- the monitor ----

TEST_CASE_FIXTURE(machine, "a monitor samples devices at their interval, alerts, and raises the peak of open windows") {
  ::setenv("CUDA_DEVICE_ORDER", "PCI_BUS_ID", 1);
  fake_gpu& g = nvml().gpu[1];  // the first on the bus
  g.lists[0][0] = {own_pid, 300 * MiB};
  struct keeper final : sink {
    void on_sample(const sample_record& s) override { samples.push_back(s); }
    std::vector<sample_record> samples;
  };
  const auto kept = std::make_shared<keeper>();
  const attachment attached = attach(kept);
  std::int64_t now = 0;
  monitor_options o;
  o.interval = std::chrono::nanoseconds(0);
  o.device_interval = std::chrono::seconds(5);
  o.now_ns = [&] { return now; };
  monitor m(o);
  std::vector<alert_record> alerts;
  m.alert_when(device_above(2'500 * MiB), [&](const alert_record& a) { alerts.push_back(a); });
  m.alert_when(device_above({uuid_of_a, "", ""}, 2'500 * MiB), [&](const alert_record& a) { alerts.push_back(a); });
  meter::device<0>::window w;
  m.check();
  g.used = 3'000 * MiB;
  let_it_age();
  now = 4'999'999'999;
  m.check();  // devices are not asked
  now = 5'000'000'000;
  m.check();
  g.used = 2'000 * MiB;
  REQUIRE(kept->samples.size() == 3);
  CHECK(kept->samples[1].devices[1].used_bytes.value() == 1'000 * MiB);
  CHECK(kept->samples[1].devices[1].time_ns == 0);
  const std::vector<device_sample>& devices = kept->samples[2].devices;
  REQUIRE(devices.size() == 2);
  CHECK(devices[1].uuid == uuid_of_b);
  CHECK(devices[1].name == "Fake GPU");
  CHECK(devices[1].source == "nvml");
  CHECK(devices[1].time_ns == now);
  CHECK(devices[1].total_bytes.value() == 80'000 * MiB);
  CHECK(devices[1].used_bytes.value() == 3'000 * MiB);
  CHECK(devices[1].process_bytes.value() == 300 * MiB);
  CHECK(devices[0].process_bytes.value() == 0);
  REQUIRE(alerts.size() == 1);
  CHECK(alerts[0].value_bytes == 3'000 * MiB);
  const reading<window_usage> u = w.close();
  REQUIRE_MESSAGE(u.has_value(), u.why());
  CHECK(u->peak_bytes == 3'000 * MiB);
  CHECK(u->exit_bytes == 2'000 * MiB);
}

TEST_CASE_FIXTURE(machine, "a driver that hangs costs a monitor one deadline, and its sample says so") {
  struct keeper final : sink {
    void on_sample(const sample_record& s) override { last = s; }
    sample_record last;
  };
  const auto kept = std::make_shared<keeper>();
  const attachment attached = attach(kept);
  monitor_options o;
  o.interval = std::chrono::nanoseconds(0);
  o.device_interval = std::chrono::nanoseconds(0);
  monitor m(o);
  m.check();
  nvml().memory_gate.shut();
  gpu::set_driver_deadline_ns(20'000'000);
  let_it_age();
  m.check();
  REQUIRE(kept->last.devices.size() == 2);
  CHECK(code(kept->last.devices[0].used_bytes.why()) == "timeout");
  CHECK(kept->last.heap.has_value());
  m.check();
  CHECK(code(kept->last.devices.empty() ? kept->last.why_no_devices : kept->last.devices[0].used_bytes.why()) ==
        "timeout");
  nvml().memory_gate.open();
}

TEST_CASE_FIXTURE(machine, "a device's report tells what is mine, what others use, and what nobody accounts for") {
  ::setenv("CUDA_DEVICE_ORDER", "PCI_BUS_ID", 1);
  make_cuda(true, true);  // whose pools have reserved 64 and 2 MiB
  nvml().gpu[1].lists[0][0] = {own_pid, 300 * MiB};
  domain& mine = gpu::domain_of(listed()[1]);
  mine.allocated(100 * static_cast<std::int64_t>(MiB));
  const memory_report r = where_is_my_memory();
  REQUIRE(r.devices.size() == 2);
  CHECK(r.why_no_devices.empty());
  const device_report& d = r.devices[1];
  CHECK(d.uuid == uuid_of_b);
  CHECK(d.total_bytes.value() == 80'000 * MiB);
  CHECK(d.used_bytes.value() == 1'000 * MiB);
  CHECK(d.process_bytes.value() == 300 * MiB);
  CHECK(d.other_processes_bytes.value() == 700 * MiB);
  CHECK(d.my_allocations_bytes.value() == 100 * MiB);
  const std::int64_t reserved = gpu::memory_pool(listed()[1]).reserved_bytes.value();
  CHECK(d.pool_reserved_bytes.value() == reserved + gpu::graph_pool(listed()[1]).reserved_bytes.value());
  CHECK(d.unaccounted_bytes.value() == 200 * MiB);
  mine.freed(100 * static_cast<std::int64_t>(MiB));
  const auto pools = static_cast<std::uint64_t>(d.pool_reserved_bytes.value());
  CHECK(where_is_my_memory().devices[1].unaccounted_bytes.value() == 300 * MiB - pools);
  CHECK(r.table().find(std::string("device Fake GPU ") + uuid_of_b) != std::string::npos);
}

TEST_CASE("LIB_NVML_PATH names the library to use") {
  const char* const other = std::getenv("FAKE_FIRST_ABI_LIBRARY");
  REQUIRE(other != nullptr);
  ::setenv("LIB_NVML_PATH", other, 1);
  auto& s = state_of<fake_nvml_state>(other, "fake_nvml");
  s.count = 1;
  s.gpus = 1;
  machine::make(s.gpu[0], uuid_of_a, "00000000:41:00.0");
  CHECK(listed().size() == 1);
  CHECK(s.inits == 1);
  CHECK(nvml().inits == 0);
}

TEST_CASE("TIDEMARK_GPU=off keeps every library away") {
  ::setenv("TIDEMARK_GPU", "off", 1);
  CHECK(code(gpu::devices().why()) == "disabled");
  CHECK(code(gpu::memory({uuid_of_a, "", ""}).used_bytes.why()) == "disabled");
  CHECK(code(meter::device<>::window().usage().why()) == "disabled");
  CHECK(::dlopen("libnvidia-ml.so.1", RTLD_LAZY | RTLD_NOLOAD) == nullptr);
}
