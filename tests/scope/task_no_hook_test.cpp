// SPDX-License-Identifier: MIT
// Tasks in a program without a hook header.
#include <tidemark/tidemark.hpp>

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>

#include "heap_block.hpp"
#include "test.hpp"

namespace meter = tidemark::meter;
using tidemark::join_task;
using tidemark::reading;
using tidemark::scope;
using tidemark::scope_record;
using tidemark::task_scope;
using tidemark::window_usage;

namespace {

void check_absent(const reading<window_usage>& r) {
  CHECK(!r.has_value());
  CHECK(r.why().find("no heap hook") != std::string_view::npos);
  CHECK(r.why().find("<tidemark/hook/global_new.hpp>") != std::string_view::npos);
}

}  // namespace

TEST_CASE("without a hook a task's readings are absent and name the header that is missing") {
  task_scope task("unseen");
  const heap_block b(100);
  check_absent(task.usage());
  const scope_record r = task.close();
  REQUIRE(r.meters.size() == 1);
  CHECK(r.meters[0].meter == "task_heap");
  check_absent(r.meters[0].usage);
  CHECK(!r.owned_bytes.has_value());
  meter::task_heap::window bare;
  check_absent(bare.usage());
  check_absent(bare.close());
  check_absent(bare.close());
}

TEST_CASE("without a hook workers go on in the task's path and depth") {
  const auto ring = std::make_shared<tidemark::ring_sink>(8);
  const auto attached = tidemark::attach(ring);
  {
    const scope epoch("epoch");
    task_scope step("step");
    std::thread([token = step.token()] {
      {
        const join_task joined(token);
        const scope forward("forward");
        task_scope inner("inner");
        std::thread([of_inner = inner.token()] {
          const join_task also_joined(of_inner);
          const scope leaf("leaf");
        }).join();
      }
      const scope after("after");
    }).join();
    const auto token = step.token();
    CHECK(static_cast<bool>(token));
    step.close();
    CHECK(!step.token());
    const task_scope next("next");
    std::thread([token] {
      const join_task late(token);
      const scope alone("alone");
    }).join();
  }
  std::string all;
  for (const scope_record& r : ring->scopes()) all += r.path + ' ' + std::to_string(r.depth) + ", ";
  CHECK(
      all ==
      "epoch/step/forward/inner/leaf 4, epoch/step/forward/inner 3, epoch/step/forward 2, after 0, epoch/step 1, alone "
      "0, epoch/next 1, epoch 0, ");
}

TEST_CASE("without a hook a task may end on another thread, before and after its workers") {
  for (const bool before : {true, false}) {
    std::optional<task_scope> task;
    std::optional<join_task> joined;
    std::thread([&] { task.emplace("travels"); }).join();
    std::thread([&] { joined.emplace(task->token()); }).join();
    if (before) joined.reset();
    const scope_record r = task->close();
    CHECK(r.path == "travels");
    check_absent(r.meters.at(0).usage);
    joined.reset();
    CHECK(scope("outermost").close().path == "outermost");
    std::thread([] { CHECK(scope("outermost").close().path == "outermost"); }).join();
  }
}

TEST_CASE("without a hook the domains of a scope are read all the same") {
  tidemark::domain weights("weights");
  tidemark::basic_scope<meter::task_heap, meter::domains> s("load");
  weights.allocated(1'000);
  const scope_record r = s.close();
  REQUIRE(r.meters.size() == 2);
  check_absent(r.meters[0].usage);
  CHECK(r.meters[1].meter == "domain:weights");
  CHECK(usage_in(r, "domain:weights").net_bytes() == 1'000);
  CHECK(usage_in(r, "domain:weights").error_bound_bytes == 0);
  weights.freed(1'000);
}
