#pragma once
// Text to token ids and back: byte-level byte-pair encoding, equal to the Hugging Face `tokenizers`
// library on the same tokenizer.json.
//
// A Tokenizer is immutable: any thread may use it. A construct of a file that is not implemented is
// refused when the file is read (kUnsupported, by name), never ignored.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace pellucid::files {
class GgufFile;
}

namespace pellucid::text {

/// What a GGUF file's metadata says about its tokenizer (`tokenizer.ggml.*`).
struct Vocabulary {
  std::string model = "gpt2";       // the kind of tokenizer; "gpt2" = byte-level BPE
  std::string pre;                  // which pre-tokeniser: "smollm", "gpt-2", "default", ...
  std::vector<std::string> tokens;  // in GPT-2's byte alphabet; index = id
  std::vector<int32_t>
      token_types;  // GGUF's numbers: 1 normal, 3 control, 4 user-defined; may be empty
  std::vector<std::string> merges;  // "left right", by rank
  std::optional<int64_t> bos, eos, unk, pad;
  bool add_bos = false;
  bool add_eos = false;
  std::string chat_template;  // "" = none
};

struct EncodeOptions {
  /// Begin-of-text token: unset = as the tokenizer says; true = exactly one in front; false = none.
  /// It never doubles one that the text itself begins with.
  std::optional<bool> bos = std::nullopt;
  /// false: the text of special tokens ("<|im_start|>") is plain text, as for untrusted input.
  bool parse_special = true;
};

struct DecodeOptions {
  bool skip_special = false;
};

/// Bytes [begin, end) of a text.
struct ByteRange {
  size_t begin = 0;
  size_t end = 0;
  friend bool operator==(const ByteRange&, const ByteRange&) = default;
};

struct Encoding {
  std::vector<int64_t> ids;
  /// Where in the text each token comes from, to the byte (a token may hold part of a character);
  /// never trimmed of spaces. Empty for tokens that the text does not hold (begin-of-text).
  std::vector<ByteRange> ranges;
  /// Bytes of the text for which the vocabulary has no token at all; they left nothing in `ids`.
  size_t dropped_bytes = 0;
};

class Tokenizer {
 public:
  /// Reads the contents of tokenizer.json and, where given, tokenizer_config.json.
  /// Errors: kCorruptFile (malformed), kUnsupported (names the construct).
  static Result<std::shared_ptr<const Tokenizer>> from_json(
      std::string_view tokenizer_json, std::string_view tokenizer_config_json = "");
  /// Errors: kCorruptFile, kUnsupported (model kind, pre-tokeniser by name).
  static Result<std::shared_ptr<const Tokenizer>> from_vocabulary(Vocabulary vocabulary);
  /// The tokenizer in a GGUF file's metadata. Errors: as above, kNotFound when it has none.
  static Result<std::shared_ptr<const Tokenizer>> from_gguf(const files::GgufFile& file);

  virtual ~Tokenizer() = default;

  /// Errors: kInvalidArgument (not UTF-8: names the byte; or bos = true without such a token),
  /// kOverBudget (a pre-tokeniser pattern of the file backtracks without end).
  virtual Result<Encoding> encode(std::string_view text,
                                  const EncodeOptions& options = {}) const = 0;

  /// Errors: kInvalidArgument for an id outside the vocabulary. Bytes that are not UTF-8 become
  /// U+FFFD, one per maximal subpart.
  Result<std::string> decode(std::span<const int64_t> ids, const DecodeOptions& options = {}) const;

  /// The bytes that the token stands for; may be part of a character. Empty for a hole in the
  /// numbering. Errors: kInvalidArgument for an id outside the vocabulary.
  virtual Result<std::string_view> token_bytes(int64_t id) const = 0;

  /// The only token of `text` (" Paris"), the tokenizer's own extra tokens aside.
  /// Errors: kInvalidArgument, naming the tokens that the text splits into.
  Result<int64_t> id_of(std::string_view text) const;

  /// One more than the greatest id.
  virtual int64_t vocab_size() const = 0;
  /// Control tokens: what `skip_special` leaves out.
  virtual bool is_special(int64_t id) const = 0;

  virtual std::optional<int64_t> bos() const = 0;
  virtual std::optional<int64_t> eos() const = 0;
  virtual std::optional<int64_t> unk() const = 0;
  virtual std::optional<int64_t> pad() const = 0;
  /// Whether `encode` puts a begin-of-text token in front by itself.
  virtual bool adds_bos() const = 0;
  /// Jinja source, "" when the files have none. See text/chat_template.h.
  virtual const std::string& chat_template() const = 0;
};

}  // namespace pellucid::text
