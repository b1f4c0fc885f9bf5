#pragma once
// The two feed-forward networks, with their sites from mlp.input to mlp.out.
#include <ATen/core/Tensor.h>

#include "kernels/activation.h"
#include "model/attention.h"
#include "model/step.h"

namespace pellucid::model {

/// down(act(gate(x)) * up(x)). x: [T, D], normed; same shape back.
struct GatedMlp {
  kernels::Activation activation;
  Linear gate, up, down;
};
at::Tensor run(const GatedMlp& mlp, Step& step, int layer, at::Tensor x_TD);

/// out(act(in(x))).
struct PlainMlp {
  kernels::Activation activation;
  Linear in, out;
};
at::Tensor run(const PlainMlp& mlp, Step& step, int layer, at::Tensor x_TD);

}  // namespace pellucid::model
