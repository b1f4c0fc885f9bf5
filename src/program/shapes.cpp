#include "program/shapes.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <unordered_map>

#include "program/shape_functions.h"

namespace pellucid::program {

at::Tensor meta_of(at::IntArrayRef sizes, at::ScalarType dtype) {
  return at::empty(sizes, at::TensorOptions().dtype(dtype).device(at::kMeta));
}

void give(Stack& stack, std::initializer_list<at::Tensor> outputs) {
  stack.assign(outputs.begin(), outputs.end());
}

void give(Stack& stack, at::IntArrayRef sizes, at::ScalarType dtype) {
  give(stack, {meta_of(sizes, dtype)});
}

void same_as_self(Stack& stack) {
  const at::Tensor self = tensor_at(stack, 0);
  give(stack, self.sizes(), self.scalar_type());
}

void self_in_place(Stack& stack) { stack.resize(1); }

int64_t wrap_dim(int64_t dim, int64_t dims) {
  const int64_t range = std::max<int64_t>(dims, 1);
  TORCH_CHECK_INDEX(dim >= -range && dim < range,
                    "Dimension out of range (expected to be in range of [", -range, ", ", range - 1,
                    "], but got ", dim, ")");
  return dim < 0 ? dim + range : dim;
}

std::vector<int64_t> dims_of(const c10::IValue& value) {
  if (value.isNone()) return {};
  if (value.isInt()) return {value.toInt()};
  return value.toIntVector();
}

Sizes reduced(const at::Tensor& x, const std::vector<int64_t>& dims, bool keepdim) {
  std::vector<bool> gone(x.dim(), dims.empty());
  for (const int64_t dim : dims) {
    const int64_t wrapped = wrap_dim(dim, x.dim());
    if (x.dim() > 0) gone[wrapped] = true;
  }
  Sizes out;
  for (int64_t d = 0; d < x.dim(); ++d) {
    if (!gone[d]) {
      out.push_back(x.size(d));
    } else if (keepdim) {
      out.push_back(1);
    }
  }
  return out;
}

at::ScalarType as_float(at::ScalarType dtype) {
  return at::isFloatingType(dtype) ? dtype : at::kFloat;
}

at::ScalarType as_sum(at::ScalarType dtype) {
  return at::isIntegralType(dtype, true) ? at::kLong : dtype;
}

at::ScalarType dtype_or(const c10::IValue& value, at::ScalarType otherwise) {
  return value.isNone() ? otherwise : static_cast<at::ScalarType>(value.toInt());
}

ShapeFunction shape_function(std::string_view operation) {
  static const auto table = [] {
    std::unordered_map<std::string_view, ShapeFunction> all;
    for (const auto& list : {elementwise_shapes(), reduction_shapes(), selecting_shapes(),
                             network_shapes(), linalg_shapes()}) {
      for (const NamedShape& one : list) all.emplace(one.operation, one.function);
    }
    return all;
  }();
  const auto found = table.find(operation);
  return found == table.end() ? nullptr : found->second;
}

}  // namespace pellucid::program
