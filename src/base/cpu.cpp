#include "base/cpu.h"

#include <array>
#include <cstdint>
#include <cstring>
#include <utility>

#if defined(__x86_64__) || defined(__i386__)
#include <cpuid.h>
#define PELLUCID_X86 1
#endif

namespace pellucid {
namespace {

#ifdef PELLUCID_X86
struct Registers {
  uint32_t eax = 0, ebx = 0, ecx = 0, edx = 0;
};

Registers cpuid(uint32_t leaf, uint32_t subleaf = 0) {
  Registers r;
  __get_cpuid_count(leaf, subleaf, &r.eax, &r.ebx, &r.ecx, &r.edx);  // zeros for an unknown leaf
  return r;
}

/// The register sets that the operating system saves (XCR0).
uint64_t saved_state() {
  uint32_t low = 0, high = 0;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return uint64_t{high} << 32 | low;
}

constexpr bool bit(uint32_t word, int index) { return (word >> index & 1) != 0; }

CpuFeatures detect() {
  CpuFeatures found;
  const Registers basic = cpuid(1);
  if (!bit(basic.ecx, 27)) return found;  // no OSXSAVE: nothing wider than SSE is saved
  const uint64_t saved = saved_state();
  const bool ymm = (saved & 0x6) == 0x6;
  const bool zmm = ymm && (saved & 0xe0) == 0xe0;
  const bool tiles = (saved & 0x60000) == 0x60000;
  const Registers seven = cpuid(7);
  const Registers seven_one = cpuid(7, 1);
  found.avx2 = ymm && bit(seven.ebx, 5);
  found.fma = ymm && bit(basic.ecx, 12);
  found.avx_vnni = ymm && bit(seven_one.eax, 4);
  found.avx512f = zmm && bit(seven.ebx, 16);
  found.avx512bw = zmm && bit(seven.ebx, 30);
  found.avx512vl = zmm && bit(seven.ebx, 31);
  found.avx512_vnni = zmm && bit(seven.ecx, 11);
  found.avx512_bf16 = zmm && bit(seven_one.eax, 5);
  found.amx_tile = tiles && bit(seven.edx, 24);
  found.amx_int8 = tiles && bit(seven.edx, 25);
  found.amx_bf16 = tiles && bit(seven.edx, 22);
  return found;
}
#else
CpuFeatures detect() {
  CpuFeatures found;
#ifdef __aarch64__
  found.neon = true;  // part of the architecture
#endif
  return found;
}
#endif

}  // namespace

const CpuFeatures& cpu_features() {
  static const CpuFeatures features = detect();
  return features;
}

std::vector<std::string_view> cpu_feature_names(const CpuFeatures& features) {
  const std::pair<bool, std::string_view> all[] = {
      {features.avx2, "avx2"},
      {features.fma, "fma"},
      {features.avx_vnni, "avx_vnni"},
      {features.avx512f, "avx512f"},
      {features.avx512bw, "avx512bw"},
      {features.avx512vl, "avx512vl"},
      {features.avx512_vnni, "avx512_vnni"},
      {features.avx512_bf16, "avx512_bf16"},
      {features.amx_tile, "amx_tile"},
      {features.amx_int8, "amx_int8"},
      {features.amx_bf16, "amx_bf16"},
      {features.neon, "neon"},
  };
  std::vector<std::string_view> names;
  for (const auto& [present, name] : all) {
    if (present) names.push_back(name);
  }
  return names;
}

std::string cpu_name() {
#ifdef PELLUCID_X86
  if (cpuid(0x80000000).eax < 0x80000004) return "";
  std::array<char, 49> text{};
  for (uint32_t leaf = 0; leaf < 3; ++leaf) {
    const Registers r = cpuid(0x80000002 + leaf);
    std::memcpy(text.data() + leaf * 16, &r, 16);
  }
  const std::string name(text.data());
  const size_t first = name.find_first_not_of(' ');
  if (first == std::string::npos) return "";
  return name.substr(first, name.find_last_not_of(' ') - first + 1);
#else
  return "";
#endif
}

}  // namespace pellucid
