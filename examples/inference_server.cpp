// SPDX-License-Identifier: MIT
// Answers which digit an image shows, over HTTP, and is watched while it does: a scope around each request, a domain
// for the model, a monitor with alerts, metrics for Prometheus, and a page that says where the memory is.
//
//   inference_server --port 8080 &
//   head -n 1 examples/data/digits.csv | cut -d , -f 1-64 | curl --data-binary @- http://127.0.0.1:8080/predict
//   curl http://127.0.0.1:8080/metrics
//
// The model is the nearest neighbour: the image answers that differs least from what is asked. Of five images four
// are learnt: 1,438 x 64 pixels at 4 bytes are 368,128 in the domain "model". An answer takes as many distances.
//
// With --leak it has the classic fault: the distances of each answer are kept for a page that nobody wrote. The
// verdict on growth finds it, and /memory says which scope owns the bytes.
#include <tidemark/hook/global_new.hpp>
#include <tidemark/tidemark.hpp>

#include <httplib.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <deque>
#include <fstream>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <unistd.h>

namespace {

using tidemark::reading;
using namespace tidemark::literals;

constexpr std::size_t pixels = 64;
constexpr int brightest_pixel = 16;
constexpr std::size_t most_request_bytes = 1 << 20;

// ---- the model ----

/// Takes a number up to a comma or the end off the front of `line`; below 0: there is none from 0 to 16.
int take_number(std::string_view& line) {
  const std::size_t end = std::min(line.find(','), line.size());
  int value = -1;
  const auto [stopped, error] = std::from_chars(line.data(), line.data() + end, value);
  const bool is_number = error == std::errc{} && stopped == line.data() + end && value <= brightest_pixel;
  line.remove_prefix(std::min(end + 1, line.size()));
  return is_number ? value : -1;
}

/// The pixels at the front of `line`, which keeps the rest; false where there are fewer than 64.
bool take_image(std::string_view& line, float* image) {
  for (std::size_t i = 0; i < pixels; ++i) {
    const int pixel = take_number(line);
    if (pixel < 0) return false;
    image[i] = static_cast<float>(pixel);
  }
  return true;
}

struct model {
  tidemark::domain use{"model"};
  std::vector<float, tidemark::allocator<float>> images{tidemark::allocator<float>(use)};  // a row of 64 for each label
  std::vector<int> labels;
};

/// Learns of each five lines the first four.
reading<std::unique_ptr<const model>> learn(const std::string& path) {
  using model_reading = reading<std::unique_ptr<const model>>;
  const tidemark::scope here("learn");
  auto learnt = std::make_unique<model>();
  std::ifstream file(path);
  if (!file) return model_reading::absent(path + " cannot be opened");
  std::string text;
  float image[pixels];
  for (std::size_t line = 1; std::getline(file, text); ++line) {
    std::string_view rest = text;
    const int label = take_image(rest, image) ? take_number(rest) : -1;
    if (label < 0 || label > 9 || !rest.empty()) {
      return model_reading::absent(path + ", line " + std::to_string(line) + ": not 64 pixels and a digit");
    }
    if (line % 5 == 0) continue;
    learnt->images.insert(learnt->images.end(), image, image + pixels);
    learnt->labels.push_back(label);
  }
  if (learnt->labels.empty()) return model_reading::absent(path + " has no images");
  learnt->images.shrink_to_fit();
  return model_reading(std::move(learnt));
}

/// How far each image of the model is from this one.
std::vector<float> distances(const model& m, const float* image) {
  const tidemark::scope here("distances");
  std::vector<float> found(m.labels.size());
  for (std::size_t row = 0; row < found.size(); ++row) {
    const float* other = m.images.data() + row * pixels;
    float sum = 0;
    for (std::size_t i = 0; i < pixels; ++i) sum += (image[i] - other[i]) * (image[i] - other[i]);
    found[row] = sum;
  }
  return found;
}

/// What is kept of every answer, with --leak.
class history {
 public:
  void keep(std::vector<float> found) {
    const std::lock_guard<std::mutex> held(lock_);
    kept_.push_back(std::move(found));
  }

