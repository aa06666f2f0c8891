// SPDX-License-Identifier: MIT
// Memory assertions, each once, on code as machine learning programs have it: a tokenizer, a ring buffer of samples, a step of
// inference that must not allocate. docs/testing.md explains them one by one.
#define DOCTEST_CONFIG_IMPLEMENT_WITH_MAIN
#include <tidemark/testing/doctest.hpp>

#include <tidemark/hook/global_new.hpp>  // in one .cpp file of the test program: it counts new and delete

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include <tidemark/alloc/allocator.hpp>
#include <tidemark/scope/task.hpp>

namespace t = tidemark::testing;
using namespace tidemark::literals;

namespace {

/// The longest known piece first, byte for byte where none is known.
class tokenizer {
 public:
  explicit tokenizer(const std::vector<std::string>& pieces) {
    for (const std::string& piece : pieces) {
      longest_ = std::max(longest_, piece.size());
      ids_.emplace(piece, static_cast<int>(ids_.size()) + 256);
    }
  }

  /// Reuses the room of `ids`.
  void encode(std::string_view text, std::vector<int>& ids) {
    ids.clear();
    while (!text.empty()) {
      std::size_t n = std::min(longest_, text.size());
      for (; n > 0; --n) {
        piece_.assign(text.substr(0, n));
        if (const auto known = ids_.find(piece_); known != ids_.end()) {
          ids.push_back(known->second);
          break;
        }
      }
      if (n == 0) ids.push_back(static_cast<unsigned char>(text.front()));
      text.remove_prefix(n == 0 ? 1 : n);
    }
  }

 private:
  std::unordered_map<std::string, int> ids_;
  std::size_t longest_ = 0;
  std::string piece_;  // kept, so that its room is
};

/// The last samples, in a fixed number of places.
class ring_buffer {
 public:
  explicit ring_buffer(std::size_t places) : samples_(places) {}

  void push(float sample) {
    samples_[next_ % samples_.size()] = sample;
    ++next_;
  }
  [[nodiscard]] float mean() const {
    const std::size_t n = std::min(next_, samples_.size());
    float sum = 0;
    for (std::size_t i = 0; i < n; ++i) sum += samples_[i];
    return n == 0 ? 0 : sum / static_cast<float>(n);
  }

 private:
  std::vector<float> samples_;
  std::size_t next_ = 0;
};

/// Two dense layers over a workspace that is made once.
class model {
 public:
  static constexpr std::size_t inputs = 64, hidden = 32, outputs = 10;

  model() : first_(inputs * hidden, 0.01F), second_(hidden * outputs, 0.02F), activations_(hidden), scores_(outputs) {}

  const std::vector<float>& infer(const std::vector<float>& sample) {
    dense(first_, sample, activations_);
    for (float& a : activations_) a = std::max(a, 0.0F);
    dense(second_, activations_, scores_);
    return scores_;
  }

 private:
  static void dense(const std::vector<float>& weights, const std::vector<float>& in, std::vector<float>& out) {
    for (std::size_t o = 0; o < out.size(); ++o) {
      float sum = 0;
      for (std::size_t i = 0; i < in.size(); ++i) sum += weights[o * in.size() + i] * in[i];
      out[o] = sum;
    }
  }

  std::vector<float> first_, second_, activations_, scores_;
};

std::vector<float> load_batch(std::size_t samples) { return std::vector<float>(samples * model::inputs, 0.5F); }

const std::vector<std::string> pieces = {"the", "model", " is", " training", "token", "izer", " memory"};

}  // namespace

// ---- how high, how many, how much ----

TEST_CASE("loading a batch peaks at its own size") {
  TIDEMARK_CHECK_PEAK(64_KiB, {
    const std::vector<float> batch = load_batch(256);
    CHECK(batch.size() == 256 * model::inputs);
  });
}

TEST_CASE("the model is made of four blocks, and no copy") {
  TIDEMARK_CHECK_ALLOCATIONS(4, const model m; tidemark::escape(&m));
  CHECK(t::allocations_at_most(5, [] { return std::make_unique<model>(); }));
  CHECK(t::allocated_bytes_at_most(12_KiB, [] { return std::make_unique<model>(); }));
}

TEST_CASE("a step of inference does not allocate") {
  model m;
  const std::vector<float> sample(model::inputs, 1.0F);
  TIDEMARK_CHECK_NO_ALLOCATIONS(const auto& scores = m.infer(sample); tidemark::escape(scores.data()));
}

TEST_CASE("encoding again allocates nothing, since every buffer has its room") {
  tokenizer words(pieces);
  std::vector<int> ids;
  words.encode("the tokenizer model is training", ids);
  const auto again = t::no_allocations([&] { words.encode("the model is training", ids); });
  CHECK_MESSAGE(again.ok, again.message);
  CHECK(ids == std::vector<int>{256, 32, 257, 258, 259});
}

