// SPDX-License-Identifier: MIT
#include <tidemark/hook/global_new.hpp>  // in exactly one .cpp file: it counts new and delete
#include <tidemark/tidemark.hpp>

#include <cmath>
#include <memory>
#include <vector>

std::vector<float> forward(const std::vector<float>& batch) {
  TIDEMARK_FUNCTION();                    // a scope to the end of the block, named after the function
  std::vector<float> hidden(256 * 1024);  // 1 MiB, gone at the end
  for (std::size_t i = 0; i < hidden.size(); ++i) hidden[i] = std::tanh(batch[i % batch.size()]);
  std::vector<float> scores(256 * 10);  // 10 KiB, returned
  for (std::size_t i = 0; i < hidden.size(); ++i) scores[i % scores.size()] += hidden[i];
  return scores;
}

int main() {
  const auto report = tidemark::attach(std::make_shared<tidemark::text_sink>(stdout));
  const std::vector<float> batch(256 * 64, 0.5F);
  std::vector<float> scores;
  tidemark::scope step("step");
  scores = forward(batch);
}
