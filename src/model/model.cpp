#include "model/model.h"

#include "base/nearest.h"

namespace pellucid::model {

Result<at::Tensor> Model::weight(std::string_view name) const {
  for (const auto& [known, tensor] : named_weights_) {
    if (known == name) return tensor;
  }
  std::vector<std::string> names;
  for (const auto& [known, tensor] : named_weights_) names.push_back(known);
  return error(Code::kNotFound, did_you_mean(name, names, "weights() lists them"),
               "no weight named {}", files::printable(name));
}

std::vector<WeightInfo> Model::weights() const {
  std::vector<WeightInfo> list;
  for (const auto& [name, tensor] : named_weights_) list.push_back({name, tensor.sizes().vec()});
  return list;
}

}  // namespace pellucid::model
