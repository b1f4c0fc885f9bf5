#include "model/mlp.h"

#include <ATen/ops/mul.h>

namespace pellucid::model {

using hook::Site;

at::Tensor run(const GatedMlp& mlp, Step& step, int layer, at::Tensor x_TD) {
  hook::Taps& taps = step.taps;
  x_TD = taps.at(Site::kMlpInput, layer, std::move(x_TD));
  const at::Tensor gate_TF = taps.at(Site::kMlpGate, layer, apply(mlp.gate, x_TD));
  const at::Tensor up_TF = taps.at(Site::kMlpUp, layer, apply(mlp.up, x_TD));
  const at::Tensor post_TF =
      taps.at(Site::kMlpPost, layer, at::mul(kernels::activate(mlp.activation, gate_TF), up_TF));
  return taps.at(Site::kMlpOut, layer, apply(mlp.down, post_TF));
}

at::Tensor run(const PlainMlp& mlp, Step& step, int layer, at::Tensor x_TD) {
  hook::Taps& taps = step.taps;
  x_TD = taps.at(Site::kMlpInput, layer, std::move(x_TD));
  const at::Tensor pre_TF = taps.at(Site::kMlpPre, layer, apply(mlp.in, x_TD));
  const at::Tensor post_TF =
      taps.at(Site::kMlpPost, layer, kernels::activate(mlp.activation, pre_TF));
  return taps.at(Site::kMlpOut, layer, apply(mlp.out, post_TF));
}

}  // namespace pellucid::model
