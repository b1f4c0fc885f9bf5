#pragma once
// Sets of code points as the `tokenizers` library knows them (see tools/make_unicode_table.py).
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

namespace pellucid::text {

struct CodePointRange {
  uint32_t first;
  uint32_t last;  // inclusive
};

/// Ascending, disjoint, not adjacent.
using CodePointSet = std::vector<CodePointRange>;

/// The set of a general category ("L", "Lu", "Nd", ...), or nothing when no such category exists.
std::optional<CodePointSet> general_category(std::string_view name);

/// Names that `general_category` knows, for error messages.
std::vector<std::string_view> general_category_names();

std::span<const CodePointRange> space_set();                    // \s
std::span<const CodePointRange> word_set();                     // \w
std::span<const CodePointRange> word_beside_added_token_set();  // \w of another Unicode version
std::span<const CodePointRange> numeric_set();                  // what Digits splits off

bool contains(std::span<const CodePointRange> set, char32_t code_point);

/// Every code point that is not in `set`, surrogates left out.
CodePointSet complement(std::span<const CodePointRange> set);

}  // namespace pellucid::text
