#include "model/config.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "base/nearest.h"
#include "files/gguf.h"
#include "files/json.h"

namespace pellucid::model {
namespace {

using nlohmann::json;

constexpr int kDepthMax = 16;

// Fields of config.json that describe training, generation, files or authors.
constexpr std::string_view kNeverMatter[] = {
    "_*",
    "architectures",
    "attention_dropout",
    "attn_pdrop",
    "auto_map",
    "bos_token_id",
    "chunk_size_feed_forward",
    "dtype",
    "embd_pdrop",
    "eos_token_id",
    "finetuning_task",
    "gradient_checkpointing",
    "id2label.*",
    "initializer_range",
    "is_llama_config",
    "keys_to_ignore_at_inference",
    "label2id.*",
    "model_type",
    "output_attentions",
    "output_hidden_states",
    "pad_token_id",
    "pretraining_tp",
    "problem_type",
    "resid_pdrop",
    "return_dict",
    "sep_token_id",
    "summary_*",
    "task_specific_params.*",
    "tokenizer_class",
    "torch_dtype",
    "transformers.js_config.*",
    "transformers_version",
    "unsloth_*",
    "use_cache",
};

bool matches(std::string_view pattern, std::string_view name) {
  if (!pattern.ends_with('*')) return name == pattern;
  pattern.remove_suffix(1);
  // "id2label.*" also covers an empty or null "id2label".
  return name.starts_with(pattern) ||
         (pattern.ends_with('.') && name == pattern.substr(0, pattern.size() - 1));
}

bool listed(std::span<const std::string_view> patterns, std::string_view name) {
  for (const std::string_view pattern : patterns) {
    if (matches(pattern, name)) return true;
  }
  return false;
}

void flatten(const json& value, const std::string& prefix,
             std::map<std::string, Field, std::less<>>& out) {
  for (const auto& [key, item] : value.items()) {
    const std::string name = prefix + key;
    if (item.is_object() && !item.empty()) {
      flatten(item, name + ".", out);
    } else if (item.is_null() || item.is_object()) {
      out[name] = std::monostate();
    } else if (item.is_boolean()) {
      out[name] = item.get<bool>();
    } else if (item.is_number_unsigned() && item.get<uint64_t>() > INT64_MAX) {
      out[name] = item.get<double>();
    } else if (item.is_number_integer()) {
      out[name] = item.get<int64_t>();
    } else if (item.is_number()) {
      out[name] = item.get<double>();
    } else if (item.is_string()) {
      out[name] = item.get<std::string>();
    } else {
      out[name] = FieldList{item.dump(-1, ' ', false, json::error_handler_t::replace)};
    }
  }
}

std::string shown(const Field& field) {
  struct Show {
    std::string operator()(std::monostate) const { return "null"; }
    std::string operator()(bool value) const { return value ? "true" : "false"; }
    std::string operator()(int64_t value) const { return fmt::format("{}", value); }
    std::string operator()(double value) const { return fmt::format("{}", value); }
    std::string operator()(const std::string& value) const { return files::printable(value); }
    std::string operator()(const FieldList& value) const { return files::printable(value.json); }
  };
  return std::visit(Show{}, field);
}

// 1 and 1.0 are the same setting.
bool equal(const Field& a, const Field& b) {
  const auto number = [](const Field& field) -> std::optional<double> {
    if (const auto* value = std::get_if<int64_t>(&field)) return static_cast<double>(*value);
    if (const auto* value = std::get_if<double>(&field)) return *value;
    return std::nullopt;
  };
  if (number(a) && number(b)) return *number(a) == *number(b);
  if (a.index() != b.index() || std::holds_alternative<FieldList>(a)) return false;
  if (const auto* value = std::get_if<bool>(&a)) return *value == std::get<bool>(b);
  if (const auto* value = std::get_if<std::string>(&a)) return *value == std::get<std::string>(b);
  return true;
}

}  // namespace

Result<Fields> Fields::of(const tensor::ModelFiles& files) {
  if (files.is_gguf) return from_gguf(*files.gguf);
  return from_json(files.config_json, (files.path / "config.json").string());
}

Result<Fields> Fields::from_json(const std::string& text, std::string where) {
  PELLUCID_TRY(files::check_json_depth(text, kDepthMax, where));
  const json root = json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!root.is_object()) {
    return error(Code::kCorruptFile, "download it again", "{} is not a JSON object", where);
  }
  Fields fields;
  fields.where_ = std::move(where);
  flatten(root, "", fields.fields_);
  return fields;
}

