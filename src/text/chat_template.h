#pragma once
// Chat templates: the part of Jinja that the models at hand need, rendered as `transformers` does
// (trim_blocks, lstrip_blocks, sandboxed). What is not implemented is refused by name and line.
#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace pellucid::text {

struct Message {
  std::string role;
  std::string content;
};

struct RenderOptions {
  /// Ends with the opening of the assistant's turn.
  bool add_generation_prompt = false;
  /// Texts of the tokenizer's special tokens; "" = the template sees none.
  std::string bos_token = {};
  std::string eos_token = {};
  std::string unk_token = {};
  std::string pad_token = {};
};

/// Bytes [begin, end) of the rendered text that come from the content of message `message`.
struct ContentSpan {
  size_t message = 0;
  size_t begin = 0;
  size_t end = 0;
  friend bool operator==(const ContentSpan&, const ContentSpan&) = default;
};

struct Rendered {
  std::string text;
  /// In the text's order. A template may trim, split, repeat or leave out a content; one that it
  /// rewrites (upper, replace, tojson) has no span.
  std::vector<ContentSpan> contents;
};

namespace jinja {
struct Template;
}

/// A parsed template. Immutable: any thread may render it.
class ChatTemplate {
 public:
  /// Errors: kUnsupported names the construct, kInvalidArgument the mistake; `where` says the line.
  static Result<ChatTemplate> parse(std::string_view source);

  /// Errors: kInvalidArgument (the template raised an exception or uses an undefined value; a role
  /// or content is not UTF-8), kUnsupported, kOverBudget (steps or bytes).
  Result<Rendered> render(const std::vector<Message>& messages,
                          const RenderOptions& options = {}) const;

 private:
  std::shared_ptr<const jinja::Template> template_;
};

/// Parses and renders.
Result<Rendered> render_chat(std::string_view source, const std::vector<Message>& messages,
                             const RenderOptions& options = {});

}  // namespace pellucid::text
