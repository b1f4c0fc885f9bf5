#pragma once
// Tokens to text while they are being generated.
#include <memory>
#include <string>

#include "base/status.h"
#include "text/tokenizer.h"

namespace pellucid::text {

/// Gives out whole UTF-8 characters only. All pieces and `flush()` joined equal
/// `Tokenizer::decode` of all ids. One stream, one thread at a time.
class StreamDecoder {
 public:
  explicit StreamDecoder(std::shared_ptr<const Tokenizer> tokenizer, DecodeOptions options = {})
      : tokenizer_(std::move(tokenizer)), options_(options) {}

  /// What has become certain with this token; often empty inside a character of several tokens.
  /// Errors: as Tokenizer::token_bytes; the stream stays usable.
  Result<std::string> push(int64_t id);

  /// The end: a character that was begun and not finished becomes U+FFFD.
  std::string flush();

 private:
  std::shared_ptr<const Tokenizer> tokenizer_;
  DecodeOptions options_;
  std::string pending_;  // at most 3 bytes: the beginning of a character
};

}  // namespace pellucid::text
