#include "kernels/activation.h"

#include <ATen/ops/add.h>
#include <ATen/ops/div.h>
#include <ATen/ops/erf.h>
#include <ATen/ops/exp.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/neg.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/tanh.h>

#include <cmath>

namespace pellucid::kernels {
namespace {

at::Tensor silu(const at::Tensor& x) { return at::div(x, at::add(at::exp(at::neg(x)), 1)); }

at::Tensor gelu_tanh(const at::Tensor& x) {
  const double scale = std::sqrt(2.0 / M_PI);
  const at::Tensor cubed = at::mul(at::mul(x, x), x);
  const at::Tensor inner = at::mul(at::add(x, at::mul(cubed, 0.044715)), scale);
  return at::mul(at::mul(x, 0.5), at::add(at::tanh(inner), 1));
}

at::Tensor gelu_erf(const at::Tensor& x) {
  return at::mul(at::mul(x, 0.5), at::add(at::erf(at::mul(x, M_SQRT1_2)), 1));
}

}  // namespace

at::Tensor activate(Activation activation, const at::Tensor& x) {
  if (x.scalar_type() == at::kBFloat16 || x.scalar_type() == at::kHalf) {
    return activate(activation, x.to(at::kFloat)).to(x.scalar_type());
  }
  switch (activation) {
    case Activation::kSilu:
      return silu(x);
    case Activation::kGeluTanh:
      return gelu_tanh(x);
    case Activation::kGeluErf:
      return gelu_erf(x);
    case Activation::kRelu:
      return at::relu(x);
  }
  return x;
}

Result<Activation> activation_from_name(std::string_view name) {
  if (name == "silu" || name == "swish") return Activation::kSilu;
  if (name == "gelu_new" || name == "gelu_pytorch_tanh") return Activation::kGeluTanh;
  if (name == "gelu") return Activation::kGeluErf;
  if (name == "relu") return Activation::kRelu;
  return error(Code::kUnsupported, "known: silu, gelu, gelu_new, gelu_pytorch_tanh, relu",
               "activation function '{}'", name);
}

}  // namespace pellucid::kernels
