// A test tool: prints what the readers see in a model file, for Python to compare.
//   files_dump json FILE...           metadata and tensors, or {"error": ...}: one JSON line a file
//   files_dump numbers FILE NAME...   tensors' elements in float32, as raw bytes one after another
//   files_dump hashes FILE            "sha256 name" of every tensor in float32
// FILE: .gguf, .safetensors or .safetensors.index.json.
#include <ATen/core/Tensor.h>

#include <cstdio>
#include <cstring>
#include <nlohmann/json.hpp>

#include "base/sha256.h"
#include "files/gguf.h"
#include "files/safetensors.h"
#include "tensor/weight_source.h"

namespace pellucid {
namespace {

using nlohmann::ordered_json;

template <typename T>
ordered_json numbers_of(const files::GgufArray& array) {
  ordered_json out = ordered_json::array();
  for (uint64_t i = 0; i < array.count; ++i) {
    T value;
    std::memcpy(&value, array.bytes.data() + i * sizeof(T), sizeof(T));
    out.push_back(value);
  }
  return out;
}

ordered_json to_json(const files::GgufArray& array) {
  using files::GgufType;
  ordered_json values = ordered_json::array();
  switch (array.element) {
    case GgufType::kU8:
      values = numbers_of<uint8_t>(array);
      break;
    case GgufType::kI8:
      values = numbers_of<int8_t>(array);
      break;
    case GgufType::kU16:
      values = numbers_of<uint16_t>(array);
      break;
    case GgufType::kI16:
      values = numbers_of<int16_t>(array);
      break;
    case GgufType::kU32:
      values = numbers_of<uint32_t>(array);
      break;
    case GgufType::kI32:
      values = numbers_of<int32_t>(array);
      break;
    case GgufType::kU64:
      values = numbers_of<uint64_t>(array);
      break;
    case GgufType::kI64:
      values = numbers_of<int64_t>(array);
      break;
    case GgufType::kF32:
      values = numbers_of<float>(array);
      break;
    case GgufType::kF64:
      values = numbers_of<double>(array);
      break;
    case GgufType::kBool:
      values = numbers_of<bool>(array);
      break;
    case GgufType::kString:
      for (const std::string_view text : array.strings()) values.push_back(text);
      break;
    case GgufType::kArray:
      for (const files::GgufArray& inner : array.arrays()) values.push_back(to_json(inner));
      break;
  }
  return {{"of", files::gguf_type_name(array.element)}, {"values", values}};
}

ordered_json to_json(const files::GgufValue& value) {
  ordered_json out{{"type", files::gguf_type_name(value.type)}};
  std::visit(
      [&](const auto& stored) {
        if constexpr (std::is_same_v<std::decay_t<decltype(stored)>, files::GgufArray>) {
          out["value"] = to_json(stored);
        } else {
          out["value"] = stored;
        }
      },
      value.data);
  return out;
}

struct Opened {
  ordered_json description;
  std::shared_ptr<tensor::WeightSource> weights;
};

Result<Opened> open(const std::filesystem::path& path) {
  Opened out;
  ordered_json tensors = ordered_json::object(), metadata = ordered_json::object();
  if (path.extension() == ".gguf") {
    PELLUCID_ASSIGN(const auto file, files::GgufFile::open(path));
    out.weights = tensor::gguf_weights(file);
    for (const auto key : file->keys()) metadata[std::string(key)] = to_json(*file->find(key));
    for (const auto& tensor : file->tensors()) {
      tensors[std::string(tensor.name)] = {{"shape", tensor.shape},
                                           {"dtype", files::ggml_type_info(tensor.type).name},
                                           {"offset", tensor.offset},
                                           {"bytes", tensor.bytes.size()}};
    }
    out.description = {{"version", file->version()}, {"alignment", file->alignment()}};
  } else {
    PELLUCID_ASSIGN(const auto file, files::Safetensors::open(path));
    out.weights = tensor::safetensors_weights(file);
    metadata = file->metadata();
    for (const auto& tensor : file->tensors()) {
      tensors[tensor.name] = {{"shape", tensor.shape},
                              {"dtype", files::safe_dtype_info(tensor.dtype).name},
                              {"sha256", sha256_hex(tensor.bytes)}};
    }
  }
  out.description["metadata"] = metadata;
  out.description["tensors"] = tensors;
  return out;
}

std::span<const std::byte> bytes_of(const at::Tensor& tensor) {
  return {static_cast<const std::byte*>(tensor.const_data_ptr()), tensor.nbytes()};
}

std::string sentence(const Status& status) {
  return fmt::format("{}: {}", code_info(status.code).name, status.message());
}

/// One line a file; many files a run, since starting libtorch takes longer than reading them.
void print_json(std::span<char*> paths) {
  for (const char* path : paths) {
    const auto opened = open(path);
    const ordered_json line =
        opened.ok() ? opened->description : ordered_json{{"error", sentence(opened.status())}};
    std::puts(line.dump().c_str());
  }
}

Status print_numbers(const char* path, std::span<char*> names) {
  PELLUCID_ASSIGN(const Opened opened, open(path));
  for (const char* name : names) {
    PELLUCID_ASSIGN(const at::Tensor numbers, opened.weights->load(name, at::kFloat));
    std::fwrite(numbers.const_data_ptr(), 1, numbers.nbytes(), stdout);
  }
  return ok_status();
}

Status print_hashes(const char* path) {
  PELLUCID_ASSIGN(const Opened opened, open(path));
  for (const std::string& name : opened.weights->names()) {
    PELLUCID_ASSIGN(const at::Tensor numbers, opened.weights->load(name, at::kFloat));
    std::printf("%s %s\n", sha256_hex(bytes_of(numbers)).c_str(), name.c_str());
  }
  return ok_status();
}

Status run(const std::string& command, std::span<char*> arguments) {
  if (command == "json") return print_json(arguments), ok_status();
  if (command == "numbers") return print_numbers(arguments[0], arguments.subspan(1));
  if (command == "hashes") return print_hashes(arguments[0]);
  return error(Code::kInvalidArgument, "json, numbers or hashes", "unknown command {}", command);
}

}  // namespace
}  // namespace pellucid

int main(int argc, char** argv) {
  if (argc < 3) return 2;
  const auto status = pellucid::run(argv[1], std::span(argv + 2, argv + argc));
  if (status.ok()) return 0;
  std::fprintf(stderr, "%s\n", pellucid::sentence(status).c_str());
  return 1;
}
