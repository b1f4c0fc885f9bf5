#include <doctest/doctest.h>

#include "text/chat_template.h"

namespace pellucid::text {
namespace {

const std::vector<Message> kChat{{"system", "Be brief."}, {"user", " Hi, é "}, {"assistant", ""}};

Rendered render(std::string_view source, const RenderOptions& options = {}) {
  auto rendered = render_chat(source, kChat, options);
  REQUIRE_MESSAGE(rendered.ok(), rendered.status().message());
  return *rendered;
}
Status refused(std::string_view source) {
  const auto rendered = render_chat(source, kChat);
  REQUIRE_FALSE(rendered.ok());
  return rendered.status();
}

}  // namespace

TEST_CASE("render: contents know their bytes in the prompt, trimmed or empty") {
  const Rendered r = render(
      "{% for m in messages %}<{{ m.role }}>{{ m.content | trim }}\n{% endfor %}"
      "{% if add_generation_prompt %}<assistant>{% endif %}",
      {.add_generation_prompt = true});
  CHECK(r.text == "<system>Be brief.\n<user>Hi, é\n<assistant>\n<assistant>");
  REQUIRE(r.contents.size() == 3);
  CHECK(r.text.substr(r.contents[0].begin, r.contents[0].end - r.contents[0].begin) == "Be brief.");
  CHECK(r.text.substr(r.contents[1].begin, r.contents[1].end - r.contents[1].begin) == "Hi, é");
  CHECK(r.contents[2] ==
        ContentSpan{2, r.text.find("<assistant>") + 11, r.text.find("<assistant>") + 11});
}

TEST_CASE(
    "render: a content may come in pieces, twice or not at all; a rewritten one has no span") {
  const Rendered pieces = render("{{ messages[0].content.split(' ') | join('_') }}");
  CHECK(pieces.text == "Be_brief.");
  CHECK(pieces.contents == std::vector<ContentSpan>{{0, 0, 2}, {0, 3, 9}});
  const Rendered twice = render("{{ messages[0].content ~ '|' ~ messages[0].content }}");
  CHECK(twice.contents == std::vector<ContentSpan>{{0, 0, 9}, {0, 10, 19}});
  CHECK(render("{{ messages[0].content | upper }}").contents.empty());
  CHECK(render("{{ messages[0].content[3:5] }}").contents == std::vector<ContentSpan>{{0, 0, 2}});
}

TEST_CASE("render: special tokens are there when the tokenizer has them") {
  CHECK(render("{{ bos_token }}{{ eos_token is defined }}", {.bos_token = "<s>"}).text ==
        "<s>False");
}

TEST_CASE("parse: what is not there is refused by name and line, whether or not it would run") {
  const Status status = refused("a\n{% if false %}\n{{ x | sort }}{% endif %}");
  CHECK(status.code == Code::kUnsupported);
  CHECK(status.what == "filter `sort`");
  CHECK(status.where == "chat template, line 3");
  CHECK(refused("{{ x | tri }}").hint == "did you mean trim?");
  CHECK(refused("{% macro a() %}{% endmacro %}").what == "tag `macro`");
}

TEST_CASE("parse: malformed templates say what was expected") {
  CHECK(refused("{% for m in messages %}").what == "expected `endfor`, found `the end`");
  CHECK(refused("{{ 1 + }}").what == "expected a value, found `}}`");
  CHECK(refused("{{ 'a }}").what == "a string without its end");
  CHECK(refused("{% endif %}").what == "`endif` without its beginning");
  CHECK(refused("{{ (1] }}").what == "an unexpected `]`");
  CHECK(refused("\xff").code == Code::kInvalidArgument);
}

TEST_CASE("render: the template's own refusal is the error") {
  const Status status = refused("\n{{ raise_exception('roles must alternate') }}");
  CHECK(status.code == Code::kInvalidArgument);
  CHECK(status.what == "roles must alternate");
  CHECK(status.where == "chat template, line 2");
  CHECK(refused("{{ a.b }}").what == "`a` is undefined, so it has no `b`");
  CHECK(refused("{{ 1 + 'a' }}").what == "`+` does not go with int and str");
}

TEST_CASE("render: loops, sizes and depths are bounded") {
  const auto over = [](const std::string& source) { return refused(source).code; };
  CHECK(over("{{ 'a' * 1000000000000 }}") == Code::kOverBudget);
  CHECK(over("{{ 'a' * 9223372036854775807 }}") == Code::kOverBudget);
  CHECK(over("{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}") ==
        Code::kOverBudget);
  CHECK(over("{% set n = namespace(s='a') %}{% for i in range(99) %}{% set n.s = n.s + n.s %}{% "
             "endfor %}") == Code::kOverBudget);
  CHECK(over("{% set n = namespace(s=[]) %}{% for i in range(999) %}{% set n.s = [n.s, n.s] %}{% "
             "endfor %}") == Code::kOverBudget);
  CHECK(over("{% set n = namespace(s=[]) %}{% for i in range(60) %}{% set n.s = [n.s, n.s] %}{% "
             "endfor %}"
             "{{ n.s == n.s + [] }}") == Code::kOverBudget);
  CHECK(over("{{ " + std::string(100000, '(') + std::string(100000, ')') + "}}") ==
        Code::kOverBudget);
  CHECK(over("{{ " + std::string(100000, '-') + "1 }}") == Code::kOverBudget);
  std::string chain = "{{ 1";
  for (int i = 0; i < 100000; ++i) chain += "+1";
  CHECK(over(chain + " }}") == Code::kOverBudget);
  std::string nested;
  for (int i = 0; i < 10000; ++i) nested += "{% if true %}";
  CHECK(over(nested) == Code::kOverBudget);
  CHECK(over("{% set n = namespace() %}{% set n.n = n %}") == Code::kUnsupported);
}

TEST_CASE("render: a message that is not UTF-8 is refused with the byte") {
  const auto rendered = render_chat("{{ messages[0].content }}", {{"user", "ab\xff"}});
  REQUIRE_FALSE(rendered.ok());
  CHECK(rendered.status().what == "byte 2 of the content of message 0 is not UTF-8");
}

}  // namespace pellucid::text
