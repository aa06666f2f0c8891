// SPDX-License-Identifier: MIT
// A training step of a real tensor library: tensors from posix_memalign, worker threads, a BLAS with buffers of its own.
// Prints numbers that depend on every tensor.
#include <torch/torch.h>

#include <cstdio>

int main() {
  torch::manual_seed(1);
  torch::nn::Sequential net(torch::nn::Linear(64, 256), torch::nn::ReLU(), torch::nn::Linear(256, 10));
  torch::optim::SGD step(net->parameters(), 0.1);
  const torch::Tensor inputs = torch::randn({512, 64});
  const torch::Tensor targets = torch::randint(0, 10, {512}, torch::kLong);
  for (int i = 0; i < 20; ++i) {
    step.zero_grad();
    torch::Tensor loss = torch::nn::functional::cross_entropy(net->forward(inputs), targets);
    loss.backward();
    step.step();
    std::printf("%.4f\n", loss.item<double>());
  }
}
