#include "model/head.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>

#include "base/check.h"
#include "model/groups.h"

namespace pellucid::model {
namespace {

using hook::Site;

bool all_in_order(const at::Tensor& rows, int64_t count) {
  return rows.numel() == count && at::equal(rows, at::arange(count, rows.options()));
}

}  // namespace

at::Tensor first_rows(const Step& step, const at::Tensor& x_T) {
  const size_t active = num_active(step, 0);
  PELLUCID_CHECK(active > 0, "no group runs from the start");
  return x_T.narrow(0, 0, step.groups[active - 1].token_end());
}

at::Tensor run_blocks(Step& step, int num_layers, at::Tensor resid_TD,
                      const std::function<at::Tensor(int, at::Tensor)>& block) {
  PELLUCID_CHECK(step.layer_end >= 0 && step.layer_end <= num_layers, "layer_end {} of {}",
                 step.layer_end, num_layers);
  for (int layer = 0; layer < step.layer_end; ++layer) {
    if (step.poll) step.poll();
    resid_TD = enter(step, layer, resid_TD);
    resid_TD = step.taps.at(Site::kResidPre, layer, std::move(resid_TD));
    resid_TD = block(layer, std::move(resid_TD));
    resid_TD = step.taps.at(Site::kResidPost, layer, std::move(resid_TD));
  }
  return step.layer_end == num_layers ? enter(step, num_layers, resid_TD) : resid_TD;
}

at::Tensor run_head(Step& step, const Norm& norm, const Linear& unembed,
                    const at::Tensor& resid_TD) {
  if (!step.final_norm) return {};
  at::Tensor x_TD = apply_norm(norm, resid_TD, step.taps, kLnFinal, -1);
  if (!step.logit_rows.defined()) return {};
  if (!all_in_order(step.logit_rows, x_TD.size(0))) x_TD = x_TD.index_select(0, step.logit_rows);
  return step.taps.at(Site::kLogits, -1, apply(unembed, x_TD));
}

}  // namespace pellucid::model
