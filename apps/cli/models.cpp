// models: what MODEL may be on this machine.
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "apps/cli/json.h"
#include "tensor/model_folder.h"

namespace pellucid::cli {
namespace {

using Json = nlohmann::ordered_json;

Status list(const GlobalOptions& global) {
  const tensor::ModelPlaces places = tensor::model_places_from_environment();
  const std::vector<tensor::ListedModel> models = tensor::list_models(places);
  if (global.json) {
    Json listed = Json::array();
    for (const tensor::ListedModel& model : models) {
      Json entry = {{"name", model.name},
                    {"format", model.format},
                    {"bytes", model.bytes},
                    {"path", model.path.string()}};
      if (!model.problem.empty()) entry["problem"] = model.problem;
      listed.push_back(std::move(entry));
    }
    put_json(Json{{"models", listed},
                  {"models_folder", places.models.string()},
                  {"hub_folder", places.hub.string()}});
    return ok_status();
  }
  if (models.empty()) {
    put(fmt::format("No models in {} nor in {}.\n", places.models.string(), places.hub.string()));
    for (const tensor::ShortName& known : tensor::short_names()) {
      put(fmt::format("To get {}: {}\n", known.name, known.how));
    }
    return ok_status();
  }
  std::vector<std::vector<std::string>> rows = {{"name", "format", "size", "path"}};
  for (const tensor::ListedModel& model : models) {
    rows.push_back({model.name, model.format, bytes_text(model.bytes),
                    model.problem.empty() ? model.path.string()
                                          : fmt::format("cannot be loaded: {}", model.problem)});
  }
  put(table(rows));
  return ok_status();
}

std::function<Status()> add(CLI::App&, const GlobalOptions& global) {
  return [&global] { return list(global); };
}

}  // namespace

const Subcommand kModels = {"models", "The models on this machine: what MODEL may be",
                            "  pellucid models\n"
                            "  pellucid models --json\n",
                            add};

}  // namespace pellucid::cli
