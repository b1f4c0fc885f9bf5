// Shapes of operations that work element by element.
#include <ATen/ExpandUtils.h>
#include <ATen/ops/result_type.h>

#include "program/shape_functions.h"

namespace pellucid::program {
namespace {

void bool_as_self(Stack& stack) { give(stack, tensor_at(stack, 0).sizes(), at::kBool); }
void float_as_self(Stack& stack) {
  const at::Tensor self = tensor_at(stack, 0);
  give(stack, self.sizes(), as_float(at::result_type(self, self)));  // a number counts as float32
}

at::Tensor number_or_tensor(const c10::IValue& value) {
  if (value.isTensor()) return value.toTensor();
  const at::Scalar scalar = value.toScalar();
  at::Tensor wrapped = meta_of({}, scalar.isBoolean()        ? at::kBool
                                   : scalar.isIntegral(true) ? at::kLong
                                                             : at::kDouble);
  wrapped.unsafeGetTensorImpl()->set_wrapped_number(true);
  return wrapped;
}

Sizes broadcast(const Stack& stack) {
  return at::infer_size(number_or_tensor(stack[0]).sizes(), number_or_tensor(stack[1]).sizes());
}
void bool_of_both(Stack& stack) { give(stack, broadcast(stack), at::kBool); }
void both(Stack& stack) {
  const at::Tensor a = number_or_tensor(stack[0]), b = number_or_tensor(stack[1]);
  give(stack, at::infer_size(a.sizes(), b.sizes()), at::result_type(a, b));
}

/// self must keep its shape.
void in_place_of_both(Stack& stack) {
  const at::Tensor self = tensor_at(stack, 0);
  TORCH_CHECK(Sizes(self.sizes().vec()) == broadcast(stack), "output with shape ", self.sizes(),
              " doesn't match the broadcast shape ", at::IntArrayRef(broadcast(stack)));
  self_in_place(stack);
}

void where(Stack& stack) {
  const at::Tensor condition = tensor_at(stack, 0);
  const at::Tensor self = number_or_tensor(stack[1]);
  const at::Tensor other = number_or_tensor(stack[2]);
  TORCH_CHECK(condition.scalar_type() == at::kBool || condition.scalar_type() == at::kByte,
              "where expected condition to be a boolean tensor, but got a tensor with dtype ",
              condition.scalar_type());
  const auto pair = at::infer_size(self.sizes(), other.sizes());
  give(stack, at::infer_size(condition.sizes(), pair), at::result_type(self, other));
}

constexpr NamedShape kShapes[] = {
    {"aten::abs", same_as_self},
    {"aten::abs_", self_in_place},
    {"aten::absolute", same_as_self},
    {"aten::absolute_", self_in_place},
    {"aten::hardswish", same_as_self},
    {"aten::hardswish_", self_in_place},
    {"aten::hardtanh", same_as_self},
    {"aten::hardtanh_", self_in_place},
    {"aten::log_sigmoid", same_as_self},
    {"aten::logit", float_as_self},
    {"aten::nan_to_num", same_as_self},
    {"aten::nan_to_num_", self_in_place},
    {"aten::prelu", same_as_self},
    {"aten::relu", same_as_self},
    {"aten::relu_", self_in_place},
    {"aten::relu6", same_as_self},
    {"aten::relu6_", self_in_place},
    {"aten::special_logit", float_as_self},
    {"aten::isfinite", bool_as_self},
    {"aten::isinf", bool_as_self},
    {"aten::isnan", bool_as_self},
    {"aten::logical_not", bool_as_self},
    {"aten::logical_not_", self_in_place},
    {"aten::isclose", bool_of_both},
    {"aten::logical_and", bool_of_both},
    {"aten::logical_or", bool_of_both},
    {"aten::logical_xor", bool_of_both},
    {"aten::logical_and_", in_place_of_both},
    {"aten::logical_or_", in_place_of_both},
    {"aten::logical_xor_", in_place_of_both},
    {"aten::floor_divide", both},
    {"aten::floor_divide.Scalar", both},
    {"aten::floor_divide_.Scalar", self_in_place},
    {"aten::remainder.Scalar_Tensor", both},
    {"aten::floor_divide_.Tensor", in_place_of_both},
    {"aten::rsub.Tensor", both},
    {"aten::where.self", where},
    {"aten::where.Scalar", where},
    {"aten::where.ScalarOther", where},
    {"aten::where.ScalarSelf", where},
};

}  // namespace

std::span<const NamedShape> elementwise_shapes() { return kShapes; }

}  // namespace pellucid::program
