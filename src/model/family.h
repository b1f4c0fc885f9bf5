#pragma once
// What a family file provides. A new family is one file in families/ and one line in families.cpp.
#include <memory>
#include <span>
#include <string_view>

#include "base/status.h"
#include "hook/names.h"
#include "model/model.h"
#include "tensor/weight_source.h"

namespace pellucid::model {

struct Family {
  std::string_view name;
  std::span<const std::string_view> hf_model_types;      // config.json "model_type"
  std::span<const std::string_view> gguf_architectures;  // "general.architecture"
  std::span<const hook::Alias> aliases;
  Result<std::shared_ptr<const Model>> (*load)(const tensor::ModelFiles& files,
                                               const LoadOptions& options);
};

/// The list.
std::span<const Family* const> families();

}  // namespace pellucid::model
