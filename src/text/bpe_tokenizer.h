#pragma once
// The one implementation of Tokenizer, and the parts that the readers of files put into it.
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "text/added_tokens.h"
#include "text/bpe.h"
#include "text/pre_tokenizer.h"
#include "text/tokenizer.h"

namespace pellucid::text {

struct TokenizerParts {
  std::unordered_map<std::string, int32_t> vocabulary;  // text in GPT-2's byte alphabet -> id
  std::vector<std::pair<std::string, std::string>> merges;
  BpeOptions bpe;
  std::vector<AddedToken> added;
  std::vector<PreTokenizer::Step> pre_tokenizer;
  /// What encode puts around the tokens of the text.
  std::vector<int64_t> prefix, suffix;
  std::optional<int64_t> bos, eos, unk, pad;
  std::string chat_template;
};

class BpeTokenizer final : public Tokenizer {
 public:
  /// Errors: kCorruptFile, kUnsupported, kOverBudget.
  static Result<std::shared_ptr<const Tokenizer>> make(TokenizerParts parts);

  Result<Encoding> encode(std::string_view text, const EncodeOptions& options) const override;
  Result<std::string_view> token_bytes(int64_t id) const override;
  int64_t vocab_size() const override { return static_cast<int64_t>(bytes_.size()); }
  bool is_special(int64_t id) const override;
  std::optional<int64_t> bos() const override { return bos_; }
  std::optional<int64_t> eos() const override { return eos_; }
  std::optional<int64_t> unk() const override { return unk_; }
  std::optional<int64_t> pad() const override { return pad_; }
  bool adds_bos() const override { return bos_ && !prefix_.empty() && prefix_[0] == *bos_; }
  const std::string& chat_template() const override { return chat_template_; }

 private:
  Status encode_words(std::string_view text, size_t offset, Encoding& out) const;
  Status number_tokens(const TokenizerParts& parts);

  AddedTokens added_;
  PreTokenizer pre_tokenizer_;
  Bpe bpe_;
  std::vector<std::string> bytes_;  // by id
  std::vector<bool> special_;
  std::vector<int64_t> prefix_, suffix_;
  std::optional<int64_t> bos_, eos_, unk_, pad_;
  std::string chat_template_;
};

}  // namespace pellucid::text
