#pragma once
// A loaded model: generation, tokens, weights, and the names of its sites. Looking inside is
// pellucid/trace.h.
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "pellucid/tensor.h"

namespace pellucid {

struct LoadOptions {
  /// Of the weights and the residual stream: kFloat32, kFloat64 or kBFloat16.
  Dtype dtype = Dtype::kFloat32;
  /// (bytes loaded, bytes in all), now and then, on the calling thread.
  std::function<void(int64_t bytes_loaded, int64_t bytes_total)> progress = {};
};

/// How new tokens are chosen and when to stop. What is not set does nothing.
struct GenerateOptions {
  int64_t max_new_tokens = 128;
  double temperature = 0;  // 0: the most probable token, always
  int64_t top_k = 0;
  double top_p = 1;
  double min_p = 0;
  double repetition_penalty = 1;
  uint64_t seed = 0;  // same seed, same text, whatever else runs
  std::vector<std::string> stop = {};
  /// Whole UTF-8 characters as they are made, on the engine's thread: return soon, throw nothing
  /// and do not call the model.
  std::function<void(std::string_view text)> on_text = {};
  /// Set to true from any thread to stop: what was made so far comes back, `ended` is "cancelled".
  std::shared_ptr<std::atomic<bool>> cancelled = {};
};

struct Generation {
  std::vector<int64_t> tokens;  // the new ones, the one that ended the text included
  std::string text;             // of the new tokens, without a stop string and what follows it
  std::string ended;            // "length", "eos", "stop" or "cancelled"
};

struct ModelInfo {
  std::string family;  // "llama", "gpt2"
  int64_t num_layers = 0, d_model = 0, num_heads = 0, num_kv_heads = 0, head_width = 0, d_mlp = 0;
  int64_t vocab_size = 0;
  int64_t context_length = 0;  // tokens, prompt and new ones together
  int64_t num_parameters = 0;
  Dtype dtype = Dtype::kFloat32;
  std::string hash;  // of the model's files
};

/// A handle; copies are the same model. Every method may be called from any thread: calls wait
/// their turn for the one thread that does the model's work. Everything throws pellucid::Error.
class Model {
 public:
  /// "not_found", "unsupported" and "corrupt_file", as the files are.
  ModelInfo info() const;

  /// "invalid_argument" for an empty prompt, an id outside the vocabulary or a prompt longer than
  /// the context (both numbers).
  Generation generate(std::string_view prompt, const GenerateOptions& options = {}) const;
  Generation generate(const std::vector<int64_t>& tokens,
                      const GenerateOptions& options = {}) const;

  /// Token ids as the tokenizer makes them, a begin-of-text token included if it adds one.
  std::vector<int64_t> encode(std::string_view text) const;
  std::string decode(const std::vector<int64_t>& tokens) const;
  /// The only token of a text (" Paris"). "invalid_argument" names the tokens that it splits into.
  int64_t id(std::string_view text) const;

  /// Canonical names of all sites, in the order of the forward pass.
  std::vector<std::string> sites() const;
  /// Canonical names of all weights.
  std::vector<std::string> weights() const;
  /// A weight by canonical name, in the model's dtype; q, k, v and o by head. Not a copy.
  Tensor weight(std::string_view name) const;
  /// Logits [..., vocab] of any normed residual [..., d_model].
  Tensor unembed(const Tensor& x) const;
  /// The last norm of any residual [..., d_model]; same shape.
  Tensor ln_final(const Tensor& x) const;

  struct Impl;
  explicit Model(std::shared_ptr<const Impl> impl) : impl_(std::move(impl)) {}
  const std::shared_ptr<const Impl>& impl() const { return impl_; }

 private:
  std::shared_ptr<const Impl> impl_;
};

/// A .gguf file, a Hugging Face folder, a short name in the local cache ("smollm2") or "org/name"
/// in the Hugging Face cache. Never uses the network. Throws Error: "not_found" (with the nearest
/// names), "unsupported", "corrupt_file", "out_of_memory" (needed and there).
Model load(const std::string& name_or_path, const LoadOptions& options = {});

}  // namespace pellucid
