#include "tensor/model_folder.h"

#include <algorithm>
#include <cstdlib>
#include <set>

#include "base/nearest.h"
#include "files/mapped_file.h"

namespace pellucid::tensor {
namespace {

namespace fs = std::filesystem;

constexpr ShortName kShortNames[] = {
    {"smollm2", "smollm2-135m-q4_1.gguf", "`./dev demo` fetches it"},
};

constexpr std::string_view kHubPrefix = "models--";
constexpr const char* kPickleHint =
    "convert it once: AutoModelForCausalLM.from_pretrained(folder).save_pretrained(folder, "
    "safe_serialization=True), in transformers, if you trust where it comes from";

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

fs::path cache_folder() {
  const std::string xdg = environment("XDG_CACHE_HOME");
  return xdg.empty() ? fs::path(environment("HOME")) / ".cache" : fs::path(xdg);
}

bool is_file(const fs::path& path) {
  std::error_code ignored;
  return fs::is_regular_file(path, ignored);
}

bool is_folder(const fs::path& path) {
  std::error_code ignored;
  return fs::is_directory(path, ignored);
}

/// Entries by name; nothing when the folder cannot be read.
std::vector<fs::path> entries(const fs::path& folder) {
  std::vector<fs::path> out;
  std::error_code failed;
  for (fs::directory_iterator it(folder, failed), end; !failed && it != end; it.increment(failed)) {
    out.push_back(it->path());
  }
  std::ranges::sort(out);
  return out;
}

bool is_pickle(const fs::path& path) {
  const std::string name = path.filename().string();
  const fs::path extension = path.extension();
  return name.starts_with("pytorch_model") || extension == ".bin" || extension == ".pt" ||
         extension == ".pth" || extension == ".pkl" || extension == ".ckpt";
}

Result<FoundModel> in_file(const fs::path& path) {
  if (path.extension() == ".gguf") return FoundModel{path, true, path};
  if (path.extension() == ".safetensors" || path.filename() == "model.safetensors.index.json") {
    return error(Code::kInvalidArgument, "give the folder that also holds its config.json",
                 "{} holds weights only", path.string());
  }
  if (is_pickle(path)) {
    return error(Code::kUnsupported, kPickleHint,
                 "{} is refused: it is code (pickle), which loading would run", path.string());
  }
  return error(Code::kInvalidArgument, "give a .gguf file or a Hugging Face folder",
               "{} is no model file", path.string());
}

Result<FoundModel> in_folder(const fs::path& folder) {
  const bool has_config = is_file(folder / "config.json");
  for (const char* name : {"model.safetensors", "model.safetensors.index.json"}) {
    if (!is_file(folder / name)) continue;
    if (!has_config) {
      return error(Code::kNotFound, "fetch the model's config.json into the folder",
                   "{} holds {} and no config.json", folder.string(), name);
    }
    return FoundModel{folder, false, folder / name};
  }
  std::vector<fs::path> ggufs;
  bool has_pickle = false;
  for (const fs::path& entry : entries(folder)) {
    if (entry.extension() == ".gguf" && is_file(entry)) ggufs.push_back(entry);
    has_pickle |= is_pickle(entry) && is_file(entry);
  }
  if (ggufs.size() == 1) return FoundModel{ggufs[0], true, ggufs[0]};
  if (!ggufs.empty()) {
    return error(Code::kInvalidArgument, "give one of them, for example " + ggufs[0].string(),
                 "{} holds {} .gguf files", folder.string(), ggufs.size());
  }
  if (has_pickle) {
    return error(Code::kUnsupported, kPickleHint,
                 "{} holds pickled weights only: it is code (pickle), which loading would run",
                 folder.string());
  }
  return error(Code::kNotFound, "expected config.json with model.safetensors, or a .gguf file",
               "{} holds no model", folder.string());
}

/// The snapshot that refs/main names, or the only one.
Result<fs::path> snapshot_of(const fs::path& repository) {
  std::vector<fs::path> snapshots;
  for (const fs::path& entry : entries(repository / "snapshots")) {
    if (is_folder(entry)) snapshots.push_back(entry);
  }
  if (is_file(repository / "refs/main")) {
    PELLUCID_ASSIGN(std::string revision, files::read_text_file(repository / "refs/main", 256));
    revision.erase(revision.find_last_not_of(" \r\n") + 1);
    for (const fs::path& snapshot : snapshots) {
      if (snapshot.filename() == revision) return snapshot;
    }
  }
  if (snapshots.size() == 1) return snapshots[0];
  if (snapshots.empty()) {
    return error(Code::kNotFound, "fetch it again with `hf download`",
                 "{} holds no snapshot of the model", repository.string());
  }
  return error(Code::kNotFound, "give the folder of one of its snapshots",
               "{} has {} snapshots and refs/main names none of them", repository.string(),
               snapshots.size());
}

/// "org/name" -> models--org--name
fs::path hub_folder(const ModelPlaces& places, std::string_view name) {
  std::string folder(kHubPrefix);
  for (const char c : name) folder += c == '/' ? std::string("--") : std::string(1, c);
  return places.hub / folder;
}

/// A name that stays inside a folder when appended to it: no "..", at most one "/".
bool is_plain_name(const std::string& name) {
  if (name.empty() || name.find('\0') != std::string::npos) return false;
  const fs::path path(name);
  if (path.is_absolute() || std::ranges::count(name, '/') > 1 || name.back() == '/') return false;
  return std::ranges::none_of(path,
                              [](const fs::path& part) { return part == "." || part == ".."; });
}

Status not_found(const std::string& wanted, const ModelPlaces& places) {
  std::vector<std::string> known;
  for (const ListedModel& model : list_models(places)) known.push_back(model.name);
  for (const ShortName& entry : short_names()) known.emplace_back(entry.name);
  return error(Code::kNotFound,
               did_you_mean(wanted, known, "`pellucid models` lists what is there"),
               "no model {}: looked for a file or folder of that path, in {} and in {}",
               files::printable(wanted), places.models.string(), places.hub.string());
}

int64_t weight_bytes(const FoundModel& found) {
  int64_t total = 0;
  for (const fs::path& entry : entries(found.path)) {
    std::error_code failed;
    if (entry.extension() != ".safetensors") continue;
    const auto size = fs::file_size(entry, failed);
    if (!failed) total += static_cast<int64_t>(size);
  }
  return total;
}

}  // namespace

std::span<const ShortName> short_names() { return kShortNames; }

ModelPlaces model_places_from_environment() {
  ModelPlaces places;
  places.models = environment("PELLUCID_MODELS");
  if (places.models.empty()) places.models = cache_folder() / "pellucid/models";
  places.hub = environment("HF_HUB_CACHE");
  if (places.hub.empty()) {
    const std::string home = environment("HF_HOME");
    places.hub = (home.empty() ? cache_folder() / "huggingface" : fs::path(home)) / "hub";
  }
  return places;
}

Result<FoundModel> resolve_model(const std::string& name_or_path, const ModelPlaces& places) {
  if (name_or_path.empty()) {
    return error(Code::kInvalidArgument, "give a .gguf file, a folder or a name such as smollm2",
                 "the model's name is empty");
  }
  fs::path path(name_or_path);
  if (name_or_path.starts_with("~/")) path = fs::path(environment("HOME")) / name_or_path.substr(2);
  if (is_folder(path)) return in_folder(path);
  std::error_code ignored;
  if (fs::exists(path, ignored)) return in_file(path);

  if (!is_plain_name(name_or_path)) return not_found(name_or_path, places);
  for (const ShortName& entry : kShortNames) {
    if (entry.name != name_or_path) continue;
    if (is_file(places.models / entry.file)) return in_file(places.models / entry.file);
    return error(Code::kNotFound, std::string(entry.how), "model {} is not there: no file {}",
                 entry.name, (places.models / entry.file).string());
  }
  for (const char* ending : {"", ".gguf"}) {
    const fs::path candidate = places.models / (name_or_path + ending);
    if (is_folder(candidate)) return in_folder(candidate);
    if (is_file(candidate)) return in_file(candidate);
  }
  const fs::path repository = hub_folder(places, name_or_path);
  if (is_folder(repository)) {
    PELLUCID_ASSIGN(const fs::path snapshot, snapshot_of(repository));
    return in_folder(snapshot);
  }
  return not_found(name_or_path, places);
}

std::vector<ListedModel> list_models(const ModelPlaces& places) {
  std::set<std::string> names;
  for (const ShortName& entry : kShortNames) {
    if (is_file(places.models / entry.file)) names.emplace(entry.name);
  }
  for (const fs::path& entry : entries(places.models)) {
    if (is_folder(entry)) names.insert(entry.filename().string());
    if (entry.extension() == ".gguf") names.insert(entry.stem().string());
  }
  for (const fs::path& entry : entries(places.hub)) {
    std::string name = entry.filename().string();
    if (!name.starts_with(kHubPrefix) || !is_folder(entry)) continue;
    name.erase(0, kHubPrefix.size());
    if (const size_t cut = name.find("--"); cut != std::string::npos) name.replace(cut, 2, "/");
    names.insert(name);
  }
  std::vector<ListedModel> out;
  for (const std::string& name : names) {
    const auto found = resolve_model(name, places);
    ListedModel model{name, {}, "", 0, ""};
    if (found.ok()) {
      std::error_code failed;
      model.path = found->path;
      model.format = found->is_gguf ? "gguf" : "safetensors";
      model.bytes = found->is_gguf ? static_cast<int64_t>(fs::file_size(found->path, failed))
                                   : weight_bytes(*found);
      if (failed) model.bytes = 0;
    } else {
      model.problem = found.status().message();
    }
    out.push_back(std::move(model));
  }
  return out;
}

}  // namespace pellucid::tensor
