// trace: run a stored program.
#include <ATen/core/Tensor.h>

#include <fmt/ranges.h>
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <cstdio>

#include "apps/cli/json.h"
#include "apps/cli/trace_files.h"
#include "tensor/dtype.h"

namespace pellucid::cli {
namespace {

using Json = nlohmann::ordered_json;

struct Options {
  std::string model, program, constants, out;
  std::vector<std::string> prompts;
};

struct Summary {
  std::string dtype, shape;
  std::optional<double> min, mean, max;  // nothing for empty and missing values
};

Summary summary_of(const program::Saved& saved) {
  if (saved.missing) return {"-", "its step did not happen", {}, {}, {}};
  const at::Tensor& value = saved.value;
  Summary summary;
  summary.dtype = tensor::dtype_name(value.scalar_type());
  summary.shape = fmt::format("[{}]", fmt::join(value.sizes(), ", "));
  if (value.numel() > 0) {
    const at::Tensor numbers = value.to(at::kDouble);
    summary.min = numbers.min().item().toDouble();
    summary.mean = numbers.mean().item().toDouble();
    summary.max = numbers.max().item().toDouble();
  }
  return summary;
}

std::string number_text(std::optional<double> number) {
  return number ? fmt::format("{:.6g}", *number) : "-";
}

Json json_of(const engine::JobResult& result, const Options& options) {
  Json saved = Json::array();
  const auto number = [](std::optional<double> value) {
    return value ? Json(*value) : Json(nullptr);
  };
  for (const program::Saved& value : result.saved) {
    const Summary summary = summary_of(value);
    Json entry = {{"name", value.name}, {"missing", value.missing}};
    if (!value.missing) {
      entry["dtype"] = summary.dtype;
      entry["shape"] = value.value.sizes().vec();
      entry["min"] = number(summary.min);
      entry["mean"] = number(summary.mean);
      entry["max"] = number(summary.max);
    }
    saved.push_back(std::move(entry));
  }
  Json groups = Json::array();
  for (const engine::GroupResult& group : result.groups) {
    Json rows = Json::array();
    for (const engine::RowResult& row : group.rows) {
      rows.push_back({{"text", row.text}, {"tokens", row.tokens}, {"ended", row.ended}});
    }
    groups.push_back({{"steps_run", group.steps_run}, {"rows", rows}});
  }
  Json json = {{"saved", saved},
               {"groups", groups},
               {"warnings", result.warnings},
               {"seconds", result.seconds}};
  if (!options.out.empty()) json["out"] = options.out;
  return json;
}

void put_text(const engine::JobResult& result) {
  std::vector<std::vector<std::string>> rows = {{"name", "dtype", "shape", "min", "mean", "max"}};
  for (const program::Saved& value : result.saved) {
    const Summary summary = summary_of(value);
    rows.push_back({value.name, summary.dtype, summary.shape, number_text(summary.min),
                    number_text(summary.mean), number_text(summary.max)});
  }
  put(table(rows));
  for (size_t i = 0; i < result.groups.size(); ++i) {
    for (const engine::RowResult& row : result.groups[i].rows) {
      if (!row.tokens.empty()) put(fmt::format("group {}: {}\n", i, row.text));
    }
  }
}

Status trace(const Options& options, const GlobalOptions& global) {
  engine::Job job;
  PELLUCID_ASSIGN(job.program, read_program(options.program));
  PELLUCID_ASSIGN(job.constants, read_constants(job.program, options.constants));
  PELLUCID_ASSIGN(const engine::LoadedModel loaded, load_model(options.model, global));
  PELLUCID_TRY(give_prompts(job.program, options.prompts, loaded));
  const InterruptGuard interrupt;
  job.cancelled = interrupt.flag();
  PELLUCID_ASSIGN(const engine::JobResult result, loaded.engine->run(std::move(job)));
  if (!options.out.empty()) {
    const model::ModelInfo& info = loaded.model->info();
    PELLUCID_TRY(write_results(options.out, result.saved,
                               {{"model_hash", info.hash},
                                {"dtype", std::string(tensor::dtype_name(info.dtype))},
                                {"path", "exact"}}));
  }
  for (const std::string& warning : result.warnings)
    std::fprintf(stderr, "pellucid: warning: %s\n", warning.c_str());
  if (global.json) {
    put_json(json_of(result, options));
  } else {
    put_text(result);
  }
  return ok_status();
}

std::function<Status()> add(CLI::App& app, const GlobalOptions& global) {
  auto options = std::make_shared<Options>();
  app.add_option("MODEL", options->model, "A name that `pellucid models` lists, or a path")
      ->required();
  app.add_option("PROGRAM", options->program, "A stored program, JSON or binary")->required();
  app.add_option("--prompt", options->prompts,
                 "For each group, in order: a text, or a JSON list of texts or of ids for a batch")
      ->allow_extra_args(false);
  app.add_option("--constants", options->constants,
                 "A safetensors file with the program's constants");
  app.add_option("--out", options->out, "Write the saved values to this safetensors file");
  return [options, &global] { return trace(*options, global); };
}

}  // namespace

const Subcommand kTrace = {"trace",
                           "Run a stored program that reads or edits the inside of a model",
                           "  pellucid trace smollm2 program.json --prompt \"The capital of France "
                           "is\" --out results.safetensors\n"
                           "  pellucid trace smollm2 program.json --prompt '[\"one\", \"two\"]' "
                           "--constants constants.safetensors --json\n",
                           add};

}  // namespace pellucid::cli
