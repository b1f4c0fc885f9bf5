#include "wire/constant_hash.h"

#include <fmt/ranges.h>

#include "base/sha256.h"

namespace pellucid::wire {

std::string constant_hash(std::string_view dtype, std::span<const int64_t> shape,
                          std::span<const std::byte> bytes) {
  Sha256 hash;
  hash.update(fmt::format("{} [{}]\n", dtype, fmt::join(shape, ", ")));
  hash.update(bytes);
  return hash.hex();
}

}  // namespace pellucid::wire
