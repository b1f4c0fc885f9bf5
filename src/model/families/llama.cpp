// Llama and models of its shape: RMSNorm, rotary positions, grouped heads, a gated MLP.
#include <ATen/ops/add.h>
#include <ATen/ops/embedding.h>

#include <cmath>

#include "base/check.h"
#include "model/attention.h"
#include "model/config.h"
#include "model/describe.h"
#include "model/families.h"
#include "model/groups.h"
#include "model/head.h"
#include "model/mlp.h"
#include "model/norm.h"
#include "model/rope.h"
#include "model/weights.h"

namespace pellucid::model {
namespace {

using hook::Site;
using Layout = WeightPlan::Layout;

// ---- config

struct Config {
  hook::SiteSizes sizes;
  int64_t context_length = 0;
  double norm_epsilon = 1e-6;
  kernels::Activation activation = kernels::Activation::kSilu;
  bool attention_bias = false, mlp_bias = false, tied_head = false;
  RopeConfig rope;
};

constexpr int64_t kLayersMax = 4096;
constexpr int64_t kHeadsMax = 1 << 16;

Status check_heads(const Fields& fields, const hook::SiteSizes& sizes) {
  if (sizes.num_heads % sizes.num_kv_heads == 0) return ok_status();
  return error(Code::kCorruptFile, "", "{}: {} query heads are no multiple of {} key/value heads",
               fields.where(), sizes.num_heads, sizes.num_kv_heads);
}

Result<Config> config_from_json(Fields fields) {
  Config config;
  hook::SiteSizes& sizes = config.sizes;
  PELLUCID_ASSIGN(sizes.num_layers, fields.size("num_hidden_layers", kLayersMax));
  PELLUCID_ASSIGN(sizes.d_model, fields.size("hidden_size"));
  PELLUCID_ASSIGN(sizes.num_heads, fields.size("num_attention_heads", kHeadsMax));
  sizes.num_kv_heads = sizes.num_heads;
  if (fields.has("num_key_value_heads")) {
    PELLUCID_ASSIGN(sizes.num_kv_heads, fields.size("num_key_value_heads", kHeadsMax));
  }
  PELLUCID_TRY(check_heads(fields, sizes));
  if (fields.has("head_dim")) {
    PELLUCID_ASSIGN(sizes.head_width, fields.size("head_dim"));
  } else if (sizes.d_model % sizes.num_heads == 0) {
    sizes.head_width = sizes.d_model / sizes.num_heads;
  } else {
    return error(Code::kCorruptFile, "", "{}: hidden_size {} is no multiple of {} heads",
                 fields.where(), sizes.d_model, sizes.num_heads);
  }
  PELLUCID_ASSIGN(sizes.d_mlp, fields.size("intermediate_size"));
  PELLUCID_ASSIGN(sizes.vocab, fields.size("vocab_size"));
  // transformers' LlamaConfig's own defaults where a field is missing.
  PELLUCID_ASSIGN(config.context_length, fields.integer_or("max_position_embeddings", 2048));
  PELLUCID_ASSIGN(config.norm_epsilon, fields.number_or("rms_norm_eps", 1e-6));
  PELLUCID_ASSIGN(const std::string act, fields.text_or("hidden_act", "silu"));
  PELLUCID_ASSIGN(config.activation, kernels::activation_from_name(act));
  PELLUCID_ASSIGN(config.attention_bias, fields.boolean_or("attention_bias", false));
  PELLUCID_ASSIGN(config.mlp_bias, fields.boolean_or("mlp_bias", false));
  PELLUCID_ASSIGN(config.tied_head, fields.boolean_or("tie_word_embeddings", false));
  PELLUCID_ASSIGN(config.rope, rope_from_json(fields, sizes.head_width, config.context_length));
  PELLUCID_TRY(fields.refuse_unknown({}));
  return config;
}

constexpr std::string_view kIgnorableGguf[] = {
    "block_count",
    "rope.scaling.finetuned",
    "tensor_data_layout",
};

Result<Config> config_from_gguf(const tensor::ModelFiles& files, Fields fields) {
  Config config;
  hook::SiteSizes& sizes = config.sizes;
  PELLUCID_ASSIGN(sizes.num_layers, fields.size("block_count", kLayersMax));
  PELLUCID_ASSIGN(sizes.d_model, fields.size("embedding_length"));
  PELLUCID_ASSIGN(sizes.num_heads, fields.size("attention.head_count", kHeadsMax));
  sizes.num_kv_heads = sizes.num_heads;
  if (fields.has("attention.head_count_kv")) {
    PELLUCID_ASSIGN(sizes.num_kv_heads, fields.size("attention.head_count_kv", kHeadsMax));
  }
  PELLUCID_TRY(check_heads(fields, sizes));
  PELLUCID_ASSIGN(sizes.head_width,
                  fields.integer_or("attention.key_length", sizes.d_model / sizes.num_heads));
  PELLUCID_TRY(fields.require("attention.value_length", sizes.head_width));
  if (sizes.head_width < 1 || sizes.head_width > sizes.d_model * sizes.num_heads) {
    return error(Code::kCorruptFile, "", "{}: heads of width {}", fields.where(), sizes.head_width);
  }
  PELLUCID_ASSIGN(sizes.d_mlp, fields.size("feed_forward_length"));
  PELLUCID_ASSIGN(config.context_length, fields.size("context_length", int64_t{1} << 40));
  PELLUCID_ASSIGN(config.norm_epsilon, fields.number("attention.layer_norm_rms_epsilon"));
  PELLUCID_ASSIGN(config.rope, rope_from_gguf(fields, sizes.head_width, config.context_length));
  // The number of rows of the embedding counts; the field is often missing.
  const auto* embedding = files.weights->find("token_embd.weight");
  if (embedding == nullptr || embedding->shape.empty()) {
    return error(Code::kNotFound, "", "{} has no tensor token_embd.weight", fields.where());
  }
  sizes.vocab = embedding->shape[0];
  PELLUCID_TRY(fields.require("vocab_size", sizes.vocab));
  PELLUCID_TRY(fields.require("expert_count", int64_t{0}));
  PELLUCID_TRY(fields.require("expert_used_count", int64_t{0}));
  PELLUCID_TRY(fields.require("use_parallel_residual", false));
  config.tied_head = files.weights->find("output.weight") == nullptr;
  config.attention_bias = files.weights->find("blk.0.attn_q.bias") != nullptr;
  config.mlp_bias = files.weights->find("blk.0.ffn_up.bias") != nullptr;
  PELLUCID_TRY(fields.refuse_unknown(kIgnorableGguf));
  return config;
}

// ---- weights

struct Block {
  Norm ln1, ln2;
  Linear q, k, v, o;
  GatedMlp mlp;
};

// Names in the two kinds of files.
struct Names {
  std::string_view block, q, k, v, o, ln1, ln2, gate, up, down, embed, ln_final, unembed;
};
constexpr Names kHf{
    "model.layers.{}.", "self_attn.q_proj", "self_attn.k_proj",         "self_attn.v_proj",
    "self_attn.o_proj", "input_layernorm",  "post_attention_layernorm", "mlp.gate_proj",
    "mlp.up_proj",      "mlp.down_proj",    "model.embed_tokens",       "model.norm",
    "lm_head"};
constexpr Names kGguf{"blk.{}.",    "attn_q",      "attn_k",   "attn_v", "attn_output",
                      "attn_norm",  "ffn_norm",    "ffn_gate", "ffn_up", "ffn_down",
                      "token_embd", "output_norm", "output"};

constexpr std::string_view kIgnorableTensors[] = {"*.rotary_emb.inv_freq"};
// A head that repeats the embedding, or one that a tied config makes meaningless.
constexpr std::string_view kIgnorableTied[] = {"*.rotary_emb.inv_freq", "lm_head.weight"};

// ---- the model

class Llama final : public Model {
 public:
  explicit Llama(Config config) : config_(std::move(config)) {}

