// Reads `tokenizer.ggml.*` of a GGUF file.
#include "files/gguf.h"
#include "text/tokenizer.h"

namespace pellucid::text {
namespace {

Result<std::optional<int64_t>> optional_id(const files::GgufFile& file, const char* key) {
  if (file.find(key) == nullptr) return std::optional<int64_t>();
  PELLUCID_ASSIGN(const int64_t id, file.get<int64_t>(key));
  return std::optional<int64_t>(id);
}

}  // namespace

Result<std::shared_ptr<const Tokenizer>> Tokenizer::from_gguf(const files::GgufFile& file) {
  Vocabulary v;
  PELLUCID_ASSIGN(v.model, file.get<std::string>("tokenizer.ggml.model"));
  PELLUCID_ASSIGN(v.pre, file.get_or<std::string>("tokenizer.ggml.pre", ""));
  PELLUCID_ASSIGN(v.tokens, file.get<std::vector<std::string>>("tokenizer.ggml.tokens"));
  PELLUCID_ASSIGN(v.token_types,
                  file.get_or<std::vector<int32_t>>("tokenizer.ggml.token_type", {}));
  PELLUCID_ASSIGN(v.merges, file.get_or<std::vector<std::string>>("tokenizer.ggml.merges", {}));
  PELLUCID_ASSIGN(v.bos, optional_id(file, "tokenizer.ggml.bos_token_id"));
  PELLUCID_ASSIGN(v.eos, optional_id(file, "tokenizer.ggml.eos_token_id"));
  PELLUCID_ASSIGN(v.unk, optional_id(file, "tokenizer.ggml.unknown_token_id"));
  PELLUCID_ASSIGN(v.pad, optional_id(file, "tokenizer.ggml.padding_token_id"));
  PELLUCID_ASSIGN(v.add_bos, file.get_or<bool>("tokenizer.ggml.add_bos_token", false));
  PELLUCID_ASSIGN(v.add_eos, file.get_or<bool>("tokenizer.ggml.add_eos_token", false));
  PELLUCID_ASSIGN(v.chat_template, file.get_or<std::string>("tokenizer.chat_template", ""));
  return from_vocabulary(std::move(v));
}

}  // namespace pellucid::text
