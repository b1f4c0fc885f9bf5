// Reads rotary settings from config.json and GGUF metadata.
#include "base/nearest.h"
#include "model/config.h"

namespace pellucid::model {
namespace {

using Kind = RopeConfig::Kind;

Result<Kind> kind_from(const Fields& fields, const std::string& name) {
  if (name == "default" || name == "none") return Kind::kDefault;
  if (name == "linear") return Kind::kLinear;
  if (name == "dynamic") return Kind::kDynamic;
  if (name == "llama3") return Kind::kLlama3;
  if (name == "yarn") return Kind::kYarn;
  return error(Code::kUnsupported, "known: default, linear, dynamic, llama3, yarn",
               "{}: rotary scaling '{}'", fields.where(), name);
}

Status positive(const Fields& fields, std::string_view name, double value) {
  if (value > 0 && value < 1e15) return ok_status();
  return error(Code::kCorruptFile, "", "{}: rotary {} is {}, expected a positive number",
               fields.where(), name, value);
}

// What would divide by zero or take the logarithm of nothing.
Status check(const Fields& fields, const RopeConfig& rope) {
  PELLUCID_TRY(positive(fields, "theta", rope.theta));
  PELLUCID_TRY(positive(fields, "factor", rope.factor));
  if (rope.head_width % 2 != 0) {
    return error(Code::kUnsupported, "", "{}: rotary positions with heads of odd width {}",
                 fields.where(), rope.head_width);
  }
  if (rope.kind == Kind::kDynamic && rope.head_width <= 2) {
    return error(Code::kUnsupported, "", "{}: dynamic rotary scaling with heads of width {}",
                 fields.where(), rope.head_width);
  }
  if (rope.kind == Kind::kLlama3 || rope.kind == Kind::kYarn) {
    PELLUCID_TRY(positive(fields, "original_max_position_embeddings", rope.original_max_positions));
  }
  if (rope.kind == Kind::kLlama3) {
    PELLUCID_TRY(positive(fields, "low_freq_factor", rope.low_freq_factor));
    PELLUCID_TRY(positive(fields, "high_freq_factor - low_freq_factor",
                          rope.high_freq_factor - rope.low_freq_factor));
  }
  if (rope.kind == Kind::kYarn) {
    PELLUCID_TRY(positive(fields, "theta - 1", rope.theta - 1));
    PELLUCID_TRY(positive(fields, "beta_fast", rope.beta_fast));
    PELLUCID_TRY(positive(fields, "beta_slow", rope.beta_slow));
    PELLUCID_TRY(positive(fields, "attention_factor", rope.attention_factor));
  }
  return ok_status();
}

// transformers: `beta_fast = parameters.get("beta_fast") or 32`.
Result<double> number_or_if_zero(Fields& fields, const std::string& name, double otherwise) {
  PELLUCID_ASSIGN(const double value, fields.number_or(name, otherwise));
  return value == 0 ? otherwise : value;
}

Status read_yarn(Fields& fields, const std::string& prefix, RopeConfig& rope) {
  PELLUCID_ASSIGN(rope.beta_fast, number_or_if_zero(fields, prefix + "beta_fast", 32.0));
  PELLUCID_ASSIGN(rope.beta_slow, number_or_if_zero(fields, prefix + "beta_slow", 1.0));
  PELLUCID_ASSIGN(rope.truncate, fields.boolean_or(prefix + "truncate", true));
  PELLUCID_ASSIGN(const double mscale, fields.number_or(prefix + "mscale", 0));
  PELLUCID_ASSIGN(const double mscale_all, fields.number_or(prefix + "mscale_all_dim", 0));
  double otherwise = yarn_attention_factor(rope.factor, 1.0);
  if (mscale != 0 && mscale_all != 0) {
    otherwise =
        yarn_attention_factor(rope.factor, mscale) / yarn_attention_factor(rope.factor, mscale_all);
  }
  PELLUCID_ASSIGN(rope.attention_factor, fields.number_or(prefix + "attention_factor", otherwise));
  return ok_status();
}

}  // namespace

Result<RopeConfig> rope_from_json(Fields& fields, int64_t head_width, int64_t max_positions) {
  const bool renamed =
      fields.has("rope_parameters.rope_type") || fields.has("rope_parameters.rope_theta");
  const std::string prefix = renamed ? "rope_parameters." : "rope_scaling.";
  RopeConfig rope;
  rope.head_width = head_width;
  rope.max_positions = max_positions;
  const std::string type_name = fields.has(prefix + "rope_type") ? "rope_type" : "type";
  PELLUCID_ASSIGN(const std::string type, fields.text_or(prefix + type_name, "default"));
  PELLUCID_TRY(fields.require(prefix + "type", type));  // old files carry both
  PELLUCID_ASSIGN(rope.kind, kind_from(fields, type));
  PELLUCID_ASSIGN(const double old_theta, fields.number_or("rope_theta", 10000.0));
  PELLUCID_ASSIGN(rope.theta, fields.number_or(prefix + "rope_theta", old_theta));
  PELLUCID_TRY(fields.require("partial_rotary_factor", 1.0));
  PELLUCID_TRY(fields.require(prefix + "partial_rotary_factor", 1.0));
  PELLUCID_TRY(fields.require("rope_interleaved", false));
  if (rope.kind == Kind::kDefault) {
    if (fields.has(prefix + "factor")) {
      PELLUCID_TRY(fields.require(prefix + "factor", 1.0));
    }
  } else if (rope.kind == Kind::kYarn && !fields.has(prefix + "factor")) {
    PELLUCID_ASSIGN(const double original,
                    fields.number(prefix + "original_max_position_embeddings"));
    PELLUCID_TRY(positive(fields, "original_max_position_embeddings", original));
    rope.factor = static_cast<double>(max_positions) / original;
  } else {
    PELLUCID_ASSIGN(rope.factor, fields.number(prefix + "factor"));
  }
  PELLUCID_TRY(positive(fields, "factor", rope.factor));
  if (rope.kind == Kind::kLlama3 || rope.kind == Kind::kYarn) {
    // transformers falls back to the context length where the field is missing.
    PELLUCID_ASSIGN(rope.original_max_positions,
                    fields.number_or(prefix + "original_max_position_embeddings",
                                     static_cast<double>(max_positions)));
  }
  if (rope.kind == Kind::kLlama3) {
    PELLUCID_ASSIGN(rope.low_freq_factor, fields.number(prefix + "low_freq_factor"));
    PELLUCID_ASSIGN(rope.high_freq_factor, fields.number(prefix + "high_freq_factor"));
  }
  if (rope.kind == Kind::kYarn) PELLUCID_TRY(read_yarn(fields, prefix, rope));
  PELLUCID_TRY(check(fields, rope));
  return rope;
}

Result<RopeConfig> rope_from_gguf(Fields& fields, int64_t head_width, int64_t max_positions) {
  RopeConfig rope;
  rope.head_width = head_width;
  rope.max_positions = max_positions;
  PELLUCID_ASSIGN(rope.theta, fields.number_or("rope.freq_base", 10000.0));
  PELLUCID_TRY(fields.require("rope.dimension_count", head_width));
  PELLUCID_ASSIGN(const std::string type, fields.text_or("rope.scaling.type", "none"));
  PELLUCID_ASSIGN(rope.kind, kind_from(fields, type));
  PELLUCID_ASSIGN(rope.factor, fields.number_or("rope.scaling.factor", 1.0));
  if (fields.has("rope.scale_linear")) {  // files from before rope.scaling.*
    PELLUCID_ASSIGN(rope.factor, fields.number("rope.scale_linear"));
    rope.kind = Kind::kLinear;
  }
  if (rope.kind == Kind::kDefault) {
    PELLUCID_TRY(fields.require("rope.scaling.factor", 1.0));
    rope.factor = 1.0;
  }
  PELLUCID_ASSIGN(
      rope.original_max_positions,
      fields.number_or("rope.scaling.original_context_length", static_cast<double>(max_positions)));
  if (rope.kind == Kind::kYarn) {
    // llama.cpp multiplies its own 0.1 * ln(factor) + 1 by this.
    PELLUCID_ASSIGN(const double times, fields.number_or("rope.scaling.attn_factor", 1.0));
    PELLUCID_ASSIGN(rope.beta_fast, fields.number_or("rope.scaling.yarn_beta_fast", 32.0));
    PELLUCID_ASSIGN(rope.beta_slow, fields.number_or("rope.scaling.yarn_beta_slow", 1.0));
    rope.attention_factor = times * yarn_attention_factor(rope.factor, 1.0);
  } else if (rope.kind == Kind::kDynamic || rope.kind == Kind::kLlama3) {
    return error(Code::kUnsupported, "", "{}: rotary scaling '{}' in a GGUF file", fields.where(),
                 type);
  }
  PELLUCID_TRY(check(fields, rope));
  return rope;
}

}  // namespace pellucid::model
