// doctor: is this machine fit for Pellucid, and if not, what to do.
#include <ATen/Parallel.h>
#include <ATen/Version.h>
#include <dlfcn.h>
#include <fmt/ranges.h>
#include <torch/headeronly/version.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <set>

#include "apps/cli/json.h"
#include "base/cpu.h"
#include "tensor/model_folder.h"

namespace pellucid::cli {
namespace {

using Json = nlohmann::ordered_json;

namespace fs = std::filesystem;

enum class Verdict { kOk, kWarning, kProblem };

struct Finding {
  std::string name;
  Verdict verdict;
  std::string text;
  std::string advice;  // "" when all is well
};

std::string_view verdict_name(Verdict verdict) {
  constexpr std::string_view kNames[] = {"ok", "warning", "problem"};
  return kNames[static_cast<size_t>(verdict)];
}

Finding check_processor() {
  const CpuFeatures& cpu = cpu_features();
  const std::string text = fmt::format("{} ({})", cpu_name(), fmt::join(cpu_feature_names(), " "));
  if (cpu.avx2 || cpu.neon) return {"processor", Verdict::kOk, text, ""};
  return {"processor", Verdict::kWarning, text,
          "without AVX2 everything works, several times slower"};
}

Finding check_threads() {
  const int threads = at::get_num_threads();
  const long cores = sysconf(_SC_NPROCESSORS_ONLN);
  const std::string text = fmt::format("{} threads on {} cores", threads, cores);
  if (threads <= cores) return {"threads", Verdict::kOk, text, ""};
  return {"threads", Verdict::kWarning, text,
          fmt::format("more threads than cores are slower: --threads {}", cores)};
}

/// Where the libtorch in this process lies.
std::string torch_folder() {
  Dl_info info = {};
  if (dladdr(reinterpret_cast<const void*>(&at::get_num_threads), &info) == 0) return "?";
  return fs::path(info.dli_fname).parent_path().string();
}

Finding check_torch() {
  return {
      "torch", Verdict::kOk,
      fmt::format("{} in {}, kernels {}", TORCH_VERSION, torch_folder(), at::get_cpu_capability()),
      ""};
}

/// The folder itself or the nearest one above it that exists.
fs::path existing_parent(fs::path path) {
  std::error_code ignored;
  while (!path.empty() && !fs::exists(path, ignored) && path != path.root_path())
    path = path.parent_path();
  return path.empty() ? fs::path(".") : path;
}

Finding check_cache(const tensor::ModelPlaces& places) {
  const fs::path folder = existing_parent(places.models);
  std::error_code failed;
  const fs::space_info space = fs::space(folder, failed);
  if (failed) {
    return {"cache", Verdict::kProblem,
            fmt::format("{}: {}", places.models.string(), failed.message()),
            "set PELLUCID_MODELS to a folder that can be read"};
  }
  const std::string text = fmt::format("{}{}, {} free", places.models.string(),
                                       folder == places.models ? "" : " (not there yet)",
                                       bytes_text(static_cast<int64_t>(space.available)));
  if (access(folder.c_str(), W_OK) != 0) {
    return {"cache", Verdict::kWarning, text,
            "not writable: models can be read from it, not fetched into it"};
  }
  if (space.available < (uintmax_t{1} << 30)) {
    return {"cache", Verdict::kWarning, text,
            "less than 1 GB: free some space before fetching models"};
  }
  return {"cache", Verdict::kOk, text, ""};
}

Finding check_models(const tensor::ModelPlaces& places) {
  const auto models = tensor::list_models(places);
  std::set<fs::path> usable;  // several names may stand for one
  std::string broken;
  for (const tensor::ListedModel& model : models) {
    if (model.problem.empty()) {
      usable.insert(model.path);
    } else {
      broken += fmt::format("{}{}", broken.empty() ? "" : ", ", model.name);
    }
  }
  const std::string text = fmt::format("{} found", usable.size());
  if (usable.empty()) {
    return {"models", Verdict::kWarning, text,
            fmt::format("to get {}: {}", tensor::short_names().front().name,
                        tensor::short_names().front().how)};
  }
  if (!broken.empty())
    return {"models", Verdict::kWarning, text,
            fmt::format("not loadable: {}; see pellucid models", broken)};
  return {"models", Verdict::kOk, text, ""};
}

Finding check_memory() {
  const int64_t available = tensor::available_memory_bytes();
  const std::string text =
      available > 0 ? fmt::format("{} available", bytes_text(available)) : "unknown";
  if (available == 0 || available >= int64_t{2} << 30) return {"memory", Verdict::kOk, text, ""};
  if (available >= int64_t{512} << 20) {
    return {"memory", Verdict::kWarning, text,
            "small models only; --dtype bfloat16 halves what weights take"};
  }
  return {"memory", Verdict::kProblem, text, "less than 512 MB: close other programs"};
}

Finding check_gpu() {
  std::error_code ignored;
  const bool nvidia = fs::exists("/dev/nvidiactl", ignored);
  if (!nvidia) return {"gpu", Verdict::kOk, "none found; Pellucid computes on the processor", ""};
  return {"gpu", Verdict::kWarning, "an NVIDIA device is there",
          "this build computes on the processor only and leaves it idle"};
}

Status doctor(const GlobalOptions& global, bool& problems) {
  PELLUCID_TRY(apply(global));
  const tensor::ModelPlaces places = tensor::model_places_from_environment();
  const std::vector<Finding> findings = {
      check_processor(),   check_threads(),      check_torch(), check_memory(),
      check_cache(places), check_models(places), check_gpu()};
  const bool colour = colours(STDOUT_FILENO);
  constexpr std::string_view kColours[] = {"32", "33", "31"};
  Json list = Json::array();
  for (const Finding& finding : findings) {
    problems = problems || finding.verdict == Verdict::kProblem;
    const std::string_view verdict = verdict_name(finding.verdict);
    if (global.json) {
      list.push_back({{"name", finding.name},
                      {"verdict", verdict},
                      {"text", finding.text},
                      {"advice", finding.advice}});
    } else {
      put(fmt::format(
          "{}  {}  {}\n",
          styled(fitted(verdict, 7), kColours[static_cast<size_t>(finding.verdict)], colour),
          fitted(finding.name, 9), finding.text));
      if (!finding.advice.empty()) put(fmt::format("{:20}-> {}\n", "", finding.advice));
    }
  }
  if (global.json) put_json(Json{{"ok", !problems}, {"findings", list}});
  return flush_output();
}

std::function<Status()> add(CLI::App&, const GlobalOptions& global) {
  return [&global]() -> Status {
    bool problems = false;
    PELLUCID_TRY(doctor(global, problems));
    if (!problems) return ok_status();
    return error(Code::kUnavailable, "see the lines above", "this machine is not ready");
  };
}

}  // namespace

const Subcommand kDoctor = {"doctor", "Whether this machine is ready, and what to do if not",
                            "  pellucid doctor\n"
                            "  pellucid doctor --json\n",
                            add};

}  // namespace pellucid::cli
