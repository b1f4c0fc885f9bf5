#include "text/jinja/lexer.h"

#include <fmt/format.h>

#include <algorithm>

#include "text/jinja/value.h"
#include "text/utf8.h"

namespace pellucid::text::jinja {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool begins_name(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }

// "\r\n" and "\r" become "\n"; one newline at the very end goes.
std::string normalize_newlines(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] == '\r') {
      if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
      out += '\n';
    } else {
      out += source[i];
    }
  }
  if (out.ends_with('\n')) out.pop_back();
  return out;
}

class Lexer {
 public:
  explicit Lexer(std::string source) : source_(std::move(source)) {}

  Result<std::vector<Token>> run() {
    while (at_ < source_.size()) PELLUCID_TRY(outside());
    push(TokenKind::kEnd, "");
    return std::move(tokens_);
  }

 private:
  Status invalid(std::string what) const {
    return error(Code::kInvalidArgument, "", "{}", what).at(at_line(line_));
  }
  Status unsupported(std::string what) const {
    return error(Code::kUnsupported, "this chat template is not supported yet", "{}", what)
        .at(at_line(line_));
  }
  std::string_view rest() const { return std::string_view(source_).substr(at_); }
  void push(TokenKind kind, std::string text) { tokens_.push_back({kind, std::move(text), line_}); }
  void advance(size_t count) {
    line_ +=
        static_cast<int>(std::count(source_.begin() + static_cast<ptrdiff_t>(at_),
                                    source_.begin() + static_cast<ptrdiff_t>(at_ + count), '\n'));
    at_ += count;
  }
  void skip_space() { advance(strip_bounds(rest(), true, false).first); }

  // Data up to the next tag, then the tag.
  Status outside() {
    size_t tag = at_;
    for (;; ++tag) {
      tag = source_.find('{', tag);
      if (tag == std::string::npos || tag + 1 == source_.size()) {
        push(TokenKind::kData, source_.substr(at_));
        advance(source_.size() - at_);
        return ok_status();
      }
      const char second = source_[tag + 1];
      if (second == '{' || second == '%' || second == '#') break;
    }
    const char kind = source_[tag + 1];
    const char sign = tag + 2 < source_.size() ? source_[tag + 2] : ' ';
    const bool signed_tag = sign == '-' || sign == '+';
    std::string_view data = std::string_view(source_).substr(at_, tag - at_);
    if (sign == '-') {
      data = data.substr(0, strip_bounds(data, false, true).second);
    } else if (sign != '+' && kind != '{') {
      data = without_indentation(data);
    }
    if (!data.empty()) push(TokenKind::kData, std::string(data));
    advance(tag + (signed_tag ? 3 : 2) - at_);
    line_starts_ = false;
    if (kind == '#') return comment();
    push(kind == '{' ? TokenKind::kVariableBegin : TokenKind::kBlockBegin, "");
    return inside(kind == '{');
  }

  // lstrip_blocks: white space between the beginning of the line and a tag goes.
  std::string_view without_indentation(std::string_view data) const {
    const size_t newline = data.rfind('\n');
    const size_t line_begin = newline == std::string_view::npos ? 0 : newline + 1;
    if (line_begin == 0 && !line_starts_) return data;
    const auto [begin, end] = strip_bounds(data.substr(line_begin), true, false);
    return begin == end ? data.substr(0, line_begin) : data;
  }

  // After `%}` or `#}`: `-` takes all white space, nothing takes one newline, `+` none.
  void after_tag(char sign) {
    if (sign == '-') {
      const size_t before = at_;
      skip_space();
      line_starts_ = at_ > before && source_[at_ - 1] == '\n';
    } else if (sign != '+' && rest().starts_with('\n')) {
      advance(1);
      line_starts_ = true;
    }
  }

  Status comment() {
    const size_t end = source_.find("#}", at_);
    if (end == std::string::npos) return invalid("a comment `{#` without its `#}`");
    const char sign = end > at_ ? source_[end - 1] : ' ';
    advance(end + 2 - at_);
    after_tag(sign);
    return ok_status();
  }

  bool ends_tag(bool variable) {
    const std::string_view close = variable ? "}}" : "%}";
    const std::string_view left = rest();
    const bool signed_end = (left.starts_with('-') || (left.starts_with('+') && !variable)) &&
                            left.substr(1).starts_with(close);
    if (!signed_end && !left.starts_with(close)) return false;
    const char sign = signed_end ? left[0] : ' ';
    push(variable ? TokenKind::kVariableEnd : TokenKind::kBlockEnd, "");
    advance(signed_end ? 3 : 2);
    line_starts_ = false;
    if (!variable || sign == '-') after_tag(sign);
    return true;
  }

  Status inside(bool variable) {
    std::string open;  // brackets not yet closed: inside them `}}` ends no tag
    while (true) {
      if (rest().empty()) return invalid("the template ends inside a tag");
      if (open.empty() && ends_tag(variable)) return ok_status();
      const char c = rest()[0];
      if (const size_t space = strip_bounds(rest(), true, false).first; space > 0) {
        advance(space);
      } else if (begins_name(c)) {
        size_t size = 1;
        while (size < rest().size() && (begins_name(rest()[size]) || is_digit(rest()[size])))
          ++size;
        push(TokenKind::kName, std::string(rest().substr(0, size)));
        advance(size);
      } else if (is_digit(c)) {
        PELLUCID_TRY(number());
      } else if (c == '\'' || c == '"') {
        PELLUCID_TRY(string());
      } else {
        PELLUCID_TRY(operator_token(open));
      }
    }
  }

