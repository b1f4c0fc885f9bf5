// tokenizer.json and tokenizer_config.json of Hugging Face folders. Every key is known or refused.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <initializer_list>

#include "files/json.h"
#include "text/bpe_tokenizer.h"

namespace pellucid::text {
namespace {

using Json = nlohmann::json;
constexpr int kDepthMax = 64;

Status corrupt(std::string_view what) {
  return error(Code::kCorruptFile, "is this the model's own tokenizer.json?", "tokenizer: {}",
               what);
}
Status unsupported(std::string_view what) {
  return error(Code::kUnsupported, "this kind of tokenizer is not supported yet", "tokenizer: {}",
               what);
}

// The library's messages and keys come from the file: keep what goes into an error short.
std::string brief(std::string_view text) { return std::string(text.substr(0, 200)); }

Result<Json> parse(std::string_view text, std::string_view name) {
  PELLUCID_TRY(files::check_json_depth(text, kDepthMax, name));
  Json json = Json::parse(text.begin(), text.end(), nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded()) return corrupt(std::string(name) + " is not JSON");
  if (!json.is_object()) return corrupt(std::string(name) + " is not an object");
  return json;
}

// An object's field, or null. `json` may itself be null.
const Json& field(const Json& json, const char* key) {
  static const Json null;
  if (!json.is_object()) return null;
  const auto found = json.find(key);
  return found == json.end() ? null : *found;
}

Status only_keys(const Json& json, std::string_view where,
                 std::initializer_list<std::string_view> known) {
  for (const auto& [key, value] : json.items()) {
    if (std::find(known.begin(), known.end(), key) == known.end()) {
      return unsupported(fmt::format("{}.{}", where, brief(key)));
    }
  }
  return ok_status();
}

Result<bool> flag(const Json& json, const char* key, bool fallback) {
  const Json& value = field(json, key);
  if (value.is_null()) return fallback;
  if (!value.is_boolean()) return corrupt(std::string(key) + " is not true or false");
  return value.get<bool>();
}

Result<std::string> text_of(const Json& json, const char* key) {
  const Json& value = field(json, key);
  if (value.is_null()) return std::string();
  if (!value.is_string()) return corrupt(std::string(key) + " is not a string");
  return value.get<std::string>();
}

Result<int32_t> id_of(const Json& value, std::string_view where) {
  if (!value.is_number_integer()) return corrupt(std::string(where) + " is not an integer");
  const bool fits =
      value.is_number_unsigned() ? value.get<uint64_t>() <= INT32_MAX : value.get<int64_t>() >= 0;
  if (!fits) return corrupt(std::string(where) + " is out of range");
  return static_cast<int32_t>(value.get<int64_t>());
}

Status read_model(const Json& model, TokenizerParts& parts) {
  if (!model.is_object()) return corrupt("model is missing");
  PELLUCID_ASSIGN(const std::string type, text_of(model, "type"));
  if (!type.empty() && type != "BPE") return unsupported("model.type " + brief(type));
  PELLUCID_TRY(
      only_keys(model, "model",
                {"type", "dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix",
                 "fuse_unk", "byte_fallback", "ignore_merges", "vocab", "merges"}));
  const Json& dropout = field(model, "dropout");
  if (!dropout.is_null() && dropout != 0.0) return unsupported("model.dropout");
  for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    PELLUCID_ASSIGN(const std::string affix, text_of(model, key));
    if (!affix.empty()) return unsupported(std::string("model.") + key);
  }
  PELLUCID_ASSIGN(parts.bpe.fuse_unk, flag(model, "fuse_unk", false));
  PELLUCID_ASSIGN(parts.bpe.byte_fallback, flag(model, "byte_fallback", false));
  PELLUCID_ASSIGN(parts.bpe.ignore_merges, flag(model, "ignore_merges", false));

