// SPDX-License-Identifier: MIT
// What a library that you did not write allocates. Eigen asks malloc, not new, so the hook for the C family sees it.
//
//   g++ -std=c++17 -O2 -I include -I /usr/include/eigen3 examples/eigen_seen.cpp -o eigen_seen -pthread && ./eigen_seen
#include <tidemark/hook/malloc.hpp>
#include <tidemark/tidemark.hpp>

#include <Eigen/Dense>

#include <cstdio>
#include <memory>
#include <string>

namespace {

constexpr int n = 256;  // a matrix of doubles takes 256 x 256 x 8 bytes: 512 KiB

/// One result, and nothing else.
Eigen::MatrixXd product(const Eigen::MatrixXd& a, const Eigen::MatrixXd& b) {
  const tidemark::scope here("product");
  return a * b;
}

/// The same numbers, written so that Eigen needs a temporary of the result's size: the peak says so.
void add_product(Eigen::MatrixXd& sum, const Eigen::MatrixXd& a, const Eigen::MatrixXd& b) {
  const tidemark::scope here("sum += a * b");
  sum += a * b;
}

/// Told that the result is none of the operands, it needs none.
void add_product_in_place(Eigen::MatrixXd& sum, const Eigen::MatrixXd& a, const Eigen::MatrixXd& b) {
  const tidemark::scope here("sum.noalias() += a * b");
  sum.noalias() += a * b;
}

Eigen::VectorXd solve(const Eigen::MatrixXd& a, const Eigen::VectorXd& b) {
  const tidemark::scope here("solve");
  return a.partialPivLu().solve(b);
}

}  // namespace

int main() {
  const auto report = tidemark::attach(std::make_shared<tidemark::summary_sink>(stdout));
  const tidemark::process_scope all("all");
  const Eigen::MatrixXd a = Eigen::MatrixXd::Identity(n, n) * 2;
  const Eigen::MatrixXd b = Eigen::MatrixXd::Ones(n, n);
  Eigen::MatrixXd sum = product(a, b);
  add_product(sum, a, b);
  add_product_in_place(sum, a, b);
  const Eigen::VectorXd x = solve(a, b.col(0));
  std::printf("the sum of x is %.1f, that of the matrix %.0f\n\n", x.sum(), sum.sum());
}
