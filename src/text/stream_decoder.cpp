#include "text/stream_decoder.h"

#include "text/utf8.h"

namespace pellucid::text {

Result<std::string> StreamDecoder::push(int64_t id) {
  PELLUCID_ASSIGN(const std::string_view bytes, tokenizer_->token_bytes(id));
  if (options_.skip_special && tokenizer_->is_special(id)) return std::string();
  pending_ += bytes;
  std::string out;
  std::string_view rest = pending_;
  while (!rest.empty()) {
    const Utf8Step step = utf8_step(rest);
    if (step.truncated) break;
    out += step.valid ? rest.substr(0, step.size) : kReplacement;
    rest.remove_prefix(step.size);
  }
  pending_ = std::string(rest);
  return out;
}

std::string StreamDecoder::flush() {
  std::string out = utf8_lossy(pending_);
  pending_.clear();
  return out;
}

}  // namespace pellucid::text
