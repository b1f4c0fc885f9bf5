// The tokenizer of a GGUF file.
#include <algorithm>

#include "base/nearest.h"
#include "text/bpe_tokenizer.h"

namespace pellucid::text {
namespace {

// What GGUF's names for pre-tokenisers mean. "default" is what llama.cpp does with files that name
// none: patterns of its own in place of ByteLevel's.
struct Meaning {
  std::string_view name;
  bool individual_digits = false;
  std::vector<std::string_view> patterns = {};
};
const std::vector<Meaning>& meanings() {
  static const std::vector<Meaning> known{
      {"gpt-2"},
      {"smollm", true},
      {"starcoder", true},
      {"default",
       false,
       {R"([\p{P}\$\+<=>\^~\|]+)",
        R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S))", R"(\p{N}+)",
        R"([0-9][0-9][0-9])"}},
  };
  return known;
}

Result<std::vector<PreTokenizer::Step>> steps_of(const std::string& name) {
  const std::string_view key = name.empty() ? "default" : std::string_view(name);
  const auto found = std::find_if(meanings().begin(), meanings().end(),
                                  [&](const Meaning& meaning) { return meaning.name == key; });
  if (found == meanings().end()) {
    std::vector<std::string> names;
    for (const Meaning& meaning : meanings()) names.emplace_back(meaning.name);
    return error(Code::kUnsupported,
                 did_you_mean(name, names, "load the model's Hugging Face folder instead"),
                 "tokenizer.ggml.pre is `{}`: unknown pre-tokeniser", name);
  }
  std::vector<PreTokenizer::Step> steps;
  // Not the pattern \p{N}: what the library's Digits takes for a digit is of a newer Unicode
  // version.
  if (found->individual_digits) steps.emplace_back(DigitsStep{.individual_digits = true});
  for (const std::string_view pattern : found->patterns) {
    PELLUCID_ASSIGN(const std::string translated, translate_pattern(pattern));
    PELLUCID_ASSIGN(Pattern compiled, Pattern::compile(translated));
    steps.emplace_back(SplitStep{std::move(compiled), SplitBehavior::kIsolated, false});
  }
  steps.emplace_back(
      ByteLevelStep{.add_prefix_space = false, .use_regex = found->patterns.empty()});
  return steps;
}

}  // namespace

Result<std::shared_ptr<const Tokenizer>> Tokenizer::from_vocabulary(Vocabulary vocabulary) {
  if (vocabulary.model != "gpt2") {
    return error(Code::kUnsupported, "byte-level BPE (`gpt2`) is the only kind so far",
                 "tokenizer.ggml.model is `{}`", vocabulary.model);
  }
  const size_t count = vocabulary.tokens.size();
  if (!vocabulary.token_types.empty() && vocabulary.token_types.size() != count) {
    return error(Code::kCorruptFile, "", "{} tokens but {} token types", count,
                 vocabulary.token_types.size());
  }
  if (count > INT32_MAX) return error(Code::kCorruptFile, "", "{} tokens", count);
  TokenizerParts parts;
  for (size_t id = 0; id < count; ++id) {
    const int32_t type = vocabulary.token_types.empty() ? 1 : vocabulary.token_types[id];
    std::string& token = vocabulary.tokens[id];
    if (type < 1 || type > 5) {
      return error(Code::kUnsupported, "",
                   "token {} `{}` has type {} (byte tokens do not occur in "
                   "byte-level BPE)",
                   id, token, type);
    }
    const bool added = type == 3 || type == 4;
    if (added) {
      parts.added.push_back(
          {.id = static_cast<int32_t>(id), .content = token, .special = type == 3});
    }
    const auto [slot, fresh] = parts.vocabulary.emplace(std::move(token), static_cast<int32_t>(id));
    if (!fresh) {
      return error(Code::kCorruptFile, "", "tokens {} and {} are both `{}`", slot->second, id,
                   slot->first);
    }
  }
  for (const std::string& merge : vocabulary.merges) {
    const size_t space = merge.find(' ');
    if (space == std::string::npos || merge.find(' ', space + 1) != std::string::npos) {
      return error(Code::kCorruptFile, "", "merge `{}` is not two tokens", merge);
    }
    parts.merges.emplace_back(merge.substr(0, space), merge.substr(space + 1));
  }
  PELLUCID_ASSIGN(parts.pre_tokenizer, steps_of(vocabulary.pre));
  parts.bos = vocabulary.bos;
  parts.eos = vocabulary.eos;
  parts.unk = vocabulary.unk;
  parts.pad = vocabulary.pad;
  if (vocabulary.add_bos) {
    if (!parts.bos) return error(Code::kCorruptFile, "", "add_bos_token without a bos_token_id");
    parts.prefix.push_back(*parts.bos);
  }
  if (vocabulary.add_eos) {
    if (!parts.eos) return error(Code::kCorruptFile, "", "add_eos_token without an eos_token_id");
    parts.suffix.push_back(*parts.eos);
  }
  parts.chat_template = std::move(vocabulary.chat_template);
  return BpeTokenizer::make(std::move(parts));
}

}  // namespace pellucid::text
