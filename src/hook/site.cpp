#include "hook/site.h"

#include <fmt/core.h>

#include "base/check.h"

namespace pellucid::hook {
namespace {

using enum Dim;
using enum Placement;
using enum Route;

constexpr SiteInfo make(Site site, std::string_view name, bool per_block, Route route,
                        Placement placement, std::initializer_list<Dim> dims,
                        std::string_view meaning, bool integer = false) {
  SiteInfo info{site, name, per_block, route, integer, placement, {}, 0, meaning};
  for (const Dim dim : dims) info.dims[info.num_dims++] = dim;
  return info;
}

constexpr bool kGlobal = false;
constexpr bool kBlock = true;

constexpr std::array<SiteInfo, kNumSites> kSites{{
    make(Site::kTokens, "tokens", kGlobal, kPacked, kReplicate, {kBatch, kSeq},
         "token ids of this pass; an edit changes what is embedded", true),
    make(Site::kEmbed, "embed", kGlobal, kPacked, kReplicate, {kBatch, kSeq, kModel},
         "token embeddings, after a family's scaling (Gemma) or norm (BLOOM), before positions"),
    make(Site::kPosEmbed, "pos_embed", kGlobal, kPacked, kReplicate, {kBatch, kSeq, kModel},
         "learned absolute position embeddings, one row a token; absent with rotary positions"),

    make(Site::kResidPre, "resid_pre", kBlock, kPacked, kReplicate, {kBatch, kSeq, kModel},
         "residual stream that enters the block"),
    make(Site::kAttnQResid, "attn.q_resid", kBlock, kBeside, kShardHeads,
         {kBatch, kSeq, kHeads, kModel},
         "residual before the norm as each query head sees it, one copy a head (path patching)"),
    make(Site::kAttnKResid, "attn.k_resid", kBlock, kBeside, kShardHeads,
         {kBatch, kSeq, kKvHeads, kModel}, "the same for each key head"),
    make(Site::kAttnVResid, "attn.v_resid", kBlock, kBeside, kShardHeads,
         {kBatch, kSeq, kKvHeads, kModel}, "the same for each value head"),
    make(Site::kLn1Scale, "ln1.scale", kBlock, kPacked, kReplicate, {kBatch, kSeq, kOne},
         "what the (centred) residual is divided by: its root mean square or standard deviation"),
    make(Site::kLn1Normalized, "ln1.normalized", kBlock, kPacked, kReplicate,
         {kBatch, kSeq, kModel}, "normalised residual before the norm's weight and bias"),
    make(Site::kLn1Out, "ln1.out", kBlock, kPacked, kReplicate, {kBatch, kSeq, kModel},
         "output of the norm, weight and bias applied"),
    make(Site::kAttnInput, "attn.input", kBlock, kPacked, kReplicate, {kBatch, kSeq, kModel},
         "what the q, k and v projections read: after the norm"),
    make(Site::kAttnQ, "attn.q", kBlock, kPacked, kShardHeads, {kBatch, kSeq, kHeads, kHeadWidth},
         "queries after the bias, before q-norm and rotary"),
    make(Site::kAttnK, "attn.k", kBlock, kPacked, kShardHeads, {kBatch, kSeq, kKvHeads, kHeadWidth},
         "keys after the bias, before k-norm and rotary"),
    make(Site::kAttnV, "attn.v", kBlock, kPacked, kShardHeads, {kBatch, kSeq, kKvHeads, kHeadWidth},
         "values after the bias"),
    make(Site::kAttnQNorm, "attn.q_norm", kBlock, kPacked, kShardHeads,
         {kBatch, kSeq, kHeads, kHeadWidth}, "queries after their own norm, before rotary"),
    make(Site::kAttnKNorm, "attn.k_norm", kBlock, kPacked, kShardHeads,
         {kBatch, kSeq, kKvHeads, kHeadWidth}, "keys after their own norm, before rotary"),
    make(Site::kAttnRotQ, "attn.rot_q", kBlock, kPacked, kShardHeads,
         {kBatch, kSeq, kHeads, kHeadWidth}, "queries after rotary"),
    make(Site::kAttnRotK, "attn.rot_k", kBlock, kPacked, kShardHeads,
         {kBatch, kSeq, kKvHeads, kHeadWidth},
         "keys after rotary, of this pass's positions: what the cache keeps"),
    make(Site::kAttnScores, "attn.scores", kBlock, kBeside, kShardHeads,
         {kBatch, kHeads, kSeq, kKeySeq},
         "scaled (and soft-capped) products of queries and keys, masked with -inf"),
    make(Site::kAttnPattern, "attn.pattern", kBlock, kBeside, kShardHeads,
         {kBatch, kHeads, kSeq, kKeySeq}, "softmax of the scores: attention probabilities"),
    make(Site::kAttnZ, "attn.z", kBlock, kPacked, kShardHeads, {kBatch, kSeq, kHeads, kHeadWidth},
         "attention-weighted values of each head: what the output projection reads"),
    make(Site::kAttnResult, "attn.result", kBlock, kBeside, kShardHeads,
         {kBatch, kSeq, kHeads, kModel},
         "each head's own contribution to attn.out; their sum plus the bias is attn.out"),
    make(Site::kAttnOut, "attn.out", kBlock, kPacked, kPartial, {kBatch, kSeq, kModel},
         "what attention computes: output projection with bias, before a post-norm"),
    make(Site::kAttnDelta, "attn.delta", kBlock, kPacked, kReplicate, {kBatch, kSeq, kModel},
         "what attention adds to the residual: attn.out, after a post-norm where there is one"),
    make(Site::kResidMid, "resid_mid", kBlock, kPacked, kReplicate, {kBatch, kSeq, kModel},
         "residual between attention and MLP; absent in parallel blocks"),
    make(Site::kMlpResid, "mlp.resid", kBlock, kPacked, kReplicate, {kBatch, kSeq, kModel},
         "the MLP branch's copy of the residual before the norm: an edit leaves the stream alone"),
    make(Site::kLn2Scale, "ln2.scale", kBlock, kPacked, kReplicate, {kBatch, kSeq, kOne},
         "what the (centred) residual is divided by in the MLP's norm"),
    make(Site::kLn2Normalized, "ln2.normalized", kBlock, kPacked, kReplicate,
         {kBatch, kSeq, kModel}, "normalised residual before the norm's weight and bias"),
    make(Site::kLn2Out, "ln2.out", kBlock, kPacked, kReplicate, {kBatch, kSeq, kModel},
         "output of the norm, weight and bias applied"),
    make(Site::kMlpInput, "mlp.input", kBlock, kPacked, kReplicate, {kBatch, kSeq, kModel},
         "what the MLP reads: after the norm (TransformerLens's mlp_in is mlp.resid)"),
    make(Site::kMlpGate, "mlp.gate", kBlock, kPacked, kShardMlp, {kBatch, kSeq, kMlp},
         "gated MLPs: input of the activation"),
    make(Site::kMlpUp, "mlp.up", kBlock, kPacked, kShardMlp, {kBatch, kSeq, kMlp},
         "gated MLPs: the factor that is not activated"),
    make(Site::kMlpPre, "mlp.pre", kBlock, kPacked, kShardMlp, {kBatch, kSeq, kMlp},
         "ungated MLPs: input of the activation"),
    make(Site::kMlpPost, "mlp.post", kBlock, kPacked, kShardMlp, {kBatch, kSeq, kMlp},
         "what the down projection reads: act(gate) * up, or act(pre)"),
    make(Site::kMlpOut, "mlp.out", kBlock, kPacked, kPartial, {kBatch, kSeq, kModel},
         "what the MLP computes: down projection with bias, before a post-norm"),
    make(Site::kMlpDelta, "mlp.delta", kBlock, kPacked, kReplicate, {kBatch, kSeq, kModel},
         "what the MLP adds to the residual: mlp.out, after a post-norm where there is one"),
    make(Site::kResidPost, "resid_post", kBlock, kPacked, kReplicate, {kBatch, kSeq, kModel},
         "residual stream that leaves the block, before any later norm"),

    make(Site::kLnFinalScale, "ln_final.scale", kGlobal, kPacked, kReplicate, {kBatch, kSeq, kOne},
         "what the (centred) residual is divided by in the last norm"),
    make(Site::kLnFinalNormalized, "ln_final.normalized", kGlobal, kPacked, kReplicate,
         {kBatch, kSeq, kModel}, "normalised residual before the last norm's weight and bias"),
    make(Site::kLnFinalOut, "ln_final.out", kGlobal, kPacked, kReplicate, {kBatch, kSeq, kModel},
         "output of the last norm: what the unembedding reads"),
    make(Site::kLogits, "logits", kGlobal, kPacked, kShardVocab, {kBatch, kSeq, kVocab},
         "scores over the vocabulary, after a family's soft cap; what sampling reads"),
}};

consteval bool listed_in_order() {
  for (int i = 0; i < kNumSites; ++i) {
    if (static_cast<int>(kSites[i].site) != i) return false;
  }
  return true;
}
static_assert(listed_in_order());

}  // namespace

const SiteInfo& site_info(Site site) { return kSites[static_cast<size_t>(site)]; }
std::span<const SiteInfo> all_sites() { return kSites; }

std::string_view dim_name(Dim dim) {
  constexpr std::string_view kNames[] = {"batch",   "seq",        "key_seq", "d_model", "head",
                                         "kv_head", "head_width", "d_mlp",   "vocab",   "1"};
  return kNames[static_cast<size_t>(dim)];
}

std::string_view placement_name(Placement placement) {
  constexpr std::string_view kNames[] = {"Replicate", "Shard(head)", "Shard(d_mlp)", "Shard(vocab)",
                                         "Partial(sum)"};
  return kNames[static_cast<size_t>(placement)];
}

int SiteKey::order(int num_layers) const {
  const int index = static_cast<int>(site);
  const int first = static_cast<int>(kFirstBlockSite);
  if (index < first) return index;
  if (index <= static_cast<int>(kLastBlockSite)) return index + layer * kSitesPerBlock;
  return index + (num_layers - 1) * kSitesPerBlock;
}

std::string site_name(SiteKey key) {
  const SiteInfo& info = site_info(key.site);
  return info.per_block ? fmt::format("blocks.{}.{}", key.layer, info.name)
                        : std::string(info.name);
}

int64_t SiteSizes::size(Dim dim, int64_t batch, int64_t seq, int64_t key_seq) const {
  switch (dim) {
    case Dim::kBatch:
      return batch;
    case Dim::kSeq:
      return seq;
    case Dim::kKeySeq:
      return key_seq;
    case Dim::kModel:
      return d_model;
    case Dim::kHeads:
      return num_heads;
    case Dim::kKvHeads:
      return num_kv_heads;
    case Dim::kHeadWidth:
      return head_width;
    case Dim::kMlp:
      return d_mlp;
    case Dim::kVocab:
      return vocab;
    case Dim::kOne:
      return 1;
  }
  PELLUCID_CHECK(false, "dimension {}", static_cast<int>(dim));
  return 0;
}

}  // namespace pellucid::hook
