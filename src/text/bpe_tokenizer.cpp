#include "text/bpe_tokenizer.h"

#include <algorithm>

#include "text/byte_level.h"
#include "text/utf8.h"

namespace pellucid::text {
namespace {

// A file may leave holes in its numbering, but not make us allocate for billions of them.
constexpr size_t kHolesMax = 1 << 20;

}  // namespace

Result<std::shared_ptr<const Tokenizer>> BpeTokenizer::make(TokenizerParts parts) {
  auto tokenizer = std::make_shared<BpeTokenizer>();
  PELLUCID_TRY(tokenizer->number_tokens(parts));
  for (const auto* ids : {&parts.prefix, &parts.suffix}) {
    for (const int64_t id : *ids) {
      if (id < 0 || id >= tokenizer->vocab_size()) {
        return error(Code::kCorruptFile, "", "extra token {}: the vocabulary has {} ids", id,
                     tokenizer->vocab_size());
      }
    }
  }
  for (const auto& id : {parts.bos, parts.eos, parts.unk, parts.pad}) {
    if (id && (*id < 0 || *id >= tokenizer->vocab_size())) {
      return error(Code::kCorruptFile, "", "special token {}: the vocabulary has {} ids", *id,
                   tokenizer->vocab_size());
    }
  }
  PELLUCID_ASSIGN(tokenizer->bpe_, Bpe::make(parts.vocabulary, parts.merges, parts.bpe));
  PELLUCID_ASSIGN(tokenizer->added_, AddedTokens::make(std::move(parts.added)));
  PELLUCID_ASSIGN(tokenizer->pre_tokenizer_, PreTokenizer::make(std::move(parts.pre_tokenizer)));
  tokenizer->prefix_ = std::move(parts.prefix);
  tokenizer->suffix_ = std::move(parts.suffix);
  tokenizer->bos_ = parts.bos;
  tokenizer->eos_ = parts.eos;
  tokenizer->unk_ = parts.unk;
  tokenizer->pad_ = parts.pad;
  tokenizer->chat_template_ = std::move(parts.chat_template);
  return std::shared_ptr<const Tokenizer>(std::move(tokenizer));
}

Status BpeTokenizer::number_tokens(const TokenizerParts& parts) {
  int64_t greatest = -1;
  for (const auto& [token, id] : parts.vocabulary) greatest = std::max<int64_t>(greatest, id);
  for (const AddedToken& token : parts.added) greatest = std::max<int64_t>(greatest, token.id);
  const size_t count = parts.vocabulary.size() + parts.added.size();
  if (greatest < 0) return error(Code::kCorruptFile, "", "the vocabulary is empty");
  if (static_cast<size_t>(greatest) > count + kHolesMax) {
    return error(Code::kCorruptFile, "", "token id {} in a vocabulary of {} tokens", greatest,
                 count);
  }
  bytes_.resize(static_cast<size_t>(greatest) + 1);
  special_.resize(bytes_.size());
  std::vector<const std::string*> named(bytes_.size());
  for (const auto& [token, id] : parts.vocabulary) {
    if (id < 0) return error(Code::kCorruptFile, "", "token `{}` has id {}", token, id);
    const auto at = static_cast<size_t>(id);
    if (named[at] != nullptr) {
      return error(Code::kCorruptFile, "", "id {} is both `{}` and `{}`", id, *named[at], token);
    }
    named[at] = &token;
    bytes_[at] = byte_level_decode(token).value_or(token);
  }
  for (const AddedToken& token : parts.added) {
    const auto at = static_cast<size_t>(token.id);
    const auto known = parts.vocabulary.find(token.content);
    const bool conflict = token.id < 0 || (named[at] != nullptr && *named[at] != token.content) ||
                          (known != parts.vocabulary.end() && known->second != token.id);
    if (conflict) {
      return error(Code::kCorruptFile, "the added tokens do not belong to this vocabulary",
                   "added token `{}` cannot have id {}", token.content, token.id);
    }
    named[at] = &token.content;
    bytes_[at] = token.content;  // an added token stands for its own text, alphabet or not
    special_[at] = token.special;
  }
  return ok_status();
}

Status BpeTokenizer::encode_words(std::string_view text, size_t offset, Encoding& out) const {
  std::vector<Word> words;
  PELLUCID_TRY(pre_tokenizer_.split(text, words));
  std::vector<BpeSymbol> symbols;
  std::string with_space;
  for (const Word& word : words) {
    std::string_view bytes = text.substr(word.begin, word.end - word.begin);
    if (word.prefixed) {
      with_space = " ";
      with_space += bytes;
      bytes = with_space;
    }
    symbols.clear();
    out.dropped_bytes += bpe_.encode(bytes, symbols);
    // The space that the text does not have shares the place of what follows it.
    const size_t shift = word.prefixed ? 1 : 0;
    for (const BpeSymbol& symbol : symbols) {
      out.ids.push_back(symbol.id);
      const size_t begin = symbol.begin - std::min(shift, symbol.begin);
      const size_t end = std::max<size_t>(symbol.end - shift, 1);
      out.ranges.push_back({offset + word.begin + begin, offset + word.begin + end});
    }
  }
  return ok_status();
}

Result<Encoding> BpeTokenizer::encode(std::string_view text, const EncodeOptions& options) const {
  if (const auto bad = first_invalid_utf8(text)) {
    return error(Code::kInvalidArgument, "text must be UTF-8", "byte {} of the text is not UTF-8",
                 *bad);
  }
  if (options.bos == true && !bos_) {
    return error(Code::kInvalidArgument, "leave bos unset or false",
                 "this tokenizer has no begin-of-text token");
  }
  Encoding out;
  for (const Segment& segment : added_.split(text, !options.parse_special)) {
    if (segment.id) {
      out.ids.push_back(*segment.id);
      out.ranges.push_back({segment.begin, segment.end});
    } else {
      PELLUCID_TRY(encode_words(text.substr(segment.begin, segment.end - segment.begin),
                                segment.begin, out));
    }
  }
  std::vector<int64_t> prefix = prefix_;
  if (bos_) {
    const bool text_has_it = !out.ids.empty() && out.ids[0] == *bos_;
    const bool wanted = options.bos.value_or(adds_bos()) && !text_has_it;
    if (adds_bos()) prefix.erase(prefix.begin());
    if (wanted) prefix.insert(prefix.begin(), *bos_);
  }
  out.ids.insert(out.ids.begin(), prefix.begin(), prefix.end());
  out.ranges.insert(out.ranges.begin(), prefix.size(), ByteRange{});
  out.ids.insert(out.ids.end(), suffix_.begin(), suffix_.end());
  out.ranges.insert(out.ranges.end(), suffix_.size(), ByteRange{text.size(), text.size()});
  return out;
}

Result<std::string_view> BpeTokenizer::token_bytes(int64_t id) const {
  if (id < 0 || id >= vocab_size()) {
    return error(Code::kInvalidArgument, "", "token id {} is outside the vocabulary of {} ids", id,
                 vocab_size());
  }
  return std::string_view(bytes_[static_cast<size_t>(id)]);
}

bool BpeTokenizer::is_special(int64_t id) const {
  return id >= 0 && id < vocab_size() && special_[static_cast<size_t>(id)];
}

}  // namespace pellucid::text
