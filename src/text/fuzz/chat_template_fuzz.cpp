// Any bytes as a chat template: an error, or a text whose spans hold what the messages say.
#include <cstdlib>

#include "text/chat_template.h"

using namespace pellucid::text;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view source(reinterpret_cast<const char*>(data), size);
  const std::vector<Message> messages{
      {"system", "Be brief."}, {"user", " Hé \n"}, {"assistant", "ok"}, {"user", ""}};
  const auto rendered =
      render_chat(source, messages, {.add_generation_prompt = true, .bos_token = "<s>"});
  if (!rendered.ok()) {
    if (rendered.status().what.empty()) std::abort();
    return 0;
  }
  for (const ContentSpan& span : rendered->contents) {
    if (span.message >= messages.size() || span.begin > span.end ||
        span.end > rendered->text.size()) {
      std::abort();
    }
    const std::string part = rendered->text.substr(span.begin, span.end - span.begin);
    if (messages[span.message].content.find(part) == std::string::npos) std::abort();
  }
  return 0;
}
