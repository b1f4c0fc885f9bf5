#pragma once
// What the files of shape functions share. A shape function takes the arguments (meta tensors) off
// the stack and leaves the results, as a boxed kernel does; it throws c10::Error on shapes that do
// not fit.
#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <initializer_list>
#include <span>
#include <string_view>
#include <vector>

namespace pellucid::program {

using Stack = std::vector<c10::IValue>;
using Sizes = std::vector<int64_t>;

struct NamedShape {
  std::string_view operation;
  void (*function)(Stack& stack);
};
std::span<const NamedShape> elementwise_shapes();
std::span<const NamedShape> reduction_shapes();
std::span<const NamedShape> selecting_shapes();
std::span<const NamedShape> network_shapes();
std::span<const NamedShape> linalg_shapes();

at::Tensor meta_of(at::IntArrayRef sizes, at::ScalarType dtype);
/// Leaves these on the stack.
void give(Stack& stack, std::initializer_list<at::Tensor> outputs);
void give(Stack& stack, at::IntArrayRef sizes, at::ScalarType dtype);
inline const at::Tensor& tensor_at(const Stack& stack, size_t i) { return stack[i].toTensor(); }
void same_as_self(Stack& stack);
void self_in_place(Stack& stack);

/// 0 <= result < dims, or throws torch's sentence.
int64_t wrap_dim(int64_t dim, int64_t dims);
/// None, an int or a list.
std::vector<int64_t> dims_of(const c10::IValue& value);
/// Sizes after a reduction over `dims` (all when empty).
Sizes reduced(const at::Tensor& x, const std::vector<int64_t>& dims, bool keepdim);
/// float32 for integers, else the dtype itself.
at::ScalarType as_float(at::ScalarType dtype);
/// int64 for integers and bools, else the dtype itself.
at::ScalarType as_sum(at::ScalarType dtype);
/// The dtype argument, or `otherwise` when it is None.
at::ScalarType dtype_or(const c10::IValue& value, at::ScalarType otherwise);

/// What torch does inside and no meta kernel shows: for budgets.
void add_cost(double floating_point_operations, double scratch_bytes);

}  // namespace pellucid::program