  const Json& vocab = field(model, "vocab");
  if (!vocab.is_object()) return corrupt("model.vocab is not an object");
  parts.vocabulary.reserve(vocab.size());
  for (const auto& [token, id] : vocab.items()) {
    PELLUCID_ASSIGN(const int32_t number, id_of(id, "an id in model.vocab"));
    parts.vocabulary.emplace(token, number);
  }
  PELLUCID_ASSIGN(const std::string unk, text_of(model, "unk_token"));
  if (!unk.empty()) {
    const auto found = parts.vocabulary.find(unk);
    if (found == parts.vocabulary.end()) return corrupt("model.unk_token is not in the vocabulary");
    parts.bpe.unk = found->second;
  }
  const Json& merges = field(model, "merges");
  if (!merges.is_array()) return corrupt("model.merges is not a list");
  parts.merges.reserve(merges.size());
  for (const Json& merge : merges) {
    if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string()) {
      parts.merges.emplace_back(merge[0].get<std::string>(), merge[1].get<std::string>());
      continue;
    }
    const std::string pair = merge.is_string() ? merge.get<std::string>() : "";
    if (pair.starts_with("#version") && parts.merges.empty()) continue;
    const size_t space = pair.find(' ');
    if (space == std::string::npos || pair.find(' ', space + 1) != std::string::npos) {
      return corrupt("a merge in model.merges is not two tokens");
    }
    parts.merges.emplace_back(pair.substr(0, space), pair.substr(space + 1));
  }
  return ok_status();
}

Status read_added_tokens(const Json& list, TokenizerParts& parts) {
  if (list.is_null()) return ok_status();
  if (!list.is_array()) return corrupt("added_tokens is not a list");
  for (const Json& item : list) {
    if (!item.is_object()) return corrupt("an added token is not an object");
    PELLUCID_TRY(
        only_keys(item, "added_tokens",
                  {"id", "content", "single_word", "lstrip", "rstrip", "normalized", "special"}));
    AddedToken token;
    PELLUCID_ASSIGN(token.id, id_of(field(item, "id"), "the id of an added token"));
    PELLUCID_ASSIGN(token.content, text_of(item, "content"));
    PELLUCID_ASSIGN(token.special, flag(item, "special", false));
    PELLUCID_ASSIGN(token.single_word, flag(item, "single_word", false));
    PELLUCID_ASSIGN(token.lstrip, flag(item, "lstrip", false));
    PELLUCID_ASSIGN(token.rstrip, flag(item, "rstrip", false));
    PELLUCID_ASSIGN(token.normalized, flag(item, "normalized", !token.special));
    parts.added.push_back(std::move(token));
  }
  return ok_status();
}

Result<PreTokenizer::Step> read_split(const Json& json) {
  PELLUCID_TRY(only_keys(json, "pre_tokenizer.Split", {"type", "pattern", "behavior", "invert"}));
  const Json& pattern = field(json, "pattern");
  const Json& regex = field(pattern, "Regex");
  const Json& literal = field(pattern, "String");
  std::string translated;
  if (regex.is_string()) {
    PELLUCID_ASSIGN(translated, translate_pattern(regex.get<std::string>()));
  } else if (literal.is_string() && !literal.get<std::string>().empty()) {
    translated = literal_pattern(literal.get<std::string>());
  } else {
    return corrupt("pre_tokenizer.Split.pattern is neither Regex nor String");
  }
  PELLUCID_ASSIGN(const std::string behavior, text_of(json, "behavior"));
  static constexpr std::pair<std::string_view, SplitBehavior> kBehaviors[] = {
      {"Removed", SplitBehavior::kRemoved},
      {"Isolated", SplitBehavior::kIsolated},
      {"MergedWithPrevious", SplitBehavior::kMergedWithPrevious},
      {"MergedWithNext", SplitBehavior::kMergedWithNext},
      {"Contiguous", SplitBehavior::kContiguous},
  };
  const auto* known = std::find_if(std::begin(kBehaviors), std::end(kBehaviors),
                                   [&](const auto& entry) { return entry.first == behavior; });
  if (known == std::end(kBehaviors)) {
    return unsupported("pre_tokenizer.Split.behavior " + brief(behavior));
  }
  PELLUCID_ASSIGN(const bool invert, flag(json, "invert", false));
  PELLUCID_ASSIGN(Pattern compiled, Pattern::compile(translated));
  return PreTokenizer::Step(SplitStep{std::move(compiled), known->second, invert});
}