 private:
  std::mutex lock_;
  std::deque<std::vector<float>> kept_;
};

// ---- the command line ----

constexpr const char* help =
    "usage: inference_server [--port N] [--data FILE] [--workers N] [--interval MS] [--alert SIZE] [--leak]\n"
    "                        [--time-by-requests]\n"
    "  --port N        0: any that is free, which the first line of the output tells (default: 8080)\n"
    "  --data FILE     the digits (default: examples/data/digits.csv)\n"
    "  --workers N     1 to 256 threads that answer (default: 4)\n"
    "  --interval MS   between the monitor's samples; 0: /memory alone takes them (default: 1000)\n"
    "  --alert SIZE    an alert where the heap holds more, as 64MiB (default: 64MiB)\n"
    "  --leak          keeps something of each answer\n"
    "  --time-by-requests   each answer moves the monitor's clock on by 10 ms, and nothing else does: growth is then\n"
    "                       by requests, and the same however busy the machine is\n";

struct options {
  int port = 8080;
  std::string data_path = "examples/data/digits.csv";
  int workers = 4;
  int interval_ms = 1000;
  std::int64_t alert_bytes = 64_MiB;
  bool leaks = false;
  bool counts_time_by_requests = false;
  bool wants_help = false;
};

bool parse_number(std::string_view text, int lowest, int highest, int& value) {
  const auto [stopped, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc{} && stopped == text.data() + text.size() && value >= lowest && value <= highest;
}

/// Whether the option is known and its value is good.
bool take_option(options& asked, std::string_view name, std::string_view value) {
  if (name == "--port") return parse_number(value, 0, 65'535, asked.port);
  if (name == "--workers") return parse_number(value, 1, 256, asked.workers);
  if (name == "--interval") return parse_number(value, 0, 3'600'000, asked.interval_ms);
  if (name == "--alert") asked.alert_bytes = tidemark::parse_bytes(value).value_or(-1);
  if (name == "--data") asked.data_path = value;
  return name == "--data" || (name == "--alert" && asked.alert_bytes >= 0);
}

reading<options> parse_options(const std::vector<std::string_view>& arguments) {
  options asked;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const std::string_view name = arguments[i];
    if (name == "--leak") {
      asked.leaks = true;
    } else if (name == "--time-by-requests") {
      asked.counts_time_by_requests = true;
    } else if (name == "--help") {
      asked.wants_help = true;
    } else if (++i == arguments.size() || !take_option(asked, name, arguments[i])) {
      return reading<options>::absent("wrong argument: " + std::string(name));
    }
  }
  return asked;
}

// ---- the service ----

std::string described(const tidemark::growth_reading& growth) {
  using tidemark::format_bytes;
  using tidemark::growth_verdict;
  std::string text = growth.verdict == growth_verdict::leaking  ? "leaking"
                     : growth.verdict == growth_verdict::steady ? "steady"
                                                                : "cannot tell";
  text += " (" + std::string(growth.why);
  if (growth.bytes_per_minute) {
    const auto bytes = [](double value) { return format_bytes(static_cast<std::int64_t>(value)); };
    text += "; " + bytes(*growth.bytes_per_minute) + " a minute, within " + bytes(*growth.low) + " and " +
            bytes(*growth.high);
  }
  return text + "; " + std::to_string(growth.samples) + " samples of the " + std::string(growth.source) + ")";
}

class service {
 public:
  service(const model& learnt, const options& asked)
      : model_(learnt),
        leaks_(asked.leaks),
        metrics_(std::make_shared<tidemark::openmetrics_sink>()),
        attached_(tidemark::attach(metrics_)),
        monitor_(monitor_options(asked)) {
    const auto say = [this](const tidemark::alert_record& a) { log(a); };
    monitor_.alert_when(tidemark::heap_above(asked.alert_bytes), say);
    monitor_.alert_when(tidemark::above_fraction_of_limit(0.9), say);
  }

  /// Threads: any, all of these.
  void predict(const httplib::Request& request, httplib::Response& response) {
    const tidemark::scope here("predict");
    std::string answers;
    std::string_view lines = request.body;
    while (!lines.empty()) {
      const std::size_t end = std::min(lines.find('\n'), lines.size());
      std::string_view line = lines.substr(0, end);
      lines.remove_prefix(std::min(end + 1, lines.size()));
      float image[pixels];
      if (!take_image(line, image) || !line.empty()) {
        response.status = 400;
        response.set_content("a line is 64 numbers from 0 to 16, with commas between them\n", "text/plain");
        return;
      }
      answers += std::to_string(nearest(image)) + '\n';
    }
    answered_.fetch_add(1, std::memory_order_relaxed);  // counter only
    response.set_content(answers, "text/plain");
  }

  void metrics(const httplib::Request&, httplib::Response& response) {
    response.set_content(metrics_->openmetrics_text(),
                         std::string(tidemark::openmetrics_sink::openmetrics_content_type));
  }

  void memory(const httplib::Request&, httplib::Response& response) {
    monitor_.check();
    response.set_content("growth: " + described(monitor_.growth()) + "\n\n" + tidemark::where_is_my_memory().table(),
                         "text/plain; charset=utf-8");
  }

 private:
  tidemark::monitor_options monitor_options(const options& asked) {
    tidemark::monitor_options wanted;
    wanted.interval = std::chrono::milliseconds(asked.interval_ms);
    if (asked.counts_time_by_requests) {
      wanted.now_ns = [this] { return answered_.load(std::memory_order_relaxed) * 10'000'000; };  // counter only
    }
    return wanted;
  }

  int nearest(const float* image) {
    std::vector<float> found = distances(model_, image);
    const auto least = std::min_element(found.begin(), found.end());
    const int answer = model_.labels[static_cast<std::size_t>(least - found.begin())];
    if (leaks_) kept_.keep(std::move(found));
    return answer;
  }

  void log(const tidemark::alert_record& a) const {
    if (a.cleared) {
      std::fprintf(stderr, "alert %s is over\n", a.name.c_str());
      return;
    }
    std::fprintf(stderr, "alert %s: %s; growth: %s\n", a.name.c_str(), tidemark::format_bytes(a.value_bytes).c_str(),
                 described(monitor_.growth()).c_str());
  }

  const model& model_;
  const bool leaks_;
  history kept_;
  std::atomic<std::int64_t> answered_{0};
  std::shared_ptr<tidemark::openmetrics_sink> metrics_;
  tidemark::attachment attached_;
  tidemark::monitor monitor_;  // last: its thread uses the others
};

int serve(const options& asked) {
  // Before the first thread, which the others inherit it from: these signals come to `stopper` alone.
  sigset_t ending;
  sigemptyset(&ending);
  sigaddset(&ending, SIGTERM);
  sigaddset(&ending, SIGINT);
  pthread_sigmask(SIG_BLOCK, &ending, nullptr);

  tidemark::report_on_out_of_memory();
  tidemark::dump_on_signal(SIGUSR1);
  const reading<std::unique_ptr<const model>> learnt = learn(asked.data_path);
  if (!learnt) {
    std::fprintf(stderr, "inference_server: %s\n", std::string(learnt.why()).c_str());
    return 1;
  }
  service digits(**learnt, asked);

  httplib::Server server;
  server.new_task_queue = [&] { return new httplib::ThreadPool(static_cast<std::size_t>(asked.workers)); };
  server.set_payload_max_length(most_request_bytes);
  server.set_keep_alive_timeout(1);  // a connection without requests holds a worker
  using request = httplib::Request;
  using response = httplib::Response;
  server.Post("/predict", [&](const request& q, response& r) { digits.predict(q, r); });
  server.Get("/metrics", [&](const request& q, response& r) { digits.metrics(q, r); });
  server.Get("/memory", [&](const request& q, response& r) { digits.memory(q, r); });

  const char* const host = "127.0.0.1";
  const int port = asked.port == 0                         ? server.bind_to_any_port(host)
                   : server.bind_to_port(host, asked.port) ? asked.port
                                                           : -1;
  if (port < 0) {
    std::fprintf(stderr, "inference_server: port %d is not free\n", asked.port);
    return 1;
  }
  std::printf("listening on http://%s:%d with %zu digits\n", host, port, (*learnt)->labels.size());
  std::fflush(stdout);

  std::atomic<bool> is_over{false};
  std::thread stopper([&] {
    int signal = 0;
    sigwait(&ending, &signal);
    while (!server.is_running() && !is_over) std::this_thread::yield();  // a stop before the start would be lost
    server.stop();
  });
  const bool was_served = server.listen_after_bind();
  is_over = true;
  kill(getpid(), SIGTERM);  // for the stopper, where no signal was the end
  stopper.join();
  return was_served ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  const reading<options> asked = parse_options({argv + 1, argv + argc});
  if (!asked) {
    std::fprintf(stderr, "inference_server: %s\n%s", std::string(asked.why()).c_str(), help);
    return 2;
  }
  if (asked->wants_help) {
    std::fputs(help, stdout);
    return 0;
  }
  return serve(*asked);
}
