// GPT-2: LayerNorm, learned positions, biases everywhere, an MLP without a gate.
#include <ATen/ops/add.h>
#include <ATen/ops/embedding.h>

#include <cmath>

#include "model/attention.h"
#include "model/config.h"
#include "model/describe.h"
#include "model/families.h"
#include "model/groups.h"
#include "model/head.h"
#include "model/mlp.h"
#include "model/norm.h"
#include "model/weights.h"

namespace pellucid::model {
namespace {

using hook::Site;
using Layout = WeightPlan::Layout;

// ---- config

struct Config {
  hook::SiteSizes sizes;
  int64_t context_length = 0;
  double norm_epsilon = 1e-5;
  kernels::Activation activation = kernels::Activation::kGeluTanh;
  bool scale_scores = true, tied_head = true;
};

constexpr int64_t kLayersMax = 4096;
constexpr int64_t kHeadsMax = 1 << 16;

Status derive_heads(const Fields& fields, hook::SiteSizes& sizes) {
  if (sizes.d_model % sizes.num_heads != 0) {
    return error(Code::kCorruptFile, "", "{}: width {} is no multiple of {} heads", fields.where(),
                 sizes.d_model, sizes.num_heads);
  }
  sizes.num_kv_heads = sizes.num_heads;
  sizes.head_width = sizes.d_model / sizes.num_heads;
  return ok_status();
}

Result<Config> config_from_json(Fields fields) {
  Config config;
  hook::SiteSizes& sizes = config.sizes;
  PELLUCID_ASSIGN(sizes.num_layers, fields.size("n_layer", kLayersMax));
  PELLUCID_ASSIGN(sizes.d_model, fields.size("n_embd"));
  PELLUCID_ASSIGN(sizes.num_heads, fields.size("n_head", kHeadsMax));
  PELLUCID_TRY(derive_heads(fields, sizes));
  sizes.d_mlp = 4 * sizes.d_model;
  if (fields.has("n_inner")) {
    PELLUCID_ASSIGN(sizes.d_mlp, fields.size("n_inner"));
  }
  PELLUCID_ASSIGN(sizes.vocab, fields.size("vocab_size"));
  PELLUCID_ASSIGN(config.context_length, fields.size("n_positions"));
  PELLUCID_TRY(fields.require("n_ctx", config.context_length));
  // transformers' GPT2Config's own defaults where a field is missing.
  PELLUCID_ASSIGN(config.norm_epsilon, fields.number_or("layer_norm_epsilon", 1e-5));
  PELLUCID_ASSIGN(const std::string act, fields.text_or("activation_function", "gelu_new"));
  PELLUCID_ASSIGN(config.activation, kernels::activation_from_name(act));
  PELLUCID_ASSIGN(config.scale_scores, fields.boolean_or("scale_attn_weights", true));
  PELLUCID_ASSIGN(config.tied_head, fields.boolean_or("tie_word_embeddings", true));
  PELLUCID_TRY(fields.require("scale_attn_by_inverse_layer_idx", false));
  PELLUCID_TRY(fields.require("reorder_and_upcast_attn", false));
  PELLUCID_TRY(fields.require("add_cross_attention", false));
  PELLUCID_TRY(fields.refuse_unknown({}));
  return config;
}

constexpr std::string_view kIgnorableGguf[] = {"tensor_data_layout"};

Result<Config> config_from_gguf(const tensor::ModelFiles& files, Fields fields) {
  Config config;
  hook::SiteSizes& sizes = config.sizes;
  PELLUCID_ASSIGN(sizes.num_layers, fields.size("block_count", kLayersMax));
  PELLUCID_ASSIGN(sizes.d_model, fields.size("embedding_length"));
  PELLUCID_ASSIGN(sizes.num_heads, fields.size("attention.head_count", kHeadsMax));
  PELLUCID_TRY(derive_heads(fields, sizes));
  PELLUCID_TRY(fields.require("attention.head_count_kv", sizes.num_heads));
  PELLUCID_ASSIGN(sizes.d_mlp, fields.size("feed_forward_length"));
  PELLUCID_ASSIGN(config.context_length, fields.size("context_length"));
  PELLUCID_ASSIGN(config.norm_epsilon, fields.number("attention.layer_norm_epsilon"));
  const auto* embedding = files.weights->find("token_embd.weight");
  if (embedding == nullptr || embedding->shape.empty()) {
    return error(Code::kNotFound, "", "{} has no tensor token_embd.weight", fields.where());
  }
  sizes.vocab = embedding->shape[0];
  PELLUCID_TRY(fields.require("vocab_size", sizes.vocab));
  config.tied_head = files.weights->find("output.weight") == nullptr;
  PELLUCID_TRY(fields.refuse_unknown(kIgnorableGguf));
  return config;
}

// ---- weights

struct Block {
  Norm ln1, ln2;
  Linear qkv;  // as stored, [3 D, D]; q, k and v are views of it
  Linear q, k, v, o;
  PlainMlp mlp;
};

struct Names {
  std::string_view embed, pos_embed, block, ln1, qkv, o, ln2, mlp_in, mlp_out, ln_final, unembed;
};
constexpr Names kHf{"wte",  "wpe",      "h.{}.",      "ln_1", "attn.c_attn", "attn.c_proj",
                    "ln_2", "mlp.c_fc", "mlp.c_proj", "ln_f", "lm_head"};
constexpr Names kGguf{"token_embd", "position_embd", "blk.{}.",  "attn_norm",
                      "attn_qkv",   "attn_output",   "ffn_norm", "ffn_up",
                      "ffn_down",   "output_norm",   "output"};

// Causal masks of older files; a head that repeats the embedding.
constexpr std::string_view kIgnorableTensors[] = {"*h.*.attn.bias", "*h.*.attn.masked_bias",
                                                  "lm_head.weight"};

// ---- the model

class Gpt2 final : public Model {
 public:
  explicit Gpt2(Config config) : config_(std::move(config)) {}

