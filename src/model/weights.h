#pragma once
// From names and shapes in model files to the tensors of a family.
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"
#include "model/model.h"
#include "tensor/weight_source.h"

namespace pellucid::model {

/// One tensor of the files and where it goes.
struct WeightPlan {
  std::string source;          // name in the files
  std::vector<int64_t> shape;  // in the files
  at::Tensor* target;          // filled by load_weights
  enum class Layout : uint8_t {
    kPlain,
    kTransposed,   // stored [in, out] (GPT-2's Conv1D)
    kInterleaved,  // GGUF's q and k: rotary pairs side by side within each head
  };
  Layout layout = Layout::kPlain;
  int64_t num_heads = 0;  // kInterleaved
  /// Loaded in this dtype instead of the model's: settings that come as tensors.
  std::optional<at::ScalarType> dtype = std::nullopt;
};

/// Checks that every planned tensor is there with its shape, that nothing else is there (but names
/// that `ignorable` matches: "*" stands for anything), and that memory suffices; then loads.
/// Errors: kNotFound, kShapeMismatch, kUnsupported (an unknown tensor, by name), kOutOfMemory.
Status load_weights(const tensor::ModelFiles& files, std::span<const WeightPlan> plans,
                    std::span<const std::string_view> ignorable, const LoadOptions& options);

/// Rows of each head from GGUF's interleaved order to Hugging Face's halves. [heads * width, ...].
at::Tensor deinterleave(const at::Tensor& rows, int64_t num_heads);

}  // namespace pellucid::model
