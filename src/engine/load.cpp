#include <nlohmann/json.hpp>

#include <filesystem>

#include "engine/engine.h"
#include "files/json.h"
#include "files/mapped_file.h"

namespace pellucid::engine {
namespace {

namespace fs = std::filesystem;

constexpr size_t kTokenizerBytesMax = size_t{256} << 20;
constexpr size_t kConfigBytesMax = size_t{16} << 20;

/// "" when there is no such file.
Result<std::string> read_if_there(const fs::path& path, size_t bytes_max) {
  if (!fs::exists(path)) return std::string();
  return files::read_text_file(path, bytes_max);
}

/// End-of-text ids: the tokenizer's own and those of generation_config.json, where a model that
/// ends its turns in several ways lists them all.
Result<std::vector<int64_t>> eos_ids(const tensor::ModelFiles& files,
                                     const text::Tokenizer& tokenizer) {
  std::vector<int64_t> ids;
  if (tokenizer.eos()) ids.push_back(*tokenizer.eos());
  if (files.is_gguf) return ids;
  const fs::path path = files.path / "generation_config.json";
  PELLUCID_ASSIGN(const std::string text, read_if_there(path, kConfigBytesMax));
  if (text.empty()) return ids;
  PELLUCID_TRY(files::check_json_depth(text, 64, path.string()));
  const nlohmann::json json = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) {
    return error(Code::kCorruptFile, "it is a JSON object", "{} is not valid JSON", path.string());
  }
  const nlohmann::json eos = json.value("eos_token_id", nlohmann::json());
  for (const nlohmann::json& id : eos.is_array() ? eos : nlohmann::json::array({eos})) {
    if (id.is_number_integer()) ids.push_back(id.get<int64_t>());
  }
  return ids;
}

}  // namespace

Result<std::shared_ptr<const text::Tokenizer>> load_tokenizer(const tensor::ModelFiles& files) {
  if (files.is_gguf) return text::Tokenizer::from_gguf(*files.gguf);
  const fs::path path = files.path / "tokenizer.json";
  PELLUCID_ASSIGN(const std::string tokenizer, read_if_there(path, kTokenizerBytesMax));
  if (tokenizer.empty()) {
    return error(Code::kNotFound,
                 "save the tokenizer beside the model: tokenizer.save_pretrained(...)",
                 "{} is not there", path.string());
  }
  PELLUCID_ASSIGN(const std::string config,
                  read_if_there(files.path / "tokenizer_config.json", kConfigBytesMax));
  return text::Tokenizer::from_json(tokenizer, config);
}

Result<LoadedModel> load(const std::string& name_or_path, const model::LoadOptions& load_options,
                         const EngineOptions& engine_options) {
  PELLUCID_ASSIGN(const tensor::ModelFiles files, tensor::open_model(name_or_path));
  LoadedModel loaded;
  PELLUCID_ASSIGN(loaded.tokenizer, load_tokenizer(files));
  EngineOptions options = engine_options;
  PELLUCID_ASSIGN(options.eos_ids, eos_ids(files, *loaded.tokenizer));
  PELLUCID_ASSIGN(loaded.model, model::load_model(files, load_options));
  if (loaded.tokenizer->vocab_size() > loaded.model->info().sizes.vocab) {
    return error(Code::kInvalidArgument, "the tokenizer belongs to another model",
                 "the tokenizer has {} ids, the model's vocabulary {}",
                 loaded.tokenizer->vocab_size(), loaded.model->info().sizes.vocab);
  }
  loaded.chat_template = loaded.tokenizer->chat_template();
  loaded.engine = Engine::make(loaded.model, loaded.tokenizer, options);
  return loaded;
}

}  // namespace pellucid::engine
