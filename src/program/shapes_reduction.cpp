// Shapes of reductions and scans.
#include <algorithm>

#include "program/shape_functions.h"

namespace pellucid::program {
namespace {

void scalar(Stack& stack) { give(stack, Sizes{}, tensor_at(stack, 0).scalar_type()); }
void scalar_sum(Stack& stack) { give(stack, Sizes{}, as_sum(tensor_at(stack, 0).scalar_type())); }

// prod(self, *, dtype)
void prod(Stack& stack) {
  give(stack, Sizes{}, dtype_or(stack[1], as_sum(tensor_at(stack, 0).scalar_type())));
}

void trace(Stack& stack) {
  TORCH_CHECK(tensor_at(stack, 0).dim() == 2, "trace: expected a matrix");
  scalar_sum(stack);
}

// median.dim(self, dim, keepdim) and its like: values and indices.
void with_indices(Stack& stack, int64_t dim, bool keepdim) {
  const at::Tensor self = tensor_at(stack, 0);
  TORCH_CHECK(self.dim() == 0 || self.size(wrap_dim(dim, self.dim())) > 0,
              "Expected reduction dim to have non-zero size");
  const Sizes sizes = reduced(self, {dim}, keepdim);
  give(stack, {meta_of(sizes, self.scalar_type()), meta_of(sizes, at::kLong)});
}
void median_dim(Stack& stack) { with_indices(stack, stack[1].toInt(), stack[2].toBool()); }
// kthvalue(self, k, dim, keepdim)
void kthvalue(Stack& stack) {
  const at::Tensor self = tensor_at(stack, 0);
  const int64_t k = stack[1].toInt();
  const int64_t dim = wrap_dim(stack[2].toInt(), self.dim());
  TORCH_CHECK(k >= 1 && k <= (self.dim() > 0 ? self.size(dim) : 1),
              "kthvalue(): selected number k out of range for dimension ", dim);
  with_indices(stack, dim, stack[3].toBool());
}

// cummax(self, dim)
void scan_with_indices(Stack& stack) {
  const at::Tensor self = tensor_at(stack, 0);
  wrap_dim(stack[1].toInt(), self.dim());
  give(stack, {meta_of(self.sizes(), self.scalar_type()), meta_of(self.sizes(), at::kLong)});
}
void scan(Stack& stack) {
  const at::Tensor self = tensor_at(stack, 0);
  wrap_dim(stack[1].toInt(), self.dim());
  give(stack, self.sizes(), self.scalar_type());
}

// diff(self, n, dim, prepend, append)
void diff(Stack& stack) {
  const at::Tensor self = tensor_at(stack, 0);
  TORCH_CHECK(self.dim() >= 1, "diff expects input to be at least one-dimensional");
  const int64_t n = stack[1].toInt(), dim = wrap_dim(stack[2].toInt(), self.dim());
  TORCH_CHECK(n >= 0, "order must be non-negative but got ", n);
  Sizes sizes = self.sizes().vec();
  for (const size_t i : {size_t{3}, size_t{4}}) {
    if (!stack[i].isTensor()) continue;
    const at::Tensor more = tensor_at(stack, i);
    TORCH_CHECK(more.dim() == self.dim() && more.scalar_type() == self.scalar_type(),
                "diff expects prepend or append to be the same dimension and dtype as input");
    for (int64_t d = 0; d < self.dim(); ++d) {
      TORCH_CHECK(d == dim || more.size(d) == self.size(d),
                  "diff expects the shape of tensor to prepend or append ",
                  "to match that of input except along the differencing dimension");
    }
    sizes[dim] += more.size(dim);
  }
  sizes[dim] = std::max<int64_t>(0, sizes[dim] - n);
  add_cost(double(std::min<int64_t>(n, self.size(dim))) * self.numel(), 2.0 * self.nbytes());
  give(stack, sizes, self.scalar_type());
}

// count_nonzero(self, dim)
void count_nonzero(Stack& stack) {
  give(stack, reduced(tensor_at(stack, 0), dims_of(stack[1]), false), at::kLong);
}

// nansum, nanmean(self, dim, keepdim, *, dtype)
void nansum(Stack& stack) {
  const at::Tensor self = tensor_at(stack, 0);
  give(stack, reduced(self, dims_of(stack[1]), stack[2].toBool()),
       dtype_or(stack[3], as_sum(self.scalar_type())));
}
void nanmean(Stack& stack) {
  const at::Tensor self = tensor_at(stack, 0);
  TORCH_CHECK(at::isFloatingType(self.scalar_type()),
              "nanmean(): expected input to have floating point dtype");
  nansum(stack);
}

// logsumexp(self, dim, keepdim)
void logsumexp(Stack& stack) {
  const at::Tensor self = tensor_at(stack, 0);
  give(stack, reduced(self, dims_of(stack[1]), stack[2].toBool()), as_float(self.scalar_type()));
}

// quantile(self, q, dim, keepdim, *, interpolation); q: a number or a vector, which comes first.
void quantile(Stack& stack) {
  const at::Tensor self = tensor_at(stack, 0);
  TORCH_CHECK(at::isFloatingType(self.scalar_type()),
              "quantile() input tensor must be either float or double dtype");
  Sizes sizes = reduced(self, dims_of(stack[2]), stack[3].toBool());
  if (stack[1].isTensor() && stack[1].toTensor().dim() > 0) {
    sizes.insert(sizes.begin(), stack[1].toTensor().numel());
  }
  give(stack, sizes, self.scalar_type());
}

// var, std and their pairs: (self, bool unbiased), (self, dim, unbiased, keepdim) or
// (self, dim, *, correction, keepdim).
void spread(Stack& stack, bool with_mean) {
  const at::Tensor self = tensor_at(stack, 0);
  TORCH_CHECK(at::isFloatingType(self.scalar_type()),
              "std and var only support floating point dtypes");
  const bool all = stack.size() == 2;
  const Sizes sizes = all ? Sizes{} : reduced(self, dims_of(stack[1]), stack[3].toBool());
  const at::Tensor one = meta_of(sizes, self.scalar_type());
  if (!with_mean) return give(stack, {one});
  give(stack, {one, meta_of(sizes, self.scalar_type())});
}
void spread_one(Stack& stack) { spread(stack, false); }
void spread_and_mean(Stack& stack) { spread(stack, true); }

constexpr NamedShape kShapes[] = {
    {"aten::max", scalar},
    {"aten::min", scalar},
    {"aten::median", scalar},
    {"aten::nanmedian", scalar},
    {"aten::prod", prod},
    {"aten::trace", trace},
    {"aten::median.dim", median_dim},
    {"aten::nanmedian.dim", median_dim},
    {"aten::kthvalue", kthvalue},
    {"aten::cummax", scan_with_indices},
    {"aten::cummin", scan_with_indices},
    {"aten::logcumsumexp", scan},
    {"aten::diff", diff},
    {"aten::count_nonzero", count_nonzero},
    {"aten::count_nonzero.dim_IntList", count_nonzero},
    {"aten::nansum", nansum},
    {"aten::nanmean", nanmean},
    {"aten::logsumexp", logsumexp},
    {"aten::special_logsumexp", logsumexp},
    {"aten::quantile", quantile},
    {"aten::quantile.scalar", quantile},
    {"aten::nanquantile", quantile},
    {"aten::nanquantile.scalar", quantile},
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
};

}  // namespace

std::span<const NamedShape> reduction_shapes() { return kShapes; }

}  // namespace pellucid::program
