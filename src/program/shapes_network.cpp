// Shapes of norms, convolutions, pooling, attention and losses.
#include <ATen/ExpandUtils.h>
#include <ATen/ops/result_type.h>

#include <algorithm>

#include "program/shape_functions.h"

namespace pellucid::program {
namespace {

using c10::IValue;

// ---- norms: the shape of the input

// layer_norm(input, normalized_shape, weight, bias, ...), rms_norm(input, normalized_shape, weight,
// eps)
void layer_norm(Stack& stack) {
  const at::Tensor x = tensor_at(stack, 0);
  const Sizes normalized = stack[1].toIntVector();
  const int64_t first = x.dim() - static_cast<int64_t>(normalized.size());
  TORCH_CHECK(!normalized.empty() && first >= 0 &&
                  std::equal(normalized.begin(), normalized.end(), x.sizes().begin() + first),
              "Given normalized_shape=", at::IntArrayRef(normalized),
              ", expected input with shape [*, ...], but got input of size ", x.sizes());
  for (const size_t i : {size_t{2}, size_t{3}}) {
    if (i >= stack.size() || !stack[i].isTensor()) continue;
    TORCH_CHECK(tensor_at(stack, i).sizes() == at::IntArrayRef(normalized),
                "Expected weight and bias to be of the same shape as normalized_shape, but got ",
                tensor_at(stack, i).sizes());
  }
  add_cost(8.0 * x.numel(), 2.0 * x.nbytes());
  same_as_self(stack);
}

// group_norm(input, num_groups, ...)
void group_norm(Stack& stack) {
  const at::Tensor x = tensor_at(stack, 0);
  const int64_t groups = stack[1].toInt();
  TORCH_CHECK(
      x.dim() >= 2 && groups > 0 && x.size(1) % groups == 0,
      "Expected number of channels in input to be divisible by num_groups, but got input of shape ",
      x.sizes(), " and num_groups=", groups);
  add_cost(8.0 * x.numel(), 2.0 * x.nbytes());
  same_as_self(stack);
}

// batch_norm(input, weight, bias, running_mean, running_var, ...)
void batch_norm(Stack& stack) {
  const at::Tensor x = tensor_at(stack, 0);
  TORCH_CHECK(x.dim() >= 2, "batch_norm: expected input [batch, channels, ...], but got ",
              x.sizes());
  for (size_t i = 1; i <= 4; ++i) {
    if (!stack[i].isTensor()) continue;
    TORCH_CHECK(tensor_at(stack, i).numel() == x.size(1), "batch_norm: expected ", x.size(1),
                " elements, but got ", tensor_at(stack, i).numel());
  }
  add_cost(4.0 * x.numel(), 2.0 * x.nbytes());
  same_as_self(stack);
}

// ---- convolutions: (input, weight, bias, stride, padding, dilation, groups)

int64_t entry(const Sizes& list, size_t i) { return list.size() == 1 ? list[0] : list.at(i); }

void convolution(Stack& stack, int64_t dims) {
  const at::Tensor x = tensor_at(stack, 0), weight = tensor_at(stack, 1);
  const bool batched = x.dim() == dims + 2;
  TORCH_CHECK((batched || x.dim() == dims + 1) && weight.dim() == dims + 2, "Expected ", dims + 1,
              "D (unbatched) or ", dims + 2, "D (batched) input to a convolution, but got ",
              x.sizes());
  const Sizes stride = dims_of(stack[3]), dilation = dims_of(stack[5]);
  const int64_t groups = stack[6].toInt();
  TORCH_CHECK(groups > 0 && x.size(-dims - 1) == weight.size(1) * groups, "Given groups=", groups,
              ", weight of size ", weight.sizes(), ", expected input ", x.sizes(), " to have ",
              weight.size(1) * groups, " channels");
  Sizes sizes(x.sizes().begin(), x.sizes().end() - dims - 1);
  sizes.push_back(weight.size(0));
  double positions = batched ? double(x.size(0)) : 1;
  for (int64_t d = 0; d < dims; ++d) {
    const int64_t length = x.size(d - dims), kernel = weight.size(d - dims);
    const int64_t span = entry(dilation, d) * (kernel - 1);
    int64_t padding = 0;  // of both sides
    if (stack[4].isString()) {
      TORCH_CHECK(stack[4].toStringRef() == "valid" || stack[4].toStringRef() == "same",
                  "Invalid padding string: ", stack[4].toStringRef());
      if (stack[4].toStringRef() == "same") padding = span;
    } else {
      padding = 2 * entry(dims_of(stack[4]), d);
    }
    TORCH_CHECK(entry(stride, d) > 0 && entry(dilation, d) > 0 && padding >= 0,
                "convolution: stride and dilation are positive, padding is not negative");
    TORCH_CHECK(length + padding - span - 1 >= 0, "Calculated padded input size per channel: (",
                length + padding, "). Kernel size: (", span + 1,
                "). Kernel size can't be greater than actual input size");
    sizes.push_back((length + padding - span - 1) / entry(stride, d) + 1);
    positions *= static_cast<double>(sizes.back());
  }
  const double columns =
      positions * double(weight.numel()) / std::max<double>(1, double(weight.size(0)));
  add_cost(2 * positions * double(weight.numel()), columns * double(x.element_size()));
  give(stack, sizes, x.scalar_type());
}
void conv1d(Stack& stack) { convolution(stack, 1); }
void conv2d(Stack& stack) { convolution(stack, 2); }
void conv3d(Stack& stack) { convolution(stack, 3); }

// conv_transpose1d(input, weight, bias, stride, padding, output_padding, groups, dilation)
void conv_transpose1d(Stack& stack) {
  const at::Tensor x = tensor_at(stack, 0), weight = tensor_at(stack, 1);
  TORCH_CHECK((x.dim() == 3 || x.dim() == 2) && weight.dim() == 3 && x.size(-2) == weight.size(0),
              "conv_transpose1d: input ", x.sizes(), " does not fit weight ", weight.sizes());
  const int64_t groups = stack[6].toInt();
  Sizes sizes = x.sizes().vec();
  sizes[sizes.size() - 2] = weight.size(1) * groups;
  const int64_t length =
      (x.size(-1) - 1) * entry(dims_of(stack[3]), 0) - 2 * entry(dims_of(stack[4]), 0) +
      entry(dims_of(stack[7]), 0) * (weight.size(2) - 1) + entry(dims_of(stack[5]), 0) + 1;
  TORCH_CHECK(length >= 0, "conv_transpose1d: the output would have length ", length);
  sizes.back() = length;
  add_cost(2.0 * x.numel() * double(weight.size(1)) * double(weight.size(2)), 0);
  give(stack, sizes, x.scalar_type());
}

// adaptive_avg_pool1d(self, output_size)
void adaptive_pool(Stack& stack) {
  const at::Tensor x = tensor_at(stack, 0);
  const Sizes output = stack[1].toIntVector();
  TORCH_CHECK(x.dim() > static_cast<int64_t>(output.size()), "adaptive_avg_pool: input ", x.sizes(),
              " for output ", at::IntArrayRef(output));
  Sizes sizes = x.sizes().vec();
  std::copy(output.begin(), output.end(), sizes.end() - static_cast<int64_t>(output.size()));
  give(stack, sizes, x.scalar_type());
}

// scaled_dot_product_attention(query, key, value, attn_mask, dropout_p, is_causal, scale,
// enable_gqa)
void attention(Stack& stack) {
  const at::Tensor q = tensor_at(stack, 0), k = tensor_at(stack, 1), v = tensor_at(stack, 2);
  TORCH_CHECK(q.dim() >= 2 && k.dim() >= 2 && v.dim() >= 2 && q.size(-1) == k.size(-1) &&
                  k.size(-2) == v.size(-2),
              "scaled_dot_product_attention: query ", q.sizes(), ", key ", k.sizes(), ", value ",
              v.sizes());
  TORCH_CHECK(q.scalar_type() == k.scalar_type() && q.scalar_type() == v.scalar_type(),
              "Expected query, key, and value to have the same dtype");
  const bool grouped = stack[7].toBool();
  const auto lead = [](const at::Tensor& x, int64_t rest) {
    return x.sizes().slice(0, x.dim() - rest);
  };
  Sizes sizes;
  if (grouped) {
    TORCH_CHECK(q.dim() >= 3 && k.size(-3) > 0 && q.size(-3) % k.size(-3) == 0,
                "Number of heads in key and value must divide the number of heads in query");
    sizes = q.sizes().vec();
    sizes.pop_back();
  } else {
    const Sizes keys = at::infer_size(lead(k, 2), lead(v, 2));
    sizes = at::infer_size(lead(q, 2), keys);
    sizes.push_back(q.size(-2));
  }
  const double scores = double(c10::multiply_integers(sizes)) * double(k.size(-2));
  sizes.push_back(v.size(-1));
  if (stack[3].isTensor()) {
    Sizes of_scores(sizes.begin(), sizes.end() - 1);
    of_scores.push_back(k.size(-2));
    TORCH_CHECK(at::is_expandable_to(tensor_at(stack, 3).sizes(), of_scores), "attn_mask of shape ",
                tensor_at(stack, 3).sizes(), " for scores of shape ", at::IntArrayRef(of_scores));
  }
  add_cost(2 * scores * double(q.size(-1) + v.size(-1)), 2 * scores * double(q.element_size()));
  give(stack, sizes, q.scalar_type());
}

// ---- losses; reduction 1: mean, 2: sum, anything else: none, as in torch

void loss(Stack& stack, const Sizes& unreduced, size_t reduction, at::ScalarType dtype) {
  add_cost(0, 2.0 * double(c10::multiply_integers(unreduced)) * double(at::elementSize(dtype)));
  const int64_t how = stack[reduction].toInt();
  give(stack, how == 1 || how == 2 ? Sizes{} : unreduced, dtype);
}

// (self, target, reduction): both broadcast
void l1_loss(Stack& stack) {
  const at::Tensor self = tensor_at(stack, 0), target = tensor_at(stack, 1);
  const auto dtype = at::result_type(self, target);
  loss(stack, at::infer_size(self.sizes(), target.sizes()), 2, dtype);
}

void same_shapes(const Stack& stack, const char* name) {
  TORCH_CHECK(tensor_at(stack, 0).sizes() == tensor_at(stack, 1).sizes(), name, ": target ",
              tensor_at(stack, 1).sizes(), " must be the same size as input ",
              tensor_at(stack, 0).sizes());
}
// (self, target, weight, reduction)
void binary_cross_entropy(Stack& stack) {
  same_shapes(stack, "binary_cross_entropy");
  loss(stack, tensor_at(stack, 0).sizes().vec(), 3, tensor_at(stack, 0).scalar_type());
}
// (self, target, weight, pos_weight, reduction). Of mixed dtypes torch keeps one or the other by
// what else is given: refused.
void binary_cross_entropy_with_logits(Stack& stack) {
  same_shapes(stack, "binary_cross_entropy_with_logits");
  const at::ScalarType dtype = tensor_at(stack, 0).scalar_type();
  Sizes sizes = tensor_at(stack, 0).sizes().vec();
  for (const size_t i : {size_t{1}, size_t{2}, size_t{3}}) {
    if (!stack[i].isTensor()) continue;
    TORCH_CHECK(tensor_at(stack, i).scalar_type() == dtype,
                "binary_cross_entropy_with_logits: input, target and weights must have one dtype");
    sizes = at::infer_size(sizes, tensor_at(stack, i).sizes());
  }
  loss(stack, sizes, 4, dtype);
}
// (self, target, reduction, delta)
void huber_loss(Stack& stack) {
  const at::Tensor self = tensor_at(stack, 0), target = tensor_at(stack, 1);
  loss(stack, at::infer_size(self.sizes(), target.sizes()), 2, self.scalar_type());
}
// (self, target, margin, reduction)
void hinge_embedding_loss(Stack& stack) {
  const at::Tensor self = tensor_at(stack, 0), target = tensor_at(stack, 1);
  loss(stack, at::infer_size(self.sizes(), target.sizes()), 3, self.scalar_type());
}

// cross_entropy_loss(self, target, weight, reduction, ignore_index, label_smoothing); classes in
// dimension 1 (0 of a vector); the target has ids, or probabilities of the same shape.
void cross_entropy_loss(Stack& stack) {
  const at::Tensor self = tensor_at(stack, 0), target = tensor_at(stack, 1);
  TORCH_CHECK(self.dim() > 0, "cross_entropy: input of shape ", self.sizes());
  Sizes sizes = self.sizes().vec();
  sizes.erase(sizes.begin() + (self.dim() == 1 ? 0 : 1));
  const bool fits = target.sizes() == self.sizes() || target.sizes() == at::IntArrayRef(sizes);
  TORCH_CHECK(fits, "cross_entropy: target ", target.sizes(), " for input ", self.sizes());
  loss(stack, sizes, 3, self.scalar_type());
}

// nll_loss_nd(self, target, weight, reduction, ignore_index)
void nll_loss(Stack& stack) {
  const at::Tensor self = tensor_at(stack, 0), target = tensor_at(stack, 1);
  TORCH_CHECK(self.dim() > 0, "nll_loss: input of shape ", self.sizes());
  Sizes sizes = self.sizes().vec();
  sizes.erase(sizes.begin() + (self.dim() == 1 ? 0 : 1));
  TORCH_CHECK(target.sizes() == at::IntArrayRef(sizes), "nll_loss: target ", target.sizes(),
              " for input ", self.sizes());
  loss(stack, sizes, 3, self.scalar_type());
}

// cosine_embedding_loss(input1, input2, target, margin, reduction)
void cosine_embedding_loss(Stack& stack) {
  const at::Tensor a = tensor_at(stack, 0), b = tensor_at(stack, 1), target = tensor_at(stack, 2);
  TORCH_CHECK((target.dim() == 1 && a.dim() == 2 && b.dim() == 2) ||
                  (target.dim() == 0 && a.dim() == 1 && b.dim() == 1),
              "cosine_embedding_loss: ", a.sizes(), " and ", b.sizes(), " with target ",
              target.sizes());
  TORCH_CHECK(at::isFloatingType(a.scalar_type()) && at::isFloatingType(b.scalar_type()),
              "cosine_embedding_loss: expected floats");
  Sizes sizes = at::infer_size(a.sizes(), b.sizes());
  add_cost(6.0 * double(c10::multiply_integers(sizes)), 3.0 * double(a.nbytes() + b.nbytes()));
  sizes.pop_back();
  loss(stack, at::infer_size(sizes, target.sizes()), 4,
       c10::promoteTypes(a.scalar_type(), b.scalar_type()));
}

constexpr NamedShape kShapes[] = {
    {"aten::layer_norm", layer_norm},
    {"aten::rms_norm", layer_norm},
    {"aten::group_norm", group_norm},
    {"aten::batch_norm", batch_norm},
    {"aten::conv1d", conv1d},
    {"aten::conv1d.padding", conv1d},
    {"aten::conv2d", conv2d},
    {"aten::conv2d.padding", conv2d},
    {"aten::conv3d", conv3d},
    {"aten::conv3d.padding", conv3d},
    {"aten::conv_transpose1d", conv_transpose1d},
    {"aten::adaptive_avg_pool1d", adaptive_pool},
    {"aten::adaptive_avg_pool2d", adaptive_pool},
    {"aten::scaled_dot_product_attention", attention},
    {"aten::l1_loss", l1_loss},
    {"aten::huber_loss", huber_loss},
    {"aten::nll_loss_nd", nll_loss},
    {"aten::cosine_embedding_loss", cosine_embedding_loss},
    {"aten::binary_cross_entropy", binary_cross_entropy},
    {"aten::binary_cross_entropy_with_logits", binary_cross_entropy_with_logits},
    {"aten::hinge_embedding_loss", hinge_embedding_loss},
    {"aten::cross_entropy_loss", cross_entropy_loss},
};

}  // namespace

std::span<const NamedShape> network_shapes() { return kShapes; }

}  // namespace pellucid::program
