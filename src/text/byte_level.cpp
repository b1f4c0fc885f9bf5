#include "text/byte_level.h"

#include <array>

#include "text/utf8.h"

namespace pellucid::text {
namespace {

struct Alphabet {
  std::array<std::string, 256> characters;
  // Code points of the alphabet are all below 0x144.
  std::array<int16_t, 0x144> bytes{};

  Alphabet() {
    bytes.fill(-1);
    char32_t next = 0x100;
    for (int byte = 0; byte < 256; ++byte) {
      const bool printable = (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte != 0xAD);
      const char32_t c = printable ? static_cast<char32_t>(byte) : next++;
      append_utf8(characters[static_cast<size_t>(byte)], c);
      bytes[c] = static_cast<int16_t>(byte);
    }
  }
};

const Alphabet& alphabet() {
  static const Alphabet instance;
  return instance;
}

}  // namespace

std::string_view byte_level_character(uint8_t byte) { return alphabet().characters[byte]; }

std::optional<std::string> byte_level_decode(std::string_view token) {
  std::string out;
  while (!token.empty()) {
    const Utf8Step step = utf8_step(token);
    if (!step.valid || step.code_point >= alphabet().bytes.size()) return std::nullopt;
    const int16_t byte = alphabet().bytes[step.code_point];
    if (byte < 0) return std::nullopt;
    out.push_back(static_cast<char>(byte));
    token.remove_prefix(step.size);
  }
  return out;
}

}  // namespace pellucid::text
