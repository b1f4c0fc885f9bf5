#pragma once
// A Hugging Face folder with a tiny random Llama, written for the tests of the facade: two blocks,
// d_model 16, the letters a to z and a space as its tokens.
#include <fmt/core.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <deque>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "files/safetensors.h"

namespace tiny {

inline constexpr int64_t kVocab = 28, kModel = 16, kHeads = 4, kKvHeads = 2, kHeadWidth = 4,
                         kMlp = 24, kLayers = 2;
inline constexpr int64_t kContext = 24, kEnd = 27;

/// Gone with this object.
class Folder {
 public:
  Folder() {
    path_ = std::filesystem::temp_directory_path() / ("pellucid_tiny_" + std::to_string(getpid()));
    std::filesystem::create_directories(path_);
    write_weights();
    write_config();
    write_tokenizer();
  }
  ~Folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  std::string path() const { return path_.string(); }

 private:
  /// Numbers in about [-scale, scale], the same on every machine.
  void add(const std::string& name, std::vector<int64_t> shape, float scale, float centre = 0) {
    int64_t count = 1;
    for (const int64_t size : shape) count *= size;
    std::vector<float>& values = values_.emplace_back(count);
    for (float& value : values) {
      state_ = state_ * 6364136223846793005ULL + 1442695040888963407ULL;
      value = centre + scale * (static_cast<float>(state_ >> 40) / 8388608.0F - 1.0F);
    }
    tensors_.push_back({name, pellucid::files::SafeDtype::kF32, std::move(shape),
                        std::as_bytes(std::span(values))});
  }

  void write_weights() {
    add("model.embed_tokens.weight", {kVocab, kModel}, 1);
    for (int64_t i = 0; i < kLayers; ++i) {
      const std::string block = "model.layers." + std::to_string(i) + ".";
      add(block + "input_layernorm.weight", {kModel}, 0.2F, 1);
      add(block + "post_attention_layernorm.weight", {kModel}, 0.2F, 1);
      add(block + "self_attn.q_proj.weight", {kHeads * kHeadWidth, kModel}, 0.5F);
      add(block + "self_attn.k_proj.weight", {kKvHeads * kHeadWidth, kModel}, 0.5F);
      add(block + "self_attn.v_proj.weight", {kKvHeads * kHeadWidth, kModel}, 0.5F);
      add(block + "self_attn.o_proj.weight", {kModel, kHeads * kHeadWidth}, 0.5F);
      add(block + "mlp.gate_proj.weight", {kMlp, kModel}, 0.5F);
      add(block + "mlp.up_proj.weight", {kMlp, kModel}, 0.5F);
      add(block + "mlp.down_proj.weight", {kModel, kMlp}, 0.5F);
    }
    add("model.norm.weight", {kModel}, 0.2F, 1);
    add("lm_head.weight", {kVocab, kModel}, 1);
    const pellucid::Status written =
        pellucid::files::write_safetensors(path_ / "model.safetensors", tensors_);
    if (!written.ok()) throw std::runtime_error(written.message());
  }

  void write_config() {
    std::ofstream(path_ / "config.json") << fmt::format(
        R"({{"model_type": "llama", "hidden_act": "silu", "hidden_size": {}, "intermediate_size": {},
             "num_hidden_layers": {}, "num_attention_heads": {}, "num_key_value_heads": {}, "head_dim": {},
             "max_position_embeddings": {}, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
             "vocab_size": {}, "tie_word_embeddings": false}})",
        kModel, kMlp, kLayers, kHeads, kKvHeads, kHeadWidth, kContext, kVocab);
  }

  void write_tokenizer() {
    std::string vocab;
    for (int i = 0; i < 26; ++i)
      vocab += fmt::format("\"{}\": {}, ", static_cast<char>('a' + i), i);
    vocab += "\"\\u0120\": 26";  // the space, in GPT-2's byte alphabet
    const char* byte_level =
        R"({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true})";
    std::ofstream(path_ / "tokenizer.json") << fmt::format(
        R"({{"version": "1.0", "truncation": null, "padding": null,
             "added_tokens": [{{"id": {}, "content": "<end>", "single_word": false, "lstrip": false,
                                "rstrip": false, "normalized": false, "special": true}}],
             "normalizer": null, "pre_tokenizer": {}, "post_processor": null, "decoder": {},
             "model": {{"type": "BPE", "dropout": null, "unk_token": null,
                        "continuing_subword_prefix": null, "end_of_word_suffix": null,
                        "fuse_unk": false, "byte_fallback": false, "vocab": {{{}}}, "merges": []}}}})",
        kEnd, byte_level, byte_level, vocab);
    std::ofstream(path_ / "tokenizer_config.json") << R"({"eos_token": "<end>"})";
  }

  std::filesystem::path path_;
  std::deque<std::vector<float>> values_;  // a deque: the tensors point into it
  std::vector<pellucid::files::TensorToWrite> tensors_;
  uint64_t state_ = 12345;
};

}  // namespace tiny
