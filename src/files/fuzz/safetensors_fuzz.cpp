// Any bytes as a safetensors file: an error, or tensors that can be read whole and cover the data.
#include <cstdlib>

#include "files/safetensors.h"

using namespace pellucid::files;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto bytes = std::as_bytes(std::span(data, size));
  const auto parsed = Safetensors::parse(bytes, "fuzz");
  if (!parsed.ok()) {
    if (parsed.status().what.empty()) std::abort();
    return 0;
  }
  const Safetensors& file = **parsed;
  uint64_t covered = 8 + file.headers()[0].size();
  volatile uint64_t sink = 0;
  for (const SafeTensor& tensor : file.tensors()) {
    for (const std::byte byte : tensor.bytes) sink = sink + std::to_integer<uint64_t>(byte);
    covered += tensor.bytes.size();
    if (file.find(tensor.name) != &tensor) std::abort();
    const auto element = static_cast<uint64_t>(safe_dtype_info(tensor.dtype).bytes);
    if (tensor.bytes.size() != static_cast<uint64_t>(tensor.count) * element) std::abort();
  }
  if (covered != size) std::abort();
  return 0;
}
