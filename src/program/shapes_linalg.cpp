// Shapes of products and linear algebra.
#include <ATen/ExpandUtils.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/result_type.h>

#include <algorithm>

#include "program/shape_functions.h"

namespace pellucid::program {
namespace {

void call_meta(Stack& stack, const char* name) {
  c10::Dispatcher::singleton().findSchemaOrThrow(name, "").callBoxed(&stack);
}

void dot(Stack& stack) {
  const at::Tensor a = tensor_at(stack, 0), b = tensor_at(stack, 1);
  TORCH_CHECK(a.dim() == 1 && b.dim() == 1, "1D tensors expected, but got ", a.dim(), "D and ",
              b.dim(), "D tensors");
  TORCH_CHECK(a.numel() == b.numel(), "inconsistent tensor size, expected tensor ", a.sizes(),
              " and src ", b.sizes(), " to have the same number of elements");
  TORCH_CHECK(a.scalar_type() == b.scalar_type(), "dot : expected both vectors to have same dtype");
  add_cost(2.0 * a.numel(), 0);
  give(stack, Sizes{}, a.scalar_type());
}

bool are_vectors(const Stack& stack) {
  return tensor_at(stack, 0).dim() == 1 && tensor_at(stack, 1).dim() == 1;
}
void matmul(Stack& stack) { are_vectors(stack) ? dot(stack) : call_meta(stack, "aten::matmul"); }
void linear(Stack& stack) {
  if (!are_vectors(stack)) return call_meta(stack, "aten::linear");
  const bool bias = stack[2].isTensor();
  const Sizes added = bias ? tensor_at(stack, 2).sizes().vec() : Sizes{};
  dot(stack);
  if (bias) give(stack, added, tensor_at(stack, 0).scalar_type());
}
void inner(Stack& stack) { are_vectors(stack) ? dot(stack) : call_meta(stack, "aten::inner"); }

// linalg_vecdot(x, y, *, dim)
void vecdot(Stack& stack) {
  const at::Tensor x = tensor_at(stack, 0), y = tensor_at(stack, 1);
  TORCH_CHECK(x.scalar_type() == y.scalar_type(),
              "linalg.vecdot: Expected x and y to have the same dtype");
  const at::Tensor both = meta_of(at::infer_size(x.sizes(), y.sizes()), x.scalar_type());
  add_cost(2.0 * both.numel(), 2.0 * both.nbytes());
  give(stack, reduced(both, {stack[2].toInt()}, false), at::result_type(x, y));
}

// tensordot(self, other, dims_self, dims_other)
void tensordot(Stack& stack) {
  const at::Tensor a = tensor_at(stack, 0), b = tensor_at(stack, 1);
  const Sizes of_a = dims_of(stack[2]), of_b = dims_of(stack[3]);
  TORCH_CHECK(of_a.size() == of_b.size(), "both dimension lists should have same length");
  TORCH_CHECK(a.scalar_type() == b.scalar_type(), "both inputs should have same dtype");
  std::vector<bool> gone_a(a.dim(), false), gone_b(b.dim(), false);
  double inner = 1;
  for (size_t i = 0; i < of_a.size(); ++i) {
    const int64_t da = wrap_dim(of_a[i], a.dim()), db = wrap_dim(of_b[i], b.dim());
    TORCH_CHECK(a.dim() > 0 && b.dim() > 0 && !gone_a[da] && !gone_b[db],
                "tensordot: a dimension appears twice, or a scalar has none");
    TORCH_CHECK(a.size(da) == b.size(db) || a.size(da) == 1 || b.size(db) == 1,
                "contracted dimensions need to match, but first has size ", a.size(da), " in dim ",
                da, " and second has size ", b.size(db), " in dim ", db);
    gone_a[da] = gone_b[db] = true;
    inner *= double(std::max(a.size(da), b.size(db)));
  }
  Sizes sizes;
  for (int64_t d = 0; d < a.dim(); ++d) {
    if (!gone_a[d]) sizes.push_back(a.size(d));
  }
  for (int64_t d = 0; d < b.dim(); ++d) {
    if (!gone_b[d]) sizes.push_back(b.size(d));
  }
  add_cost(2 * inner * double(c10::multiply_integers(sizes)),
           double(a.nbytes()) + double(b.nbytes()));
  give(stack, sizes, a.scalar_type());
}

// cdist(x1, x2, p, compute_mode)
void cdist(Stack& stack) {
  const at::Tensor a = tensor_at(stack, 0), b = tensor_at(stack, 1);
  TORCH_CHECK(a.dim() >= 2 && b.dim() >= 2 && a.size(-1) == b.size(-1), "cdist: X1 ", a.sizes(),
              " and X2 ", b.sizes(), " must have the same number of columns");
  Sizes sizes = at::infer_size(a.sizes().slice(0, a.dim() - 2), b.sizes().slice(0, b.dim() - 2));
  sizes.push_back(a.size(-2));
  sizes.push_back(b.size(-2));
  add_cost(3.0 * double(c10::multiply_integers(sizes)) * double(a.size(-1)),
           2.0 * (a.nbytes() + b.nbytes()));
  give(stack, sizes, c10::promoteTypes(a.scalar_type(), b.scalar_type()));
}

// addbmm(self, batch1, batch2, ...)
void addbmm(Stack& stack) {
  const at::Tensor self = tensor_at(stack, 0), a = tensor_at(stack, 1), b = tensor_at(stack, 2);
  TORCH_CHECK(a.dim() == 3 && b.dim() == 3 && a.size(0) == b.size(0) && a.size(2) == b.size(1),
              "addbmm: batch1 ", a.sizes(), " and batch2 ", b.sizes());
  const Sizes sizes{a.size(1), b.size(2)};
  TORCH_CHECK(at::is_expandable_to(self.sizes(), sizes), "addbmm: self ", self.sizes(),
              " cannot be expanded to ", at::IntArrayRef(sizes));
  add_cost(2.0 * a.numel() * double(b.size(2)), 0);
  give(stack, sizes, self.scalar_type());
}

void check_square(const at::Tensor& a) {
  TORCH_CHECK(a.dim() >= 2 && a.size(-1) == a.size(-2),
              "A must be batches of square matrices, but they are ", a.sizes());
}
void cube_cost(const at::Tensor& a, double factor) {
  add_cost(factor * a.numel() * double(std::max(a.size(-1), a.size(-2))), 4.0 * a.nbytes());
}

void square(Stack& stack) {
  check_square(tensor_at(stack, 0));
  cube_cost(tensor_at(stack, 0), 10);
  same_as_self(stack);
}

void logdet(Stack& stack) {
  const at::Tensor a = tensor_at(stack, 0);
  check_square(a);
  cube_cost(a, 2);
  give(stack, a.sizes().slice(0, a.dim() - 2), a.scalar_type());
}

void pinv(Stack& stack) {
  const at::Tensor a = tensor_at(stack, 0);
  TORCH_CHECK(a.dim() >= 2, "linalg.pinv: the input must be a matrix or batches of them, not ",
              a.sizes());
  cube_cost(a, 20);
  Sizes sizes = a.sizes().vec();
  std::swap(sizes[sizes.size() - 1], sizes[sizes.size() - 2]);
  give(stack, sizes, a.scalar_type());
}

// The batches of both, then the matrix of `right`.
void solve(Stack& stack, size_t right, size_t triangle) {
  const at::Tensor b = tensor_at(stack, right), a = tensor_at(stack, triangle);
  check_square(a);
  TORCH_CHECK(b.dim() >= 2, "the right-hand side must be a matrix or batches of them, not ",
              b.sizes());
  Sizes sizes = at::infer_size(a.sizes().slice(0, a.dim() - 2), b.sizes().slice(0, b.dim() - 2));
  sizes.push_back(b.size(-2));
  sizes.push_back(b.size(-1));
  add_cost(2.0 * double(c10::multiply_integers(sizes)) * double(a.size(-1)), 2.0 * a.nbytes());
  give(stack, sizes, b.scalar_type());
}
// cholesky_solve(B, L, upper)
void cholesky_solve(Stack& stack) {
  TORCH_CHECK(tensor_at(stack, 0).dim() >= 2 &&
                  tensor_at(stack, 0).size(-2) == tensor_at(stack, 1).size(-1),
              "cholesky_solve: ", tensor_at(stack, 0).sizes(), " for ",
              tensor_at(stack, 1).sizes());
  solve(stack, 0, 1);
}
// linalg_solve_triangular(A, B, *, upper, left, unitriangular)
void solve_triangular(Stack& stack) {
  const at::Tensor a = tensor_at(stack, 0), b = tensor_at(stack, 1);
  const bool left = stack[3].toBool();
  TORCH_CHECK(b.dim() >= 2 && a.dim() >= 2 && b.size(left ? -2 : -1) == a.size(-1),
              "linalg.solve_triangular: Incompatible shapes of A and B for the equation ",
              left ? "AX = B" : "XA = B", " (", a.sizes(), " and ", b.sizes(), ")");
  solve(stack, 1, 0);
}

constexpr NamedShape kShapes[] = {
    {"aten::dot", dot},
    {"aten::vdot", dot},
    {"aten::inner", inner},
    {"aten::linear", linear},
    {"aten::matmul", matmul},
    {"aten::linalg_matmul", matmul},
    {"aten::linalg_vecdot", vecdot},
    {"aten::tensordot", tensordot},
    {"aten::cdist", cdist},
    {"aten::addbmm", addbmm},
    {"aten::matrix_exp", square},
    {"aten::linalg_matrix_exp", square},
    {"aten::cholesky", square},
    {"aten::logdet", logdet},
    {"aten::pinverse", pinv},
    {"aten::linalg_pinv", pinv},
    {"aten::linalg_pinv.atol_rtol_float", pinv},
    {"aten::cholesky_solve", cholesky_solve},
    {"aten::linalg_solve_triangular", solve_triangular},
};

}  // namespace

std::span<const NamedShape> linalg_shapes() { return kShapes; }

}  // namespace pellucid::program
