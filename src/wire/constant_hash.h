#pragma once
// The content id of a constant: by it a program finds its tensors wherever they are stored.
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace pellucid::wire {

/// SHA-256, 64 hex digits, over "float32 [2, 3]\n" (dtype as in DtypeArg, shape as Python prints a
/// list) and then the elements: row-major, little-endian, contiguous.
std::string constant_hash(std::string_view dtype, std::span<const int64_t> shape,
                          std::span<const std::byte> bytes);

}  // namespace pellucid::wire
