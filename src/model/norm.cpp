#include "model/norm.h"

#include <ATen/ops/add.h>
#include <ATen/ops/div.h>
#include <ATen/ops/mean.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/sqrt.h>
#include <ATen/ops/sub.h>

namespace pellucid::model {
namespace {

at::Tensor mean_last(const at::Tensor& x) { return at::mean(x, {-1}, /*keepdim=*/true); }

struct NoTaps {
  at::Tensor at(hook::Site, int, at::Tensor x) { return x; }
};

// One formula for both, watched or not, so that watching changes no bit. Torch's fused norms would
// be faster but have no scale to show.
template <typename Taps>
at::Tensor compute(const Norm& norm, const at::Tensor& x, Taps& taps, const NormSites& sites,
                   int layer) {
  const at::ScalarType dtype = x.scalar_type();
  at::Tensor wide_x = x.to(wide(dtype));
  if (norm.kind == Norm::Kind::kLayer) wide_x = at::sub(wide_x, mean_last(wide_x));
  at::Tensor scale = at::sqrt(at::add(mean_last(at::mul(wide_x, wide_x)), norm.epsilon));
  scale = taps.at(sites.scale, layer, std::move(scale));
  at::Tensor normalized = at::div(wide_x, scale).to(dtype);
  normalized = taps.at(sites.normalized, layer, std::move(normalized));
  at::Tensor out = at::mul(normalized.to(wide(dtype)), norm.weight_D);
  if (norm.bias_D.defined()) out = at::add(out, norm.bias_D);
  return taps.at(sites.out, layer, out.to(dtype));
}

}  // namespace

at::ScalarType wide(at::ScalarType dtype) {
  return dtype == at::kDouble ? at::kDouble : at::kFloat;
}

at::Tensor apply_norm(const Norm& norm, const at::Tensor& x) {
  NoTaps taps;
  return compute(norm, x, taps, kLn1, -1);
}

at::Tensor apply_norm(const Norm& norm, const at::Tensor& x, hook::Taps& taps,
                      const NormSites& sites, int layer) {
  return compute(norm, x, taps, sites, layer);
}

}  // namespace pellucid::model
