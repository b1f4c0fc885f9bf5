#include <algorithm>

#include "program/ops.h"

namespace pellucid::program {
namespace {

// Kept off the list: what reads memory that is not its operands' (as_strided, set_, resize_,
// empty*), names that begin with `_`, random operations (they need the group's seed), and what has
// a size that only its numbers tell and nothing bounds (bincount, repeat_interleave with a tensor).
// In-place names are listed where the functional form is.
// clang-format off
constexpr std::string_view kAllowed[] = {
    // Arithmetic.
    "add.Scalar", "add.Tensor", "sub.Scalar", "sub.Tensor", "rsub.Scalar", "rsub.Tensor",
    "subtract.Scalar", "subtract.Tensor", "mul.Scalar", "mul.Tensor", "multiply.Scalar",
    "multiply.Tensor", "div.Scalar", "div.Scalar_mode", "div.Tensor", "div.Tensor_mode",
    "divide.Scalar", "divide.Scalar_mode", "divide.Tensor", "divide.Tensor_mode",
    "true_divide.Scalar", "true_divide.Tensor", "floor_divide", "floor_divide.Scalar",
    "remainder.Scalar", "remainder.Scalar_Tensor", "remainder.Tensor", "fmod.Scalar", "fmod.Tensor",
    "pow.Scalar", "pow.Tensor_Scalar", "pow.Tensor_Tensor", "float_power.Scalar",
    "float_power.Tensor_Scalar", "float_power.Tensor_Tensor", "neg", "negative", "abs", "absolute",
    "reciprocal", "square", "sqrt", "rsqrt", "exp", "exp2", "expm1", "log", "log2", "log10",
    "log1p", "sign", "sgn", "signbit", "floor", "ceil", "round", "round.decimals", "trunc", "fix",
    "frac", "sin", "cos", "tan", "asin", "acos", "atan", "atan2", "arctan2", "arcsin", "arccos",
    "arctan", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "hypot", "erf", "erfc", "erfinv",
    "lgamma", "digamma", "sinc", "logit", "logaddexp", "logaddexp2", "xlogy.Scalar_Other",
    "xlogy.Scalar_Self", "xlogy.Tensor", "maximum", "minimum", "fmax", "fmin", "clamp",
    "clamp.Tensor", "clamp_min", "clamp_min.Tensor", "clamp_max", "clamp_max.Tensor", "clip",
    "clip.Tensor", "lerp.Scalar", "lerp.Tensor", "addcmul", "addcdiv", "nan_to_num",
    "copysign.Scalar", "copysign.Tensor", "deg2rad", "rad2deg", "heaviside", "positive",
    "special_expit", "special_logit", "special_erf", "special_erfc", "special_log1p",
    "special_expm1", "special_exp2", "special_xlogy", "special_xlogy.other_scalar",
    "special_xlogy.self_scalar", "special_entr", "special_logsumexp", "special_softmax",
    "special_log_softmax", "special_sinc",
    // Comparison and logic.
    "eq.Scalar", "eq.Tensor", "ne.Scalar", "ne.Tensor", "lt.Scalar", "lt.Tensor", "le.Scalar",
    "le.Tensor", "gt.Scalar", "gt.Tensor", "ge.Scalar", "ge.Tensor", "greater.Scalar",
    "greater.Tensor", "less.Scalar", "less.Tensor", "greater_equal.Scalar", "greater_equal.Tensor",
    "less_equal.Scalar", "less_equal.Tensor", "not_equal.Scalar", "not_equal.Tensor", "isclose",
    "isnan", "isinf", "isfinite", "isposinf", "isneginf", "logical_and", "logical_or",
    "logical_xor", "logical_not", "bitwise_and.Scalar", "bitwise_and.Scalar_Tensor",
    "bitwise_and.Tensor", "bitwise_or.Scalar", "bitwise_or.Scalar_Tensor", "bitwise_or.Tensor",
    "bitwise_xor.Scalar", "bitwise_xor.Scalar_Tensor", "bitwise_xor.Tensor", "bitwise_not",
    "bitwise_left_shift.Scalar_Tensor", "bitwise_left_shift.Tensor",
    "bitwise_left_shift.Tensor_Scalar", "bitwise_right_shift.Scalar_Tensor",
    "bitwise_right_shift.Tensor", "bitwise_right_shift.Tensor_Scalar", "where.Scalar",
    "where.ScalarOther", "where.ScalarSelf", "where.self",
    // Reductions.
    "sum", "sum.dim_IntList", "mean", "mean.dim", "prod", "prod.dim_int", "any", "any.dim",
    "any.dims", "all", "all.dim", "all.dims", "amax", "amin", "aminmax", "max", "max.dim",
    "max.other", "min", "min.dim", "min.other", "argmax", "argmin", "std", "std.correction",
    "std.dim", "var", "var.correction", "var.dim", "std_mean", "std_mean.correction",
    "std_mean.dim", "var_mean", "var_mean.correction", "var_mean.dim", "norm.Scalar",
    "norm.ScalarOpt_dim", "norm.ScalarOpt_dim_dtype", "norm.ScalarOpt_dtype", "linalg_vector_norm",
    "logsumexp", "median", "median.dim", "nanmedian", "nanmedian.dim", "nansum", "nanmean",
    "quantile", "quantile.scalar", "nanquantile", "nanquantile.scalar", "count_nonzero",
    "count_nonzero.dim_IntList", "cumsum", "cumprod", "cummax", "cummin", "logcumsumexp", "trace",
    "dist", "diff",
    // Softmax.
    "softmax.int", "log_softmax.int",
    // Matrix products.
    "matmul", "mm", "bmm", "mv", "dot", "vdot", "inner", "outer", "ger", "addmm", "addmv", "addr",
    "addbmm", "baddbmm", "einsum", "tensordot", "linear", "bilinear", "linalg_multi_dot", "kron",
    "cross", "linalg_cross", "linalg_matmul", "linalg_vecdot", "cdist", "pairwise_distance",
    "cosine_similarity", "matrix_power", "linalg_matrix_power", "matrix_exp", "linalg_matrix_exp",
    // Linear algebra.
    "linalg_norm", "linalg_norm.ord_str", "linalg_matrix_norm", "linalg_matrix_norm.str_ord",
    "linalg_inv", "inverse", "linalg_det", "det", "logdet", "slogdet", "linalg_slogdet",
    "linalg_svd", "linalg_svdvals", "linalg_qr", "linalg_eigh", "linalg_eigvalsh", "linalg_solve",
    "linalg_solve_triangular", "linalg_pinv", "linalg_pinv.atol_rtol_float",
    "pinverse", "linalg_cholesky",
    "cholesky", "cholesky_solve", "linalg_diagonal", "linalg_vander",
    // Networks.
    "layer_norm", "rms_norm", "group_norm", "batch_norm", "scaled_dot_product_attention",
    "embedding", "conv1d", "conv1d.padding", "conv2d", "conv2d.padding", "conv3d", "conv3d.padding",
    "conv_transpose1d", "dropout", "max_pool1d", "avg_pool1d", "adaptive_avg_pool1d",
    "adaptive_avg_pool2d", "pad", "constant_pad_nd", "pixel_shuffle", "glu",
    // Activations.
    "relu", "relu6", "gelu", "silu", "mish", "sigmoid", "elu", "selu", "celu", "leaky_relu",
    "prelu", "softplus", "hardtanh", "hardsigmoid", "hardswish", "threshold", "log_sigmoid",
    "hardshrink", "softshrink",
    // Losses.
    "mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "cross_entropy_loss", "nll_loss",
    "nll_loss_nd", "kl_div", "binary_cross_entropy", "binary_cross_entropy_with_logits",
    "cosine_embedding_loss", "margin_ranking_loss", "triplet_margin_loss", "hinge_embedding_loss",
    "soft_margin_loss", "poisson_nll_loss",
    // Selecting.
    "select.int", "slice.Tensor", "narrow", "index.Tensor", "index_select", "gather",
    "scatter.reduce", "scatter.src", "scatter.value", "scatter.value_reduce", "scatter_add",
    "scatter_reduce.two", "index_put", "index_add", "index_copy", "index_fill.int_Scalar",
    "index_fill.int_Tensor", "index_reduce", "masked_fill.Scalar", "masked_fill.Tensor",
    "masked_select", "masked_scatter", "nonzero", "take", "take_along_dim", "select_scatter",
    "slice_scatter", "diagonal_scatter", "topk", "sort", "sort.stable", "argsort", "argsort.stable",
    "msort", "kthvalue", "searchsorted.Scalar", "searchsorted.Tensor", "bucketize.Scalar",
    "bucketize.Tensor", "one_hot", "isin.Tensor_Tensor",
    // Shape.
    "view", "view_as", "reshape", "reshape_as", "flatten.using_ints", "ravel", "unflatten.int",
    "permute", "transpose.int", "swapaxes", "swapdims", "t", "mT", "numpy_T", "unsqueeze",
    "squeeze", "squeeze.dim", "squeeze.dims", "expand", "expand_as", "broadcast_to",
    "broadcast_tensors", "repeat", "tile", "repeat_interleave.self_int", "cat", "concat",
    "concatenate", "stack", "hstack", "vstack", "dstack", "column_stack", "row_stack", 
    "split.Tensor", "split.sizes", "split_with_sizes", "chunk", "tensor_split.indices",
    "tensor_split.sections", "hsplit.array", "hsplit.int", "vsplit.array", "vsplit.int",
    "dsplit.array", "dsplit.int", "unbind.int", "movedim.int", "movedim.intlist", "moveaxis.int",
    "moveaxis.intlist", "roll", "flip", "fliplr", "flipud", "rot90", "tril", "triu", "diagonal",
    "diag", "diag_embed", "diagflat", "unfold", "meshgrid", "meshgrid.indexing", "cartesian_prod",
    "block_diag", "atleast_1d", "atleast_2d", "atleast_3d", "sum_to_size",
    // Making.
    "zeros", "ones", "full", "arange", "arange.start", "arange.start_step", "linspace", "logspace",
    "eye", "eye.m", "zeros_like", "ones_like", "full_like", "new_zeros", "new_ones", "new_full",
    "scalar_tensor", "tril_indices", "triu_indices",
    // Dtype and copies.
    "to.dtype", "to.dtype_layout", "to.other", "type_as", "clone", "contiguous", "detach", "alias",
    // In place.
    "add_.Scalar", "add_.Tensor", "sub_.Scalar", "sub_.Tensor", "mul_.Scalar", "mul_.Tensor",
    "div_.Scalar", "div_.Scalar_mode", "div_.Tensor", "div_.Tensor_mode", "pow_.Scalar",
    "pow_.Tensor", "remainder_.Scalar", "remainder_.Tensor", "fmod_.Scalar", "fmod_.Tensor",
    "floor_divide_.Scalar", "floor_divide_.Tensor", "neg_", "abs_", "reciprocal_", "square_",
    "sqrt_", "rsqrt_", "exp_", "exp2_", "expm1_", "log_", "log2_", "log10_", "log1p_", "sign_",
    "floor_", "ceil_", "round_", "round_.decimals", "trunc_", "frac_", "sin_", "cos_", "tan_",
    "tanh_", "erf_", "sigmoid_", "relu_", "relu6_", "silu_", "mish_", "gelu_", "elu_", "selu_",
    "celu_", "leaky_relu_", "hardtanh_", "hardsigmoid_", "hardswish_", "threshold_", "clamp_",
    "clamp_.Tensor", "clamp_min_", "clamp_min_.Tensor", "clamp_max_", "clamp_max_.Tensor", "clip_",
    "clip_.Tensor", "lerp_.Scalar", "lerp_.Tensor", "addcmul_", "addcdiv_", "nan_to_num_",
    "eq_.Scalar", "eq_.Tensor", "ne_.Scalar", "ne_.Tensor", "lt_.Scalar", "lt_.Tensor",
    "le_.Scalar", "le_.Tensor", "gt_.Scalar", "gt_.Tensor", "ge_.Scalar", "ge_.Tensor",
    "logical_and_", "logical_or_", "logical_xor_", "logical_not_", "bitwise_and_.Scalar",
    "bitwise_and_.Tensor", "bitwise_or_.Scalar", "bitwise_or_.Tensor", "bitwise_xor_.Scalar",
    "bitwise_xor_.Tensor", "bitwise_not_", "cumsum_", "cumprod_", "addmm_", "addmv_", "addr_",
    "baddbmm_", "tril_", "triu_", "copy_", "fill_.Scalar", "fill_.Tensor", "zero_",
    "fill_diagonal_", "masked_fill_.Scalar", "masked_fill_.Tensor", "masked_scatter_", "index_put_",
    "index_add_", "index_copy_", "index_fill_.int_Scalar", "index_fill_.int_Tensor",
    "index_reduce_", "scatter_.reduce", "scatter_.src", "scatter_.value", "scatter_.value_reduce",
    "scatter_add_", "scatter_reduce_.two", "xlogy_.Scalar_Other", "xlogy_.Tensor",
    "copysign_.Scalar", "copysign_.Tensor", "hypot_", "multiply_.Scalar", "multiply_.Tensor",
    "subtract_.Scalar", "subtract_.Tensor", "divide_.Scalar", "divide_.Scalar_mode",
    "divide_.Tensor", "divide_.Tensor_mode", "true_divide_.Scalar", "true_divide_.Tensor",
    "negative_", "absolute_", "float_power_.Scalar", "float_power_.Tensor",
};
// clang-format on

}  // namespace

std::span<const std::string_view> allowed_operations() { return kAllowed; }

}  // namespace pellucid::program
