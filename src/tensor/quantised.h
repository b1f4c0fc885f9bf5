#pragma once
// The quantised formats of GGUF files as numbers. Plain C++: the reference that kernels are
// compared with, and the way in which the exact path loads weights.
#include <cstddef>
#include <cstdint>
#include <span>

#include "files/ggml_type.h"

namespace pellucid::tensor {

/// True for the types that `dequantise` takes: F32, F16, BF16, F64, I8 to I64, Q4_0, Q4_1, Q5_0,
/// Q5_1, Q8_0 and Q2_K to Q6_K.
bool can_dequantise(files::GgmlType type);

/// Turns `bytes` into `count` floats. Bit-equal to `gguf.quants.dequantize` of the gguf Python
/// package 0.17 (NaN payloads aside); F64 and integers are rounded to the nearest float.
/// `bytes` holds exactly the blocks of `count` elements and needs no alignment; `out` has room
/// for `count`. PELLUCID_CHECKs these and `can_dequantise`. Any thread.
void dequantise(files::GgmlType type, std::span<const std::byte> bytes, int64_t count, float* out);

/// IEEE half to float, exact.
float half_to_float(uint16_t bits);

}  // namespace pellucid::tensor
