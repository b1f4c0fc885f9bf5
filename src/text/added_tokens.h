#pragma once
// Tokens that are found in the text before anything else looks at it.
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace pellucid::text {

struct AddedToken {
  int32_t id = 0;
  std::string content;
  bool special = false;      // control tokens such as <|im_start|>
  bool normalized = false;   // looked for in the second round, in what the first round left
  bool single_word = false;  // only between characters that are no word characters
  bool lstrip = false;       // swallows the white space before it
  bool rstrip = false;       // and after it
};

/// Bytes [begin, end) of the text: an added token, or (no id) text for the rest of the tokenizer.
struct Segment {
  size_t begin;
  size_t end;
  std::optional<int32_t> id;
};

/// Immutable once made; safe from any thread.
class AddedTokens {
 public:
  /// Errors: kUnsupported for content that is too long to be looked for everywhere.
  static Result<AddedTokens> make(std::vector<AddedToken> tokens);

  /// `special_as_text`: special tokens in the text are not looked for.
  std::vector<Segment> split(std::string_view text, bool special_as_text) const;

  const std::vector<AddedToken>& tokens() const { return tokens_; }

 private:
  // A trie over bytes, one child list per node; node 0 is the root.
  struct Trie {
    struct Node {
      std::vector<std::pair<unsigned char, int32_t>> children;
      int32_t token = -1;  // index in tokens_
    };
    std::vector<Node> nodes;
    std::array<bool, 256> begins{};
    void add(std::string_view content, int32_t token);
    int32_t longest_at(std::string_view text, size_t at) const;
  };
  void find(const Trie& trie, std::string_view text, Segment within, bool special_as_text,
            std::vector<Segment>& out) const;

  std::vector<AddedToken> tokens_;
  Trie verbatim_;
  Trie normalized_;
};

}  // namespace pellucid::text
