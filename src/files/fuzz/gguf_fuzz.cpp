// Any bytes as a GGUF file: an error, or a file of which everything can be read.
#include <cstdlib>

#include "files/gguf.h"

namespace {

using namespace pellucid::files;

/// Keeps reads from being optimised away.
volatile uint64_t sink;

void touch(std::span<const std::byte> bytes) {
  for (const std::byte byte : bytes) sink = sink + std::to_integer<uint64_t>(byte);
}

void touch(const GgufArray& array) {
  touch(array.bytes);
  if (array.element == GgufType::kString) {
    for (const std::string_view text : array.strings()) sink = sink + text.size();
  } else if (array.element == GgufType::kArray) {
    for (const GgufArray& inner : array.arrays()) touch(inner);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto parsed = GgufFile::parse(std::as_bytes(std::span(data, size)), "fuzz");
  if (!parsed.ok()) {
    if (parsed.status().what.empty() || parsed.status().message().size() > 4096) std::abort();
    return 0;
  }
  const GgufFile& file = **parsed;
  for (const std::string_view key : file.keys()) {
    if (const auto* array = std::get_if<GgufArray>(&file.find(key)->data)) touch(*array);
    sink = sink + file.get<uint32_t>(key).ok() + file.get<float>(key).ok() +
           file.get<std::string>(key).ok() + file.get<std::vector<int64_t>>(key).ok() +
           file.get<std::vector<std::string_view>>(key).ok();
  }
  for (const GgufTensor& tensor : file.tensors()) {
    touch(tensor.bytes);
    const GgmlTypeInfo& type = ggml_type_info(tensor.type);
    const uint64_t blocks = static_cast<uint64_t>(tensor.count) / type.block_elements;
    if (tensor.bytes.size() != blocks * type.block_bytes) std::abort();
    if (file.find_tensor(tensor.name) != &tensor) std::abort();
  }
  return 0;
}
