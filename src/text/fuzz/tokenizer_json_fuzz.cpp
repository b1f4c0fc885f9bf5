// Any bytes as a tokenizer.json: an error, or a tokenizer whose tokens cover the text and decode to
// it.
#include <cstdlib>

#include "text/stream_decoder.h"
#include "text/tokenizer.h"

using namespace pellucid::text;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view json(reinterpret_cast<const char*>(data), size);
  const auto made = Tokenizer::from_json(json, size % 2 == 0 ? "" : "{\"add_bos_token\": true}");
  if (!made.ok()) {
    if (made.status().what.empty()) std::abort();
    return 0;
  }
  const Tokenizer& tokenizer = **made;
  for (const std::string_view text :
       {"Hello, world 123 abc", " \n\t <|end|>é", "日本語👍🏽'll", ""}) {
    const auto encoding = tokenizer.encode(text);
    if (!encoding.ok()) {
      if (encoding.status().what.empty()) std::abort();
      continue;
    }
    if (encoding->ids.size() != encoding->ranges.size()) std::abort();
    for (const ByteRange& range : encoding->ranges) {
      if (range.begin > range.end || range.end > text.size()) std::abort();
    }
    StreamDecoder stream(*made);
    std::string streamed;
    for (const int64_t id : encoding->ids) {
      if (!tokenizer.token_bytes(id).ok()) std::abort();
      streamed += *stream.push(id);
    }
    streamed += stream.flush();
    if (streamed != *tokenizer.decode(encoding->ids)) std::abort();
  }
  (void)tokenizer.id_of("ab");
  return 0;
}
