// Drives the tokenizer from tests/parity: one JSON request a line on standard input, one answer a
// line.
#include <fstream>
#include <iostream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "files/gguf.h"
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
  PELLUCID_ASSIGN(const auto file, files::GgufFile::open(request["gguf"].get<std::string>()));
  return Tokenizer::from_gguf(*file);
}

Json describe(const Tokenizer& tokenizer) {
  const auto id = [](std::optional<int64_t> token) { return token ? Json(*token) : Json(); };
  return {{"size", tokenizer.vocab_size()},
          {"bos", id(tokenizer.bos())},
          {"eos", id(tokenizer.eos())},
          {"unk", id(tokenizer.unk())},
          {"pad", id(tokenizer.pad())},
          {"adds_bos", tokenizer.adds_bos()},
          {"chat_template", tokenizer.chat_template()}};
}

std::string stream(const std::shared_ptr<const Tokenizer>& tokenizer,
                   const std::vector<int64_t>& ids) {
  StreamDecoder decoder(tokenizer);
  std::string out;
  for (const int64_t id : ids) out += *decoder.push(id);
  return out + decoder.flush();
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
  return {
      {"ids", encoding->ids}, {"ranges", ranges}, {"dropped", encoding->dropped_bytes},
      {"decoded", *decoded},  {"plain", *plain},  {"streamed", stream(tokenizer, encoding->ids)}};
}

Json render(const Json& request) {
  std::vector<Message> messages;
  for (const Json& message : request["messages"])
    messages.push_back({message["role"], message["content"]});
  const auto rendered =
      render_chat(request["template"].get<std::string>(), messages,
                  {.add_generation_prompt = request.value("add_generation_prompt", false),
                   .bos_token = request.value("bos_token", ""),
                   .eos_token = request.value("eos_token", "")});
  if (!rendered.ok()) {
    Json answer = failure(rendered.status());
    answer["where"] = rendered.status().where;
    return answer;
  }
  Json spans = Json::array();
  for (const ContentSpan& span : rendered->contents)
    spans.push_back({span.message, span.begin, span.end});
  return {{"text", rendered->text}, {"contents", spans}};
}

int run() {
  std::shared_ptr<const Tokenizer> tokenizer;
  for (std::string line; std::getline(std::cin, line);) {
    const Json request = Json::parse(line);
    Json answer;
    if (request["op"] == "load") {
      auto loaded = load(request);
      answer = loaded.ok() ? describe(**loaded) : failure(loaded.status());
      if (loaded.ok()) tokenizer = *loaded;
    } else if (request["op"] == "render") {
      answer = render(request);
    } else if (request["op"] == "decode") {
      const auto ids = request["ids"].get<std::vector<int64_t>>();
      const auto text = tokenizer->decode(ids);
      answer = text.ok() ? Json{{"decoded", *text}, {"streamed", stream(tokenizer, ids)}}
                         : failure(text.status());
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
