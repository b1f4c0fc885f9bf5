#include "text/added_tokens.h"

#include <algorithm>

#include "text/unicode_classes.h"
#include "text/utf8.h"

namespace pellucid::text {
namespace {

// Looking for a token costs up to its length at every place of the text.
constexpr size_t kContentBytesMax = 1024;
constexpr size_t kTokensMax = 1 << 20;

bool ends_with_word(std::string_view text) {
  if (text.empty()) return false;
  const size_t last = utf8_previous(text, text.size());
  return contains(word_beside_added_token_set(), utf8_step(text.substr(last)).code_point);
}
bool starts_with_word(std::string_view text) {
  return !text.empty() && contains(word_beside_added_token_set(), utf8_step(text).code_point);
}

size_t without_trailing_space(std::string_view text) {
  size_t end = text.size();
  while (end > 0) {
    const size_t last = utf8_previous(text, end);
    if (!contains(space_set(), utf8_step(text.substr(last)).code_point)) break;
    end = last;
  }
  return end;
}
size_t leading_space(std::string_view text) {
  size_t at = 0;
  while (at < text.size()) {
    const Utf8Step step = utf8_step(text.substr(at));
    if (!contains(space_set(), step.code_point)) break;
    at += step.size;
  }
  return at;
}

}  // namespace

void AddedTokens::Trie::add(std::string_view content, int32_t token) {
  if (nodes.empty()) nodes.emplace_back();
  begins[static_cast<unsigned char>(content[0])] = true;
  size_t at = 0;
  for (const char c : content) {
    const auto byte = static_cast<unsigned char>(c);
    auto& children = nodes[at].children;
    const auto child = std::find_if(children.begin(), children.end(),
                                    [&](const auto& edge) { return edge.first == byte; });
    if (child != children.end()) {
      at = static_cast<size_t>(child->second);
    } else {
      children.emplace_back(byte, static_cast<int32_t>(nodes.size()));
      at = nodes.size();
      nodes.emplace_back();
    }
  }
  nodes[at].token = token;
}

int32_t AddedTokens::Trie::longest_at(std::string_view text, size_t at) const {
  int32_t best = -1;
  size_t node = 0;
  for (; at < text.size(); ++at) {
    const auto byte = static_cast<unsigned char>(text[at]);
    const auto& children = nodes[node].children;
    const auto child = std::find_if(children.begin(), children.end(),
                                    [&](const auto& edge) { return edge.first == byte; });
    if (child == children.end()) break;
    node = static_cast<size_t>(child->second);
    if (nodes[node].token >= 0) best = nodes[node].token;
  }
  return best;
}

Result<AddedTokens> AddedTokens::make(std::vector<AddedToken> tokens) {
  if (tokens.size() > kTokensMax) {
    return error(Code::kOverBudget, "", "{} added tokens (limit {})", tokens.size(), kTokensMax);
  }
  AddedTokens result;
  result.tokens_ = std::move(tokens);
  for (size_t i = 0; i < result.tokens_.size(); ++i) {
    const AddedToken& token = result.tokens_[i];
    if (token.content.empty() || token.content.size() > kContentBytesMax) {
      return error(Code::kUnsupported, "", "added token {} has {} bytes (supported: 1 to {})",
                   token.id, token.content.size(), kContentBytesMax);
    }
    Trie& trie = token.normalized ? result.normalized_ : result.verbatim_;
    trie.add(token.content, static_cast<int32_t>(i));
  }
  return result;
}

void AddedTokens::find(const Trie& trie, std::string_view text, Segment within,
                       bool special_as_text, std::vector<Segment>& out) const {
  // Borders are those of the segment: what lies beyond belongs to another token.
  const std::string_view part = text.substr(within.begin, within.end - within.begin);
  size_t plain = 0;  // begin of the text not yet given out
  const auto emit = [&](size_t begin, size_t end, std::optional<int32_t> id) {
    out.push_back({within.begin + begin, within.begin + end, id});
  };
  for (size_t at = 0; at < part.size() && !trie.nodes.empty();) {
    if (!trie.begins[static_cast<unsigned char>(part[at])]) {
      ++at;
      continue;
    }
    const int32_t index = trie.longest_at(part, at);
    if (index < 0) {
      ++at;
      continue;
    }
    const AddedToken& token = tokens_[static_cast<size_t>(index)];
    size_t begin = at;
    size_t end = at + token.content.size();
    at = end;  // a match that is then turned down hides what overlaps it, as in the reference
    if (special_as_text && token.special) continue;
    if (token.single_word &&
        (ends_with_word(part.substr(0, begin)) || starts_with_word(part.substr(end)))) {
      continue;
    }
    if (begin < plain) continue;  // swallowed by the white space of the token before
    if (token.lstrip) begin = std::max(without_trailing_space(part.substr(0, begin)), plain);
    if (token.rstrip) end += leading_space(part.substr(end));
    if (plain < begin) emit(plain, begin, std::nullopt);
    emit(begin, end, token.id);
    plain = end;
  }
  if (plain < part.size()) emit(plain, part.size(), std::nullopt);
}

std::vector<Segment> AddedTokens::split(std::string_view text, bool special_as_text) const {
  std::vector<Segment> first;
  find(verbatim_, text, {0, text.size(), {}}, special_as_text, first);
  std::vector<Segment> out;
  for (const Segment& segment : first) {
    if (segment.id) {
      out.push_back(segment);
    } else {
      find(normalized_, text, segment, special_as_text, out);
    }
  }
  return out;
}

}  // namespace pellucid::text
