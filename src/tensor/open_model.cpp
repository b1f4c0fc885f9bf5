#include <array>

#include "base/sha256.h"
#include "tensor/model_folder.h"
#include "tensor/weight_source.h"

namespace pellucid::tensor {
namespace {

constexpr size_t kConfigBytesMax = 16 << 20;
constexpr size_t kSampleBytes = 1024;

void add_sized(Sha256& hash, std::span<const std::byte> bytes) {
  const uint64_t size = bytes.size();
  hash.update(std::as_bytes(std::span(&size, 1)));
  hash.update(bytes);
}

void add_sample(Sha256& hash, std::span<const std::byte> bytes) {
  if (bytes.size() <= 3 * kSampleBytes) return add_sized(hash, bytes);
  const size_t middle = (bytes.size() - kSampleBytes) / 2;
  for (const size_t begin : {size_t{0}, middle, bytes.size() - kSampleBytes}) {
    hash.update(bytes.subspan(begin, kSampleBytes));
  }
}

/// One file of several lacks tensors that the architecture needs: say so at once.
Status refuse_split(const files::GgufFile& file) {
  PELLUCID_ASSIGN(const auto parts, file.get_or<uint64_t>("split.count", 1));
  if (parts <= 1) return ok_status();
  PELLUCID_ASSIGN(const auto part, file.get_or<uint64_t>("split.no", 0));
  return error(Code::kUnsupported, "join the parts with llama.cpp's `llama-gguf-split --merge`",
               "{} is part {} of {} of a split model", file.name(), part + 1, parts);
}

Result<ModelFiles> open_gguf(const std::filesystem::path& path) {
  PELLUCID_ASSIGN(auto file, files::GgufFile::open(path));
  PELLUCID_TRY(refuse_split(*file));
  Sha256 hash;
  add_sized(hash, file->bytes().first(file->header_bytes()));
  for (const files::GgufTensor& tensor : file->tensors()) add_sample(hash, tensor.bytes);
  return ModelFiles{path, true, gguf_weights(file), file, "", hash.hex()};
}

Result<ModelFiles> open_folder(const FoundModel& found) {
  PELLUCID_ASSIGN(std::string config,
                  files::read_text_file(found.path / "config.json", kConfigBytesMax));
  PELLUCID_ASSIGN(auto file, files::Safetensors::open(found.weights));
  Sha256 hash;
  add_sized(hash, std::as_bytes(std::span(config)));
  for (const std::string_view header : file->headers()) {
    add_sized(hash, std::as_bytes(std::span(header)));
  }
  for (const files::SafeTensor& tensor : file->tensors()) add_sample(hash, tensor.bytes);
  return ModelFiles{found.path,        false,     safetensors_weights(file), nullptr,
                    std::move(config), hash.hex()};
}

}  // namespace

Result<ModelFiles> open_model(const std::string& name_or_path) {
  PELLUCID_ASSIGN(const FoundModel found,
                  resolve_model(name_or_path, model_places_from_environment()));
  return found.is_gguf ? open_gguf(found.path) : open_folder(found);
}

}  // namespace pellucid::tensor
