#include "model/describe.h"

namespace pellucid::model {

void describe(const tensor::ModelFiles& files, const LoadOptions& options, const Family& family,
              const hook::SiteSizes& sizes, std::span<const WeightPlan> plans,
              std::initializer_list<hook::Site> absent, ModelInfo& info, hook::Catalog& catalog) {
  info.family = family.name;
  info.sizes = sizes;
  info.dtype = options.dtype;
  info.hash = files.hash;
  for (const WeightPlan& plan : plans) {
    if (plan.dtype) continue;  // a setting, no parameter
    info.num_parameters += plan.target->numel();
    info.weight_bytes += static_cast<int64_t>(plan.target->nbytes());
  }
  catalog.sizes = sizes;
  catalog.family = family.name;
  catalog.aliases = family.aliases;
  catalog.present.set();
  for (const hook::Site site : absent) catalog.present.reset(static_cast<size_t>(site));
}

void WeightNames::add(const std::string& name, const at::Tensor& tensor) {
  if (tensor.defined()) out_.emplace_back(name, tensor);
}

void WeightNames::add(const std::string& name, const Norm& norm) {
  add(name, norm.weight_D);
  add(name + ".bias", norm.bias_D);
}

void WeightNames::add(const std::string& name, const Linear& linear) {
  add(name, linear.weight);
  add(name + ".bias", linear.bias);
}

void WeightNames::add_heads(const std::string& name, const Linear& linear, int64_t num_heads) {
  add(name, linear.weight.view({num_heads, -1, linear.weight.size(1)}));
  if (linear.bias.defined()) add(name + ".bias", linear.bias.view({num_heads, -1}));
}

void WeightNames::add_out_heads(const std::string& name, const Linear& linear, int64_t num_heads) {
  add(name, linear.weight.view({linear.weight.size(0), num_heads, -1}));
  add(name + ".bias", linear.bias);
}

}  // namespace pellucid::model
