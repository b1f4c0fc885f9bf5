#pragma once
// UTF-8: strict validation, stepping, and the replacement rule of `String::from_utf8_lossy`.
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace pellucid::text {

/// One step of a strict decoder (no overlong forms, no surrogates, nothing above U+10FFFF).
struct Utf8Step {
  char32_t code_point = 0;
  /// Bytes consumed, at least 1. For an invalid sequence: its maximal valid prefix, which becomes
  /// ONE replacement character (Unicode 3.9, "substitution of maximal subparts").
  size_t size = 1;
  bool valid = false;
  /// Not valid only because the text ends too early: more bytes could complete the character.
  bool truncated = false;
};

/// Decodes the character that begins at `text[0]`; `text` must not be empty.
Utf8Step utf8_step(std::string_view text);

/// Offset of the first byte that is not valid UTF-8, or nothing.
std::optional<size_t> first_invalid_utf8(std::string_view text);

void append_utf8(std::string& out, char32_t code_point);

/// `bytes` with each invalid maximal subpart replaced by U+FFFD.
std::string utf8_lossy(std::string_view bytes);

/// Size of the character that begins at `text[at]`; `text` must be valid UTF-8.
inline size_t utf8_size_at(std::string_view text, size_t at) {
  const auto lead = static_cast<unsigned char>(text[at]);
  return lead < 0x80 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
}

/// The character before `text[end]` begins here; `text` must be valid UTF-8 and end > 0.
inline size_t utf8_previous(std::string_view text, size_t end) {
  --end;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
  return end;
}

inline constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

}  // namespace pellucid::text
