#pragma once
// Where models are: what `pellucid.load("...")` and every command's MODEL may be.
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace pellucid::tensor {

/// The names that are shorter than a file's, in one list.
struct ShortName {
  std::string_view name;  // "smollm2"
  std::string_view file;  // in the models folder
  std::string_view how;   // to get it, as the hint when it is not there
};
std::span<const ShortName> short_names();

/// The two places where models are looked for.
struct ModelPlaces {
  std::filesystem::path models;  // our own cache: .gguf files and Hugging Face folders
  std::filesystem::path hub;     // Hugging Face's: models--org--name/snapshots/<revision>
};
/// $PELLUCID_MODELS, else $XDG_CACHE_HOME/pellucid/models, else ~/.cache/pellucid/models;
/// $HF_HUB_CACHE, else $HF_HOME/hub, else $XDG_CACHE_HOME/huggingface/hub, else under ~/.cache.
ModelPlaces model_places_from_environment();

struct FoundModel {
  std::filesystem::path path;  // the .gguf file, or the folder
  bool is_gguf = false;
  std::filesystem::path weights;  // the file to open: .gguf, .safetensors or .index.json
};

/// `name_or_path` is one of: a .gguf file; a folder with config.json and model.safetensors or its
/// index (or one .gguf); a short name; a file's name without .gguf, or a folder, in the models
/// folder; "org/name" in the Hugging Face cache. Paths win over names. Reads no weights.
/// Errors: kNotFound (where it looked, the nearest names), kUnsupported (only pickled weights),
/// kInvalidArgument (a file of another kind, several .gguf files).
Result<FoundModel> resolve_model(const std::string& name_or_path, const ModelPlaces& places);

struct ListedModel {
  std::string name;  // what `resolve_model` takes
  std::filesystem::path path;
  std::string format;   // "gguf" or "safetensors"
  int64_t bytes = 0;    // of the weights
  std::string problem;  // why it cannot be loaded; "" when nothing is known against it
};
/// Everything in both places, by name. Folders that cannot be read are left out.
std::vector<ListedModel> list_models(const ModelPlaces& places);

}  // namespace pellucid::tensor
