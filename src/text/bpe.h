#pragma once
// Byte-pair encoding of one word over bytes. Knows token ids and merges, no text beyond the word.
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/status.h"

namespace pellucid::text {

struct BpeOptions {
  /// A word that is itself a token is that token, whatever the merges would make.
  bool ignore_merges = false;
  /// A byte whose character has no token is spelt `<0xC4><0xA0>`, over that character's UTF-8.
  bool byte_fallback = false;
  /// Neighbouring unknown bytes become one unknown token.
  bool fuse_unk = false;
  /// For bytes without a token. Without it such bytes leave nothing (as in the reference library).
  std::optional<int32_t> unk;
};

/// A token of a word and how many of the word's bytes it covers.
struct BpeSymbol {
  int32_t id;
  size_t begin;
  size_t end;
};

/// Immutable once built; safe from any thread. A word of n bytes takes O(n log n).
class Bpe {
 public:
  /// `vocabulary` maps token text (in GPT-2's byte alphabet) to id; `merges` are pairs of such
  /// texts in order of rank. Errors: kCorruptFile when a merge or its result is not in the
  /// vocabulary.
  static Result<Bpe> make(const std::unordered_map<std::string, int32_t>& vocabulary,
                          const std::vector<std::pair<std::string, std::string>>& merges,
                          BpeOptions options);

  /// Appends the word's tokens. `begin` and `end` are offsets in `word`. Returns how many bytes
  /// have no token and were left out.
  size_t encode(std::string_view word, std::vector<BpeSymbol>& out) const;

 private:
  struct Merge {
    int32_t rank;
    int32_t id;
  };
  struct Node;
  static uint64_t key(int32_t left, int32_t right) {
    return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
  }
  const Merge* find(int32_t left, int32_t right) const;
  size_t first_symbols(std::string_view word, std::vector<Node>& nodes) const;
  void merge(std::vector<Node>& nodes) const;

  BpeOptions options_;
  std::array<int32_t, 256> bytes_{};                // -1: no token
  std::array<std::vector<int32_t>, 256> fallback_;  // empty: none
  std::unordered_map<uint64_t, Merge> merges_;
  std::unordered_map<std::string, int32_t> whole_words_;  // by bytes; only with ignore_merges
};

}  // namespace pellucid::text
