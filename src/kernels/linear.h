#pragma once
// The one function through which every matmul of a model goes: a row's bits never depend on how many
// rows it is computed with.
#include <ATen/core/Tensor.h>

namespace pellucid::kernels {

/// y = x W^T (+ bias). x: [..., K]; weight: [N, K]; bias: [N] or undefined. Result [..., N].
///
/// Reduction order is independent of the number of rows: float32 goes to oneDNN where a probe of this
/// weight's shape at first use shows one class of row counts (single rows are padded to two);
/// otherwise, and for every other dtype, rows are computed in fixed tiles.
at::Tensor linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias = {});

}  // namespace pellucid::kernels
