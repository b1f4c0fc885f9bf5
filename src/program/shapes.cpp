#include "program/shapes.h"

#include <ATen/ExpandUtils.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/result_type.h>

#include <algorithm>
#include <unordered_map>

namespace pellucid::program {
namespace {

using c10::IValue;
using Stack = std::vector<IValue>;
using Sizes = std::vector<int64_t>;

at::Tensor meta(at::IntArrayRef sizes, at::ScalarType dtype) {
  return at::empty(sizes, at::TensorOptions().dtype(dtype).device(at::kMeta));
}

void give(Stack& stack, std::initializer_list<at::Tensor> outputs) {
  stack.clear();
  for (const at::Tensor& output : outputs) stack.emplace_back(output);
}

/// The last arguments of the schema, read by position.
const at::Tensor& tensor(const Stack& stack, size_t i) { return stack[i].toTensor(); }

void same_as_self(Stack& stack) {
  const at::Tensor self = tensor(stack, 0);
  give(stack, {meta(self.sizes(), self.scalar_type())});
}
void self_in_place(Stack& stack) { stack.resize(1); }

void bool_as_self(Stack& stack) { give(stack, {meta(tensor(stack, 0).sizes(), at::kBool)}); }

int64_t wrap(int64_t dim, int64_t dims) {
  const int64_t range = std::max<int64_t>(dims, 1);
  TORCH_CHECK_INDEX(dim >= -range && dim < range, "Dimension out of range (expected to be in range of [",
                    -range, ", ", range - 1, "], but got ", dim, ")");
  return dim < 0 ? dim + range : dim;
}

/// Sizes after a reduction over `dims` (all when empty).
Sizes reduced(const at::Tensor& x, const std::vector<int64_t>& dims, bool keepdim) {
  std::vector<bool> gone(x.dim(), dims.empty());
  for (const int64_t dim : dims) {
    if (x.dim() > 0) gone[wrap(dim, x.dim())] = true;
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

std::vector<int64_t> dims_of(const IValue& value) {
  if (value.isNone()) return {};
  if (value.isInt()) return {value.toInt()};
  return value.toIntVector();
}

// var, std and their pairs: (self, bool unbiased), (self, dim, unbiased, keepdim) or
// (self, dim, *, correction, keepdim).
void spread(Stack& stack, size_t outputs) {
  const at::Tensor self = tensor(stack, 0);
  TORCH_CHECK(at::isFloatingType(self.scalar_type()),
              "std and var only support floating point and complex dtypes");
  const bool all = stack.size() == 2;
  const Sizes sizes = all ? Sizes{} : reduced(self, dims_of(stack[1]), stack[3].toBool());
  const at::Tensor one = meta(sizes, self.scalar_type());
  if (outputs == 1) return give(stack, {one});
  give(stack, {one, meta(sizes, self.scalar_type())});
}
void spread_one(Stack& stack) { spread(stack, 1); }
void spread_and_mean(Stack& stack) { spread(stack, 2); }

void where(Stack& stack) {
  const at::Tensor condition = tensor(stack, 0);
  const auto number = [](const IValue& value) {
    if (value.isTensor()) return value.toTensor();
    const at::Scalar scalar = value.toScalar();
    at::Tensor wrapped = meta({}, scalar.isBoolean()        ? at::kBool
                                  : scalar.isIntegral(true) ? at::kLong
                                                            : at::kDouble);
    wrapped.unsafeGetTensorImpl()->set_wrapped_number(true);
    return wrapped;
  };
  const at::Tensor self = number(stack[1]);
  const at::Tensor other = number(stack[2]);
  TORCH_CHECK(condition.scalar_type() == at::kBool || condition.scalar_type() == at::kByte,
              "where expected condition to be a boolean tensor, but got a tensor with dtype ",
              condition.scalar_type());
  const auto pair = at::infer_size(self.sizes(), other.sizes());
  give(stack, {meta(at::infer_size(condition.sizes(), pair), at::result_type(self, other))});
}

void index_select(Stack& stack) {
  const at::Tensor self = tensor(stack, 0);
  const at::Tensor index = tensor(stack, 2);
  TORCH_CHECK(index.dim() <= 1, "index_select(): Index is supposed to be a vector");
  TORCH_CHECK(index.scalar_type() == at::kLong || index.scalar_type() == at::kInt,
              "index_select(): Expected dtype int32 or int64 for index");
  Sizes sizes = self.sizes().vec();
  const int64_t dim = wrap(stack[1].toInt(), self.dim());
  if (!sizes.empty()) sizes[dim] = index.numel();
  give(stack, {meta(sizes, self.scalar_type())});
}

// searchsorted(sorted, self, *, out_int32, ...), bucketize(self, boundaries, *, out_int32, ...)
void searchsorted(Stack& stack) {
  const at::Tensor sorted = tensor(stack, 0);
  const Sizes sizes = stack[1].isTensor() ? tensor(stack, 1).sizes().vec() : Sizes{};
  TORCH_CHECK(sorted.dim() == 1 || (!sizes.empty() && sorted.dim() == int64_t(sizes.size()) &&
                                    std::equal(sizes.begin(), sizes.end() - 1, sorted.sizes().begin())),
              "searchsorted(): the first dimensions of the boundaries and of the values must match");
  give(stack, {meta(sizes, stack[2].toBool() ? at::kInt : at::kLong)});
}
void bucketize(Stack& stack) {
  TORCH_CHECK(tensor(stack, 1).dim() == 1, "bucketize(): boundaries must be a vector");
  const Sizes sizes = stack[0].isTensor() ? tensor(stack, 0).sizes().vec() : Sizes{};
  give(stack, {meta(sizes, stack[2].toBool() ? at::kInt : at::kLong)});
}

void one_hot(Stack& stack) {
  const at::Tensor self = tensor(stack, 0);
  const int64_t classes = stack[1].toInt();
  TORCH_CHECK(self.scalar_type() == at::kLong,
              "one_hot is only applicable to index tensor of type LongTensor.");
  TORCH_CHECK(classes > 0, "one_hot in a program needs num_classes: the largest id is not known yet");
  Sizes sizes = self.sizes().vec();
  sizes.push_back(classes);
  give(stack, {meta(sizes, at::kLong)});
}

void nonzero(Stack& stack) {
  const at::Tensor self = tensor(stack, 0);
  give(stack, {meta({self.numel(), self.dim()}, at::kLong)});
}

void masked_select(Stack& stack) {
  const at::Tensor self = tensor(stack, 0);
  const at::Tensor mask = tensor(stack, 1);
  TORCH_CHECK(mask.scalar_type() == at::kBool, "masked_select: expected BoolTensor for mask");
  const auto sizes = at::infer_size(self.sizes(), mask.sizes());
  give(stack, {meta({c10::multiply_integers(sizes)}, self.scalar_type())});
}

bool is_mask(const at::Tensor& index) {
  return index.defined() && (index.scalar_type() == at::kBool || index.scalar_type() == at::kByte);
}

/// A boolean index of k dimensions is k integer indices, as long as it has elements at most.
c10::List<std::optional<at::Tensor>> without_masks(const at::Tensor& self, const IValue& indices) {
  c10::List<std::optional<at::Tensor>> out;
  int64_t at = 0;
  for (const IValue& one : indices.toListRef()) {
    const at::Tensor index = one.isNone() ? at::Tensor() : one.toTensor();
    if (!is_mask(index)) {
      out.push_back(index.defined() ? std::optional(index) : std::nullopt);
      ++at;
      continue;
    }
    for (int64_t d = 0; d < index.dim(); ++d, ++at) {
      TORCH_CHECK_INDEX(at < self.dim() && self.size(at) == index.size(d), "The shape of the mask ",
                        index.sizes(), " does not match the shape of the indexed tensor ",
                        self.sizes());
      out.push_back(meta({index.numel()}, at::kLong));
    }
  }
  return out;
}

at::Tensor index_meta(const at::Tensor& self, c10::List<std::optional<at::Tensor>> indices) {
  static const auto handle =
      c10::Dispatcher::singleton().findSchemaOrThrow("aten::index", "Tensor");
  Stack stack{self, std::move(indices)};
  handle.callBoxed(&stack);
  return stack[0].toTensor();
}

void index(Stack& stack) {
  const at::Tensor self = tensor(stack, 0);
  give(stack, {index_meta(self, without_masks(self, stack[1]))});
}

void check_values(const Stack& stack) {
  const at::Tensor self = tensor(stack, 0);
  const at::Tensor chosen = index_meta(self, without_masks(self, stack[1]));
  const at::Tensor values = tensor(stack, 2);
  TORCH_CHECK(at::is_expandable_to(values.sizes(), chosen.sizes()), "shape mismatch: value tensor of shape ",
              values.sizes(), " cannot be broadcast to indexing result of shape ", chosen.sizes());
  TORCH_CHECK(values.scalar_type() == self.scalar_type() || values.dim() == 0,
              "Index put requires the source and destination dtypes match, got ",
              self.scalar_type(), " for the destination and ", values.scalar_type(),
              " for the source.");
}
void index_put(Stack& stack) {
  check_values(stack);
  same_as_self(stack);
}
void index_put_in_place(Stack& stack) {
  check_values(stack);
  self_in_place(stack);
}

const std::unordered_map<std::string_view, ShapeFunction>& table() {
  static const std::unordered_map<std::string_view, ShapeFunction> functions{
      {"aten::relu", same_as_self},
      {"aten::relu_", self_in_place},
      {"aten::isnan", bool_as_self},
      {"aten::where.self", where},
      {"aten::where.Scalar", where},
      {"aten::where.ScalarOther", where},
      {"aten::where.ScalarSelf", where},
      {"aten::var", spread_one},
      {"aten::var.dim", spread_one},
      {"aten::var.correction", spread_one},
      {"aten::std", spread_one},
      {"aten::std.dim", spread_one},
      {"aten::std.correction", spread_one},
      {"aten::var_mean", spread_and_mean},
      {"aten::var_mean.dim", spread_and_mean},
      {"aten::var_mean.correction", spread_and_mean},
      {"aten::std_mean", spread_and_mean},
      {"aten::std_mean.dim", spread_and_mean},
      {"aten::std_mean.correction", spread_and_mean},
      {"aten::index_select", index_select},
      {"aten::searchsorted.Tensor", searchsorted},
      {"aten::searchsorted.Scalar", searchsorted},
      {"aten::bucketize.Tensor", bucketize},
      {"aten::bucketize.Scalar", bucketize},
      {"aten::one_hot", one_hot},
      {"aten::nonzero", nonzero},
      {"aten::masked_select", masked_select},
      {"aten::index.Tensor", index},
      {"aten::index_put", index_put},
      {"aten::index_put_", index_put_in_place},
  };
  return functions;
}

}  // namespace

ShapeFunction shape_function(std::string_view operation) {
  const auto found = table().find(operation);
  return found == table().end() ? nullptr : found->second;
}

bool is_bounded_only(const Call& call, std::span<const at::Tensor> operands) {
  const std::string& name = call.operation->name;
  if (name == "aten::nonzero" || name == "aten::masked_select") return true;
  if (name != "aten::index.Tensor") return false;
  const std::vector<int> indices = call.operands_of(1);
  return std::any_of(indices.begin(), indices.end(), [&](int i) { return is_mask(operands[i]); });
}

}  // namespace pellucid::program