  Status load(const tensor::ModelFiles& files, const LoadOptions& options);
  at::Tensor forward(Step& step) const override;
  at::Tensor final_norm(const at::Tensor& x) const override { return apply_norm(ln_final_, x); }
  at::Tensor unembed(const at::Tensor& x) const override { return apply(unembed_, x); }

 private:
  std::vector<WeightPlan> plan(const Names& names, const std::string& prefix, Layout layout);
  void name_weights();
  at::Tensor run_block(Step& step, int layer, at::Tensor resid_TD) const;
  at::Tensor attention(Step& step, int layer, const at::Tensor& resid_TD) const;

  Config config_;
  at::Tensor embed_VD_, pos_embed_PD_;
  std::vector<Block> blocks_;
  Norm ln_final_;
  Linear unembed_;
};

std::vector<WeightPlan> Gpt2::plan(const Names& names, const std::string& prefix, Layout layout) {
  const int64_t d = config_.sizes.d_model, f = config_.sizes.d_mlp, vocab = config_.sizes.vocab;
  std::vector<WeightPlan> plans;
  const auto add = [&](const std::string& name, std::vector<int64_t> shape, at::Tensor& target) {
    plans.push_back({name, std::move(shape), &target});
  };
  const auto add_norm = [&](const std::string& name, Norm& norm) {
    add(name + ".weight", {d}, norm.weight_D);
    add(name + ".bias", {d}, norm.bias_D);
  };
  const auto add_linear = [&](const std::string& name, int64_t out, int64_t in, Linear& linear) {
    const bool transposed = layout == Layout::kTransposed;
    add(name + ".weight", transposed ? std::vector{in, out} : std::vector{out, in}, linear.weight);
    plans.back().layout = layout;
    add(name + ".bias", {out}, linear.bias);
  };
  add(prefix + std::string(names.embed) + ".weight", {vocab, d}, embed_VD_);
  add(prefix + std::string(names.pos_embed) + ".weight", {config_.context_length, d},
      pos_embed_PD_);
  for (size_t i = 0; i < blocks_.size(); ++i) {
    Block& block = blocks_[i];
    const std::string start = prefix + fmt::format(fmt::runtime(names.block), i);
    const auto at = [&](std::string_view name) { return start + std::string(name); };
    add_norm(at(names.ln1), block.ln1);
    add_linear(at(names.qkv), 3 * d, d, block.qkv);
    add_linear(at(names.o), d, d, block.o);
    add_norm(at(names.ln2), block.ln2);
    add_linear(at(names.mlp_in), f, d, block.mlp.in);
    add_linear(at(names.mlp_out), d, f, block.mlp.out);
  }
  add_norm(prefix + std::string(names.ln_final), ln_final_);
  // The head is outside of "transformer.".
  if (!config_.tied_head) add(std::string(names.unembed) + ".weight", {vocab, d}, unembed_.weight);
  return plans;
}

Linear rows_of(const Linear& linear, int64_t first, int64_t count) {
  return {linear.weight.narrow(0, first, count), linear.bias.narrow(0, first, count)};
}

Status Gpt2::load(const tensor::ModelFiles& files, const LoadOptions& options) {
  const int64_t d = config_.sizes.d_model;
  blocks_.resize(static_cast<size_t>(config_.sizes.num_layers));
  const auto set_up = [&](Norm& norm) {
    norm.kind = Norm::Kind::kLayer;
    norm.epsilon = config_.norm_epsilon;
  };
  for (Block& block : blocks_) {
    set_up(block.ln1);
    set_up(block.ln2);
    block.mlp.activation = config_.activation;
  }
  set_up(ln_final_);
  // Files of the bare GPT2Model, such as the original ones, lack the prefix.
  const bool bare = files.is_gguf || files.weights->find("wte.weight") != nullptr;
  const std::vector<WeightPlan> plans =
      plan(files.is_gguf ? kGguf : kHf, bare ? "" : "transformer.",
           files.is_gguf ? Layout::kPlain : Layout::kTransposed);
  PELLUCID_TRY(load_weights(files, plans, kIgnorableTensors, options));
  for (Block& block : blocks_) {
    block.q = rows_of(block.qkv, 0, d);
    block.k = rows_of(block.qkv, d, d);
    block.v = rows_of(block.qkv, 2 * d, d);
  }
  if (config_.tied_head) unembed_.weight = embed_VD_;
  name_weights();
  describe(files, options, kGpt2, config_.sizes, plans,
           {Site::kAttnQNorm, Site::kAttnKNorm, Site::kAttnRotQ, Site::kAttnRotK, Site::kMlpGate,
            Site::kMlpUp},
           info_, catalog_);
  info_.context_length = config_.context_length;
  info_.tied_head = config_.tied_head;
  return ok_status();
}

void Gpt2::name_weights() {
  const int64_t num_heads = config_.sizes.num_heads;
  WeightNames names(named_weights_);
  names.add("embed", embed_VD_);
  names.add("pos_embed", pos_embed_PD_);
  for (size_t i = 0; i < blocks_.size(); ++i) {
    const Block& block = blocks_[i];
    const std::string prefix = fmt::format("blocks.{}.", i);
    names.add(prefix + "ln1", block.ln1);
    names.add_heads(prefix + "attn.q", block.q, num_heads);
    names.add_heads(prefix + "attn.k", block.k, num_heads);
    names.add_heads(prefix + "attn.v", block.v, num_heads);
    names.add_out_heads(prefix + "attn.o", block.o, num_heads);
    names.add(prefix + "ln2", block.ln2);
    names.add(prefix + "mlp.in", block.mlp.in);
    names.add(prefix + "mlp.out", block.mlp.out);
  }
  names.add("ln_final", ln_final_);
  names.add("unembed", unembed_);
}

// ---- maths

at::Tensor Gpt2::forward(Step& step) const {
  hook::Taps& taps = step.taps;
  const at::Tensor tokens_T = taps.at(Site::kTokens, -1, first_rows(step, step.tokens_T));
  const at::Tensor embed_TD = taps.at(Site::kEmbed, -1, at::embedding(embed_VD_, tokens_T));
  const at::Tensor positions_T = first_rows(step, step.positions_T);
  const at::Tensor pos_TD = taps.at(Site::kPosEmbed, -1, at::embedding(pos_embed_PD_, positions_T));
  const at::Tensor resid_TD = run_blocks(
      step, static_cast<int>(blocks_.size()), at::add(embed_TD, pos_TD),
      [&](int layer, at::Tensor x_TD) { return run_block(step, layer, std::move(x_TD)); });
  return run_head(step, ln_final_, unembed_, resid_TD);
}

at::Tensor Gpt2::run_block(Step& step, int layer, at::Tensor resid_TD) const {
  const Block& block = blocks_[layer];
  at::Tensor delta_TD = attention(step, layer, resid_TD);
  delta_TD = step.taps.at(Site::kAttnDelta, layer, std::move(delta_TD));
  resid_TD = at::add(resid_TD, delta_TD);
  resid_TD = step.taps.at(Site::kResidMid, layer, std::move(resid_TD));
  const at::Tensor branch_TD = step.taps.at(Site::kMlpResid, layer, resid_TD);
  delta_TD = run(block.mlp, step, layer, apply_norm(block.ln2, branch_TD, step.taps, kLn2, layer));
  delta_TD = step.taps.at(Site::kMlpDelta, layer, std::move(delta_TD));
  return at::add(resid_TD, delta_TD);
}

at::Tensor Gpt2::attention(Step& step, int layer, const at::Tensor& resid_TD) const {
  const Block& block = blocks_[layer];
  const hook::SiteSizes& sizes = config_.sizes;
  hook::Taps& taps = step.taps;
  const auto copies = [&](Site site, const Linear& projection) {
    return project_copies(step, layer, site, resid_TD, block.ln1, projection, sizes.num_heads);
  };
  const auto q_written = copies(Site::kAttnQResid, block.q);
  const auto k_written = copies(Site::kAttnKResid, block.k);
  const auto v_written = copies(Site::kAttnVResid, block.v);
  at::Tensor x_TD = apply_norm(block.ln1, resid_TD, taps, kLn1, layer);
  x_TD = taps.at(Site::kAttnInput, layer, std::move(x_TD));
  const auto project = [&](Site site, const Linear& projection,
                           const std::vector<Replacement>& written) {
    const at::Tensor heads = apply(projection, x_TD).view({-1, sizes.num_heads, sizes.head_width});
    return taps.at(site, layer, replace_rows(step, heads, written));
  };
  const at::Tensor q_TNH = project(Site::kAttnQ, block.q, q_written);
  const at::Tensor k_TNH = project(Site::kAttnK, block.k, k_written);
  const at::Tensor v_TNH = project(Site::kAttnV, block.v, v_written);
  const double scale =
      config_.scale_scores ? 1.0 / std::sqrt(static_cast<double>(sizes.head_width)) : 1.0;
  at::Tensor z_TNH =
      attend(step, layer, {sizes.num_heads, sizes.num_heads, sizes.head_width, scale}, q_TNH, k_TNH,
             v_TNH);
  z_TNH = taps.at(Site::kAttnZ, layer, std::move(z_TNH));
  return taps.at(Site::kAttnOut, layer, project_out(step, layer, z_TNH, block.o));
}

// ---- registration

// Module paths of transformers 5. c_attn.output holds q, k and v together: no single site.
constexpr hook::Alias kAliases[] = {
    {"transformer.wte.input", Site::kTokens},
    {"transformer.wte.output", Site::kEmbed},
    {"transformer.wpe.output", Site::kPosEmbed},
    {"transformer.h.{i}.input", Site::kResidPre},
    {"transformer.h.{i}.ln_1.output", Site::kLn1Out},
    {"transformer.h.{i}.attn.input", Site::kAttnInput},
    {"transformer.h.{i}.attn.c_attn.input", Site::kAttnInput},
    {"transformer.h.{i}.attn.c_proj.input", Site::kAttnZ, true},
    {"transformer.h.{i}.attn.c_proj.output", Site::kAttnOut},
    {"transformer.h.{i}.attn.output", Site::kAttnDelta},
    {"transformer.h.{i}.ln_2.input", Site::kMlpResid},
    {"transformer.h.{i}.ln_2.output", Site::kLn2Out},
    {"transformer.h.{i}.mlp.input", Site::kMlpInput},
    {"transformer.h.{i}.mlp.c_fc.input", Site::kMlpInput},
    {"transformer.h.{i}.mlp.c_fc.output", Site::kMlpPre},
    {"transformer.h.{i}.mlp.act.input", Site::kMlpPre},
    {"transformer.h.{i}.mlp.act.output", Site::kMlpPost},
    {"transformer.h.{i}.mlp.c_proj.input", Site::kMlpPost},
    {"transformer.h.{i}.mlp.c_proj.output", Site::kMlpOut},
    {"transformer.h.{i}.mlp.output", Site::kMlpDelta},
    {"transformer.h.{i}.output", Site::kResidPost},
    {"transformer.ln_f.input", Site::kResidPost},  // without {i}: the last block's
    {"transformer.ln_f.output", Site::kLnFinalOut},
    {"lm_head.input", Site::kLnFinalOut},
    {"lm_head.output", Site::kLogits},
};

constexpr std::string_view kModelTypes[] = {"gpt2"};
constexpr std::string_view kArchitectures[] = {"gpt2"};

Result<std::shared_ptr<const Model>> load_gpt2(const tensor::ModelFiles& files,
                                               const LoadOptions& options) {
  PELLUCID_ASSIGN(Fields fields, Fields::of(files));
  PELLUCID_ASSIGN(Config config, files.is_gguf ? config_from_gguf(files, std::move(fields))
                                               : config_from_json(std::move(fields)));
  auto gpt2 = std::make_shared<Gpt2>(std::move(config));
  PELLUCID_TRY(gpt2->load(files, options));
  return std::shared_ptr<const Model>(std::move(gpt2));
}

}  // namespace

const Family kGpt2{"gpt2", kModelTypes, kArchitectures, kAliases, load_gpt2};

}  // namespace pellucid::model
