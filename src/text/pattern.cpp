#include "text/pattern.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <array>

#include "text/utf8.h"

namespace pellucid::text {
namespace {

// A match that needs more is a pattern that backtracks without end; honest ones use a few hundred.
constexpr uint32_t kMatchLimit = 10'000'000;
constexpr uint32_t kHeapLimitKib = 64 * 1024;
constexpr size_t kPatternBytesMax = 4 << 20;

std::string pcre2_message(int code) {
  std::array<PCRE2_UCHAR, 256> buffer{};
  pcre2_get_error_message(code, buffer.data(), buffer.size());
  return reinterpret_cast<const char*>(buffer.data());
}

struct FreeCode {
  void operator()(pcre2_code* p) const { pcre2_code_free(p); }
};
struct FreeCompileContext {
  void operator()(pcre2_compile_context* p) const { pcre2_compile_context_free(p); }
};
struct FreeMatchContext {
  void operator()(pcre2_match_context* p) const { pcre2_match_context_free(p); }
};
struct FreeMatchData {
  void operator()(pcre2_match_data* p) const { pcre2_match_data_free(p); }
};

}  // namespace

struct Pattern::Compiled {
  std::unique_ptr<pcre2_code, FreeCode> code;
  std::unique_ptr<pcre2_match_context, FreeMatchContext> limits;
};

Result<Pattern> Pattern::compile(std::string_view pattern) {
  if (pattern.size() > kPatternBytesMax) {
    return error(Code::kOverBudget, "a pre-tokeniser pattern is a few hundred characters",
                 "the pattern has {} bytes after expansion, the limit is {}", pattern.size(),
                 kPatternBytesMax);
  }
  const std::unique_ptr<pcre2_compile_context, FreeCompileContext> context(
      pcre2_compile_context_create(nullptr));
  if (context == nullptr) return error(Code::kOutOfMemory, "", "no memory for a pattern");
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);  // `.` excludes \n alone, as in Oniguruma
  int code = 0;
  PCRE2_SIZE offset = 0;
  const auto compiled = std::make_shared<Compiled>();
  compiled->code.reset(
      pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                    PCRE2_UTF | PCRE2_NO_UTF_CHECK | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C,
                    &code, &offset, context.get()));
  if (compiled->code == nullptr) {
    return error(Code::kUnsupported, "the pre-tokeniser's regular expression does not compile",
                 "pattern: {}", pcre2_message(code));
  }
  compiled->limits.reset(pcre2_match_context_create(nullptr));
  if (compiled->limits == nullptr) return error(Code::kOutOfMemory, "", "no memory for a pattern");
  pcre2_set_match_limit(compiled->limits.get(), kMatchLimit);
  pcre2_set_heap_limit(compiled->limits.get(), kHeapLimitKib);
  // Without a JIT (or under a policy that forbids it) the interpreter gives the same matches.
  pcre2_jit_compile(compiled->code.get(), PCRE2_JIT_COMPLETE);
  Pattern result;
  result.compiled_ = compiled;
  return result;
}

Status Pattern::find_all(std::string_view text,
                         const std::function<void(size_t, size_t)>& found) const {
  const std::unique_ptr<pcre2_match_data, FreeMatchData> match(
      pcre2_match_data_create_from_pattern(compiled_->code.get(), nullptr));
  if (match == nullptr) return error(Code::kOutOfMemory, "", "no memory for a match");
  size_t from = 0;
  size_t last_end = std::string_view::npos;
  while (from <= text.size()) {
    const int count =
        pcre2_match(compiled_->code.get(), reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(),
                    from, PCRE2_NO_UTF_CHECK, match.get(), compiled_->limits.get());
    if (count == PCRE2_ERROR_NOMATCH) break;
    if (count < 0) {
      return error(Code::kOverBudget, "the tokenizer's pre-tokeniser pattern backtracks too much",
                   "pattern at byte {} of the text: {}", from, pcre2_message(count));
    }
    const PCRE2_SIZE* bounds = pcre2_get_ovector_pointer(match.get());
    // An empty match right after the last one is skipped, as the reference library does.
    if (bounds[0] == bounds[1] && bounds[1] == last_end) {
      from += from < text.size() ? utf8_size_at(text, from) : 1;
      continue;
    }
    from = last_end = bounds[1];
    found(bounds[0], bounds[1]);
  }
  return ok_status();
}

}  // namespace pellucid::text
