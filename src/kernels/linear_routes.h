#pragma once
// The ways in which `linear` computes; private to this layer. x: [M, K], M >= 1, weight: [N, K].
#include <ATen/core/Tensor.h>

namespace pellucid::kernels {

/// Fixed tiles of rows, each by the same mm call. Differentiable, any strides.
at::Tensor linear_in_tiles(const at::Tensor& x_MK, const at::Tensor& weight_NK);

/// float32 on a CPU, both contiguous. Unknown to autograd.
at::Tensor linear_by_onednn(const at::Tensor& x_MK, const at::Tensor& weight_NK);

/// The bits of linear_by_onednn, with gradients of any order.
at::Tensor linear_with_gradient(const at::Tensor& x_MK, const at::Tensor& weight_NK);

}  // namespace pellucid::kernels
