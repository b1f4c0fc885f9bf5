#include "apps/cli/chat_text.h"

namespace pellucid::cli {
namespace {

/// The text of a special token, "" when the tokenizer has none.
Result<std::string> token_text(const text::Tokenizer& tokenizer, std::optional<int64_t> id) {
  if (!id) return std::string();
  PELLUCID_ASSIGN(const std::string_view bytes, tokenizer.token_bytes(*id));
  return std::string(bytes);
}

}  // namespace

Result<std::vector<int64_t>> encode_chat(const engine::LoadedModel& loaded,
                                         const std::vector<text::Message>& messages) {
  if (loaded.chat_template.empty()) {
    return error(Code::kUnsupported, "use pellucid run without --chat",
                 "the model has no chat template");
  }
  const text::Tokenizer& tokenizer = *loaded.tokenizer;
  text::RenderOptions options;
  options.add_generation_prompt = true;
  PELLUCID_ASSIGN(options.bos_token, token_text(tokenizer, tokenizer.bos()));
  PELLUCID_ASSIGN(options.eos_token, token_text(tokenizer, tokenizer.eos()));
  PELLUCID_ASSIGN(options.unk_token, token_text(tokenizer, tokenizer.unk()));
  PELLUCID_ASSIGN(options.pad_token, token_text(tokenizer, tokenizer.pad()));
  PELLUCID_ASSIGN(const text::Rendered rendered,
                  text::render_chat(loaded.chat_template, messages, options));
  // The template writes the begin-of-text token itself where it wants one. What the user typed is
  // plain text: "<|im_end|>" in a message must not end it.
  std::vector<int64_t> ids;
  size_t at = 0;
  const auto append = [&](size_t end, bool parse_special) -> Status {
    if (end > at) {
      PELLUCID_ASSIGN(const text::Encoding encoding,
                      tokenizer.encode(std::string_view(rendered.text).substr(at, end - at),
                                       {.bos = false, .parse_special = parse_special}));
      ids.insert(ids.end(), encoding.ids.begin(), encoding.ids.end());
    }
    at = end;
    return ok_status();
  };
  for (const text::ContentSpan& span : rendered.contents) {
    const std::string_view content =
        std::string_view(rendered.text).substr(span.begin, span.end - span.begin);
    PELLUCID_ASSIGN(const text::Encoding special,
                    tokenizer.encode(content, {.bos = false, .parse_special = true}));
    PELLUCID_ASSIGN(const text::Encoding plain,
                    tokenizer.encode(content, {.bos = false, .parse_special = false}));
    // Cutting the text there could change how its neighbours are split: only where it matters.
    if (special.ids == plain.ids) continue;
    PELLUCID_TRY(append(span.begin, true));
    PELLUCID_TRY(append(span.end, false));
  }
  PELLUCID_TRY(append(rendered.text.size(), true));
  return ids;
}

}  // namespace pellucid::cli
