#include "base/cpu.h"

#include <doctest/doctest.h>

#include <fstream>
#include <set>
#include <sstream>
#include <string>

namespace pellucid {
namespace {

/// The words of /proc/cpuinfo's first "flags" line; empty where the system has none.
std::set<std::string> flags_of_the_system() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with("flags")) continue;
    std::istringstream words(line.substr(line.find(':') + 1));
    std::set<std::string> found;
    for (std::string word; words >> word;) found.insert(word);
    return found;
  }
  return {};
}

TEST_CASE("cpu: the features found are those that the kernel reports") {
  const std::set<std::string> flags = flags_of_the_system();
  if (flags.empty()) return;  // not x86 Linux
  for (const std::string_view name :
       {"avx2", "fma", "avx_vnni", "avx512f", "avx512bw", "avx512vl", "avx512_vnni", "avx512_bf16",
        "amx_tile", "amx_int8", "amx_bf16"}) {
    bool found = false;
    for (const std::string_view ours : cpu_feature_names()) found = found || ours == name;
    CHECK_MESSAGE(found == flags.contains(std::string(name)), name);
  }
}

TEST_CASE("cpu: names are given for what is present, and only for that") {
  CpuFeatures features;
  CHECK(cpu_feature_names(features).empty());
  features.avx2 = features.amx_bf16 = true;
  CHECK(cpu_feature_names(features) == std::vector<std::string_view>{"avx2", "amx_bf16"});
}

}  // namespace
}  // namespace pellucid
