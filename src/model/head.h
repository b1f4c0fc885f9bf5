#pragma once
// What every family does around its blocks: the loop, the last norm, the unembedding.
#include <ATen/core/Tensor.h>

#include <functional>

#include "model/attention.h"
#include "model/norm.h"
#include "model/step.h"

namespace pellucid::model {

/// The token ids (positions) of the groups that run from the start.
at::Tensor first_rows(const Step& step, const at::Tensor& x_T);

/// Runs `block(layer, resid_TD)` for blocks [0, step.layer_end): groups enter, `poll` is called,
/// resid_pre and resid_post fire around it. Groups that join after the last block are there in the
/// result.
at::Tensor run_blocks(Step& step, int num_layers, at::Tensor resid_TD,
                      const std::function<at::Tensor(int, at::Tensor)>& block);

/// The last norm and the head for step.logit_rows: [R, V], or undefined when nobody needs logits.
at::Tensor run_head(Step& step, const Norm& norm, const Linear& unembed,
                    const at::Tensor& resid_TD);

}  // namespace pellucid::model
