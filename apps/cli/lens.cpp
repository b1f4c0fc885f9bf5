// lens: what each layer would say next, at each position.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "apps/cli/json.h"
#include "apps/cli/lens.h"

namespace pellucid::cli {
namespace {

using Json = nlohmann::ordered_json;

struct Options {
  std::string model;
  std::string prompt;
  std::string html;
  int top = 5;
};

Json json_of(const LensToken& token) { return {{"id", token.id}, {"text", token.text}}; }

Json json_of(const Lens& lens) {
  Json json = {{"model", lens.model}, {"prompt", lens.prompt}};
  for (const LensToken& token : lens.tokens) json["tokens"].push_back(json_of(token));
  for (const LensToken& token : lens.answers) json["answers"].push_back(json_of(token));
  for (const LensLayer& layer : lens.layers) {
    Json cells = Json::array();
    for (const LensCell& cell : layer.cells) {
      Json top = Json::array();
      for (const LensToken& token : cell.top) {
        top.push_back({{"id", token.id},
                       {"text", token.text},
                       {"probability", token.probability},
                       {"logit", token.logit}});
      }
      cells.push_back({{"top", top},
                       {"answer_rank", cell.final_rank},
                       {"answer_probability", cell.final_probability}});
    }
    json["layers"].push_back({{"site", layer.site}, {"positions", cells}});
  }
  return json;
}

Status show_lens(Options& options, const GlobalOptions& global) {
  if (options.prompt == "-") {
    PELLUCID_ASSIGN(options.prompt, read_standard_input());
  }
  PELLUCID_ASSIGN(const engine::LoadedModel loaded, load_model(options.model, global));
  const InterruptGuard interrupt;
  PELLUCID_ASSIGN(Lens lens, run_lens(loaded, options.prompt, options.top, interrupt.flag()));
  lens.model = std::filesystem::path(options.model).filename().string();
  if (!options.html.empty()) PELLUCID_TRY(write_file(options.html, lens_html(lens)));
  if (global.json) {
    put_json(json_of(lens));
  } else if (options.html.empty()) {
    put(lens_table(lens, terminal_columns(), colours(STDOUT_FILENO)));
  } else if (options.html != "/dev/stdout") {
    put(fmt::format("{}\n", options.html));
  }
  return ok_status();
}

std::function<Status()> add(CLI::App& app, const GlobalOptions& global) {
  auto options = std::make_shared<Options>();
  app.add_option("MODEL", options->model, "A name that `pellucid models` lists, or a path")
      ->required();
  app.add_option("PROMPT", options->prompt, "The text, or - for standard input")->required();
  app.add_option("--html", options->html, "Write a page with the picture to this file instead");
  app.add_option("--top", options->top,
                 "How many tokens a cell holds in JSON and in the picture (default 5)")
      ->check(CLI::Range(1, 100));
  return [options, &global] { return show_lens(*options, global); };
}

}  // namespace

const Subcommand kLens = {"lens",
                          "The logit lens: what each layer would say next, at each position",
                          "  pellucid lens smollm2 \"The capital of France is\"\n"
                          "  pellucid lens smollm2 \"The capital of France is\" --html lens.html\n",
                          add};

}  // namespace pellucid::cli
