// inspect: what a model is, what it weighs, and the sites that a program may read and write.
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <map>

#include "apps/cli/json.h"
#include "tensor/dtype.h"

namespace pellucid::cli {
namespace {

using Json = nlohmann::ordered_json;

struct Options {
  std::string model;
  bool sites = false;
};

struct FileDtype {
  int64_t tensors = 0;
  int64_t bytes = 0;
};

/// How the file stores its tensors: dtype -> count and bytes.
std::map<std::string, FileDtype> file_dtypes(const tensor::ModelFiles& files) {
  std::map<std::string, FileDtype> found;
  for (const std::string& name : files.weights->names()) {
    const tensor::WeightSource::Info& info = *files.weights->find(name);
    FileDtype& entry = found[info.dtype];
    ++entry.tensors;
    entry.bytes += info.bytes;
  }
  return found;
}

/// "blocks.3.attn.q" -> "attention", and so on: the parts that people think in.
std::string part_of(std::string_view weight) {
  if (weight.find("ln") != std::string_view::npos || weight.find("norm") != std::string_view::npos)
    return "norms";
  if (weight.find(".attn.") != std::string_view::npos) return "attention";
  if (weight.find(".mlp.") != std::string_view::npos) return "mlp";
  if (weight.starts_with("unembed")) return "unembedding";
  return "embeddings";
}

/// Bytes in memory by part, in the model's dtype; a tied head counts once.
std::vector<std::pair<std::string, int64_t>> memory_by_part(const model::Model& model) {
  std::vector<std::pair<std::string, int64_t>> parts = {
      {"embeddings", 0}, {"attention", 0}, {"mlp", 0}, {"norms", 0}, {"unembedding", 0}};
  const int64_t element_bytes = static_cast<int64_t>(c10::elementSize(model.info().dtype));
  for (const model::WeightInfo& weight : model.weights()) {
    const std::string part = part_of(weight.name);
    if (part == "unembedding" && model.info().tied_head) continue;
    int64_t bytes = element_bytes;
    for (const int64_t size : weight.shape) bytes *= size;
    for (auto& [name, total] : parts) {
      if (name == part) total += bytes;
    }
  }
  return parts;
}

int64_t cache_bytes_per_token(const model::ModelInfo& info) {
  return 2 * info.sizes.num_layers * info.sizes.num_kv_heads * info.sizes.head_width *
         static_cast<int64_t>(c10::elementSize(info.dtype));
}

struct SiteRow {
  std::string name;  // "blocks.{i}.resid_pre"
  std::string shape;
  std::string_view placement;
  bool beside;
  std::string_view meaning;
};

/// "batch seq head=9 head_width=64".
std::string shape_text(const hook::SiteInfo& site, const hook::SiteSizes& sizes) {
  std::string shape;
  for (const hook::Dim dim : site.dimensions()) {
    const std::string_view name = hook::dim_name(dim);
    const int64_t size = sizes.size(dim, -1, -1, -1);
    if (!shape.empty()) shape += ' ';
    shape += size < 0 || name == "1" ? std::string(name) : fmt::format("{}={}", name, size);
  }
  return shape;
}

std::vector<SiteRow> site_rows(const hook::Catalog& catalog) {
  std::vector<SiteRow> rows;
  for (const hook::SiteInfo& site : hook::all_sites()) {
    if (!catalog.has(site.site)) continue;
    rows.push_back(
        {site.per_block ? fmt::format("blocks.{{i}}.{}", site.name) : std::string(site.name),
         shape_text(site, catalog.sizes), hook::placement_name(site.placement),
         site.route == hook::Route::kBeside, site.meaning});
  }
  return rows;
}

Json json_of(const engine::LoadedModel& loaded, const tensor::ModelFiles& files, bool sites) {
  const model::ModelInfo& info = loaded.model->info();
  const hook::SiteSizes& sizes = info.sizes;
  Json dtypes = Json::object();
  for (const auto& [name, entry] : file_dtypes(files)) {
    dtypes[name] = {{"tensors", entry.tensors}, {"bytes", entry.bytes}};
  }
  Json memory = Json::object();
  for (const auto& [part, bytes] : memory_by_part(*loaded.model)) memory[part] = bytes;
  const text::Tokenizer& tokenizer = *loaded.tokenizer;
  const auto token = [](std::optional<int64_t> id) { return id ? Json(*id) : Json(nullptr); };
  Json json = {{"path", files.path.string()},
               {"hash", info.hash},
               {"family", info.family},
               {"num_parameters", info.num_parameters},
               {"num_layers", sizes.num_layers},
               {"d_model", sizes.d_model},
               {"num_heads", sizes.num_heads},
               {"num_kv_heads", sizes.num_kv_heads},
               {"head_width", sizes.head_width},
               {"d_mlp", sizes.d_mlp},
               {"vocab", sizes.vocab},
               {"context_length", info.context_length},
               {"tied_head", info.tied_head},
               {"dtype", tensor::dtype_name(info.dtype)},
               {"path_of_numbers", "exact"},
               {"file_dtypes", dtypes},
               {"weight_bytes", info.weight_bytes},
               {"memory_bytes", memory},
               {"cache_bytes_per_token", cache_bytes_per_token(info)},
               {"tokenizer",
                {{"vocab", tokenizer.vocab_size()},
                 {"bos", token(tokenizer.bos())},
                 {"eos", token(tokenizer.eos())},
                 {"unk", token(tokenizer.unk())},
                 {"pad", token(tokenizer.pad())},
                 {"adds_bos", tokenizer.adds_bos()},
                 {"chat_template", !loaded.chat_template.empty()}}}};
  if (sites) {
    Json list = Json::array();
    for (const SiteRow& row : site_rows(loaded.model->catalog())) {
      list.push_back({{"name", row.name},
                      {"shape", row.shape},
                      {"placement", row.placement},
                      {"made_when_read", row.beside},
                      {"meaning", row.meaning}});
    }
    json["sites"] = std::move(list);
  }
  return json;
}

void put_text(const engine::LoadedModel& loaded, const tensor::ModelFiles& files, bool sites) {
  const model::ModelInfo& info = loaded.model->info();
  const hook::SiteSizes& sizes = info.sizes;
  std::string stored;
  for (const auto& [name, entry] : file_dtypes(files)) {
    stored += fmt::format("{}{} {} ({})", stored.empty() ? "" : ", ", entry.tensors, name,
                          bytes_text(entry.bytes));
  }
  std::string memory;
  for (const auto& [part, bytes] : memory_by_part(*loaded.model)) {
    if (bytes > 0)
      memory += fmt::format("{}{} {}", memory.empty() ? "" : ", ", part, bytes_text(bytes));
  }
  const text::Tokenizer& tokenizer = *loaded.tokenizer;
  const auto special = [&](const char* name, std::optional<int64_t> id) -> std::string {
    if (!id) return "";
    const auto bytes = tokenizer.token_bytes(*id);
    return fmt::format(", {} {} {}", name, *id, bytes.ok() ? visible(*bytes) : "");
  };
  const int64_t per_token = cache_bytes_per_token(info);
  put(table({
      {"file", files.path.string()},
      {"family", info.family},
      {"parameters", fmt::format("{:.1f} million{}", info.num_parameters / 1e6,
                                 info.tied_head ? ", the head is the embedding" : "")},
      {"sizes", fmt::format("{} layers, d_model {}, {} heads ({} for keys and values) of width {}, "
                            "d_mlp {}, vocab {}",
                            sizes.num_layers, sizes.d_model, sizes.num_heads, sizes.num_kv_heads,
                            sizes.head_width, sizes.d_mlp, sizes.vocab)},
      {"context", fmt::format("{} tokens", info.context_length)},
      {"in the file", stored},
      {"computes in", fmt::format("{}, exact path", tensor::dtype_name(info.dtype))},
      {"memory", fmt::format("{}: {}", bytes_text(info.weight_bytes), memory)},
      {"cache", fmt::format("{} a token, {} for the whole context", bytes_text(per_token),
                            bytes_text(per_token * info.context_length))},
      {"tokenizer",
       fmt::format("{} tokens{}{}{}{}", tokenizer.vocab_size(), special("bos", tokenizer.bos()),
                   special("eos", tokenizer.eos()),
                   tokenizer.adds_bos() ? ", puts bos in front" : "",
                   loaded.chat_template.empty() ? ", no chat template" : ", chat template")},
      {"hash", info.hash},
  }));
  if (!sites) return;
  put(
      fmt::format("\nSites, in the order of the forward pass; i is 0 to {}. Those marked * are "
                  "computed when read.\n\n",
                  sizes.num_layers - 1));
  std::vector<std::vector<std::string>> rows = {{"site", "shape", "placement", "meaning"}};
  for (const SiteRow& row : site_rows(loaded.model->catalog())) {
    rows.push_back({row.name + (row.beside ? " *" : ""), row.shape, std::string(row.placement),
                    std::string(row.meaning)});
  }
  put(table(rows));
}

Status inspect(const Options& options, const GlobalOptions& global) {
  PELLUCID_ASSIGN(const tensor::ModelFiles files, tensor::open_model(options.model));
  PELLUCID_ASSIGN(const engine::LoadedModel loaded, load_model(options.model, global));
  if (global.json) {
    put_json(json_of(loaded, files, options.sites));
  } else {
    put_text(loaded, files, options.sites);
  }
  return ok_status();
}

std::function<Status()> add(CLI::App& app, const GlobalOptions& global) {
  auto options = std::make_shared<Options>();
  app.add_option("MODEL", options->model, "A name that `pellucid models` lists, or a path")
      ->required();
  app.add_flag("--sites", options->sites, "List the sites: shapes, placement when split, meaning");
  return [options, &global] { return inspect(*options, global); };
}

}  // namespace

const Subcommand kInspect = {"inspect", "What a model is: family, sizes, memory, tokenizer, sites",
                             "  pellucid inspect smollm2\n"
                             "  pellucid inspect smollm2 --sites\n",
                             add};

}  // namespace pellucid::cli