// ---- what stays ----

TEST_CASE("encoding leaves nothing behind") {
  tokenizer words(pieces);
  TIDEMARK_CHECK_NO_LEAK({
    std::vector<int> ids;
    words.encode("the tokenizer model is training", ids);
  });
}

TEST_CASE("a ring buffer does not grow, however long it runs") {
  ring_buffer loss(128);
  float last = 0;
  TIDEMARK_CHECK_NO_GROWTH(1'000, loss.push(0.5F); last = loss.mean());
  CHECK(last == doctest::Approx(0.5F));
}

TEST_CASE("a batch is given back to the system") {
  const auto v = t::resident_growth_at_most(256_MiB, [] {
    const std::vector<float> batch = load_batch(100'000);  // 24.4 MiB
    tidemark::escape(batch.data());
  });
  CHECK_MESSAGE(v.ok, v.message);
}

// ---- the same of several threads, of a task, of a domain ----

TEST_CASE("two loaders together stay below a mebibyte and a half") {
  tidemark::task_scope step("step");
  const auto load = [token = step.token()] {
    const tidemark::join_task joined(token);
    const std::vector<float> batch = load_batch(1'000);  // 250 KiB
    tidemark::escape(batch.data());
  };
  const auto both = [&] {
    std::thread a(load);
    std::thread b(load);
    a.join();
    b.join();
  };
  TIDEMARK_CHECK_VERDICT(t::peak_at_most(1536_KiB, both, step.token()));
  TIDEMARK_CHECK_VERDICT(t::no_leak(both, t::extent::process));
}

TEST_CASE("the key-value cache of one request fits into its budget") {
  const tidemark::domain cache("kv cache");
  TIDEMARK_CHECK_VERDICT(t::peak_at_most(
      512_KiB,
      [&] {
        std::vector<float, tidemark::allocator<float>> keys(64 * 1'024, 0.0F, cache);
        std::vector<float, tidemark::allocator<float>> values(64 * 1'024, 0.0F, cache);
        tidemark::escape(keys.data());
        tidemark::escape(values.data());
      },
      cache));
}

// ---- when memory runs out ----

TEST_CASE("the tokenizer survives any of its allocations failing") {
  TIDEMARK_CHECK_SURVIVES_ALLOCATION_FAILURES({
    tokenizer words(pieces);
    std::vector<int> ids;
    words.encode("the tokenizer model is training", ids);
  });
}

TEST_CASE("a failed encode leaves the tokenizer usable") {
  tokenizer words(pieces);
  const auto encode = [&] {
    std::vector<int> ids;
    words.encode("the model", ids);
    return ids == std::vector<int>{256, 32, 257};
  };
  const t::failure_report report = t::for_each_allocation_failure([&] { static_cast<void>(encode()); }, encode);
  CHECK_MESSAGE(report.ok, report.message);
  CHECK(report.points > 0);
}

TEST_CASE("one allocation that fails, by hand") {
  bool is_thrown = false;
  try {
    const t::fail_allocation second(2);
    const auto a = std::make_unique<int>(1);
    tidemark::escape(a.get());
    tidemark::escape(std::make_unique<int>(2).get());
  } catch (const std::bad_alloc&) {
    is_thrown = true;
  }
  CHECK(is_thrown);
}

TEST_CASE("a request that asks for more than it may have is refused, not the server") {
  std::vector<float> batch;
  {
    const t::heap_limit limit(1_MiB);
    CHECK_THROWS_AS(batch = load_batch(10'000), std::bad_alloc);  // 2.4 MiB
    batch = load_batch(1'000);
  }
  CHECK(batch.size() == 1'000 * model::inputs);
}

TEST_CASE("a step that must not allocate is stopped where it does, but for what it may") {
  model m;
  const std::vector<float> sample(model::inputs, 1.0F);
  bool is_stopped = false;
  std::uint64_t allocations = 0;
  {
    const t::no_allocation_region region(t::reaction::throw_error);
    tidemark::escape(m.infer(sample).data());
    {
      const t::allow_allocations logging;
      tidemark::escape(std::string(100, '.').data());
    }
    try {
      tidemark::escape(std::string(100, '.').data());
    } catch (const t::forbidden_allocation&) {
      is_stopped = true;  // a CHECK in here would be stopped too
    }
    allocations = region.allocations();
  }
  CHECK(is_stopped);
  CHECK(allocations == 1);
}

// ---- as it was last time ----

TEST_CASE("encoding takes what it took when the baseline was written") {
  tokenizer words(pieces);
  TIDEMARK_CHECK_BASELINE("tokenizer/encode", {
    std::vector<int> ids;
    words.encode("the tokenizer model is training", ids);
  });
}
