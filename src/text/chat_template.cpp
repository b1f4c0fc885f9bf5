#include "text/chat_template.h"

#include <algorithm>

#include "text/jinja/interpreter.h"
#include "text/jinja/parser.h"
#include "text/utf8.h"

namespace pellucid::text {

using jinja::Value;

Result<ChatTemplate> ChatTemplate::parse(std::string_view source) {
  PELLUCID_ASSIGN(jinja::Template parsed, jinja::parse(source));
  ChatTemplate result;
  result.template_ = std::make_shared<const jinja::Template>(std::move(parsed));
  return result;
}

Result<Rendered> ChatTemplate::render(const std::vector<Message>& messages,
                                      const RenderOptions& options) const {
  std::vector<Value> list;
  for (size_t i = 0; i < messages.size(); ++i) {
    const Message& message = messages[i];
    for (const std::string* part : {&message.role, &message.content}) {
      if (const auto bad = first_invalid_utf8(*part)) {
        return error(Code::kInvalidArgument, "messages must be UTF-8",
                     "byte {} of the {} of message {} is not UTF-8", *bad,
                     part == &message.role ? "role" : "content", i);
      }
    }
    jinja::Text content{message.content, {{i, 0, message.content.size()}}};
    list.push_back(Value::dict(
        {{"role", Value::string(message.role)}, {"content", Value::string(std::move(content))}}));
  }
  std::vector<std::pair<std::string, Value>> variables{
      {"messages", Value::list(std::move(list))},
      {"add_generation_prompt", Value::boolean(options.add_generation_prompt)},
      {"tools", Value::none()},  // transformers passes these two always
      {"documents", Value::none()},
  };
  for (const auto& [name, text] :
       {std::pair("bos_token", &options.bos_token), std::pair("eos_token", &options.eos_token),
        std::pair("unk_token", &options.unk_token), std::pair("pad_token", &options.pad_token)}) {
    if (!text->empty()) variables.emplace_back(name, Value::string(*text));
  }
  PELLUCID_ASSIGN(jinja::Text text, jinja::run(*template_, std::move(variables)));
  Rendered rendered;
  rendered.text = std::move(text.text);
  for (const jinja::Mark& mark : text.marks) {
    rendered.contents.push_back({mark.message, mark.begin, mark.end});
  }
  return rendered;
}

Result<Rendered> render_chat(std::string_view source, const std::vector<Message>& messages,
                             const RenderOptions& options) {
  PELLUCID_ASSIGN(const ChatTemplate parsed, ChatTemplate::parse(source));
  return parsed.render(messages, options);
}

}  // namespace pellucid::text
