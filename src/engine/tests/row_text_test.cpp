#include <doctest/doctest.h>

#include "engine/row_text.h"

namespace pellucid::engine {
namespace {

/// One token a byte: enough to drive the text of a row.
std::shared_ptr<const text::Tokenizer> bytes_tokenizer() {
  text::Vocabulary vocabulary;
  vocabulary.model = "gpt2";
  vocabulary.pre = "gpt-2";
  for (char c = 'a'; c <= 'z'; ++c) vocabulary.tokens.push_back(std::string(1, c));
  auto tokenizer = text::Tokenizer::from_vocabulary(std::move(vocabulary));
  REQUIRE_MESSAGE(tokenizer.ok(), tokenizer.status().message());
  return *tokenizer;
}

/// What is given out token by token, "|" between, and at the end.
std::string pieces(RowText& row, std::string_view letters) {
  std::string out;
  for (const char c : letters) {
    out += row.push(c - 'a') + "|";
    if (row.stopped()) return out;
  }
  return out + row.flush();
}

}  // namespace

TEST_CASE("row text: without stop strings every character is given out at once") {
  RowText row(bytes_tokenizer(), {});
  CHECK(pieces(row, "abc") == "a|b|c|");
  CHECK(row.text() == "abc");
}

TEST_CASE("row text: the beginning of a stop string is held back until it is none") {
  RowText row(bytes_tokenizer(), {"xyz"});
  CHECK(pieces(row, "axyb") == "a|||xyb|");
  RowText ends(bytes_tokenizer(), {"xyz"});
  CHECK(pieces(ends, "axy") == "a|||xy");
}

TEST_CASE("row text: a stop string ends the row and is not part of its text") {
  RowText row(bytes_tokenizer(), {"yy", "xyz"});
  CHECK(pieces(row, "axyzq") == "a||||");
  CHECK(row.stopped());
  CHECK(row.text() == "a");
  CHECK(row.push(0) == "");
}

TEST_CASE("row text: a token of the padded end of a vocabulary has no text") {
  RowText row(bytes_tokenizer(), {});
  CHECK(row.push(26) == "");
  CHECK(row.push(0) == "a");
}

TEST_CASE("row text: of overlapping candidates the longest is held back") {
  RowText row(bytes_tokenizer(), {"aab"});
  CHECK(pieces(row, "aaab") == "||a||");
  CHECK(row.text() == "a");
}

}  // namespace pellucid::engine
