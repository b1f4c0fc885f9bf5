#include "hook/common_aliases.h"

namespace pellucid::hook {
namespace {

constexpr Alias kCommon[] = {
    // TransformerLens, HookedTransformer.
    {"hook_tokens", Site::kTokens},
    {"hook_embed", Site::kEmbed},
    {"hook_pos_embed", Site::kPosEmbed},
    {"blocks.{i}.hook_resid_pre", Site::kResidPre},
    {"blocks.{i}.hook_q_input", Site::kAttnQResid},
    {"blocks.{i}.hook_k_input", Site::kAttnKResid},
    {"blocks.{i}.hook_v_input", Site::kAttnVResid},
    {"blocks.{i}.ln1.hook_scale", Site::kLn1Scale},
    {"blocks.{i}.ln1.hook_normalized", Site::kLn1Normalized},
    {"blocks.{i}.attn.hook_q", Site::kAttnQ},
    {"blocks.{i}.attn.hook_k", Site::kAttnK},
    {"blocks.{i}.attn.hook_v", Site::kAttnV},
    {"blocks.{i}.attn.hook_rot_q", Site::kAttnRotQ},
    {"blocks.{i}.attn.hook_rot_k", Site::kAttnRotK},
    {"blocks.{i}.attn.hook_attn_scores", Site::kAttnScores},
    {"blocks.{i}.attn.hook_pattern", Site::kAttnPattern},
    {"blocks.{i}.attn.hook_z", Site::kAttnZ},
    {"blocks.{i}.attn.hook_result", Site::kAttnResult},
    {"blocks.{i}.hook_attn_out", Site::kAttnDelta},
    {"blocks.{i}.hook_resid_mid", Site::kResidMid},
    {"blocks.{i}.hook_mlp_in", Site::kMlpResid},
    {"blocks.{i}.ln2.hook_scale", Site::kLn2Scale},
    {"blocks.{i}.ln2.hook_normalized", Site::kLn2Normalized},
    {"blocks.{i}.mlp.hook_pre", Site::kMlpGate},
    {"blocks.{i}.mlp.hook_pre", Site::kMlpPre},
    {"blocks.{i}.mlp.hook_pre_linear", Site::kMlpUp},
    {"blocks.{i}.mlp.hook_post", Site::kMlpPost},
    {"blocks.{i}.hook_mlp_out", Site::kMlpDelta},
    {"blocks.{i}.hook_resid_post", Site::kResidPost},
    {"ln_final.hook_scale", Site::kLnFinalScale},
    {"ln_final.hook_normalized", Site::kLnFinalNormalized},
    {"hook_unembed", Site::kLogits},
    // TransformerLens, TransformerBridge.
    {"embed.hook_in", Site::kTokens},
    {"embed.hook_out", Site::kEmbed},
    {"pos_embed.hook_out", Site::kPosEmbed},
    {"blocks.{i}.hook_in", Site::kResidPre},
    {"blocks.{i}.attn.hook_q_input", Site::kAttnQResid},
    {"blocks.{i}.attn.hook_k_input", Site::kAttnKResid},
    {"blocks.{i}.attn.hook_v_input", Site::kAttnVResid},
    {"blocks.{i}.ln1.hook_out", Site::kLn1Out},
    {"blocks.{i}.attn.hook_in", Site::kAttnInput},
    {"blocks.{i}.attn.q.hook_out", Site::kAttnQ},
    {"blocks.{i}.attn.k.hook_out", Site::kAttnK},
    {"blocks.{i}.attn.v.hook_out", Site::kAttnV},
    {"blocks.{i}.attn.q_norm.hook_out", Site::kAttnQNorm},
    {"blocks.{i}.attn.k_norm.hook_out", Site::kAttnKNorm},
    {"blocks.{i}.attn.o.hook_in", Site::kAttnZ},
    {"blocks.{i}.attn.hook_out", Site::kAttnOut},
    {"blocks.{i}.ln2.hook_in", Site::kResidMid},
    {"blocks.{i}.ln2.hook_out", Site::kLn2Out},
    {"blocks.{i}.mlp.hook_in", Site::kMlpInput},
    {"blocks.{i}.mlp.gate.hook_out", Site::kMlpGate},
    {"blocks.{i}.mlp.in.hook_out", Site::kMlpUp},
    {"blocks.{i}.mlp.in.hook_out", Site::kMlpPre},
    {"blocks.{i}.mlp.out.hook_in", Site::kMlpPost},
    {"blocks.{i}.mlp.hook_out", Site::kMlpOut},
    {"blocks.{i}.hook_out", Site::kResidPost},
    {"ln_final.hook_out", Site::kLnFinalOut},
    {"unembed.hook_in", Site::kLnFinalOut},
    {"unembed.hook_out", Site::kLogits},
    // nnterp.
    {"token_embeddings", Site::kEmbed},
    {"embed_tokens.output", Site::kEmbed},
    {"layers_input[{i}]", Site::kResidPre},
    {"layers_output[{i}]", Site::kResidPost},
    {"attentions_input[{i}]", Site::kAttnInput},
    {"attentions_output[{i}]", Site::kAttnDelta},
    {"attention_probabilities[{i}]", Site::kAttnPattern},
    {"mlps_input[{i}]", Site::kMlpInput},
    {"mlps_output[{i}]", Site::kMlpDelta},
    {"ln_final.output", Site::kLnFinalOut},
    {"lm_head.output", Site::kLogits},
    // llama.cpp's nodes.
    {"inp_embd", Site::kEmbed},
    {"attn_norm-{i}", Site::kLn1Out},
    {"Vcur-{i}", Site::kAttnV, true},
    {"kq_soft_max-{i}", Site::kAttnPattern},
    {"kqv_out-{i}", Site::kAttnZ, true},
    {"attn_out-{i}", Site::kAttnOut},
    {"ffn_inp-{i}", Site::kResidMid},
    {"ffn_norm-{i}", Site::kLn2Out},
    {"ffn_gate-{i}", Site::kMlpGate},
    {"ffn_up-{i}", Site::kMlpUp},
    {"ffn_up-{i}", Site::kMlpPre},
    {"ffn_out-{i}", Site::kMlpOut},
    {"l_out-{i}", Site::kResidPost},
    {"result_norm", Site::kLnFinalOut},
    {"result_output", Site::kLogits},
};

constexpr Refusal kRefused[] = {
    {"blocks.{i}.hook_attn_in",
     "one copy of the residual a head for q, k and v together: use blocks.{i}.attn.q_resid, "
     "attn.k_resid and attn.v_resid"},
    {"blocks.{i}.ln1.hook_in",
     "an edit there leaves the residual stream alone: read blocks.{i}.resid_pre, edit "
     "blocks.{i}.attn.q_resid, attn.k_resid and attn.v_resid"},
    {"Qcur-{i}",
     "llama.cpp uses the name before and after rotary: use blocks.{i}.attn.q or "
     "blocks.{i}.attn.rot_q"},
    {"Kcur-{i}",
     "llama.cpp uses the name before and after rotary: use blocks.{i}.attn.k or "
     "blocks.{i}.attn.rot_k"},
    {"kq-{i}", "products before scaling and mask: use blocks.{i}.attn.scores"},
};

}  // namespace

std::span<const Alias> common_aliases() { return kCommon; }
std::span<const Refusal> refused_names() { return kRefused; }

}  // namespace pellucid::hook
