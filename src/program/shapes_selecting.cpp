// Shapes of operations that select, place and rearrange.
#include <ATen/ExpandUtils.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include <algorithm>
#include <cmath>

#include "program/shape_functions.h"
#include "program/shapes.h"

namespace pellucid::program {
namespace {

using c10::IValue;

void index_select(Stack& stack) {
  const at::Tensor self = tensor_at(stack, 0);
  const at::Tensor index = tensor_at(stack, 2);
  TORCH_CHECK(index.dim() <= 1, "index_select(): Index is supposed to be a vector");
  TORCH_CHECK(index.scalar_type() == at::kLong || index.scalar_type() == at::kInt,
              "index_select(): Expected dtype int32 or int64 for index");
  Sizes sizes = self.sizes().vec();
  const int64_t dim = wrap_dim(stack[1].toInt(), self.dim());
  if (!sizes.empty()) sizes[dim] = index.numel();
  give(stack, {meta_of(sizes, self.scalar_type())});
}

// searchsorted(sorted, self, *, out_int32, ...), bucketize(self, boundaries, *, out_int32, ...)
void searchsorted(Stack& stack) {
  const at::Tensor sorted = tensor_at(stack, 0);
  const Sizes sizes = stack[1].isTensor() ? tensor_at(stack, 1).sizes().vec() : Sizes{};
  TORCH_CHECK(
      sorted.dim() == 1 || (!sizes.empty() && sorted.dim() == int64_t(sizes.size()) &&
                            std::equal(sizes.begin(), sizes.end() - 1, sorted.sizes().begin())),
      "searchsorted(): the first dimensions of the boundaries and of the values must match");
  give(stack, {meta_of(sizes, stack[2].toBool() ? at::kInt : at::kLong)});
}
void bucketize(Stack& stack) {
  TORCH_CHECK(tensor_at(stack, 1).dim() == 1, "bucketize(): boundaries must be a vector");
  const Sizes sizes = stack[0].isTensor() ? tensor_at(stack, 0).sizes().vec() : Sizes{};
  give(stack, {meta_of(sizes, stack[2].toBool() ? at::kInt : at::kLong)});
}

void one_hot(Stack& stack) {
  const at::Tensor self = tensor_at(stack, 0);
  const int64_t classes = stack[1].toInt();
  TORCH_CHECK(self.scalar_type() == at::kLong,
              "one_hot is only applicable to index tensor of type LongTensor.");
  TORCH_CHECK(classes > 0,
              "one_hot in a program needs num_classes: the largest id is not known yet");
  Sizes sizes = self.sizes().vec();
  sizes.push_back(classes);
  give(stack, {meta_of(sizes, at::kLong)});
}

void nonzero(Stack& stack) {
  const at::Tensor self = tensor_at(stack, 0);
  give(stack, {meta_of({self.numel(), self.dim()}, at::kLong)});
}

void masked_select(Stack& stack) {
  const at::Tensor self = tensor_at(stack, 0);
  const at::Tensor mask = tensor_at(stack, 1);
  TORCH_CHECK(mask.scalar_type() == at::kBool, "masked_select: expected BoolTensor for mask");
  const auto sizes = at::infer_size(self.sizes(), mask.sizes());
  give(stack, {meta_of({c10::multiply_integers(sizes)}, self.scalar_type())});
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
      out.push_back(meta_of({index.numel()}, at::kLong));
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
  const at::Tensor self = tensor_at(stack, 0);
  give(stack, {index_meta(self, without_masks(self, stack[1]))});
}

void check_values(const Stack& stack) {
  const at::Tensor self = tensor_at(stack, 0);
  const at::Tensor chosen = index_meta(self, without_masks(self, stack[1]));
  const at::Tensor values = tensor_at(stack, 2);
  TORCH_CHECK(at::is_expandable_to(values.sizes(), chosen.sizes()),
              "shape mismatch: value tensor of shape ", values.sizes(),
              " cannot be broadcast to indexing result of shape ", chosen.sizes());
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

// take(self, index)
void take(Stack& stack) {
  const at::Tensor index = tensor_at(stack, 1);
  TORCH_CHECK(index.scalar_type() == at::kLong, "take(): Expected a long tensor for index");
  give(stack, index.sizes(), tensor_at(stack, 0).scalar_type());
}

// flip(self, dims), fliplr, flipud, roll(self, shifts, dims)
void flip(Stack& stack) {
  for (const int64_t dim : dims_of(stack.back())) wrap_dim(dim, tensor_at(stack, 0).dim());
  same_as_self(stack);
}

// rot90(self, k, dims)
void rot90(Stack& stack) {
  const at::Tensor self = tensor_at(stack, 0);
  const auto dims = dims_of(stack[2]);
  TORCH_CHECK(dims.size() == 2, "expected total rotation dims == 2");
  Sizes sizes = self.sizes().vec();
  const int64_t a = wrap_dim(dims[0], self.dim()), b = wrap_dim(dims[1], self.dim());
  TORCH_CHECK(self.dim() >= 2 && a != b, "expected rotation dims to be different");
  if (stack[1].toInt() % 2 != 0) std::swap(sizes[a], sizes[b]);
  give(stack, sizes, self.scalar_type());
}

// embedding(weight, indices, ...)
void embedding(Stack& stack) {
  const at::Tensor weight = tensor_at(stack, 0);
  TORCH_CHECK(weight.dim() == 2, "'weight' must be 2-D");
  Sizes sizes = tensor_at(stack, 1).sizes().vec();
  sizes.push_back(weight.size(1));
  give(stack, sizes, weight.scalar_type());
}

// tril_indices(row, col, offset, *, dtype, ...)
void triangle_indices(Stack& stack, bool lower) {
  const int64_t rows = stack[0].toInt(), cols = stack[1].toInt();
  int64_t offset = stack[2].toInt();
  constexpr int64_t kMax = int64_t{1} << 31;  // sums below stay in 63 bits
  TORCH_CHECK(
      rows >= 0 && cols >= 0 && rows < kMax && cols < kMax && std::abs(double(offset)) < kMax,
      "rows, columns and offset are below 2147483648");
  // Above or on a diagonal is what is not on or below the one before it.
  offset = std::clamp(lower ? offset : offset - 1, -rows, cols);
  // Row r has clamp(r + offset + 1, 0, cols) elements on or below: none, then one more each, then
  // all.
  const int64_t some = std::max<int64_t>(0, -offset);
  const int64_t full = std::clamp(cols - offset - 1, some, std::max(rows, some));
  const int64_t ramp = std::max<int64_t>(0, std::min(full, rows) - some);
  const int64_t below = ramp * (some + offset + 1 + some + ramp - 1 + offset + 1) / 2 +
                        std::max<int64_t>(0, rows - full) * cols;
  give(stack, Sizes{2, lower ? below : rows * cols - below}, dtype_or(stack[3], at::kLong));
}
void tril_indices(Stack& stack) { triangle_indices(stack, true); }
void triu_indices(Stack& stack) { triangle_indices(stack, false); }

constexpr NamedShape kShapes[] = {
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
    {"aten::take", take},
    {"aten::flip", flip},
    {"aten::fliplr", same_as_self},
    {"aten::flipud", same_as_self},
    {"aten::roll", flip},
    {"aten::rot90", rot90},
    {"aten::embedding", embedding},
    {"aten::tril_indices", tril_indices},
    {"aten::triu_indices", triu_indices},
};

}  // namespace

std::span<const NamedShape> selecting_shapes() { return kShapes; }

bool is_bounded_only(const Call& call, std::span<const at::Tensor> operands) {
  const std::string& name = call.operation->name;
  if (name == "aten::nonzero" || name == "aten::masked_select") return true;
  if (name != "aten::index.Tensor") return false;
  const std::vector<int> indices = call.operands_of(1);
  return std::any_of(indices.begin(), indices.end(), [&](int i) { return is_mask(operands[i]); });
}

}  // namespace pellucid::program
