// SPDX-License-Identifier: MIT
// What the tests of the monitor share: a sink that keeps what it is given and can be waited for, and samples by hand.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <utility>
#include <vector>

#include <tidemark/core/record.hpp>
#include <tidemark/core/sink.hpp>

inline constexpr std::int64_t second = 1'000'000'000;

/// Keeps samples and alerts. `wait_for` has no deadline: a test that hangs is stopped from outside.
class keeping_sink final : public tidemark::sink {
 public:
  void on_sample(const tidemark::sample_record& s) override {
    const std::lock_guard<std::mutex> held(mutex_);
    samples_.push_back(s);
    changed_.notify_all();
  }
  void on_alert(const tidemark::alert_record& a) override {
    const std::lock_guard<std::mutex> held(mutex_);
    alerts_.push_back(a);
  }
  void flush() override {
    const std::lock_guard<std::mutex> held(mutex_);
    ++flushes_;
    changed_.notify_all();
  }

  [[nodiscard]] std::vector<tidemark::sample_record> samples() const {
    const std::lock_guard<std::mutex> held(mutex_);
    return samples_;
  }
  [[nodiscard]] std::vector<tidemark::alert_record> alerts() const {
    const std::lock_guard<std::mutex> held(mutex_);
    return alerts_;
  }
  void wait_for_samples(std::size_t count) const {
    std::unique_lock<std::mutex> held(mutex_);
    changed_.wait(held, [&] { return samples_.size() >= count; });
  }
  void wait_for_flushes(int count) const {
    std::unique_lock<std::mutex> held(mutex_);
    changed_.wait(held, [&] { return flushes_ >= count; });
  }

 private:
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  std::vector<tidemark::sample_record> samples_;
  std::vector<tidemark::alert_record> alerts_;
  int flushes_ = 0;
};

/// A monitor without a thread that asks no devices.
[[nodiscard]] inline tidemark::monitor_options by_hand() {
  tidemark::monitor_options o;
  o.interval = std::chrono::nanoseconds(0);
  o.device_interval = std::chrono::nanoseconds(-1);
  return o;
}

[[nodiscard]] inline tidemark::sample_record sample_at(std::int64_t time_ns, std::int64_t resident) {
  tidemark::sample_record s;
  s.time_ns = time_ns;
  s.resident_bytes = resident;
  return s;
}