Status read_pre_tokenizer(const Json& json, std::vector<PreTokenizer::Step>& steps) {
  if (json.is_null()) return ok_status();
  PELLUCID_ASSIGN(const std::string type, text_of(json, "type"));
  if (type == "Sequence") {
    PELLUCID_TRY(only_keys(json, "pre_tokenizer.Sequence", {"type", "pretokenizers"}));
    const Json& list = field(json, "pretokenizers");
    if (!list.is_array()) return corrupt("pre_tokenizer.Sequence without a list");
    for (const Json& item : list) PELLUCID_TRY(read_pre_tokenizer(item, steps));
  } else if (type == "Digits") {
    PELLUCID_TRY(only_keys(json, "pre_tokenizer.Digits", {"type", "individual_digits"}));
    PELLUCID_ASSIGN(const bool individual, flag(json, "individual_digits", false));
    steps.emplace_back(DigitsStep{individual});
  } else if (type == "ByteLevel") {
    PELLUCID_TRY(only_keys(json, "pre_tokenizer.ByteLevel",
                           {"type", "add_prefix_space", "trim_offsets", "use_regex"}));
    ByteLevelStep step;
    PELLUCID_ASSIGN(step.add_prefix_space, flag(json, "add_prefix_space", true));
    PELLUCID_ASSIGN(step.use_regex, flag(json, "use_regex", true));
    steps.emplace_back(step);
  } else if (type == "Split") {
    PELLUCID_ASSIGN(PreTokenizer::Step step, read_split(json));
    steps.push_back(std::move(step));
  } else {
    return unsupported("pre_tokenizer " + brief(type));
  }
  return ok_status();
}

// What TemplateProcessing puts around a single text: the ids before and after `$A`.
Status read_template(const Json& json, TokenizerParts& parts) {
  PELLUCID_TRY(only_keys(json, "post_processor.TemplateProcessing",
                         {"type", "single", "pair", "special_tokens"}));
  const Json& single = field(json, "single");
  if (!single.is_array()) return corrupt("post_processor.TemplateProcessing.single is not a list");
  std::vector<int64_t> before;
  std::vector<int64_t> after;
  int sequences = 0;
  for (const Json& piece : single) {
    if (const Json& sequence = field(piece, "Sequence"); sequence.is_object()) {
      if (field(sequence, "id") != "A") return unsupported("a template for one text with $B");
      ++sequences;
      continue;
    }
    const Json& name = field(field(piece, "SpecialToken"), "id");
    if (!name.is_string()) return corrupt("a piece of post_processor.TemplateProcessing.single");
    const Json& ids =
        field(field(field(json, "special_tokens"), name.get<std::string>().c_str()), "ids");
    if (!ids.is_array()) return corrupt("a template names a special token that it does not define");
    for (const Json& id : ids) {
      PELLUCID_ASSIGN(const int32_t number, id_of(id, "an id in post_processor"));
      (sequences == 0 ? before : after).push_back(number);
    }
  }
  if (sequences != 1) return unsupported("a template that does not hold the text exactly once");
  parts.prefix.insert(parts.prefix.begin(), before.begin(), before.end());
  parts.suffix.insert(parts.suffix.end(), after.begin(), after.end());
  return ok_status();
}

Status read_post_processor(const Json& json, TokenizerParts& parts) {
  if (json.is_null()) return ok_status();
  PELLUCID_ASSIGN(const std::string type, text_of(json, "type"));
  if (type == "Sequence") {
    const Json& list = field(json, "processors");
    if (!list.is_array()) return corrupt("post_processor.Sequence without a list");
    for (const Json& item : list) PELLUCID_TRY(read_post_processor(item, parts));
  } else if (type == "TemplateProcessing") {
    PELLUCID_TRY(read_template(json, parts));
  } else if (type != "ByteLevel") {  // ByteLevel only trims offsets; ours never are
    return unsupported("post_processor " + brief(type));
  }
  return ok_status();
}

// A special token of tokenizer_config.json: "text" or {"content": "text"}.
Result<std::optional<int64_t>> special_id(const Json& config, const char* key,
                                          const TokenizerParts& parts) {
  const Json& value = field(config, key);
  const Json& content = value.is_object() ? field(value, "content") : value;
  if (content.is_null()) return std::optional<int64_t>();
  if (!content.is_string()) return corrupt(std::string(key) + " is not a string");
  const auto text = content.get<std::string>();
  for (const AddedToken& token : parts.added) {
    if (token.content == text) return std::optional<int64_t>(token.id);
  }
  const auto found = parts.vocabulary.find(text);
  if (found == parts.vocabulary.end()) {
    return corrupt(fmt::format("{} `{}` is not in the vocabulary", key, brief(text)));
  }
  return std::optional<int64_t>(found->second);
}

