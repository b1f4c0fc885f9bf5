#pragma once
// What this processor can do, as far as kernels care. Detected once, by cpuid and what the
// operating system saves on a context switch: a feature without the latter would kill the process.
#include <string>
#include <string_view>
#include <vector>

namespace pellucid {

struct CpuFeatures {
  bool avx2 = false;
  bool fma = false;
  bool avx512f = false;
  bool avx512bw = false;
  bool avx512vl = false;
  bool avx512_vnni = false;
  bool avx_vnni = false;
  bool avx512_bf16 = false;
  bool amx_tile = false;
  bool amx_int8 = false;
  bool amx_bf16 = false;
  bool neon = false;
};

/// Callable from any thread; static storage.
const CpuFeatures& cpu_features();

/// Names of those found, as /proc/cpuinfo spells them: "avx2", "avx512f", "amx_bf16".
std::vector<std::string_view> cpu_feature_names(const CpuFeatures& features = cpu_features());

/// "Intel(R) Xeon(R) ...", or "" where the processor does not say.
std::string cpu_name();

}  // namespace pellucid
