#include "files/safe_dtype.h"

namespace pellucid::files {
namespace {

constexpr SafeDtypeInfo kDtypes[] = {
    {SafeDtype::kF64, "F64", 8},   {SafeDtype::kF32, "F32", 4}, {SafeDtype::kF16, "F16", 2},
    {SafeDtype::kBF16, "BF16", 2}, {SafeDtype::kI64, "I64", 8}, {SafeDtype::kI32, "I32", 4},
    {SafeDtype::kI16, "I16", 2},   {SafeDtype::kI8, "I8", 1},   {SafeDtype::kU8, "U8", 1},
    {SafeDtype::kBool, "BOOL", 1},
};

}  // namespace

std::span<const SafeDtypeInfo> safe_dtypes() { return kDtypes; }

const SafeDtypeInfo* find_safe_dtype(std::string_view name) {
  for (const SafeDtypeInfo& info : kDtypes) {
    if (info.name == name) return &info;
  }
  return nullptr;
}

const SafeDtypeInfo& safe_dtype_info(SafeDtype dtype) {
  return kDtypes[static_cast<size_t>(dtype)];  // in the order of the enumeration
}

}  // namespace pellucid::files
