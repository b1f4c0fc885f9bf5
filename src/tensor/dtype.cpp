#include "tensor/dtype.h"

#include <algorithm>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/nearest.h"

namespace pellucid::tensor {
namespace {

constexpr DtypeInfo kDtypes[] = {
    {at::kDouble, "float64", "F64"}, {at::kFloat, "float32", "F32"},
    {at::kHalf, "float16", "F16"},   {at::kBFloat16, "bfloat16", "BF16"},
    {at::kLong, "int64", "I64"},     {at::kInt, "int32", "I32"},
    {at::kShort, "int16", "I16"},    {at::kChar, "int8", "I8"},
    {at::kByte, "uint8", "U8"},      {at::kBool, "bool", "BOOL"},
};

// torch's own second names.
constexpr std::pair<std::string_view, at::ScalarType> kAliases[] = {
    {"double", at::kDouble}, {"float", at::kFloat}, {"half", at::kHalf}};

std::string lower(std::string_view text) {
  std::string out(text);
  std::ranges::transform(out, out.begin(),
                         [](char c) { return c >= 'A' && c <= 'Z' ? c + 32 : c; });
  return out;
}

}  // namespace

std::span<const DtypeInfo> dtypes() { return kDtypes; }

const DtypeInfo* find_dtype(at::ScalarType type) {
  for (const DtypeInfo& info : kDtypes) {
    if (info.type == type) return &info;
  }
  return nullptr;
}

std::string_view dtype_name(at::ScalarType type) {
  const DtypeInfo* info = find_dtype(type);
  PELLUCID_CHECK(info != nullptr, "dtype {}", static_cast<int>(type));
  return info->name;
}

Result<at::ScalarType> parse_dtype(std::string_view name) {
  std::string wanted = lower(name);
  if (wanted.starts_with("torch.")) wanted = wanted.substr(6);
  std::vector<std::string> known;
  for (const DtypeInfo& info : kDtypes) {
    if (wanted == info.name || wanted == lower(info.file_name)) return info.type;
    known.emplace_back(info.name);
  }
  for (const auto& [alias, type] : kAliases) {
    if (wanted == alias) return type;
  }
  return error(Code::kInvalidArgument,
               did_you_mean(wanted, known, "for example float32 or bfloat16"),
               "no dtype is named {}", name);
}

}  // namespace pellucid::tensor
