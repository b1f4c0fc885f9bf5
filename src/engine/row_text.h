#pragma once
// The text of one row while it grows: whole characters only, ended by stop strings.
#include <memory>
#include <string>
#include <vector>

#include "text/stream_decoder.h"
#include "text/tokenizer.h"

namespace pellucid::engine {

class RowText {
 public:
  RowText(std::shared_ptr<const text::Tokenizer> tokenizer, std::vector<std::string> stop);

  /// Adds a token; returns what may be shown now. Text that may still turn out to be the beginning
  /// of a stop string is held back. A token beyond the tokenizer's vocabulary has no text.
  std::string push(int64_t token);
  /// The row ended: returns what was held back.
  std::string flush();

  bool stopped() const { return stopped_; }
  /// Everything returned so far.
  const std::string& text() const { return text_; }

 private:
  std::string release(const std::string& piece, bool at_end);

  int64_t vocab_size_;
  text::StreamDecoder decoder_;
  std::vector<std::string> stop_;
  std::string held_;
  std::string text_;
  bool stopped_ = false;
};

}  // namespace pellucid::engine