  Status operator_token(std::string& open) {
    static constexpr std::string_view kOperators[] = {
        "//", "**", "==", "!=", ">=", "<=", "+", "-", "/", "*", "%", "~", "[",
        "]",  "(",  ")",  "{",  "}",  ">",  "<", "=", ".", ":", "|", ",", ";"};
    for (const std::string_view op : kOperators) {
      if (!rest().starts_with(op)) continue;
      if (op == "(" || op == "[" || op == "{") open += op == "(" ? ')' : op == "[" ? ']' : '}';
      if (op == ")" || op == "]" || op == "}") {
        if (open.empty() || open.back() != op[0]) {
          return invalid(fmt::format("an unexpected `{}`", op));
        }
        open.pop_back();
      }
      push(TokenKind::kOperator, std::string(op));
      advance(op.size());
      return ok_status();
    }
    return invalid(
        fmt::format("an unexpected character `{}`", rest().substr(0, utf8_size_at(source_, at_))));
  }

  Status number() {
    const std::string_view left = rest();
    size_t size = 0;
    const auto digits = [&] {
      const size_t before = size;
      while (size < left.size() && is_digit(left[size])) ++size;
      return size > before;
    };
    digits();
    bool real = false;
    if (size + 1 < left.size() && left[size] == '.' && is_digit(left[size + 1])) {
      real = true;
      ++size;
      digits();
    }
    if (size < left.size() && (left[size] == 'e' || left[size] == 'E')) {
      real = true;
      ++size;
      if (size < left.size() && (left[size] == '+' || left[size] == '-')) ++size;
      if (!digits()) return unsupported("this number");
    }
    const bool leading_zero = !real && size > 1 && left[0] == '0';
    if (leading_zero || (size < left.size() && begins_name(left[size]))) {
      return unsupported(fmt::format("the number `{}`", left.substr(0, size + 1)));
    }
    push(real ? TokenKind::kReal : TokenKind::kInteger, std::string(left.substr(0, size)));
    advance(size);
    return ok_status();
  }

  Status string() {
    const char quote = rest()[0];
    const int line = line_;
    std::string value;
    size_t i = at_ + 1;
    while (true) {
      if (i >= source_.size()) return invalid("a string without its end");
      const char c = source_[i];
      if (c == quote) break;
      if (c != '\\') {
        value += c;
        ++i;
        continue;
      }
      PELLUCID_TRY(escape(i, value));
    }
    tokens_.push_back({TokenKind::kString, std::move(value), line});
    advance(i + 1 - at_);
    return ok_status();
  }

  // Python's escapes; `i` is at the backslash and moves past the escape.
  Status escape(size_t& i, std::string& value) {
    if (i + 1 >= source_.size()) return invalid("a string without its end");
    const char c = source_[i + 1];
    static constexpr std::string_view kFrom = "nrtabfv\\'\"";
    static constexpr std::string_view kTo = "\n\r\t\a\b\f\v\\'\"";
    if (const size_t plain = kFrom.find(c); plain != std::string_view::npos) {
      value += kTo[plain];
      i += 2;
    } else if (c == '\n') {
      i += 2;
    } else if (c == 'x' || c == 'u' || c == 'U') {
      const size_t count = c == 'x' ? 2 : c == 'u' ? 4 : 8;
      uint32_t code_point = 0;
      for (size_t k = 0; k < count; ++k) {
        const char d = i + 2 + k < source_.size() ? source_[i + 2 + k] : ' ';
        const bool letter = (d >= 'a' && d <= 'f') || (d >= 'A' && d <= 'F');
        if (!is_digit(d) && !letter) return invalid(fmt::format("a broken `\\{}` escape", c));
        code_point =
            code_point << 4 | static_cast<uint32_t>(is_digit(d) ? d - '0' : (d | 0x20) - 'a' + 10);
      }
      if (code_point > 0x10FFFF || (code_point >= 0xD800 && code_point < 0xE000)) {
        return unsupported(
            fmt::format("the escape of U+{:04X}, which is no character", code_point));
      }
      append_utf8(value, code_point);
      i += 2 + count;
    } else if (is_digit(c) || c == 'N') {
      return unsupported(fmt::format("the escape `\\{}`", c));
    } else {  // as Python: an unknown escape keeps its backslash
      value += '\\';
      i += 1;
    }
    return ok_status();
  }

  std::string source_;
  size_t at_ = 0;
  int line_ = 1;
  bool line_starts_ = true;  // the data that comes next begins a line
  std::vector<Token> tokens_;
};

}  // namespace

std::string at_line(int line) { return fmt::format("chat template, line {}", line); }

Result<std::vector<Token>> tokenize(std::string_view source) {
  if (const auto bad = first_invalid_utf8(source)) {
    return error(Code::kInvalidArgument, "", "byte {} of the chat template is not UTF-8", *bad);
  }
  return Lexer(normalize_newlines(source)).run();
}

}  // namespace pellucid::text::jinja
