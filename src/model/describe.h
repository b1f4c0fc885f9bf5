#pragma once
// What a family fills in about itself once its weights are there.
#include <ATen/core/Tensor.h>

#include <initializer_list>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "model/attention.h"
#include "model/family.h"
#include "model/norm.h"
#include "model/weights.h"

namespace pellucid::model {

/// Everything that follows from the arguments; `absent` are the sites that the family lacks.
void describe(const tensor::ModelFiles& files, const LoadOptions& options, const Family& family,
              const hook::SiteSizes& sizes, std::span<const WeightPlan> plans,
              std::initializer_list<hook::Site> absent, ModelInfo& info, hook::Catalog& catalog);

/// Collects canonical names. A bias is called "<name>.bias".
class WeightNames {
 public:
  explicit WeightNames(std::vector<std::pair<std::string, at::Tensor>>& out) : out_(out) {}

  void add(const std::string& name, const at::Tensor& tensor);
  void add(const std::string& name, const Norm& norm);      // [d_model]
  void add(const std::string& name, const Linear& linear);  // [out, in]
  /// q, k, v: [heads, head_width, d_model]; bias [heads, head_width].
  void add_heads(const std::string& name, const Linear& linear, int64_t num_heads);
  /// o: [d_model, heads, head_width]; bias [d_model].
  void add_out_heads(const std::string& name, const Linear& linear, int64_t num_heads);

 private:
  std::vector<std::pair<std::string, at::Tensor>>& out_;
};

}  // namespace pellucid::model
