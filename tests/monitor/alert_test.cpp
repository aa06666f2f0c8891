// SPDX-License-Identifier: MIT
// Alerts over samples made by hand: one when the threshold is crossed, one when it is cleared, none where nothing is known.
#include <tidemark/monitor/alert.hpp>

#include <chrono>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include <tidemark/monitor/monitor.hpp>

#include "monitor_support.hpp"
#include "resident_support.hpp"
#include "standard_error.hpp"
#include "test.hpp"

using namespace tidemark;
using namespace tidemark::literals;
using event = detail::alert_state::event;

namespace {

struct outcome {
  event what;
  std::int64_t value, threshold;
  std::string why;
};

/// One alert, from sample to sample.
class watched {
 public:
  explicit watched(alert_condition c, double clear = 0.95) : condition_(std::move(c)), clear_(clear) {}
  outcome see(const sample_record& s) {
    outcome o{};
    std::string_view why;
    o.what = state_.look(condition_, s, clear_, o.value, o.threshold, why);
    o.why = std::string(why);
    return o;
  }

 private:
  alert_condition condition_;
  double clear_;
  detail::alert_state state_;
};

sample_record with_devices(std::vector<reading<std::int64_t>> used) {
  sample_record s = sample_at(0, 0);
  const char* const uuids[] = {"GPU-a", "GPU-b", "GPU-c"};
  for (std::size_t i = 0; i < used.size(); ++i) {
    s.devices.push_back({uuids[i], "device", reading<std::int64_t>(100), used[i], reading<std::int64_t>(1), "nvml", 0});
  }
  return s;
}

}  // namespace