  Status load(const tensor::ModelFiles& files, const LoadOptions& options);
  at::Tensor forward(Step& step) const override;
  at::Tensor final_norm(const at::Tensor& x) const override { return apply_norm(ln_final_, x); }
  at::Tensor unembed(const at::Tensor& x) const override { return apply(unembed_, x); }

 private:
  std::vector<WeightPlan> plan(const Names& names, bool interleaved);
  void name_weights();
  at::Tensor run_block(Step& step, int layer, const RotaryTable& rotary, at::Tensor resid_TD) const;
  at::Tensor attention(Step& step, int layer, const RotaryTable& rotary,
                       const at::Tensor& resid_TD) const;

  Config config_;
  at::Tensor embed_VD_;
  std::vector<Block> blocks_;
  Norm ln_final_;
  Linear unembed_;
};

std::vector<WeightPlan> Llama::plan(const Names& names, bool interleaved) {
  const hook::SiteSizes& sizes = config_.sizes;
  const int64_t d = sizes.d_model, f = sizes.d_mlp;
  const int64_t q = sizes.num_heads * sizes.head_width, k = sizes.num_kv_heads * sizes.head_width;
  std::vector<WeightPlan> plans;
  const auto add = [&](std::string name, std::vector<int64_t> shape, at::Tensor& target,
                       int64_t interleaved_heads = 0) {
    plans.push_back({std::move(name), std::move(shape), &target,
                     interleaved_heads > 0 ? Layout::kInterleaved : Layout::kPlain,
                     interleaved_heads});
  };
  const auto add_linear = [&](const std::string& name, int64_t out, int64_t in, Linear& target,
                              bool bias, int64_t interleaved_heads = 0) {
    add(name + ".weight", {out, in}, target.weight, interleaved_heads);
    if (bias) add(name + ".bias", {out}, target.bias, interleaved_heads);
  };
  add(std::string(names.embed) + ".weight", {sizes.vocab, d}, embed_VD_);
  for (size_t i = 0; i < blocks_.size(); ++i) {
    Block& block = blocks_[i];
    const std::string prefix = fmt::format(fmt::runtime(names.block), i);
    const auto at = [&](std::string_view name) { return prefix + std::string(name); };
    const bool bias = config_.attention_bias;
    add(at(names.ln1) + ".weight", {d}, block.ln1.weight_D);
    add_linear(at(names.q), q, d, block.q, bias, interleaved ? sizes.num_heads : 0);
    add_linear(at(names.k), k, d, block.k, bias, interleaved ? sizes.num_kv_heads : 0);
    add_linear(at(names.v), k, d, block.v, bias);
    add_linear(at(names.o), d, q, block.o, bias);
    add(at(names.ln2) + ".weight", {d}, block.ln2.weight_D);
    add_linear(at(names.gate), f, d, block.mlp.gate, config_.mlp_bias);
    add_linear(at(names.up), f, d, block.mlp.up, config_.mlp_bias);
    add_linear(at(names.down), d, f, block.mlp.down, config_.mlp_bias);
  }
  add(std::string(names.ln_final) + ".weight", {d}, ln_final_.weight_D);
  if (!config_.tied_head) add_linear(std::string(names.unembed), sizes.vocab, d, unembed_, false);
  return plans;
}

Status Llama::load(const tensor::ModelFiles& files, const LoadOptions& options) {
  blocks_.resize(static_cast<size_t>(config_.sizes.num_layers));
  for (Block& block : blocks_) {
    block.ln1.epsilon = block.ln2.epsilon = config_.norm_epsilon;
    block.mlp.activation = config_.activation;
  }
  ln_final_.epsilon = config_.norm_epsilon;
  std::vector<WeightPlan> plans = plan(files.is_gguf ? kGguf : kHf, files.is_gguf);
  // Llama 3.1's scaling comes as a tensor in GGUF files.
  at::Tensor factors;
  if (files.is_gguf && files.weights->find("rope_freqs.weight") != nullptr) {
    plans.push_back({.source = "rope_freqs.weight",
                     .shape = {config_.sizes.head_width / 2},
                     .target = &factors,
                     .dtype = at::kDouble});
  }
  PELLUCID_TRY(load_weights(files, plans,
                            config_.tied_head
                                ? std::span(kIgnorableTied).first(2)
                                : std::span<const std::string_view>(kIgnorableTensors),
                            options));
  if (factors.defined()) {
    if (config_.rope.kind != RopeConfig::Kind::kDefault) {
      return error(Code::kUnsupported, "", "{}: rope_freqs.weight beside another rotary scaling",
                   files.path.string());
    }
    config_.rope.kind = RopeConfig::Kind::kFactors;
    const double* data = factors.const_data_ptr<double>();
    config_.rope.factors.assign(data, data + factors.numel());
    for (const double factor : config_.rope.factors) {
      if (factor > 0) continue;
      return error(Code::kCorruptFile, "", "{}: a rotary factor is {}", files.path.string(),
                   factor);
    }
  }
  if (config_.tied_head) unembed_.weight = embed_VD_;
  name_weights();
  describe(files, options, kLlama, config_.sizes, plans,
           {Site::kPosEmbed, Site::kAttnQNorm, Site::kAttnKNorm, Site::kMlpPre}, info_, catalog_);
  info_.context_length = config_.context_length;
  info_.tied_head = config_.tied_head;
  return ok_status();
}

void Llama::name_weights() {
  const hook::SiteSizes& sizes = config_.sizes;
  WeightNames names(named_weights_);
  names.add("embed", embed_VD_);
  for (size_t i = 0; i < blocks_.size(); ++i) {
    const Block& block = blocks_[i];
    const std::string prefix = fmt::format("blocks.{}.", i);
    names.add(prefix + "ln1", block.ln1);
    names.add_heads(prefix + "attn.q", block.q, sizes.num_heads);
    names.add_heads(prefix + "attn.k", block.k, sizes.num_kv_heads);
    names.add_heads(prefix + "attn.v", block.v, sizes.num_kv_heads);
    names.add_out_heads(prefix + "attn.o", block.o, sizes.num_heads);
    names.add(prefix + "ln2", block.ln2);
    names.add(prefix + "mlp.gate", block.mlp.gate);
    names.add(prefix + "mlp.up", block.mlp.up);
    names.add(prefix + "mlp.down", block.mlp.down);
  }
  names.add("ln_final", ln_final_);
  names.add("unembed", unembed_);
}

// ---- maths

at::Tensor Llama::forward(Step& step) const {
  const at::Tensor tokens_T = step.taps.at(Site::kTokens, -1, first_rows(step, step.tokens_T));
  at::Tensor resid_TD = at::embedding(embed_VD_, tokens_T);
  resid_TD = step.taps.at(Site::kEmbed, -1, std::move(resid_TD));
  const RotaryTable rotary = rotary_table(config_.rope, step, wide(info_.dtype));
  resid_TD = run_blocks(
      step, static_cast<int>(blocks_.size()), std::move(resid_TD),
      [&](int layer, at::Tensor x_TD) { return run_block(step, layer, rotary, std::move(x_TD)); });
  return run_head(step, ln_final_, unembed_, resid_TD);
}

at::Tensor Llama::run_block(Step& step, int layer, const RotaryTable& rotary,
                            at::Tensor resid_TD) const {
  const Block& block = blocks_[layer];
  at::Tensor delta_TD = attention(step, layer, rotary, resid_TD);
  delta_TD = step.taps.at(Site::kAttnDelta, layer, std::move(delta_TD));
  resid_TD = at::add(resid_TD, delta_TD);
  resid_TD = step.taps.at(Site::kResidMid, layer, std::move(resid_TD));
  const at::Tensor branch_TD = step.taps.at(Site::kMlpResid, layer, resid_TD);
  delta_TD = run(block.mlp, step, layer, apply_norm(block.ln2, branch_TD, step.taps, kLn2, layer));
  delta_TD = step.taps.at(Site::kMlpDelta, layer, std::move(delta_TD));
  return at::add(resid_TD, delta_TD);
}

at::Tensor Llama::attention(Step& step, int layer, const RotaryTable& rotary,
                            const at::Tensor& resid_TD) const {
  const Block& block = blocks_[layer];
  const hook::SiteSizes& sizes = config_.sizes;
  hook::Taps& taps = step.taps;
  const auto copies = [&](Site site, const Linear& projection, int64_t num_heads) {
    return project_copies(step, layer, site, resid_TD, block.ln1, projection, num_heads);
  };
  const auto q_written = copies(Site::kAttnQResid, block.q, sizes.num_heads);
  const auto k_written = copies(Site::kAttnKResid, block.k, sizes.num_kv_heads);
  const auto v_written = copies(Site::kAttnVResid, block.v, sizes.num_kv_heads);
  at::Tensor x_TD = apply_norm(block.ln1, resid_TD, taps, kLn1, layer);
  x_TD = taps.at(Site::kAttnInput, layer, std::move(x_TD));
  const auto project = [&](Site site, const Linear& projection, int64_t num_heads,
                           const std::vector<Replacement>& written) {
    const at::Tensor heads = apply(projection, x_TD).view({-1, num_heads, sizes.head_width});
    return taps.at(site, layer, replace_rows(step, heads, written));
  };
  const at::Tensor q_TNH = project(Site::kAttnQ, block.q, sizes.num_heads, q_written);
  const at::Tensor k_TKH = project(Site::kAttnK, block.k, sizes.num_kv_heads, k_written);
  const at::Tensor v_TKH = project(Site::kAttnV, block.v, sizes.num_kv_heads, v_written);
  const at::Tensor rot_q_TNH = taps.at(Site::kAttnRotQ, layer, rotate(q_TNH, rotary));
  const at::Tensor rot_k_TKH = taps.at(Site::kAttnRotK, layer, rotate(k_TKH, rotary));
  const AttentionSizes attention_sizes{sizes.num_heads, sizes.num_kv_heads, sizes.head_width,
                                       1.0 / std::sqrt(static_cast<double>(sizes.head_width))};
  at::Tensor z_TNH = attend(step, layer, attention_sizes, rot_q_TNH, rot_k_TKH, v_TKH);
  z_TNH = taps.at(Site::kAttnZ, layer, std::move(z_TNH));
  return taps.at(Site::kAttnOut, layer, project_out(step, layer, z_TNH, block.o));
}

// ---- registration

// Module paths of transformers 5. Left out on purpose: inputs that several modules share and an
// edit of which would mean something else here than there (q_proj.input, input_layernorm.input).
constexpr hook::Alias kAliases[] = {
    {"model.embed_tokens.input", Site::kTokens},
    {"model.embed_tokens.output", Site::kEmbed},
    {"model.layers.{i}.input", Site::kResidPre},
    {"model.layers.{i}.input_layernorm.output", Site::kLn1Out},
    {"model.layers.{i}.self_attn.input", Site::kAttnInput},
    {"model.layers.{i}.self_attn.q_proj.output", Site::kAttnQ, true},
    {"model.layers.{i}.self_attn.k_proj.output", Site::kAttnK, true},
    {"model.layers.{i}.self_attn.v_proj.output", Site::kAttnV, true},
    {"model.layers.{i}.self_attn.o_proj.input", Site::kAttnZ, true},
    {"model.layers.{i}.self_attn.o_proj.output", Site::kAttnOut},
    {"model.layers.{i}.self_attn.output", Site::kAttnDelta},
    {"model.layers.{i}.post_attention_layernorm.input", Site::kMlpResid},
    {"model.layers.{i}.post_attention_layernorm.output", Site::kLn2Out},
    {"model.layers.{i}.mlp.input", Site::kMlpInput},
    {"model.layers.{i}.mlp.gate_proj.output", Site::kMlpGate},
    {"model.layers.{i}.mlp.act_fn.input", Site::kMlpGate},
    {"model.layers.{i}.mlp.up_proj.output", Site::kMlpUp},
    {"model.layers.{i}.mlp.down_proj.input", Site::kMlpPost},
    {"model.layers.{i}.mlp.down_proj.output", Site::kMlpOut},
    {"model.layers.{i}.mlp.output", Site::kMlpDelta},
    {"model.layers.{i}.output", Site::kResidPost},
    {"model.norm.input", Site::kResidPost},  // without {i}: the last block's
    {"model.norm.output", Site::kLnFinalOut},
    {"lm_head.input", Site::kLnFinalOut},
    {"lm_head.output", Site::kLogits},
};

constexpr std::string_view kModelTypes[] = {"llama"};
constexpr std::string_view kArchitectures[] = {"llama"};

Result<std::shared_ptr<const Model>> load_llama(const tensor::ModelFiles& files,
                                                const LoadOptions& options) {
  PELLUCID_ASSIGN(Fields fields, Fields::of(files));
  PELLUCID_ASSIGN(Config config, files.is_gguf ? config_from_gguf(files, std::move(fields))
                                               : config_from_json(std::move(fields)));
  auto llama = std::make_shared<Llama>(std::move(config));
  PELLUCID_TRY(llama->load(files, options));
  return std::shared_ptr<const Model>(std::move(llama));
}

}  // namespace

const Family kLlama{"llama", kModelTypes, kArchitectures, kAliases, load_llama};

}  // namespace pellucid::model
