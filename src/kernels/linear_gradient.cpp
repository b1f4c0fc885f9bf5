// oneDNN's operator has no derivative of its own. The only file of this layer that needs autograd's
// headers, which are heavy: it is compiled without the guard and the precompiled header.
#include <ATen/ops/mm.h>
#include <torch/csrc/autograd/custom_function.h>

#include "kernels/linear_routes.h"

namespace pellucid::kernels {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct OneDnnLinear : torch::autograd::Function<OneDnnLinear> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x_MK,
                            const at::Tensor& weight_NK) {
    context->save_for_backward({x_MK, weight_NK});
    return linear_by_onednn(x_MK, weight_NK);
  }

  // Made of differentiable operations, so that a gradient of the gradient works too. A row's
  // gradient does not depend on the number of rows either.
  static variable_list backward(AutogradContext* context, variable_list grad) {
    const variable_list saved = context->get_saved_variables();
    at::Tensor grad_x, grad_weight;
    if (context->needs_input_grad(0)) grad_x = linear_in_tiles(grad[0], saved[1].t());
    if (context->needs_input_grad(1)) grad_weight = at::mm(grad[0].t(), saved[0]);
    return {grad_x, grad_weight};
  }
};

}  // namespace

at::Tensor linear_with_gradient(const at::Tensor& x_MK, const at::Tensor& weight_NK) {
  return OneDnnLinear::apply(x_MK, weight_NK);
}

}  // namespace pellucid::kernels
