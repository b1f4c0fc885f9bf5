#pragma once
// Cuts text into the words that byte-pair encoding may not cross.
#include <cstddef>
#include <string_view>
#include <variant>
#include <vector>

#include "base/status.h"
#include "text/pattern.h"

namespace pellucid::text {

/// Each run of numeric characters becomes a piece of its own, or each single one.
struct DigitsStep {
  bool individual_digits = false;
};

enum class SplitBehavior { kRemoved, kIsolated, kMergedWithPrevious, kMergedWithNext, kContiguous };

struct SplitStep {
  Pattern pattern;
  SplitBehavior behavior = SplitBehavior::kIsolated;
  bool invert = false;
};

/// Ends every sequence: from here on text is bytes.
struct ByteLevelStep {
  bool add_prefix_space = false;
  bool use_regex = true;  // GPT-2's own pattern
};

/// Bytes [begin, end) of the text; `prefixed`: with a space in front that the text does not have.
struct Word {
  size_t begin;
  size_t end;
  bool prefixed = false;
};

class PreTokenizer {
 public:
  using Step = std::variant<DigitsStep, SplitStep, ByteLevelStep>;

  /// Errors: kUnsupported unless the last step, and only that, is ByteLevel.
  static Result<PreTokenizer> make(std::vector<Step> steps);

  /// Appends the words of `text` (valid UTF-8). Errors: kOverBudget (see Pattern::find_all).
  Status split(std::string_view text, std::vector<Word>& words) const;

 private:
  std::vector<Step> steps_;
  Pattern gpt2_;
};

}  // namespace pellucid::text
