#include "apps/cli/version.h"

#include <ATen/Parallel.h>
#include <ATen/Version.h>
#include <fmt/ranges.h>
#include <torch/headeronly/version.h>
#include <nlohmann/json.hpp>

#include "apps/cli/json.h"
#include "base/cpu.h"
#include "pellucid/version.h"

namespace pellucid::cli {

using Json = nlohmann::ordered_json;

std::string version_text(bool json) {
  const std::vector<std::string_view> features = cpu_feature_names();
  const std::string torch_level = at::get_cpu_capability();
  if (json) {
    return Json{{"pellucid", version()},
                {"torch", TORCH_VERSION},
                {"cpu", cpu_name()},
                {"cpu_features", features},
                {"torch_cpu_capability", torch_level},
                {"matmul_float32",
                 "oneDNN where a row's bits do not depend on their number, else fixed tiles"},
                {"threads", at::get_num_threads()}}
               .dump() +
           "\n";
  }
  return fmt::format(
      "pellucid {}\n"
      "torch    {}\n"
      "cpu      {} ({})\n"
      "kernels  torch {}; float32 matmul by oneDNN where a row's bits do not depend on the number "
      "of "
      "rows, else in fixed tiles\n"
      "threads  {}\n",
      version(), TORCH_VERSION, cpu_name(), fmt::join(features, " "), torch_level,
      at::get_num_threads());
}

}  // namespace pellucid::cli
