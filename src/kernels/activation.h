#pragma once
// Activation functions whose bits for an element never depend on where it stands in the tensor.
//
// torch's own silu, sigmoid and gelu compute the last elements of a buffer (and of each thread's
// part) by another formula than the rest, so that a row's bits change with the number of rows.
// exp, tanh and erf do not; these functions are built on them. Any shape, same shape back; bfloat16
// is computed in float32 and rounded once. Differentiable.
#include <ATen/core/Tensor.h>

#include <string_view>

#include "base/status.h"

namespace pellucid::kernels {

enum class Activation : uint8_t { kSilu, kGeluTanh, kGeluErf, kRelu };

at::Tensor activate(Activation activation, const at::Tensor& x);

/// By the name that config.json uses ("silu", "gelu_new"). kUnsupported: any other name.
Result<Activation> activation_from_name(std::string_view name);

}  // namespace pellucid::kernels
