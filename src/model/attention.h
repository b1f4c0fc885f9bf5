#pragma once
// Attention over the groups of a packed pass, and the sites that see single heads.
//
// The fused path runs group by group; what is only read (scores, patterns, results, residual
// copies) is computed beside it and never feeds it. A group that writes such a site goes the
// explicit way in that layer, alone.
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "hook/site.h"
#include "model/groups.h"
#include "model/norm.h"
#include "model/step.h"

namespace pellucid::model {

struct Linear {
  at::Tensor weight;  // [out, in]
  at::Tensor bias;    // [out] or undefined
};
at::Tensor apply(const Linear& linear, const at::Tensor& x);

struct AttentionSizes {
  int64_t num_heads = 0, num_kv_heads = 0, head_width = 0;
  double scale = 1.0;  // of the products of queries and keys
};

/// Fires q_resid, k_resid or v_resid (`site`), one copy of the residual a head. For groups that
/// write it: their rows of the projection, [batch, seq, heads, head_width], each head's copy normed
/// and multiplied by that head's rows. They do not see edits of ln1.* or attn.input.
std::vector<Replacement> project_copies(Step& step, int layer, hook::Site site,
                                        const at::Tensor& resid_TD, const Norm& norm,
                                        const Linear& projection, int64_t num_heads);

/// Causal attention of every active group over its cache and its own tokens; appends k and v to the
/// caches, also to those of groups that join later. q: [T, N, H], k and v: [T, K, H] after rotary.
/// Fires attn.scores and attn.pattern. Returns z: [T, N, H].
at::Tensor attend(Step& step, int layer, const AttentionSizes& sizes, const at::Tensor& q_TNH,
                  const at::Tensor& k_TKH, const at::Tensor& v_TKH);

/// The output projection, [T, D]. Fires attn.result.
at::Tensor project_out(Step& step, int layer, const at::Tensor& z_TNH, const Linear& projection);

}  // namespace pellucid::model
