#pragma once
// GPT-2's alphabet: each byte is written as one printable character (a space as U+0120 "Ġ").
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace pellucid::text {

/// The character that stands for `byte`, as UTF-8.
std::string_view byte_level_character(uint8_t byte);

/// The bytes that `token` stands for, or nothing when it holds a character outside the alphabet.
std::optional<std::string> byte_level_decode(std::string_view token);

}  // namespace pellucid::text
