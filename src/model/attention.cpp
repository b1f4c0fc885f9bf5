#include "model/attention.h"

#include <ATen/ops/add.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/le.h>
#include <ATen/ops/logical_not.h>
#include <ATen/ops/masked_fill.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/sum.h>

#include <limits>

#include "kernels/linear.h"
#include "model/cache.h"

namespace pellucid::model {
namespace {

using hook::Site;

// [batch, seq, heads, width] of a group.
struct GroupHeads {
  at::Tensor q_BSNH, k_BPKH, v_BPKH;
};

// Each key/value head once for every query head that it serves: [B, N, P, H].
at::Tensor spread_heads(const at::Tensor& x_BPKH, int64_t num_heads) {
  const at::Tensor x_BKPH = x_BPKH.transpose(1, 2);
  const int64_t ratio = num_heads / x_BKPH.size(1);
  if (ratio == 1) return x_BKPH;
  return x_BKPH.unsqueeze(2)
      .expand({-1, -1, ratio, -1, -1})
      .reshape({x_BKPH.size(0), num_heads, x_BKPH.size(2), x_BKPH.size(3)});
}

// [S, P]: true where a query sees a key. Query s of this pass is at position past + s.
at::Tensor visible(int64_t seq, int64_t past, const at::Tensor& like) {
  const auto options = like.options().dtype(at::kLong);
  return at::le(at::arange(past + seq, options).unsqueeze(0),
                at::arange(past, past + seq, options).unsqueeze(1));
}

at::Tensor fused(const GroupHeads& heads, int64_t past, double scale) {
  const int64_t batch = heads.q_BSNH.size(0), seq = heads.q_BSNH.size(1);
  const int64_t num_heads = heads.q_BSNH.size(2), width = heads.q_BSNH.size(3);
  if (seq == 1) {
    // One query sees every key, so the query heads of a key/value head are as good as a sequence of
    // queries: no keys are copied.
    const int64_t num_kv_heads = heads.k_BPKH.size(2);
    const at::Tensor q_BKRH =
        heads.q_BSNH.reshape({batch, num_kv_heads, num_heads / num_kv_heads, width});
    return at::scaled_dot_product_attention(q_BKRH, heads.k_BPKH.transpose(1, 2),
                                            heads.v_BPKH.transpose(1, 2), {}, 0.0, false, scale)
        .reshape({batch, 1, num_heads, width});
  }
  // is_causal counts from the first key: right only without a past.
  std::optional<at::Tensor> mask;
  if (past > 0) mask = visible(seq, past, heads.q_BSNH);
  return at::scaled_dot_product_attention(
             heads.q_BSNH.transpose(1, 2), spread_heads(heads.k_BPKH, num_heads),
             spread_heads(heads.v_BPKH, num_heads), mask, 0.0, !mask.has_value(), scale)
      .transpose(1, 2);
}

at::Tensor masked_scores(const GroupHeads& heads, int64_t past, double scale) {
  const at::Tensor q_BNSH = heads.q_BSNH.transpose(1, 2);
  const at::Tensor k_BNPH = spread_heads(heads.k_BPKH, q_BNSH.size(1));
  const at::Tensor products = at::mul(at::matmul(q_BNSH, k_BNPH.transpose(2, 3)), scale);
  return at::masked_fill(products,
                         at::logical_not(visible(heads.q_BSNH.size(1), past, heads.q_BSNH)),
                         -std::numeric_limits<double>::infinity());
}

at::Tensor softmax_last(const at::Tensor& scores) {
  return at::softmax(scores, -1, wide(scores.scalar_type())).to(scores.scalar_type());
}

// The group's z, [B, S, N, H].
at::Tensor attend_group(Step& step, int layer, int group_index, const GroupHeads& heads,
                        double scale) {
  hook::Taps& taps = step.taps;
  const int64_t past = step.groups[group_index].past;
  const auto watched = [&](Site site) {
    return taps.reads(site, layer, group_index) || taps.writes(site, layer, group_index);
  };
  const bool scores_watched = watched(Site::kAttnScores);
  const bool pattern_watched = watched(Site::kAttnPattern);
  if (!scores_watched && !pattern_watched) return fused(heads, past, scale);

  // Whether a site is written is asked after it was seen: an eager trace learns it only then.
  const auto written = [&](Site site) { return taps.writes(site, layer, group_index); };
  at::Tensor scores = masked_scores(heads, past, scale);
  if (scores_watched) {
    const at::Tensor seen = taps.at_beside(Site::kAttnScores, layer, group_index, scores);
    if (written(Site::kAttnScores)) scores = seen;
  }
  at::Tensor pattern = softmax_last(scores);
  if (watched(Site::kAttnPattern)) {
    const at::Tensor seen = taps.at_beside(Site::kAttnPattern, layer, group_index, pattern);
    if (written(Site::kAttnPattern)) pattern = seen;
  }
  if (!written(Site::kAttnScores) && !written(Site::kAttnPattern)) return fused(heads, past, scale);
  return at::matmul(pattern, spread_heads(heads.v_BPKH, heads.q_BSNH.size(2))).transpose(1, 2);
}

// x: [B, S, N, in] with a matrix of its own for every head, weight: [N, in, out]. Returns
// [B, S, N, out].
at::Tensor multiply_heads(const at::Tensor& x_BSNI, const at::Tensor& weight_NIO) {
  const at::Tensor x_NTI = x_BSNI.flatten(0, 1).transpose(0, 1);
  const at::Tensor y_NTO = at::matmul(x_NTI, weight_NIO);
  return y_NTO.transpose(0, 1).reshape(
      {x_BSNI.size(0), x_BSNI.size(1), x_BSNI.size(2), weight_NIO.size(2)});
}

}  // namespace

at::Tensor apply(const Linear& linear, const at::Tensor& x) {
  return kernels::linear(x, linear.weight, linear.bias);
}

std::vector<Replacement> project_copies(Step& step, int layer, Site site,
                                        const at::Tensor& resid_TD, const Norm& norm,
                                        const Linear& projection, int64_t num_heads) {
  std::vector<Replacement> replacements;
  if (!step.taps.any(site, layer)) return replacements;
  const int64_t d_model = resid_TD.size(1);
  const at::Tensor weight_NHD = projection.weight.view({num_heads, -1, d_model});
  for (size_t i = 0; i < num_active(step, layer); ++i) {
    const int group_index = static_cast<int>(i);
    if (!step.taps.writes(site, layer, group_index) && !step.taps.reads(site, layer, group_index)) {
      continue;
    }
    const at::Tensor copies_BSND =
        group_rows(resid_TD, step.groups[i]).unsqueeze(2).expand({-1, -1, num_heads, -1});
    const at::Tensor seen = step.taps.at_beside(site, layer, group_index, copies_BSND);
    if (!step.taps.writes(site, layer, group_index)) continue;
    at::Tensor rows = multiply_heads(apply_norm(norm, seen), weight_NHD.transpose(1, 2));
    if (projection.bias.defined()) rows = at::add(rows, projection.bias.view({num_heads, -1}));
    replacements.push_back({i, rows});
  }
  return replacements;
}

at::Tensor attend(Step& step, int layer, const AttentionSizes& sizes, const at::Tensor& q_TNH,
                  const at::Tensor& k_TKH, const at::Tensor& v_TKH) {
  std::vector<at::Tensor> z_parts;
  const size_t active = num_active(step, layer);
  for (size_t i = 0; i < step.groups.size(); ++i) {
    const GroupSpan& group = step.groups[i];
    if (i >= active) {
      // Joins later: until then its keys and values are its leader's.
      if (group.cache == nullptr) continue;
      const GroupSpan& leader = step.groups[stand_in(step, i, layer)];
      append(group, layer, group_rows(k_TKH, leader), group_rows(v_TKH, leader));
      continue;
    }
    const KeysValues all = append(group, layer, group_rows(k_TKH, group), group_rows(v_TKH, group));
    const GroupHeads heads{group_rows(q_TNH, group), all.k_BPKH, all.v_BPKH};
    z_parts.push_back(attend_group(step, layer, static_cast<int>(i), heads, sizes.scale)
                          .reshape({group.tokens(), sizes.num_heads, sizes.head_width}));
  }
  return z_parts.size() == 1 ? z_parts[0].contiguous() : at::cat(z_parts);
}

at::Tensor project_out(Step& step, int layer, const at::Tensor& z_TNH, const Linear& projection) {
  at::Tensor out_TD = apply(projection, z_TNH.flatten(1, 2));
  if (!step.taps.any(Site::kAttnResult, layer)) return out_TD;
  const int64_t num_heads = z_TNH.size(1), width = z_TNH.size(2), d_model = out_TD.size(1);
  const at::Tensor weight_NHD =
      projection.weight.view({d_model, num_heads, width}).permute({1, 2, 0});
  std::vector<Replacement> replacements;
  for (size_t i = 0; i < num_active(step, layer); ++i) {
    const int group_index = static_cast<int>(i);
    if (!step.taps.writes(Site::kAttnResult, layer, group_index) &&
        !step.taps.reads(Site::kAttnResult, layer, group_index)) {
      continue;
    }
    const at::Tensor result_BSND = multiply_heads(group_rows(z_TNH, step.groups[i]), weight_NHD);
    const at::Tensor seen = step.taps.at_beside(Site::kAttnResult, layer, group_index, result_BSND);
    if (!step.taps.writes(Site::kAttnResult, layer, group_index)) continue;
    at::Tensor rows = at::sum(seen, {2});
    if (projection.bias.defined()) rows = at::add(rows, projection.bias);
    replacements.push_back({i, rows});
  }
  return replace_rows(step, out_TD, replacements);
}

}  // namespace pellucid::model
