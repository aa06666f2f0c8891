// SPDX-License-Identifier: MIT
// sample SAMPLES [DOMAINS]: takes SAMPLES samples of a monitor without devices and with no sink attached, after ten others, in
// a program with DOMAINS domains. Prints the processor time of one in nanoseconds, of this thread and its system calls: the
// median, and the 99th percentile.
#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include <time.h>

#include <tidemark/core/domain.hpp>
#include <tidemark/monitor/monitor.hpp>

#include "../arguments.hpp"
#include "../hook/witness.hpp"

namespace {

std::int64_t thread_ns() {
  timespec t{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return std::int64_t{t.tv_sec} * 1'000'000'000 + t.tv_nsec;
}

}  // namespace

int main(int argc, char** argv) {
  const std::size_t samples = bench::number(argc, argv, 1, 1'000);
  const std::size_t domains = bench::number(argc, argv, 2, 10);
  std::vector<std::unique_ptr<tidemark::domain>> kept;
  for (std::size_t i = 0; i < domains; ++i) {
    kept.push_back(std::make_unique<tidemark::domain>("domain " + std::to_string(i)));
  }
  tidemark::monitor_options by_hand;
  by_hand.interval = std::chrono::nanoseconds(0);
  by_hand.device_interval = std::chrono::nanoseconds(-1);
  tidemark::monitor m(by_hand);
  for (int i = 0; i < 10; ++i) m.check();
  std::vector<std::int64_t> times(samples);
  for (std::int64_t& t : times) {
    const std::int64_t before = thread_ns();
    m.check();
    t = thread_ns() - before;
  }
  std::sort(times.begin(), times.end());
  std::printf("%lld %lld\n", static_cast<long long>(times[samples / 2]),
              static_cast<long long>(times[samples * 99 / 100]));
  return bench::status_if_seen(0);
}
