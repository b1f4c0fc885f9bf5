#include "kernels/linear.h"

#include <ATen/Parallel.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/add.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/sin.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <tuple>
#include <vector>

#include "base/check.h"
#include "kernels/linear_routes.h"

namespace pellucid::kernels {
namespace {

// Measured (FIELD.md keeps the figures): MKL's classes of row counts are irregular, so its GEMM is
// always called with the same number of rows; bfloat16 has one class up to 32.
constexpr int64_t kTileRows = 16;
constexpr int64_t kTileRowsHalf = 32;

// oneDNN is called with at most this many rows, so that a probe covers every call. Fewer for huge
// weights (heads), to keep the probe short.
constexpr int64_t kRowsMax = 256;
constexpr int64_t kRowsMaxLarge = 64;
constexpr int64_t kLargeWeight = int64_t{1} << 23;

int64_t rows_max(int64_t numel) { return numel >= kLargeWeight ? kRowsMaxLarge : kRowsMax; }

at::Tensor onednn(const at::Tensor& x_MK, const at::Tensor& weight_NK) {
  using Signature = at::Tensor(
      const at::Tensor&, const at::Tensor&, const std::optional<at::Tensor>&, std::string_view,
      c10::List<std::optional<at::Scalar>>, std::optional<std::string_view>);
  static const auto op = c10::Dispatcher::singleton()
                             .findSchemaOrThrow("mkldnn::_linear_pointwise", "")
                             .typed<Signature>();
  return op.call(x_MK, weight_NK, std::nullopt, "none", c10::List<std::optional<at::Scalar>>(),
                 std::nullopt);
}

at::Tensor pad_rows(const at::Tensor& x_MK, int64_t rows) {
  return at::constant_pad_nd(x_MK, {0, 0, 0, rows - x_MK.size(0)});
}

}  // namespace

// The same mm call on [tile, K] for every tile; the last one is filled up with zeros.
at::Tensor linear_in_tiles(const at::Tensor& x_MK, const at::Tensor& weight_NK) {
  const bool half = x_MK.scalar_type() == at::kBFloat16 || x_MK.scalar_type() == at::kHalf;
  const int64_t tile = half ? kTileRowsHalf : kTileRows;
  const int64_t rows = x_MK.size(0);
  const at::Tensor weight_KN = weight_NK.t();
  std::vector<at::Tensor> parts;
  parts.reserve((rows + tile - 1) / tile);
  for (int64_t first = 0; first < rows; first += tile) {
    const int64_t count = std::min(tile, rows - first);
    const at::Tensor part = x_MK.narrow(0, first, count);
    parts.push_back(count == tile ? at::mm(part, weight_KN)
                                  : at::mm(pad_rows(part, tile), weight_KN).narrow(0, 0, count));
  }
  return parts.size() == 1 ? parts[0] : at::cat(parts);
}

at::Tensor linear_by_onednn(const at::Tensor& x_MK, const at::Tensor& weight_NK) {
  const int64_t rows = x_MK.size(0);
  const int64_t most = rows_max(weight_NK.numel());
  std::vector<at::Tensor> parts;
  for (int64_t first = 0; first < rows; first += most) {
    const int64_t count = std::min(most, rows - first);
    const at::Tensor part = x_MK.narrow(0, first, count);
    parts.push_back(count == 1 ? onednn(pad_rows(part, 2), weight_NK).narrow(0, 0, 1)
                               : onednn(part, weight_NK));
  }
  return parts.size() == 1 ? parts[0] : at::cat(parts);
}

namespace {

bool needs_grad(const at::Tensor& x, const at::Tensor& weight) {
  return at::GradMode::is_enabled() && (x.requires_grad() || weight.requires_grad());
}

// Is every count of rows from 2 up in one class? Two rows repeated, in batches of many sizes, must
// come out with the bits that they have as a pair.
bool one_class_of_rows(const at::Tensor& weight_NK) {
  constexpr int64_t kCounts[] = {3, 5, 16, 17, 33, 64, 100, 200, 256};
  const at::NoGradGuard no_grad;
  // Not random numbers: the caller's generator must not move.
  const at::Tensor numbers = at::arange(2 * weight_NK.size(1), weight_NK.options());
  const at::Tensor pair = at::sin(at::mul(numbers, 0.7)).view({2, -1});
  const at::Tensor want = onednn(pair, weight_NK);
  const int64_t most = rows_max(weight_NK.numel());
  const at::Tensor rows = pair.repeat({most / 2, 1});
  const at::Tensor want_rows = want.repeat({most / 2, 1});
  for (const int64_t count : kCounts) {
    if (count > most) break;
    const at::Tensor got = onednn(rows.narrow(0, 0, count), weight_NK);
    if (!at::equal(got, want_rows.narrow(0, 0, count))) return false;
  }
  return true;
}

}  // namespace

LinearRoute linear_route(const at::Tensor& weight) {
  if (weight.scalar_type() != at::kFloat || !weight.device().is_cpu() || !weight.is_contiguous() ||
      weight.numel() == 0) {
    return LinearRoute::kTiles;
  }
  // oneDNN divides the work by the number of threads, so a probe holds for that number only.
  static std::mutex mutex;
  static std::map<std::tuple<int64_t, int64_t, int>, bool> probed;
  const std::lock_guard lock(mutex);
  const auto key = std::make_tuple(weight.size(0), weight.size(1), at::get_num_threads());
  auto found = probed.find(key);
  if (found == probed.end()) found = probed.emplace(key, one_class_of_rows(weight)).first;
  return found->second ? LinearRoute::kOneDnn : LinearRoute::kTiles;
}

at::Tensor linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
  PELLUCID_CHECK(weight.dim() == 2 && x.dim() >= 1 && x.size(-1) == weight.size(1),
                 "linear: x has {} dimensions with {} last, weight {} with {} last", x.dim(),
                 x.dim() > 0 ? x.size(-1) : 0, weight.dim(), weight.size(-1));
  std::vector<int64_t> shape = x.sizes().vec();
  shape.back() = weight.size(0);
  const at::Tensor x_MK = x.reshape({-1, x.size(-1)}).contiguous();
  at::Tensor y_MN;
  if (x_MK.size(0) == 0) {
    y_MN = at::empty({0, weight.size(0)}, x.options());
  } else if (linear_route(weight) == LinearRoute::kOneDnn) {
    y_MN =
        needs_grad(x, weight) ? linear_with_gradient(x_MK, weight) : linear_by_onednn(x_MK, weight);
  } else {
    y_MN = linear_in_tiles(x_MK, weight);
  }
  if (bias.defined()) y_MN = at::add(y_MN, bias);
  return y_MN.view(shape);
}

}  // namespace pellucid::kernels
