#include "model/families.h"

#include <algorithm>

#include "files/gguf.h"
#include "model/config.h"

namespace pellucid::model {
namespace {

const Family* const kFamilies[] = {
    &kLlama,
    &kGpt2,
};

Status check_dtype(at::ScalarType dtype) {
  if (dtype == at::kFloat || dtype == at::kDouble || dtype == at::kBFloat16) return ok_status();
  return error(Code::kUnsupported, "float32, float64 or bfloat16", "models in {}",
               c10::toString(dtype));
}

Status unknown(const tensor::ModelFiles& files, std::string_view field, const std::string& name) {
  std::vector<std::string_view> known;
  for (const Family* family : kFamilies) {
    const auto& names = files.is_gguf ? family->gguf_architectures : family->hf_model_types;
    known.insert(known.end(), names.begin(), names.end());
  }
  return error(Code::kUnsupported, fmt::format("known: {}", fmt::join(known, ", ")), "{}: {} {}",
               files.path.string(), field, files::printable(name));
}

}  // namespace

std::span<const Family* const> families() { return kFamilies; }

Result<std::shared_ptr<const Model>> load_model(const tensor::ModelFiles& files,
                                                const LoadOptions& options) {
  PELLUCID_TRY(check_dtype(options.dtype));
  std::string name;
  if (files.is_gguf) {
    PELLUCID_ASSIGN(name, files.gguf->get<std::string>("general.architecture"));
  } else {
    PELLUCID_ASSIGN(Fields fields, Fields::of(files));
    PELLUCID_ASSIGN(name, fields.text("model_type"));
  }
  for (const Family* family : kFamilies) {
    const auto& names = files.is_gguf ? family->gguf_architectures : family->hf_model_types;
    if (std::ranges::find(names, name) != names.end()) return family->load(files, options);
  }
  return unknown(files, files.is_gguf ? "architecture" : "model_type", name);
}

}  // namespace pellucid::model
