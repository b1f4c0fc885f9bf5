#pragma once
// Pre-tokeniser regular expressions: the `tokenizers` library's syntax (Oniguruma), run by PCRE2.
#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "base/status.h"

namespace pellucid::text {

/// Rewrites an Oniguruma pattern for PCRE2. `\p{..}`, `\s`, `\d`, `\w` become explicit ranges of
/// our own Unicode table, since PCRE2's Unicode version is another one; literals become hex
/// escapes. Errors: kUnsupported names the construct and its offset; kInvalidArgument for a
/// malformed one.
Result<std::string> translate_pattern(std::string_view oniguruma);

/// The pattern that matches exactly `text`.
std::string literal_pattern(std::string_view text);

/// A compiled pattern. Immutable; safe from any thread.
class Pattern {
 public:
  /// Compiles what `translate_pattern` or `literal_pattern` made.
  static Result<Pattern> compile(std::string_view pcre2_pattern);

  /// Calls `found(begin, end)` for each match in order; matches do not overlap. `text` must be
  /// valid UTF-8. Errors: kOverBudget when a match takes more steps than any sane pattern needs.
  Status find_all(std::string_view text, const std::function<void(size_t, size_t)>& found) const;

 private:
  struct Compiled;
  std::shared_ptr<const Compiled> compiled_;
};

}  // namespace pellucid::text
