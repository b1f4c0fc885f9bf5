// Oniguruma -> PCRE2. Only what means the same in both is passed on; everything else is refused by
// name, since a pattern that is nearly right gives tokens that are nearly right.
#include <fmt/format.h>

#include <algorithm>

#include "text/pattern.h"
#include "text/unicode_classes.h"
#include "text/utf8.h"

namespace pellucid::text {
namespace {

constexpr size_t kSourceBytesMax = 16 * 1024;
constexpr int kDepthMax = 50;
constexpr size_t kOutputBytesMax = 4 << 20;

void append_ranges(std::string& out, std::span<const CodePointRange> set) {
  for (const CodePointRange& range : set) {
    fmt::format_to(std::back_inserter(out), "\\x{{{:x}}}", range.first);
    if (range.last > range.first) {
      fmt::format_to(std::back_inserter(out), "-\\x{{{:x}}}", range.last);
    }
  }
}

void append_literal(std::string& out, char32_t c) {
  fmt::format_to(std::back_inserter(out), "\\x{{{:x}}}", static_cast<uint32_t>(c));
}

class Translator {
 public:
  explicit Translator(std::string_view source) : source_(source) {}

  Result<std::string> run() {
    if (source_.size() > kSourceBytesMax) {
      return error(Code::kUnsupported, "", "a pattern of {} bytes (limit {})", source_.size(),
                   kSourceBytesMax);
    }
    if (first_invalid_utf8(source_)) {
      return error(Code::kInvalidArgument, "", "a pattern that is not UTF-8");
    }
    while (at_ < source_.size()) {
      PELLUCID_TRY(step());
      if (out_.size() > kOutputBytesMax) {
        return error(Code::kOverBudget, "", "a pattern that expands to more than {} bytes",
                     kOutputBytesMax);
      }
    }
    if (!groups_.empty()) return refuse_malformed("a group without its `)`");
    return std::move(out_);
  }

 private:
  struct Escape {
    bool is_set = false;
    char32_t literal = 0;
    CodePointSet set;
  };

  bool next_is(std::string_view text) const { return source_.substr(at_).starts_with(text); }
  bool ignores_case() const { return !groups_.empty() && groups_.back(); }

  Status refuse(std::string_view construct) const {
    return error(Code::kUnsupported, "this pre-tokeniser pattern is not supported yet",
                 "pattern construct `{}` at byte {} of `{}`", construct, at_,
                 source_.substr(0, 200));
  }
  Status refuse_malformed(std::string_view problem) const {
    return error(Code::kInvalidArgument, "the pattern is malformed", "{} in pattern `{}`", problem,
                 source_.substr(0, 200));
  }

  char32_t take() {
    const Utf8Step step = utf8_step(source_.substr(at_));
    at_ += step.size;
    return step.code_point;
  }

  Status step() {
    const char c = source_[at_];
    switch (c) {
      case '(':
        return open_group();
      case ')':
        if (groups_.empty()) return refuse_malformed("a `)` without its group");
        groups_.pop_back();
        out_ += ')';
        ++at_;
        return quantifier();
      case '[':
        PELLUCID_TRY(char_class());
        return quantifier();
      case '|':
      case '^':
      case '$':
        out_ += c;
        ++at_;
        return ok_status();
      case '.':
        out_ += c;
        ++at_;
        return quantifier();
      case '*':
      case '+':
      case '?':
      case '{':
        return refuse(source_.substr(at_, 1));
      default:
        break;
    }
    if (c == '\\') {
      PELLUCID_ASSIGN(const Escape item, escape());
      if (item.is_set) {
        out_ += '[';
        append_ranges(out_, item.set);
        out_ += ']';
      } else {
        append_literal(out_, item.literal);
      }
    } else {
      append_literal(out_, take());
    }
    return quantifier();
  }

