#pragma once
// The one function through which every matmul of a model goes: a row's bits never depend on how
// many rows it is computed with.
#include <ATen/core/Tensor.h>

#include <cstdint>

namespace pellucid::kernels {

/// y = x W^T (+ bias). x: [..., K]; weight: [N, K] of the same dtype; bias: [N] or undefined.
/// Result [..., N].
///
/// Reduction order is independent of the number of rows: float32 on a CPU goes to oneDNN where a
/// probe of this weight's shape at first use shows one class of row counts (single rows are padded
/// to two); otherwise, and for every other dtype and device, rows are computed in fixed tiles. The
/// bias is added afterwards.
///
/// Differentiable. When x or weight requires grad the bits of the result stay the same.
at::Tensor linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias = {});

/// How `linear` computes a weight; for tests, benchmarks and the model's description.
enum class LinearRoute : uint8_t { kOneDnn, kTiles };
LinearRoute linear_route(const at::Tensor& weight);

}  // namespace pellucid::kernels
