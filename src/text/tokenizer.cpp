#include "text/tokenizer.h"

#include <fmt/format.h>

#include "text/utf8.h"

namespace pellucid::text {

Result<std::string> Tokenizer::decode(std::span<const int64_t> ids,
                                      const DecodeOptions& options) const {
  std::string bytes;
  for (const int64_t id : ids) {
    PELLUCID_ASSIGN(const std::string_view token, token_bytes(id));
    if (!options.skip_special || !is_special(id)) bytes += token;
  }
  return utf8_lossy(bytes);
}

Result<int64_t> Tokenizer::id_of(std::string_view text) const {
  PELLUCID_ASSIGN(const Encoding encoding, encode(text, {.bos = false}));
  std::string names;
  std::vector<int64_t> ids;
  for (size_t i = 0; i < encoding.ids.size(); ++i) {
    const ByteRange range = encoding.ranges[i];
    if (range.begin == range.end) continue;  // an extra token of the tokenizer's own
    ids.push_back(encoding.ids[i]);
    if (ids.size() <= 10) {
      PELLUCID_ASSIGN(const std::string_view bytes, token_bytes(encoding.ids[i]));
      names += fmt::format("{}\"{}\" ({})", names.empty() ? "" : ", ", utf8_lossy(bytes),
                           encoding.ids[i]);
    }
  }
  if (ids.size() == 1 && encoding.dropped_bytes == 0) return ids[0];
  if (ids.empty()) {
    return error(Code::kInvalidArgument, "", "\"{}\" has no token in this vocabulary", text);
  }
  return error(Code::kInvalidArgument,
               "a leading space often matters: \" Paris\" and \"Paris\" are different tokens",
               "\"{}\" is {} tokens, not one: {}{}{}", text.substr(0, 200), ids.size(), names,
               ids.size() > 10 ? ", ..." : "",
               encoding.dropped_bytes > 0
                   ? fmt::format(" (and {} bytes without a token)", encoding.dropped_bytes)
                   : "");
}

}  // namespace pellucid::text