  Status open_group() {
    if (groups_.size() >= kDepthMax) return refuse("groups nested too deep");
    bool ignore = ignores_case();
    static constexpr std::string_view kPlain[] = {"(?:", "(?=", "(?!", "(?<=", "(?<!", "(?>"};
    if (next_is("(?i:")) {
      ignore = true;
      out_ += "(?i:";
      at_ += 4;
    } else if (next_is("(?")) {
      const auto* known = std::find_if(std::begin(kPlain), std::end(kPlain),
                                       [&](std::string_view opener) { return next_is(opener); });
      if (known == std::end(kPlain)) return refuse(source_.substr(at_, 4));
      out_ += *known;
      at_ += known->size();
    } else {
      out_ += "(?:";  // nothing refers back to a group: not captured
      ++at_;
    }
    if (at_ < source_.size() &&
        std::string_view("*+?{").find(source_[at_]) != std::string_view::npos) {
      return refuse_malformed("a quantifier that repeats nothing");
    }
    groups_.push_back(ignore);
    return ok_status();
  }

  // *, +, ? with a lazy or possessive mark; {n}, {n,}, {n,m} without (they differ between the two).
  Status quantifier() {
    if (at_ == source_.size()) return ok_status();
    const char c = source_[at_];
    if (c == '*' || c == '+' || c == '?') {
      out_ += c;
      ++at_;
      if (at_ < source_.size() && (source_[at_] == '?' || source_[at_] == '+')) {
        out_ += source_[at_++];
      }
    } else if (c == '{') {
      const size_t end = source_.find('}', at_);
      if (end == std::string_view::npos) return refuse("{");
      const std::string_view interval = source_.substr(at_, end + 1 - at_);
      const std::string_view inner = interval.substr(1, interval.size() - 2);
      const size_t comma = inner.find(',');
      const auto number = [](std::string_view digits) {
        return digits.size() <= 3 && std::all_of(digits.begin(), digits.end(),
                                                 [](char d) { return d >= '0' && d <= '9'; });
      };
      const std::string_view low = inner.substr(0, comma);
      const bool fine = !low.empty() && number(low) &&
                        (comma == std::string_view::npos || number(inner.substr(comma + 1)));
      if (!fine) return refuse(interval);
      out_ += interval;
      at_ = end + 1;
    } else {
      return ok_status();
    }
    if (at_ < source_.size() &&
        std::string_view("*+?{").find(source_[at_]) != std::string_view::npos) {
      return refuse("a quantifier after a quantifier");
    }
    return ok_status();
  }

  Status char_class() {
    ++at_;
    out_ += '[';
    if (next_is("^")) {
      out_ += '^';
      ++at_;
    }
    bool empty = true;
    while (true) {
      if (at_ == source_.size()) return refuse_malformed("a `[` without its `]`");
      if (next_is("]")) {
        if (empty) return refuse("[]");
        ++at_;
        out_ += ']';
        return ok_status();
      }
      PELLUCID_ASSIGN(const Escape first, class_item());
      empty = false;
      const bool range = next_is("-") && at_ + 1 < source_.size() && source_[at_ + 1] != ']';
      if (first.is_set) {
        if (range) return refuse("a range that begins with a set");
        append_ranges(out_, first.set);
        continue;
      }
      append_literal(out_, first.literal);
      if (!range) continue;
      ++at_;
      PELLUCID_ASSIGN(const Escape last, class_item());
      if (last.is_set) return refuse("a range that ends with a set");
      if (last.literal < first.literal) return refuse_malformed("a range whose end comes first");
      out_ += '-';
      append_literal(out_, last.literal);
    }
  }

  Result<Escape> class_item() {
    if (at_ == source_.size()) return refuse_malformed("a `[` without its `]`");
    if (next_is("[")) return refuse("[ inside [ ]");
    if (next_is("&&")) return refuse("&&");
    if (next_is("\\")) return escape();
    Escape item;
    item.literal = take();
    return item;
  }

