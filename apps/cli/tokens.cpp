// tokens: what the tokenizer makes of a text, and back.
#include <fmt/ranges.h>
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "apps/cli/json.h"

namespace pellucid::cli {
namespace {

using Json = nlohmann::ordered_json;

struct Options {
  std::string model;
  std::string text;
  bool ids_only = false;
  bool plain = false;
  std::vector<int64_t> decode;
};

Status decode(const text::Tokenizer& tokenizer, const Options& options, bool json) {
  PELLUCID_ASSIGN(const std::string text, tokenizer.decode(options.decode));
  if (json) {
    put_json(Json{{"ids", options.decode}, {"text", text}});
  } else {
    put(text + "\n");
  }
  return ok_status();
}

Status encode(const text::Tokenizer& tokenizer, const Options& options, bool json) {
  std::string text = options.text;
  if (text == "-") {
    PELLUCID_ASSIGN(text, read_standard_input());
  }
  PELLUCID_ASSIGN(const text::Encoding encoding,
                  tokenizer.encode(text, {.bos = {}, .parse_special = !options.plain}));
  Json tokens = Json::array();
  std::vector<std::vector<std::string>> rows = {{"position", "id", "piece"}};
  for (size_t i = 0; i < encoding.ids.size(); ++i) {
    const int64_t id = encoding.ids[i];
    PELLUCID_ASSIGN(const std::string_view bytes, tokenizer.token_bytes(id));
    const bool special = tokenizer.is_special(id);
    tokens.push_back({{"id", id}, {"piece", bytes}, {"special", special}});
    rows.push_back(
        {std::to_string(i), std::to_string(id), visible(bytes) + (special ? "   (special)" : "")});
  }
  if (json) {
    put_json(Json{{"text", text}, {"ids", encoding.ids}, {"tokens", tokens}});
  } else if (options.ids_only) {
    put(fmt::format("{}\n", fmt::join(encoding.ids, " ")));
  } else {
    put(table(rows));
  }
  if (encoding.dropped_bytes > 0) {
    std::fprintf(stderr,
                 "pellucid: warning: the vocabulary has no token for %zu bytes of the text\n",
                 encoding.dropped_bytes);
  }
  return ok_status();
}

std::function<Status()> add(CLI::App& app, const GlobalOptions& global) {
  auto options = std::make_shared<Options>();
  app.add_option("MODEL", options->model, "A name that `pellucid models` lists, or a path")
      ->required();
  auto* text = app.add_option("TEXT", options->text, "The text, or - for standard input");
  app.add_flag("--ids", options->ids_only, "Print the ids only, on one line");
  app.add_flag("--plain", options->plain, "Take the text of special tokens as plain text");
  app.add_option("--decode", options->decode, "Ids to turn into text instead")
      ->excludes(text)
      ->delimiter(',');
  app.parse_complete_callback([options, text] {
    if (text->count() == 0 && options->decode.empty()) {
      throw CLI::RequiredError("TEXT or --decode");
    }
  });
  return [options, &global]() -> Status {
    PELLUCID_ASSIGN(const auto tokenizer, load_tokenizer(options->model, global));
    return options->decode.empty() ? encode(*tokenizer, *options, global.json)
                                   : decode(*tokenizer, *options, global.json);
  };
}

}  // namespace

const Subcommand kTokens = {"tokens", "The tokens of a text, or the text of tokens",
                            "  pellucid tokens smollm2 \"The capital of France is\"\n"
                            "  pellucid tokens smollm2 --ids \"hello\"\n"
                            "  pellucid tokens smollm2 --decode 504 3575 282\n",
                            add};

}  // namespace pellucid::cli
