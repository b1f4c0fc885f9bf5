#pragma once
// Optional: for programs that have ATen themselves. Nothing else in include/pellucid needs it.
#include <ATen/core/Tensor.h>

#include "pellucid/tensor.h"

namespace pellucid {

/// Shares memory with `tensor`: do not write to it. Undefined for an undefined Tensor.
at::Tensor to_torch(const Tensor& tensor);

/// Shares memory when `tensor` is contiguous and in main memory, else copies; detached.
/// Throws Error "unsupported" for dtypes that are not in pellucid::Dtype.
Tensor from_torch(const at::Tensor& tensor);

}  // namespace pellucid