Status read_chat_template(const Json& value, TokenizerParts& parts) {
  if (value.is_null()) return ok_status();
  if (value.is_string()) {
    parts.chat_template = value.get<std::string>();
    return ok_status();
  }
  if (value.is_array()) {  // several, by name
    for (const Json& item : value) {
      if (field(item, "name") == "default" && field(item, "template").is_string()) {
        parts.chat_template = field(item, "template").get<std::string>();
        return ok_status();
      }
    }
  }
  return corrupt("chat_template is neither text nor a list with a `default`");
}

Status read_config(const Json& config, TokenizerParts& parts) {
  PELLUCID_ASSIGN(parts.bos, special_id(config, "bos_token", parts));
  PELLUCID_ASSIGN(parts.eos, special_id(config, "eos_token", parts));
  if (!field(config, "unk_token").is_null()) {
    PELLUCID_ASSIGN(parts.unk, special_id(config, "unk_token", parts));
  }
  PELLUCID_ASSIGN(parts.pad, special_id(config, "pad_token", parts));
  PELLUCID_TRY(read_chat_template(field(config, "chat_template"), parts));
  // Either flag replaces the post-processor, as in transformers.
  if (!field(config, "add_bos_token").is_null() || !field(config, "add_eos_token").is_null()) {
    PELLUCID_ASSIGN(const bool add_bos, flag(config, "add_bos_token", false));
    PELLUCID_ASSIGN(const bool add_eos, flag(config, "add_eos_token", false));
    parts.prefix.clear();
    parts.suffix.clear();
    if (add_bos && parts.bos) parts.prefix.push_back(*parts.bos);
    if (add_eos && parts.eos) parts.suffix.push_back(*parts.eos);
  }
  // Tokens that only the config knows would change how text is cut.
  const Json& decoder = field(config, "added_tokens_decoder");
  if (!decoder.is_null() && !decoder.is_object()) return corrupt("added_tokens_decoder");
  for (const auto& entry : decoder.items()) {
    PELLUCID_ASSIGN(const std::string content, text_of(entry.value(), "content"));
    const bool known =
        std::any_of(parts.added.begin(), parts.added.end(), [&](const AddedToken& t) {
          return t.content == content && std::to_string(t.id) == entry.key();
        });
    if (!known) {
      return unsupported(fmt::format(
          "added_tokens_decoder of tokenizer_config.json has `{}`, tokenizer.json has not",
          brief(content)));
    }
  }
  return ok_status();
}

}  // namespace

Result<std::shared_ptr<const Tokenizer>> Tokenizer::from_json(
    std::string_view tokenizer_json, std::string_view tokenizer_config_json) {
  PELLUCID_ASSIGN(const Json json, parse(tokenizer_json, "tokenizer.json"));
  // `truncation` and `padding` are settings of a batch, not of the tokenizer: transformers resets
  // them for every call, so they are read and not applied.
  PELLUCID_TRY(only_keys(json, "tokenizer.json",
                         {"version", "truncation", "padding", "added_tokens", "normalizer",
                          "pre_tokenizer", "post_processor", "decoder", "model"}));
  if (const Json& normalizer = field(json, "normalizer"); !normalizer.is_null()) {
    PELLUCID_ASSIGN(const std::string type, text_of(normalizer, "type"));
    return unsupported("normalizer " + brief(type));
  }
  PELLUCID_ASSIGN(const std::string decoder, text_of(field(json, "decoder"), "type"));
  if (decoder != "ByteLevel") {
    return unsupported(fmt::format("decoder {}", decoder.empty() ? "null" : brief(decoder)));
  }
  TokenizerParts parts;
  PELLUCID_TRY(read_model(field(json, "model"), parts));
  PELLUCID_TRY(read_added_tokens(field(json, "added_tokens"), parts));
  PELLUCID_TRY(read_pre_tokenizer(field(json, "pre_tokenizer"), parts.pre_tokenizer));
  PELLUCID_TRY(read_post_processor(field(json, "post_processor"), parts));
  if (parts.bpe.unk) parts.unk = *parts.bpe.unk;
  if (!tokenizer_config_json.empty()) {
    PELLUCID_ASSIGN(const Json config, parse(tokenizer_config_json, "tokenizer_config.json"));
    PELLUCID_TRY(read_config(config, parts));
  }
  return BpeTokenizer::make(std::move(parts));
}

}  // namespace pellucid::text