TEST_CASE("an alert comes once when the value rises above the threshold, and once when it clears") {
  watched w(resident_above(1'000));
  CHECK(w.see(sample_at(0, 1'000)).what == event::nothing);  // at it is not above it
  const outcome up = w.see(sample_at(1, 1'001));
  CHECK(up.what == event::raised);
  CHECK(up.value == 1'001);
  CHECK(up.threshold == 1'000);
  CHECK(w.see(sample_at(2, 5'000)).what == event::nothing);
  CHECK(w.see(sample_at(3, 999)).what == event::nothing);
  CHECK(w.see(sample_at(4, 951)).what == event::nothing);
  const outcome down = w.see(sample_at(5, 950));
  CHECK(down.what == event::cleared);
  CHECK(down.value == 950);
  CHECK(w.see(sample_at(6, 0)).what == event::nothing);
  CHECK(w.see(sample_at(7, 1'001)).what == event::raised);  // a second crossing
}

TEST_CASE("where an alert clears can be said for all and for one") {
  watched all(resident_above(1'000), 0.5);
  CHECK(all.see(sample_at(0, 1'001)).what == event::raised);
  CHECK(all.see(sample_at(1, 501)).what == event::nothing);
  CHECK(all.see(sample_at(2, 500)).what == event::cleared);
  alert_condition c = resident_above(1'000);
  c.clear_fraction = 0;
  watched one(c, 0.5);
  CHECK(one.see(sample_at(0, 1'001)).what == event::raised);
  CHECK(one.see(sample_at(1, 1)).what == event::nothing);
  CHECK(one.see(sample_at(2, 0)).what == event::cleared);
  watched everything(resident_above(0));
  CHECK(everything.see(sample_at(0, 1)).what == event::raised);
  CHECK(everything.see(sample_at(1, 0)).what == event::cleared);
}

TEST_CASE("a fraction is of the limit of the moment") {
  watched w(above_fraction_of_limit(0.9));
  sample_record s = sample_at(0, 0);
  s.limit_bytes = 1'000;
  s.limit_used_bytes = 900;
  CHECK(w.see(s).what == event::nothing);
  s.limit_used_bytes = 901;
  const outcome up = w.see(s);
  CHECK(up.what == event::raised);
  CHECK(up.threshold == 900);
  s.limit_bytes = 2'000;  // someone gave the program more
  const outcome down = w.see(s);
  CHECK(down.what == event::cleared);
  CHECK(down.threshold == 1'800);
  s.limit_bytes = INT64_MAX;
  CHECK(watched(above_fraction_of_limit(1)).see(s).what == event::nothing);
}

TEST_CASE("an input that is absent is told once and never raises") {
  watched w(resident_above(1));
  sample_record s = sample_at(0, 0);
  s.resident_bytes = reading<std::int64_t>::absent("no /proc");
  const outcome first = w.see(s);
  CHECK(first.what == event::cannot_tell);
  CHECK(first.why == "no /proc");
  CHECK(w.see(s).what == event::nothing);
  CHECK(w.see(sample_at(1, 2)).what == event::raised);  // it can tell by now
  CHECK(w.see(s).what == event::nothing);               // and stays raised while it cannot
  CHECK(w.see(sample_at(2, 0)).what == event::cleared);

  watched heap(heap_above(0));
  CHECK(heap.see(sample_at(0, 5)).why == "the heap is not seen: the program has no heap hook");
  watched limit(above_fraction_of_limit(0.5));
  CHECK(limit.see(sample_at(0, 5)).why == "not sampled");
  s = sample_at(0, 5);
  s.limit_bytes = 10;
  CHECK(watched(above_fraction_of_limit(0.5)).see(s).why == "not sampled");  // what is used of it
  watched device(device_above(5));
  s.why_no_devices = "no_library: none";
  CHECK(device.see(s).why == "no_library: none");
  CHECK(device.see(s).what == event::nothing);
}

TEST_CASE("a device alert is of the fullest device, or of one") {
  const auto lost = reading<std::int64_t>::absent("timeout: the driver");
  watched any(device_above(50));
  CHECK(any.see(with_devices({50, 20})).what == event::nothing);
  const outcome up = any.see(with_devices({50, 51}));
  CHECK(up.what == event::raised);
  CHECK(up.value == 51);
  CHECK(any.see(with_devices({lost, 10})).what == event::cleared);
  CHECK(any.see(with_devices({lost, lost})).why == "timeout: the driver");
  gpu::device second_one;
  second_one.uuid = "GPU-b";
  watched one(device_above(second_one, 50));
  CHECK(one.see(with_devices({90, 50})).what == event::nothing);
  CHECK(one.see(with_devices({0, 60})).what == event::raised);
  CHECK(watched(device_above(second_one, 50)).see(with_devices({90})).why == "no such device was sampled");
}

TEST_CASE("growth is what was added since a window ago") {
  watched w(growth_above(100, std::chrono::seconds(32)));
  for (std::int64_t t = 0; t < 32; ++t) {
    CHECK(w.see(sample_at(t * second, 1'000 * t)).what == event::nothing);  // too early to tell, whatever it does
  }
  const outcome up = w.see(sample_at(32 * second, 32'000));
  CHECK(up.what == event::raised);
  CHECK(up.value == 32'000);
  CHECK(w.see(sample_at(33 * second, 31'000)).what == event::nothing);
  std::int64_t t = 34;
  while (w.see(sample_at(t * second, 31'000)).what == event::nothing) ++t;
  CHECK(t == 33 + 32 - 2);  // 31,000 is what it was at second 31
  watched often(growth_above(100, std::chrono::seconds(1)));
  for (std::int64_t i = 0; i <= 10'000; ++i) {  // many samples a window: those kept still reach back
    const outcome o = often.see(sample_at(i * second / 1'000, i / 20));
    REQUIRE(o.what == event::nothing);  // 50 a second
  }
  watched rare(growth_above(100, std::chrono::seconds(1)));
  CHECK(rare.see(sample_at(0, 0)).what == event::nothing);
  CHECK(rare.see(sample_at(60 * second, 101)).what == event::raised);
}

TEST_CASE("conditions are named after what they say") {
  CHECK(resident_above(8_GB).name == "resident_above(7.5 GiB)");
  CHECK(heap_above(1_KiB).name == "heap_above(1.0 KiB)");
  CHECK(above_fraction_of_limit(0.9).name == "above_fraction_of_limit(90%)");
  CHECK(above_fraction_of_limit(0.925).name == "above_fraction_of_limit(92.5%)");
  CHECK(device_above(1_GiB).name == "device_above(1.0 GiB)");
  gpu::device d;
  d.uuid = "GPU-x";
  CHECK(device_above(d, 1_GiB).name == "device_above(1.0 GiB of GPU-x)");
  CHECK(growth_above(1_MiB, std::chrono::minutes{1}).name == "growth_above(1.0 MiB in 60 s)");
  CHECK(growth_above(1_MiB, std::chrono::milliseconds{1}).name == "growth_above(1.0 MiB in 1000 us)");
  CHECK(resident_above(1).named("too big").name == "too big");
}

TEST_CASE("a monitor tells sinks and callbacks, in the order in which alerts were asked for") {
  const auto sink = std::make_shared<keeping_sink>();
  const attachment attached = attach(sink);
  std::int64_t now = 5;
  monitor_options o = by_hand();
  o.now_ns = [&] { return now; };
  monitor m(o);
  std::vector<std::string> told;
  const auto tell = [&](const alert_record& a) { told.push_back(a.name); };
  m.alert_when(resident_above(0).named("first"), tell);
  m.alert_when(resident_above(1).named("second"));
  m.alert_when(resident_above(2).named("third"), tell);
  standard_error said;
  m.alert_when(resident_above(3).named("fourth"), [](const alert_record&) {
#if TIDEMARK_HAS_EXCEPTIONS()
    throw std::runtime_error("no pager");
#endif
  });
  m.alert_when(device_above(1).named("fifth"), tell);
  m.check();
  m.check();
  const std::string text = said.text();
  CHECK(told == std::vector<std::string>{"first", "third"});
  const std::vector<alert_record> alerts = sink->alerts();
  REQUIRE(alerts.size() == 4);
  CHECK(alerts[1].name == "second");
  CHECK(alerts[1].threshold_bytes == 1);
  CHECK(alerts[1].time_ns == 5);
  CHECK(!alerts[1].cleared);
  CHECK(is_near(alerts[0].value_bytes, kernel_resident(), 32 * MiB));
#if TIDEMARK_HAS_EXCEPTIONS()
  CHECK(text.find("what listens to the alert fourth threw: no pager") != std::string::npos);
#endif
  const std::string absent = "the alert fifth cannot be raised: the monitor asks no devices";
  CHECK(text.find(absent) != std::string::npos);
  CHECK(text.find(absent) == text.rfind(absent));  // said once
}
