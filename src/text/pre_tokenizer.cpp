#include "text/pre_tokenizer.h"

#include <string>

#include "text/unicode_classes.h"
#include "text/utf8.h"

namespace pellucid::text {
namespace {

constexpr std::string_view kGpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

struct Piece {
  size_t begin;
  size_t end;
  bool matched;
};

// The pieces between and at the matches, in order.
class Pieces {
 public:
  void match(size_t begin, size_t end) {
    if (begin > next_) list.push_back({next_, begin, false});
    list.push_back({begin, end, true});
    next_ = end;
  }
  void finish(size_t size) {
    if (size > next_) list.push_back({next_, size, false});
  }
  std::vector<Piece> list;

 private:
  size_t next_ = 0;
};

// Every second match in a run of adjacent ones stands alone: the reference library's rule.
std::vector<Piece> merge_with_previous(const std::vector<Piece>& pieces) {
  std::vector<Piece> out;
  bool previous_matched = false;
  for (const Piece& piece : pieces) {
    if (piece.matched && !previous_matched && !out.empty()) {
      out.back().end = piece.end;
    } else {
      out.push_back(piece);
    }
    previous_matched = piece.matched;
  }
  return out;
}

std::vector<Piece> merge_with_next(const std::vector<Piece>& pieces) {
  std::vector<Piece> out;
  bool next_matched = false;
  for (auto piece = pieces.rbegin(); piece != pieces.rend(); ++piece) {
    if (piece->matched && !next_matched && !out.empty()) {
      out.back().begin = piece->begin;
    } else {
      out.push_back(*piece);
    }
    next_matched = piece->matched;
  }
  return {out.rbegin(), out.rend()};
}

std::vector<Piece> apply(std::vector<Piece> pieces, SplitBehavior behavior, bool invert) {
  if (invert) {
    for (Piece& piece : pieces) piece.matched = !piece.matched;
  }
  switch (behavior) {
    case SplitBehavior::kIsolated:
      return pieces;
    case SplitBehavior::kRemoved:
      std::erase_if(pieces, [](const Piece& piece) { return piece.matched; });
      return pieces;
    case SplitBehavior::kContiguous: {
      std::vector<Piece> out;
      for (const Piece& piece : pieces) {
        if (!out.empty() && out.back().matched == piece.matched) {
          out.back().end = piece.end;
        } else {
          out.push_back(piece);
        }
      }
      return out;
    }
    case SplitBehavior::kMergedWithPrevious:
      return merge_with_previous(pieces);
    case SplitBehavior::kMergedWithNext:
      return merge_with_next(pieces);
  }
  return pieces;
}

std::vector<Piece> split_digits(std::string_view text, bool individual) {
  Pieces pieces;
  for (size_t at = 0; at < text.size();) {
    const Utf8Step step = utf8_step(text.substr(at));
    if (contains(numeric_set(), step.code_point)) pieces.match(at, at + step.size);
    at += step.size;
  }
  pieces.finish(text.size());
  return apply(std::move(pieces.list),
               individual ? SplitBehavior::kIsolated : SplitBehavior::kContiguous, false);
}

Result<std::vector<Piece>> split_pattern(std::string_view text, const Pattern& pattern) {
  Pieces pieces;
  PELLUCID_TRY(pattern.find_all(text, [&](size_t begin, size_t end) { pieces.match(begin, end); }));
  pieces.finish(text.size());
  return std::move(pieces.list);
}

}  // namespace

Result<PreTokenizer> PreTokenizer::make(std::vector<Step> steps) {
  for (size_t i = 0; i < steps.size(); ++i) {
    const bool byte_level = std::holds_alternative<ByteLevelStep>(steps[i]);
    if (byte_level != (i + 1 == steps.size())) {
      return error(Code::kUnsupported, "ByteLevel must be the last pre-tokeniser, and the only one",
                   "pre_tokenizer: {}",
                   byte_level ? "ByteLevel before another one"
                              : "a sequence that does not end with ByteLevel");
    }
  }
  if (steps.empty()) {
    return error(Code::kUnsupported, "only byte-level tokenizers are supported",
                 "pre_tokenizer: none");
  }
  PreTokenizer result;
  PELLUCID_ASSIGN(const std::string gpt2, translate_pattern(kGpt2Pattern));
  PELLUCID_ASSIGN(result.gpt2_, Pattern::compile(gpt2));
  result.steps_ = std::move(steps);
  return result;
}

Status PreTokenizer::split(std::string_view text, std::vector<Word>& words) const {
  std::vector<Word> current{{0, text.size(), false}};
  for (const Step& step : steps_) {
    std::vector<Word> next;
    for (const Word& word : current) {
      std::string_view piece_text = text.substr(word.begin, word.end - word.begin);
      if (piece_text.empty()) continue;
      std::vector<Piece> pieces;
      std::string with_space;
      if (const auto* digits = std::get_if<DigitsStep>(&step)) {
        pieces = split_digits(piece_text, digits->individual_digits);
      } else if (const auto* split = std::get_if<SplitStep>(&step)) {
        PELLUCID_ASSIGN(pieces, split_pattern(piece_text, split->pattern));
        pieces = apply(std::move(pieces), split->behavior, split->invert);
      } else {
        const auto& byte_level = std::get<ByteLevelStep>(step);
        if (byte_level.add_prefix_space && piece_text.front() != ' ') {
          with_space = " ";
          with_space += piece_text;
          piece_text = with_space;
        }
        if (byte_level.use_regex) {
          PELLUCID_ASSIGN(pieces, split_pattern(piece_text, gpt2_));
        } else {
          pieces = {{0, piece_text.size(), true}};
        }
      }
      // Offsets are those of the text: the space in front takes none.
      const size_t shift = with_space.empty() ? 0 : 1;
      for (const Piece& piece : pieces) {
        if (piece.begin == piece.end) continue;
        const bool prefixed = shift == 1 && piece.begin == 0;
        next.push_back({word.begin + piece.begin - (prefixed ? 0 : shift),
                        word.begin + piece.end - shift, prefixed});
      }
    }
    current = std::move(next);
  }
  words.insert(words.end(), current.begin(), current.end());
  return ok_status();
}

}  // namespace pellucid::text
