// Drives the tokenizer from tests/parity: one JSON request a line on standard input, one answer a line.
#include <fstream>
#include <iostream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "text/chat_template.h"
#include "text/stream_decoder.h"
#include "text/tokenizer.h"

namespace pellucid::text {
namespace {

using Json = nlohmann::json;

Json failure(const Status& status) {
  return {{"error", code_info(status.code).name}, {"what", status.what}, {"hint", status.hint}};
}

std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

Result<std::shared_ptr<const Tokenizer>> load(const Json& request) {
  if (request.contains("tokenizer")) {
    return Tokenizer::from_json(read_file(request["tokenizer"]),
                                request.contains("config") ? read_file(request["config"]) : "");
  }
  Vocabulary v;
  v.pre = request.value("pre", "");
  v.tokens = request["tokens"].get<std::vector<std::string>>();
  v.token_types = request["token_types"].get<std::vector<int32_t>>();
  v.merges = request["merges"].get<std::vector<std::string>>();
  v.bos = 1;
  v.eos = 2;
  return Tokenizer::from_vocabulary(std::move(v));
}

Json encode(const std::shared_ptr<const Tokenizer>& tokenizer, const Json& request) {
  const auto encoding = tokenizer->encode(request["text"].get<std::string>(),
                                          {.parse_special = request.value("parse_special", true)});
  if (!encoding.ok()) return failure(encoding.status());
  Json ranges = Json::array();
  for (const ByteRange& range : encoding->ranges) ranges.push_back({range.begin, range.end});
  const auto decoded = tokenizer->decode(encoding->ids);
  const auto plain = tokenizer->decode(encoding->ids, {.skip_special = true});
  if (!decoded.ok() || !plain.ok()) return failure(decoded.status());
  std::string streamed;
  StreamDecoder stream(tokenizer);
  for (const int64_t id : encoding->ids) streamed += *stream.push(id);
  streamed += stream.flush();
  return {{"ids", encoding->ids},   {"ranges", ranges},    {"dropped", encoding->dropped_bytes},
          {"decoded", *decoded},    {"plain", *plain},     {"streamed", streamed}};
}

Json render(const Json& request) {
  std::vector<Message> messages;
  for (const Json& message : request["messages"]) messages.push_back({message["role"], message["content"]});
  const auto rendered = render_chat(request["template"].get<std::string>(), messages,
                                    {.add_generation_prompt = request.value("add_generation_prompt", false),
                                     .bos_token = request.value("bos_token", ""),
                                     .eos_token = request.value("eos_token", "")});
  if (!rendered.ok()) {
    Json answer = failure(rendered.status());
    answer["where"] = rendered.status().where;
    return answer;
  }
  Json spans = Json::array();
  for (const ContentSpan& span : rendered->contents) spans.push_back({span.message, span.begin, span.end});
  return {{"text", rendered->text}, {"contents", spans}};
}

int run() {
  std::shared_ptr<const Tokenizer> tokenizer;
  for (std::string line; std::getline(std::cin, line);) {
    const Json request = Json::parse(line);
    Json answer;
    if (request["op"] == "load") {
      auto loaded = load(request);
      answer = loaded.ok() ? Json{{"size", (*loaded)->vocab_size()}} : failure(loaded.status());
      if (loaded.ok()) tokenizer = *loaded;
    } else if (request["op"] == "render") {
      answer = render(request);
    } else if (request["op"] == "decode") {
      const auto text = tokenizer->decode(request["ids"].get<std::vector<int64_t>>());
      answer = text.ok() ? Json{{"decoded", *text}} : failure(text.status());
    } else {
      answer = encode(tokenizer, request);
    }
    std::cout << answer.dump() << std::endl;
  }
  return 0;
}

}  // namespace
}  // namespace pellucid::text

int main() { return pellucid::text::run(); }
