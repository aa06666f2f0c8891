// SPDX-License-Identifier: MIT
#include <tidemark/core/reading.hpp>

#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "test.hpp"

using tidemark::reading;

TEST_CASE("a reading with a value gives it, and no reason") {
  const reading<int> r = 42;
  CHECK(r);
  CHECK(r.has_value());
  CHECK(*r == 42);
  CHECK(r.value() == 42);
  CHECK(r.value_or(7) == 42);
  CHECK(r.why().empty());
}

TEST_CASE("an absent reading gives its reason and no value") {
  const auto r = reading<int>::absent("no driver");
  CHECK(!r);
  CHECK(!r.has_value());
  CHECK(r.value_or(7) == 7);
  CHECK(r.why() == "no driver");
}

TEST_CASE("a composed reason and a buffer are copied") {
  char buffer[] = "no file x";
  const auto from_buffer = reading<int>::absent(buffer);
  buffer[8] = 'y';
  CHECK(from_buffer.why() == "no file x");
  auto moved = reading<int>::absent(std::string("no ") + "device");
  const reading<int> into = std::move(moved);
  CHECK(into.why() == "no device");
}

TEST_CASE("a value that can only move is moved out") {
  reading<std::unique_ptr<int>> r = std::make_unique<int>(3);
  const std::unique_ptr<int> taken = std::move(r).value();
  CHECK(*taken == 3);
  reading<std::vector<int>> v = std::vector<int>{1, 2};
  CHECK(v->size() == 2);
  CHECK((*std::move(v)).size() == 2);
}

#if TIDEMARK_HAS_EXCEPTIONS()
TEST_CASE("the value of an absent reading throws its reason") {
  const auto r = reading<int>::absent("no permission");
  CHECK_THROWS_WITH_AS(static_cast<void>(r.value()), "no permission", std::logic_error);
  CHECK_THROWS_AS(static_cast<void>(*r), std::logic_error);
  CHECK_THROWS_AS(static_cast<void>(r.operator->()), std::logic_error);
}
#endif