  Result<Escape> escape() {
    const size_t begin = at_++;
    if (at_ == source_.size()) return refuse_malformed("a lone `\\` at the end");
    const char32_t c = take();
    Escape item;
    const auto set = [&](std::span<const CodePointRange> ranges, bool negated) {
      item.is_set = true;
      item.set = negated ? complement(ranges) : CodePointSet(ranges.begin(), ranges.end());
    };
    switch (c) {
      case 'n':
        item.literal = '\n';
        break;
      case 'r':
        item.literal = '\r';
        break;
      case 't':
        item.literal = '\t';
        break;
      case 'f':
        item.literal = '\f';
        break;
      case 'v':
        item.literal = '\v';
        break;
      case 'a':
        item.literal = '\a';
        break;
      case 'e':
        item.literal = 0x1B;
        break;
      case 's':
        set(space_set(), false);
        break;
      case 'S':
        set(space_set(), true);
        break;
      case 'd':
        set(*general_category("Nd"), false);
        break;
      case 'D':
        set(*general_category("Nd"), true);
        break;
      case 'w':
        set(word_set(), false);
        break;
      case 'W':
        set(word_set(), true);
        break;
      case 'p':
      case 'P':
        return property(begin, c == 'P');
      case 'x':
      case 'u':
        return hex(begin, c == 'u');
      default:
        if (c >= 0x80 || (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') ||
            (c >= 'A' && c <= 'Z')) {
          at_ = begin;
          return refuse(source_.substr(begin, 2));
        }
        item.literal = c;
    }
    return item;
  }

  Result<Escape> property(size_t begin, bool negated) {
    const size_t end = source_.find('}', at_);
    if (!next_is("{") || end == std::string_view::npos) {
      at_ = begin;
      return refuse(source_.substr(begin, 3));
    }
    std::string_view name = source_.substr(at_ + 1, end - at_ - 1);
    if (name.starts_with('^')) {
      negated = !negated;
      name.remove_prefix(1);
    }
    const auto category = general_category(name);
    const bool by_case = name == "Lu" || name == "Ll" || name == "Lt";
    if (!category || (by_case && ignores_case())) {
      at_ = begin;
      return refuse(source_.substr(begin, end + 1 - begin));
    }
    at_ = end + 1;
    return Escape{true, 0, negated ? complement(*category) : *category};
  }

  Result<Escape> hex(size_t begin, bool four_digits) {
    const bool braces = !four_digits && next_is("{");
    if (braces) ++at_;
    const size_t most = braces ? 6 : four_digits ? 4 : 2;
    uint32_t value = 0;
    size_t digits = 0;
    for (; digits < most && at_ < source_.size() &&
           std::isxdigit(static_cast<unsigned char>(source_[at_]));
         ++digits, ++at_) {
      const char d = source_[at_];
      value = value * 16 + static_cast<uint32_t>(d <= '9' ? d - '0' : (d | 0x20) - 'a' + 10);
    }
    const bool closed = !braces || next_is("}");
    const bool surrogate = value >= 0xD800 && value < 0xE000;
    const bool raw_byte =
        !braces && !four_digits && value >= 0x80;  // a byte there, not a character
    if (digits == 0 || (four_digits && digits != 4) || !closed || surrogate || raw_byte ||
        value > 0x10FFFF) {
      at_ = begin;
      return refuse(source_.substr(begin, 4));
    }
    if (braces) ++at_;
    return Escape{false, value, {}};
  }

  std::string_view source_;
  size_t at_ = 0;
  std::string out_;
  std::vector<bool> groups_;  // per open group: case is ignored inside
};

}  // namespace

Result<std::string> translate_pattern(std::string_view oniguruma) {
  return Translator(oniguruma).run();
}

std::string literal_pattern(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const Utf8Step step = utf8_step(text);
    append_literal(out, step.code_point);
    text.remove_prefix(step.size);
  }
  return out;
}

}  // namespace pellucid::text
