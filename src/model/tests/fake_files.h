#pragma once
// A model folder that exists only in memory: a config and tensors.
#include <ATen/core/Tensor.h>
#include <ATen/ops/randn.h>

#include <map>
#include <string>

#include "base/nearest.h"
#include "tensor/weight_source.h"

namespace pellucid::model {

class FakeWeights : public tensor::WeightSource {
 public:
  void set(const std::string& name, std::vector<int64_t> shape) {
    tensors_[name] = at::randn(shape, at::TensorOptions(at::kDouble));
    infos_[name] = {shape, "F64", static_cast<int64_t>(tensors_[name].nbytes())};
  }
  void erase(const std::string& name) { infos_.erase(name); }

  std::vector<std::string> names() const override {
    std::vector<std::string> names;
    for (const auto& [name, info] : infos_) names.push_back(name);
    return names;
  }
  const Info* find(std::string_view name) const override {
    const auto found = infos_.find(name);
    return found == infos_.end() ? nullptr : &found->second;
  }
  Result<at::Tensor> load(std::string_view name, at::ScalarType dtype) const override {
    return tensors_.find(name)->second.to(dtype);
  }

 private:
  std::map<std::string, Info, std::less<>> infos_;
  std::map<std::string, at::Tensor, std::less<>> tensors_;
};

inline constexpr const char* kTinyLlama = R"({
  "model_type": "llama", "hidden_size": 12, "intermediate_size": 10, "num_hidden_layers": 2,
  "num_attention_heads": 3, "num_key_value_heads": 1, "vocab_size": 17, "rms_norm_eps": 1e-5,
  "max_position_embeddings": 32, "tie_word_embeddings": true, "torch_dtype": "float32"})";

/// A whole tiny Llama that loads.
inline std::shared_ptr<FakeWeights> tiny_llama_weights() {
  auto weights = std::make_shared<FakeWeights>();
  weights->set("model.embed_tokens.weight", {17, 12});
  for (const std::string layer : {"model.layers.0.", "model.layers.1."}) {
    weights->set(layer + "input_layernorm.weight", {12});
    weights->set(layer + "post_attention_layernorm.weight", {12});
    weights->set(layer + "self_attn.q_proj.weight", {12, 12});
    weights->set(layer + "self_attn.k_proj.weight", {4, 12});
    weights->set(layer + "self_attn.v_proj.weight", {4, 12});
    weights->set(layer + "self_attn.o_proj.weight", {12, 12});
    weights->set(layer + "mlp.gate_proj.weight", {10, 12});
    weights->set(layer + "mlp.up_proj.weight", {10, 12});
    weights->set(layer + "mlp.down_proj.weight", {12, 10});
  }
  weights->set("model.norm.weight", {12});
  return weights;
}

inline tensor::ModelFiles fake_files(std::string config, std::shared_ptr<FakeWeights> weights) {
  return {"tiny", false, std::move(weights), nullptr, std::move(config), "hash"};
}

}  // namespace pellucid::model
