#pragma once
// Template source to tokens, with Jinja's rules for white space around tags
// (trim_blocks and lstrip_blocks on, keep_trailing_newline off: as transformers sets them).
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace pellucid::text::jinja {

enum class TokenKind {
  kData,  // text outside tags
  kVariableBegin,
  kVariableEnd,
  kBlockBegin,
  kBlockEnd,
  kName,
  kInteger,
  kReal,
  kString,  // text: the value, escapes resolved
  kOperator,
  kEnd,
};

struct Token {
  TokenKind kind;
  std::string text;
  int line;
};

/// "chat template, line N": what errors carry in `where`.
std::string at_line(int line);

/// The last token is kEnd. Errors: kInvalidArgument, kUnsupported, with the line in `where`.
Result<std::vector<Token>> tokenize(std::string_view source);

}  // namespace pellucid::text::jinja
