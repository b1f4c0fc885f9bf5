#pragma once
// The dtypes of Pellucid, in one list: what a user types, what files call them, what torch has.
#include <c10/core/ScalarType.h>

#include <span>
#include <string_view>

#include "base/status.h"

namespace pellucid::tensor {

struct DtypeInfo {
  at::ScalarType type;
  std::string_view name;       // "bfloat16": shown, and as torch spells it
  std::string_view file_name;  // "BF16": in safetensors and GGUF files
};

std::span<const DtypeInfo> dtypes();

/// "float32"; PELLUCID_CHECKs that `type` is in the list.
std::string_view dtype_name(at::ScalarType type);
/// Null for types that are not in the list.
const DtypeInfo* find_dtype(at::ScalarType type);
/// Takes "bfloat16", "BF16", "bf16", "torch.bfloat16", "half", "float", "double".
/// Errors: kInvalidArgument with the nearest names.
Result<at::ScalarType> parse_dtype(std::string_view name);

}  // namespace pellucid::tensor