Result<Fields> Fields::from_gguf(const files::GgufFile& file) {
  PELLUCID_ASSIGN(const auto architecture, file.get<std::string>("general.architecture"));
  Fields fields;
  fields.where_ = file.name();
  for (const std::string_view key : file.keys()) {
    if (!key.starts_with(architecture + ".")) continue;
    Field& field = fields.fields_[std::string(key.substr(architecture.size() + 1))];
    const auto& data = file.find(key)->data;
    if (const auto* value = std::get_if<uint64_t>(&data)) {
      if (*value > INT64_MAX) {
        field = static_cast<double>(*value);
      } else {
        field = static_cast<int64_t>(*value);
      }
    } else if (const auto* value = std::get_if<int64_t>(&data)) {
      field = *value;
    } else if (const auto* value = std::get_if<double>(&data)) {
      field = *value;
    } else if (const auto* value = std::get_if<bool>(&data)) {
      field = *value;
    } else if (const auto* value = std::get_if<std::string_view>(&data)) {
      field = std::string(*value);
    } else {
      field = FieldList{file.find(key)->type_name()};
    }
  }
  return fields;
}

bool Fields::has(std::string_view name) const {
  const auto found = fields_.find(name);
  return found != fields_.end() && !std::holds_alternative<std::monostate>(found->second);
}

const Field* Fields::take(std::string_view name) {
  taken_.emplace(name);
  const auto found = fields_.find(name);
  if (found == fields_.end() || std::holds_alternative<std::monostate>(found->second)) {
    return nullptr;
  }
  return &found->second;
}

Status Fields::wrong_kind(std::string_view name, const Field& field,
                          std::string_view wanted) const {
  return error(Code::kCorruptFile, "", "{}: {} is {}, expected {}", where_, name, shown(field),
               wanted);
}

Result<int64_t> Fields::integer(std::string_view name) {
  if (!has(name)) {
    std::vector<std::string> known;
    for (const auto& [key, field] : fields_) known.push_back(key);
    return error(Code::kNotFound, did_you_mean(name, known), "{} has no field {}", where_, name);
  }
  const Field& field = *take(name);
  if (const auto* value = std::get_if<int64_t>(&field)) return *value;
  return wrong_kind(name, field, "an integer");
}

Result<double> Fields::number(std::string_view name) {
  if (has(name)) {
    const Field& field = *take(name);
    if (const auto* value = std::get_if<int64_t>(&field)) return static_cast<double>(*value);
    if (const auto* value = std::get_if<double>(&field)) return *value;
    return wrong_kind(name, field, "a number");
  }
  return integer(name).status();  // the same error
}

Result<std::string> Fields::text(std::string_view name) {
  if (has(name)) {
    const Field& field = *take(name);
    if (const auto* value = std::get_if<std::string>(&field)) return *value;
    return wrong_kind(name, field, "a text");
  }
  return integer(name).status();
}

Result<int64_t> Fields::integer_or(std::string_view name, int64_t otherwise) {
  if (has(name)) return integer(name);
  take(name);
  return otherwise;
}

Result<double> Fields::number_or(std::string_view name, double otherwise) {
  if (has(name)) return number(name);
  take(name);
  return otherwise;
}

Result<bool> Fields::boolean_or(std::string_view name, bool otherwise) {
  const Field* field = take(name);
  if (field == nullptr) return otherwise;
  if (const auto* value = std::get_if<bool>(field)) return *value;
  return wrong_kind(name, *field, "true or false");
}

Result<std::string> Fields::text_or(std::string_view name, std::string otherwise) {
  if (has(name)) return text(name);
  take(name);
  return otherwise;
}

Result<int64_t> Fields::size(std::string_view name, int64_t most) {
  PELLUCID_ASSIGN(const int64_t value, integer(name));
  if (value < 1 || value > most) {
    return error(Code::kCorruptFile, "", "{}: {} is {}, expected 1 to {}", where_, name, value,
                 most);
  }
  return value;
}

Status Fields::require(std::string_view name, const Field& only) {
  const Field* field = take(name);
  if (field == nullptr || equal(*field, only)) return ok_status();
  return error(Code::kUnsupported, "this build computes this family without it", "{}: {} = {}",
               where_, name, shown(*field));
}

Status Fields::refuse_unknown(std::span<const std::string_view> ignorable) const {
  for (const auto& [name, field] : fields_) {
    if (std::holds_alternative<std::monostate>(field) || taken_.contains(name) ||
        listed(ignorable, name) || listed(kNeverMatter, name)) {
      continue;
    }
    return error(Code::kUnsupported,
                 "it may change what the model computes; remove it if you know that it does not",
                 "{}: unknown field {} = {}", where_, name, shown(field));
  }
  return ok_status();
}

}  // namespace pellucid::model
