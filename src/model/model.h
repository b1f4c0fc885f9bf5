#pragma once
// A loaded model: weights and the forward pass that announces its sites. Knows nothing of programs.
#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "hook/names.h"
#include "model/step.h"
#include "tensor/weight_source.h"

namespace pellucid::model {

struct LoadOptions {
  /// Weights and residual stream; kFloat, kDouble or kBFloat16. Norms, rotary and softmax compute
  /// in the wider of float32 and this.
  at::ScalarType dtype = at::kFloat;
  /// (bytes loaded, bytes in all), now and then, from the loading thread.
  std::function<void(int64_t, int64_t)> progress;
};

/// Sizes and facts that callers show or check; all of them come from the model's own config.
struct ModelInfo {
  std::string family;
  hook::SiteSizes sizes;
  int64_t context_length = 0;  // most positions that the model was made for
  bool tied_head = false;
  int64_t num_parameters = 0;
  int64_t weight_bytes = 0;  // resident or mapped
  at::ScalarType dtype = at::kFloat;
  std::string hash;  // of the model files
};

/// A weight by its canonical name, e.g. "blocks.{i}.attn.q": [heads, head_width, d_model].
struct WeightInfo {
  std::string name;
  std::vector<int64_t> shape;
};

/// Thread-compatible: all calls from the engine's own thread.
class Model {
 public:
  virtual ~Model() = default;

  const ModelInfo& info() const { return info_; }
  const hook::Catalog& catalog() const { return catalog_; }

  /// Runs the pass: fills the groups' caches (not their `length`) and fires the sites that are
  /// watched. Returns logits [R, V] for step.logit_rows, or an undefined tensor.
  /// Throws c10::Error on tensor faults and whatever a listener or `poll` throws.
  virtual at::Tensor forward(Step& step) const = 0;

  /// The last norm of any [..., D]; same shape.
  virtual at::Tensor final_norm(const at::Tensor& x) const = 0;
  /// Logits of any normed [..., D], after a soft cap if the family has one: [..., V].
  virtual at::Tensor unembed(const at::Tensor& x) const = 0;

  /// A weight by canonical name, q/k/v/o with a view per head; see `weights()`. A view, not a copy:
  /// do not write. kNotFound offers the nearest names.
  Result<at::Tensor> weight(std::string_view name) const;
  std::vector<WeightInfo> weights() const;

 protected:
  ModelInfo info_;
  hook::Catalog catalog_;
  std::vector<std::pair<std::string, at::Tensor>> named_weights_;  // canonical name, per-head view
};

/// Opens the files, recognises the family by its config, checks names and shapes of every tensor
/// before loading. Errors: kUnsupported (unknown family or config field, by name), kNotFound,
/// kCorruptFile, kShapeMismatch, kOutOfMemory (model larger than memory: both numbers).
Result<std::shared_ptr<const Model>> load_model(const tensor::ModelFiles& files,
                                                const LoadOptions& options);

}  // namespace pellucid::model
