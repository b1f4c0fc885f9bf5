#include "engine/row_text.h"

#include <algorithm>

namespace pellucid::engine {
namespace {

/// Length of the longest end of `text` that begins some stop string.
size_t possible_stop(const std::string& text, const std::vector<std::string>& stop) {
  size_t longest = 0;
  for (const std::string& candidate : stop) {
    for (size_t length = std::min(text.size(), candidate.size() - 1); length > longest; --length) {
      if (text.compare(text.size() - length, length, candidate, 0, length) == 0) longest = length;
    }
  }
  return longest;
}

}  // namespace

RowText::RowText(std::shared_ptr<const text::Tokenizer> tokenizer, std::vector<std::string> stop)
    : vocab_size_(tokenizer->vocab_size()), decoder_(std::move(tokenizer)), stop_(std::move(stop)) {
  std::erase(stop_, "");
}

std::string RowText::push(int64_t token) {
  // Vocabularies are often padded: such a token is chosen hardly ever, and stands for no text.
  if (token >= vocab_size_) return "";
  Result<std::string> piece = decoder_.push(token);
  if (!piece.ok()) throw StatusError(std::move(piece).status());
  return release(*piece, false);
}

std::string RowText::flush() { return release(decoder_.flush(), true); }

std::string RowText::release(const std::string& piece, bool at_end) {
  if (stopped_) return "";
  held_ += piece;
  size_t end = std::string::npos;
  for (const std::string& candidate : stop_) end = std::min(end, held_.find(candidate));
  stopped_ = end != std::string::npos;
  if (!stopped_) end = at_end ? held_.size() : held_.size() - possible_stop(held_, stop_);
  std::string out = held_.substr(0, end);
  held_.erase(0, end);
  text_ += out;
  return out;
}

}  // namespace pellucid::engine
