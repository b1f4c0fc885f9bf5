#pragma once
// The element types of safetensors files that are read and written, in one list.
#include <cstdint>
#include <span>
#include <string_view>

namespace pellucid::files {

enum class SafeDtype { kF64, kF32, kF16, kBF16, kI64, kI32, kI16, kI8, kU8, kBool };

struct SafeDtypeInfo {
  SafeDtype dtype;
  std::string_view name;  // "BF16", as in the file
  int bytes;              // of one element
};

std::span<const SafeDtypeInfo> safe_dtypes();
/// Null for a name that is not read here (F8_E4M3, U16, C64 ...).
const SafeDtypeInfo* find_safe_dtype(std::string_view name);
const SafeDtypeInfo& safe_dtype_info(SafeDtype dtype);

}  // namespace pellucid::files
