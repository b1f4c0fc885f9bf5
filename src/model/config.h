#pragma once
// The fields of a model's own description, config.json or GGUF metadata, as one flat list: every
// field is taken by somebody or known not to matter, else the model is refused by the field's name.
#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/status.h"
#include "model/rope.h"
#include "tensor/weight_source.h"

namespace pellucid::model {

/// null, a boolean, a number, a text; other JSON (lists) as its text.
struct FieldList {
  std::string json;
};
using Field = std::variant<std::monostate, bool, int64_t, double, std::string, FieldList>;

class Fields {
 public:
  /// Nested objects become "rope_scaling.factor". Errors: kCorruptFile.
  static Result<Fields> from_json(const std::string& text, std::string where);
  /// Keys that begin with "<architecture>." lose that; all other keys are left out (they describe
  /// tokenizers and authors).
  static Result<Fields> from_gguf(const files::GgufFile& file);

  /// Of whichever kind the files are.
  static Result<Fields> of(const tensor::ModelFiles& files);

  const std::string& where() const { return where_; }
  /// Is there such a field, other than null?
  bool has(std::string_view name) const;

  // The value of a field, taken. Errors: kNotFound (no such field), kCorruptFile (wrong kind).
  Result<int64_t> integer(std::string_view name);
  Result<double> number(std::string_view name);
  Result<std::string> text(std::string_view name);
  // `otherwise` when there is no such field or it is null.
  Result<int64_t> integer_or(std::string_view name, int64_t otherwise);
  Result<double> number_or(std::string_view name, double otherwise);
  Result<bool> boolean_or(std::string_view name, bool otherwise);
  Result<std::string> text_or(std::string_view name, std::string otherwise);
  /// An integer in [1, most]. Sizes are checked before anything is computed from them.
  Result<int64_t> size(std::string_view name, int64_t most = int64_t{1} << 24);

  /// kUnsupported unless the field is missing, null or equal to `only`: for fields that change the
  /// maths in ways that the family does not know.
  Status require(std::string_view name, const Field& only);
  /// kUnsupported, by name and value, for a field that nobody took and that is not in `ignorable`
  /// (a name, or a beginning that ends in '*') nor in the list of fields that never matter.
  Status refuse_unknown(std::span<const std::string_view> ignorable) const;

 private:
  const Field* take(std::string_view name);
  Status wrong_kind(std::string_view name, const Field& field, std::string_view wanted) const;

  std::string where_;
  std::map<std::string, Field, std::less<>> fields_;
  std::set<std::string, std::less<>> taken_;
};

/// "rope_parameters" (transformers 5) or "rope_theta" and "rope_scaling" (before), or GGUF's
/// "rope.*". Errors: kUnsupported (kinds and fields that are not known, partial rotary).
Result<RopeConfig> rope_from_json(Fields& fields, int64_t head_width, int64_t max_positions);
Result<RopeConfig> rope_from_gguf(Fields& fields, int64_t head_width, int64_t max_positions);

}  // namespace pellucid::model
