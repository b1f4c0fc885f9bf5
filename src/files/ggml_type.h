#pragma once
// The element types of GGUF tensors, in one list: how many elements make a block, how many bytes a
// block takes. `tensor/quantised.h` says which of them this build can turn into numbers.
#include <cstdint>
#include <span>
#include <string_view>

namespace pellucid::files {

// clang-format off
/// Numbered as in the file format.
enum class GgmlType : uint32_t {
  kF32 = 0, kF16 = 1, kQ4_0 = 2, kQ4_1 = 3, kQ5_0 = 6, kQ5_1 = 7, kQ8_0 = 8, kQ8_1 = 9,
  kQ2_K = 10, kQ3_K = 11, kQ4_K = 12, kQ5_K = 13, kQ6_K = 14, kQ8_K = 15,
  kIQ2_XXS = 16, kIQ2_XS = 17, kIQ3_XXS = 18, kIQ1_S = 19, kIQ4_NL = 20, kIQ3_S = 21,
  kIQ2_S = 22, kIQ4_XS = 23, kI8 = 24, kI16 = 25, kI32 = 26, kI64 = 27, kF64 = 28,
  kIQ1_M = 29, kBF16 = 30, kTQ1_0 = 34, kTQ2_0 = 35, kMXFP4 = 39, kNVFP4 = 40, kQ1_0 = 41,
};
// clang-format on

struct GgmlTypeInfo {
  GgmlType type;
  std::string_view name;  // "Q4_1"
  int block_elements;     // 1 for plain numbers
  int block_bytes;
};

std::span<const GgmlTypeInfo> ggml_types();
/// Null when no such type is known.
const GgmlTypeInfo* find_ggml_type(uint32_t number);
/// Only for members of the enumeration.
const GgmlTypeInfo& ggml_type_info(GgmlType type);

}  // namespace pellucid::files
