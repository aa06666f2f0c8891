// SPDX-License-Identifier: MIT
// Prints what the library says of the machine and of a process, one "name value" or "name absent: why" a line.
#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include <tidemark/sys/host.hpp>
#include <tidemark/sys/process.hpp>

int main(int count, char** arguments) {
  using namespace tidemark;
  if (count != 2) return 2;
  const auto print = [](const char* name, const reading<std::int64_t>& r) {
    if (r) std::printf("%s %lld\n", name, static_cast<long long>(*r));
    if (!r) std::printf("%s absent: %.*s\n", name, static_cast<int>(r.why().size()), r.why().data());
  };
  const host_memory_reading host = host_memory();
  print("host_total", host.total_bytes);
  print("host_available", host.available_bytes);
  print("host_used", host.used_bytes);
  print("host_swap_total", host.swap_total_bytes);
  print("host_swap_free", host.swap_free_bytes);
  print("host_swap_used", host.swap_used_bytes);
  const std::int64_t pid = std::atoll(arguments[1]);
  const process_memory_reading process = process_memory(pid);
  print("resident", process.resident_bytes);
  print("virtual", process.virtual_bytes);
  print("shared", process.shared_bytes);
  print("data", process.data_bytes);
  print("swap", process.swap_bytes);
  const process_memory_full_reading full = process_memory_full(pid);
  print("full_resident", full.resident_bytes);
  print("proportional", full.proportional_bytes);
  print("unique", full.unique_bytes);
}
