#pragma once
// Between the facade's own types and those of the layers below: errors, dtypes, tensors.
#include <ATen/core/Tensor.h>

#include <utility>

#include "base/status.h"
#include "pellucid/error.h"
#include "pellucid/tensor.h"

namespace pellucid {

struct Tensor::Impl {
  at::Tensor tensor;  // contiguous, in main memory, detached
  std::vector<int64_t> shape;
  Dtype dtype;
};

namespace facade {

[[noreturn]] void raise(Status status);
inline void check(Status status) {
  if (!status.ok()) raise(std::move(status));
}
/// The value, or throws.
template <typename T>
T unwrap(Result<T> result) {
  if (!result.ok()) raise(std::move(result).status());
  return *std::move(result);
}

at::ScalarType scalar_type(Dtype dtype);
/// The torch spelling that programs carry: "float32".
Dtype dtype_of(at::ScalarType type);  // throws Error "unsupported"

}  // namespace facade
}  // namespace pellucid
