#include <doctest/doctest.h>

#include "text/pattern.h"
#include "text/unicode_classes.h"

namespace pellucid::text {
namespace {

std::vector<std::string> matches(std::string_view source, std::string_view text) {
  const auto translated = translate_pattern(source);
  REQUIRE_MESSAGE(translated.ok(), translated.status().message());
  const auto pattern = Pattern::compile(*translated);
  REQUIRE_MESSAGE(pattern.ok(), pattern.status().message());
  std::vector<std::string> out;
  REQUIRE(
      pattern
          ->find_all(text, [&](size_t begin,
                               size_t end) { out.emplace_back(text.substr(begin, end - begin)); })
          .ok());
  return out;
}
using Strings = std::vector<std::string>;

}  // namespace

TEST_CASE("pattern: letters that are newer than PCRE2's Unicode are letters") {
  CHECK(contains(*general_category("L"), 0x1E5D0));  // OL ONAL, Unicode 16
  CHECK(matches(R"(\p{L}+)", "a\U0001E5D0 \U0001E5D1b") == Strings{"a\U0001E5D0", "\U0001E5D1b"});
  CHECK(matches(R"(\s)", "a\u180Eb\u2003c") == Strings{"\u2003"});
}

TEST_CASE("pattern: sets, negations, ranges and escapes in and outside brackets") {
  CHECK(matches(R"([^\s\p{L}\p{N}]+)", "ab 1,.-x") == Strings{",.-"});
  CHECK(matches(R"([\P{L}]+)", "ab 1,x") == Strings{" 1,"});
  CHECK(matches(R"([a-c\-x]+)", "abd-x") == Strings{"ab", "-x"});
  CHECK(matches(R"(\x{e9}|\u00e8|[\x{0}-\x{1f}])", "éè\te") == Strings{"é", "è", "\t"});
  CHECK(matches(R"((?i:'S)|\d{2,3}x?)", "it's 'S 1234") == Strings{"'s", "'S", "123"});
}

TEST_CASE("pattern: empty matches move on by one character") {
  CHECK(matches(R"((?=\p{Lu}))", "aBé").size() == 1);
  CHECK(matches("x*", "éxx") == Strings{"", "xx"});
}

TEST_CASE("pattern: what backtracks without end is an error") {
  const auto pattern = Pattern::compile(*translate_pattern("(a|aa|aaa)+c"));
  REQUIRE(pattern.ok());
  const Status status = pattern->find_all(std::string(5000, 'a') + "bc", [](size_t, size_t) {});
  CHECK(status.code == Code::kOverBudget);
}

TEST_CASE("unicode: a set and its complement share nothing and leave nothing out") {
  for (const std::string_view name : general_category_names()) {
    const auto set = *general_category(name);
    const auto rest = complement(set);
    size_t count = 0;
    for (const auto& ranges : {set, rest}) {
      for (const CodePointRange& range : ranges) count += range.last - range.first + 1;
    }
    CHECK(count == 0x110000 - 0x800);
  }
  CHECK_FALSE(general_category("Han").has_value());
}

}  // namespace pellucid::text
