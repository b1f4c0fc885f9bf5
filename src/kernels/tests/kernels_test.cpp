#include <ATen/Parallel.h>
#include <ATen/ops/abs.h>
#include <ATen/ops/add.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/linspace.h>
#include <ATen/ops/max.h>
#include <ATen/ops/mean.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/sub.h>
#include <ATen/ops/sum.h>
#include <doctest/doctest.h>

#include <functional>

#include "kernels/activation.h"
#include "kernels/linear.h"

namespace kernels = pellucid::kernels;
using kernels::Activation, kernels::activate, kernels::activation_from_name;

namespace {

double largest(const at::Tensor& x) { return at::max(at::abs(x)).to(at::kDouble).item<double>(); }
double difference(const at::Tensor& a, const at::Tensor& b) {
  return largest(at::sub(a.to(at::kDouble), b.to(at::kDouble)));
}

constexpr at::ScalarType kTypes[] = {at::kFloat, at::kDouble, at::kBFloat16};
constexpr int64_t kRows[] = {2, 3, 15, 16, 17, 31, 33, 64, 65, 130};

// The first and the last row of every number of rows have the bits that they have alone.
void check_rows(const std::function<at::Tensor(const at::Tensor&)>& function, const at::Tensor& x) {
  for (const int64_t rows : kRows) {
    const at::Tensor together = function(x.narrow(0, 0, rows));
    for (const int64_t row : {int64_t{0}, rows / 2, rows - 1}) {
      CAPTURE(rows);
      CAPTURE(row);
      CAPTURE(x.size(1));
      CHECK(at::equal(together.narrow(0, row, 1), function(x.narrow(0, row, 1))));
    }
  }
}

}  // namespace

TEST_CASE("linear: a row's bits do not depend on the number of rows") {
  for (const at::ScalarType type : kTypes) {
    for (const auto& [in, out] : {std::pair{1, 1}, {7, 5}, {36, 43}, {64, 192}, {577, 100}}) {
      const auto options = at::TensorOptions(type);
      const at::Tensor weight = at::randn({out, in}, options), bias = at::randn({out}, options);
      check_rows([&](const at::Tensor& x) { return kernels::linear(x, weight, bias); },
                 at::randn({130, in}, options));
    }
  }
}

TEST_CASE("linear: every row of more rows than a call takes equals the pair's") {
  const auto options = at::TensorOptions(at::kFloat);
  const at::Tensor weight = at::randn({48, 96}, options), pair = at::randn({2, 96}, options);
  const at::Tensor many = kernels::linear(pair.repeat({300, 1}), weight);
  CHECK(at::equal(many, kernels::linear(pair, weight).repeat({300, 1})));
}

TEST_CASE("linear: the values are x W^T + b, in any shape of x") {
  const auto options = at::TensorOptions(at::kDouble);
  const at::Tensor weight = at::randn({5, 7}, options), bias = at::randn({5}, options);
  const at::Tensor x = at::randn({2, 3, 7}, options);
  CHECK(difference(kernels::linear(x, weight, bias), at::linear(x, weight, bias)) < 1e-13);
  CHECK(kernels::linear(x, weight).sizes() == at::IntArrayRef({2, 3, 5}));
  CHECK(kernels::linear(x.select(0, 0).select(0, 0), weight).sizes() == at::IntArrayRef({5}));
  CHECK(kernels::linear(x.narrow(0, 0, 0), weight).sizes() == at::IntArrayRef({0, 3, 5}));
  const at::Tensor x32 = x.to(at::kFloat), weight32 = weight.to(at::kFloat);
  CHECK(difference(kernels::linear(x32, weight32), at::linear(x32, weight32)) < 1e-5);
  CHECK_THROWS(kernels::linear(at::randn({2, 6}, options), weight));
}

TEST_CASE("linear: gradients are right and change no bit, also of gradients") {
  for (const at::ScalarType type : {at::kFloat, at::kDouble}) {
    const auto options = at::TensorOptions(type);
    const at::Tensor x = at::randn({19, 33}, options).requires_grad_(true);
    const at::Tensor weight = at::randn({21, 33}, options).requires_grad_(true);
    const at::Tensor seed = at::randn({19, 21}, options);
    const at::Tensor y = kernels::linear(x, weight);
    CHECK(at::equal(y.detach(), kernels::linear(x.detach(), weight.detach())));
    y.backward(seed);
    CHECK(difference(x.grad(), at::mm(seed, weight.detach())) < 1e-4);
    CHECK(difference(weight.grad(), at::mm(seed.t(), x.detach())) < 1e-4);
    // A row's gradient alone.
    const at::Tensor row = x.detach().narrow(0, 7, 1).clone().requires_grad_(true);
    kernels::linear(row, weight.detach()).backward(seed.narrow(0, 7, 1));
    CHECK(at::equal(row.grad(), x.grad().narrow(0, 7, 1)));
    // d/dx of sum(grad_w) where y is squared: the graph of the gradient is there.
    const at::Tensor a = at::randn({3, 5}, options).requires_grad_(true);
    const at::Tensor w = at::randn({4, 5}, options).requires_grad_(true);
    const at::Tensor squared = at::mul(kernels::linear(a, w), kernels::linear(a, w)).sum();
    squared.backward({}, /*retain_graph=*/true, /*create_graph=*/true);
    const at::Tensor first = a.grad().sum();
    const at::Tensor want = at::mul(at::mm(at::mm(a, w.t()), w).sum(), 2);
    CHECK(difference(first, want) < 1e-3);
    CHECK(first.requires_grad());
  }
}

TEST_CASE("activations: a row's bits do not depend on the number of rows") {
  for (const at::ScalarType type : kTypes) {
    for (const Activation activation :
         {Activation::kSilu, Activation::kGeluTanh, Activation::kGeluErf, Activation::kRelu}) {
      for (const int64_t width : {1, 3, 37, 100}) {
        check_rows([&](const at::Tensor& x) { return activate(activation, x); },
                   at::randn({130, width}, at::TensorOptions(type)));
      }
    }
  }
}

TEST_CASE("activations: the values are torch's") {
  const at::Tensor x = at::linspace(-30, 30, 1001, at::TensorOptions(at::kDouble));
  CHECK(difference(activate(Activation::kSilu, x), at::silu(x)) < 1e-13);
  CHECK(difference(activate(Activation::kGeluErf, x), at::gelu(x)) < 1e-13);
  CHECK(difference(activate(Activation::kGeluTanh, x), at::gelu(x, "tanh")) < 1e-13);
  // Far out, where exp overflows, silu is 0 and not NaN.
  const at::Tensor far = at::mul(x, 1e3);
  CHECK(difference(activate(Activation::kSilu, far), at::silu(far)) < 1e-10);
}

TEST_CASE("activations: an unknown name is refused") {
  const auto refused = activation_from_name("quick_gelu");
  REQUIRE_FALSE(refused.ok());
  CHECK(refused.status().what == "activation function 'quick_gelu'");
}

// The operations that norms and attention are made of.
TEST_CASE("torch's mean and softmax: a row's bits do not depend on the number of rows") {
  for (const at::ScalarType type : {at::kFloat, at::kDouble}) {
    for (const int64_t width : {1, 3, 37, 576, 4097}) {
      const at::Tensor x = at::randn({130, width}, at::TensorOptions(type));
      check_rows([](const at::Tensor& rows) { return at::mean(rows, {-1}, true); }, x);
      check_rows([](const at::Tensor& rows) { return at::softmax(rows, -1); }, x);
    }
  }
}
