#include <doctest/doctest.h>

#include <string>

#include "text/byte_level.h"
#include "text/stream_decoder.h"
#include "text/tokenizer.h"

namespace pellucid::text {
namespace {

// Every byte is a token (id = 3 + byte); a few words are merged.
Vocabulary small_vocabulary() {
  Vocabulary v;
  v.pre = "gpt-2";
  v.tokens = {"<|end|>", "<|start|>", "<tool>"};
  v.token_types = {3, 3, 4};
  for (int byte = 0; byte < 256; ++byte) {
    v.tokens.emplace_back(byte_level_character(static_cast<uint8_t>(byte)));
  }
  for (const char* merge : {"a b", "Ġ ab", "ab c", "Ġ abc", "1 2"}) {
    v.merges.emplace_back(merge);
    const std::string pair = merge;
    const size_t space = pair.find(' ');
    v.tokens.push_back(pair.substr(0, space) + pair.substr(space + 1));
  }
  v.token_types.resize(v.tokens.size(), 1);
  v.bos = 1;
  v.eos = 0;
  return v;
}

std::shared_ptr<const Tokenizer> small_tokenizer(Vocabulary v = small_vocabulary()) {
  auto made = Tokenizer::from_vocabulary(std::move(v));
  REQUIRE_MESSAGE(made.ok(), made.status().message());
  return *made;
}

constexpr int64_t kAb = 259;
constexpr int64_t kAbc = 261;
constexpr int64_t kSpaceAb = 260;
constexpr int64_t byte_token(unsigned char byte) { return 3 + byte; }

using Ids = std::vector<int64_t>;

}  // namespace

TEST_CASE("encode: merges by rank inside words, and every token knows its bytes") {
  const auto t = small_tokenizer();
  const auto e = t->encode("abc abc");
  REQUIRE(e.ok());
  CHECK(e->ids == Ids{kAbc, kSpaceAb, byte_token('c')});  // "Ġ ab" comes before "Ġ abc"
  CHECK(e->ranges == std::vector<ByteRange>{{0, 3}, {3, 6}, {6, 7}});
  CHECK(e->dropped_bytes == 0);
  CHECK(*t->decode(e->ids) == "abc abc");
  CHECK(t->vocab_size() == 264);
}

TEST_CASE("encode: special tokens in the text are tokens, or plain text when asked") {
  const auto t = small_tokenizer();
  CHECK(t->encode("<|start|>ab<tool>")->ids == Ids{1, kAb, 2});
  const auto plain = t->encode("<|start|>ab<tool>", {.parse_special = false});
  CHECK(plain->ids.size() == 9 + 2);  // <tool> is no control token
  CHECK(plain->ids.back() == 2);
  CHECK(*t->decode(plain->ids) == "<|start|>ab<tool>");
  CHECK(*t->decode(Ids{1, kAb, 2}, {.skip_special = true}) == "ab<tool>");
  CHECK(t->is_special(1));
  CHECK_FALSE(t->is_special(2));
}

TEST_CASE("encode: begin-of-text as the tokenizer says, as asked, and never twice") {
  const auto without = small_tokenizer();
  CHECK_FALSE(without->adds_bos());
  CHECK(without->encode("ab")->ids == Ids{kAb});
  CHECK(without->encode("ab", {.bos = true})->ids == Ids{1, kAb});
  CHECK(without->encode("ab", {.bos = true})->ranges[0] == ByteRange{0, 0});
  CHECK(without->encode("<|start|>ab", {.bos = true})->ids == Ids{1, kAb});

  Vocabulary v = small_vocabulary();
  v.add_bos = true;
  const auto with = small_tokenizer(v);
  CHECK(with->adds_bos());
  CHECK(with->encode("ab")->ids == Ids{1, kAb});
  CHECK(with->encode("ab", {.bos = false})->ids == Ids{kAb});
  CHECK(with->encode("<|start|>ab")->ids == Ids{1, kAb});
  CHECK(with->encode("")->ids == Ids{1});

  v.bos.reset();
  v.add_bos = false;
  const auto error = small_tokenizer(v)->encode("ab", {.bos = true});
  REQUIRE_FALSE(error.ok());
  CHECK(error.status().code == Code::kInvalidArgument);
}

TEST_CASE("encode: text that is not UTF-8 is refused with the byte") {
  const auto t = small_tokenizer();
  for (const auto& [text, at] : std::vector<std::pair<std::string, int>>{{"ab\xff", 2},
                                                                         {"\xe4\xbd", 0},
                                                                         {"a\xed\xa0\x80", 1},
                                                                         {"\xc0\x80", 0},
                                                                         {"\xf4\x90\x80\x80", 0}}) {
    const auto e = t->encode(text);
    REQUIRE_FALSE(e.ok());
    CHECK(e.status().code == Code::kInvalidArgument);
    CHECK(e.status().what == "byte " + std::to_string(at) + " of the text is not UTF-8");
  }
}

TEST_CASE("encode: bytes without a token are counted, and offsets stay right behind them") {
  Vocabulary v = small_vocabulary();
  v.tokens[3 + 'z'] = "unused";
  const auto t = small_tokenizer(v);
  const auto e = t->encode("zab");
  CHECK(e->ids == Ids{kAb});
  CHECK(e->ranges == std::vector<ByteRange>{{1, 3}});
  CHECK(e->dropped_bytes == 1);
}

TEST_CASE("encode: a word of a megabyte takes no quadratic time") {
  const auto t = small_tokenizer();
  std::string word;
  for (int i = 0; i < 400'000; ++i) word += "abc";
  const auto e = t->encode(word);
  REQUIRE(e.ok());
  CHECK(e->ids.size() == 400'000);
  CHECK(t->encode(std::string(1 << 20, ' '))->ids.size() == 1 << 20);
}

TEST_CASE("id_of: one token or an error that names the tokens") {
  const auto t = small_tokenizer();
  CHECK(*t->id_of("abc") == kAbc);
  CHECK(*t->id_of("<|end|>") == 0);
  const auto two = t->id_of(" abc");
  REQUIRE_FALSE(two.ok());
  CHECK(two.status().what == "\" abc\" is 2 tokens, not one: \" ab\" (260), \"c\" (102)");
  CHECK_FALSE(t->id_of("").ok());
}

TEST_CASE("decode: an id outside the vocabulary is an error, broken characters become U+FFFD") {
  const auto t = small_tokenizer();
  CHECK_FALSE(t->decode(Ids{264}).ok());
  CHECK_FALSE(t->decode(Ids{-1}).ok());
  CHECK(*t->decode(Ids{byte_token(0xE2), byte_token(0x82), byte_token('a'), byte_token(0xFF)}) ==
        "\xEF\xBF\xBD"
        "a\xEF\xBF\xBD");
}

TEST_CASE("stream: whole characters only, and a broken end becomes one U+FFFD") {
  StreamDecoder stream(small_tokenizer());
  CHECK(*stream.push(kAb) == "ab");
  CHECK(stream.push(byte_token(0xE2))->empty());
  CHECK(stream.push(byte_token(0x82))->empty());
  CHECK(*stream.push(byte_token(0xAC)) == "€");
  CHECK(stream.push(byte_token(0xF0))->empty());
  CHECK(*stream.push(byte_token('x')) == "\xEF\xBF\xBDx");
  CHECK_FALSE(stream.push(99999).ok());
  CHECK(stream.push(byte_token(0xE2))->empty());
  CHECK(stream.flush() == "\xEF\xBF\xBD");
  CHECK(stream.flush().empty());
}

TEST_CASE("from_vocabulary: a file without a pre-tokeniser is cut as llama.cpp cuts it") {
  Vocabulary v = small_vocabulary();
  v.tokens.push_back("34");
  v.token_types.push_back(1);
  v.merges.push_back("3 4");
  CHECK(small_tokenizer(v)->encode("12345")->ids == Ids{263, 264, byte_token('5')});
  v.pre = "";  // digits by threes: 123, 45
  CHECK(small_tokenizer(v)->encode("12345")->ids ==
        Ids{263, byte_token('3'), byte_token('4'), byte_token('5')});
  v.pre = "smollm";  // each digit alone
  CHECK(small_tokenizer(v)->encode("12")->ids == Ids{byte_token('1'), byte_token('2')});
}

TEST_CASE("from_vocabulary: what does not fit is refused by name") {
  const auto refused = [](auto change) {
    Vocabulary v = small_vocabulary();
    change(v);
    const auto made = Tokenizer::from_vocabulary(std::move(v));
    REQUIRE_FALSE(made.ok());
    return made.status();
  };
  CHECK(refused([](Vocabulary& v) { v.model = "llama"; }).what ==
        "tokenizer.ggml.model is `llama`");
  const Status pre = refused([](Vocabulary& v) { v.pre = "smolm"; });
  CHECK(pre.code == Code::kUnsupported);
  CHECK(pre.hint == "did you mean smollm?");
  CHECK(refused([](Vocabulary& v) { v.merges.push_back("a zz"); }).code == Code::kCorruptFile);
  CHECK(refused([](Vocabulary& v) { v.merges.push_back("azz"); }).code == Code::kCorruptFile);
  CHECK(refused([](Vocabulary& v) { v.token_types.pop_back(); }).code == Code::kCorruptFile);
  CHECK(refused([](Vocabulary& v) { v.tokens[5] = v.tokens[6]; }).code == Code::kCorruptFile);
  CHECK(refused([](Vocabulary& v) { v.bos = 1'000'000; }).code == Code::kCorruptFile);
  CHECK(refused([](Vocabulary& v) {
          v.tokens.clear();
          v.token_types.clear();
          v.merges.clear();
        }).code == Code::kCorruptFile);
}

}  // namespace pellucid::text
