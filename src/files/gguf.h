#pragma once
// GGUF model files, versions 2 and 3: metadata and tensors, read in place from a mapped file.
//
// Everything that `GgufFile` hands out as a view (strings, arrays, tensor bytes) points into the
// mapping and lives as long as the GgufFile. Immutable after `open`: safe from any thread.
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <variant>
#include <vector>

#include "base/status.h"
#include "files/ggml_type.h"
#include "files/mapped_file.h"

namespace pellucid::files {

// clang-format off
/// The types of metadata values, numbered as in the file format.
enum class GgufType : uint32_t {
  kU8, kI8, kU16, kI16, kU32, kI32, kF32, kBool, kString, kArray, kU64, kI64, kF64,
};
// clang-format on
std::string_view gguf_type_name(GgufType type);  // "u32", "string", "array"

/// The elements stay in the file until they are asked for; they were checked when it was opened.
struct GgufArray {
  GgufType element;
  uint64_t count = 0;
  std::span<const std::byte> bytes;  // all elements, as in the file

  /// Only when `element` is kString.
  std::vector<std::string_view> strings() const;
  /// Only when `element` is kArray.
  std::vector<GgufArray> arrays() const;
};

struct GgufValue {
  GgufType type;
  /// Unsigned types and signed types widened to 64 bits, floats to double (exact).
  std::variant<uint64_t, int64_t, double, bool, std::string_view, GgufArray> data;

  /// "u32", or "array of string" for arrays.
  std::string type_name() const;
};

struct GgufTensor {
  std::string_view name;
  std::vector<int64_t> shape;       // row-major: outermost first, as torch has it
  std::vector<int64_t> ggml_shape;  // the same reversed: fastest-moving first, as in the file
  GgmlType type;
  int64_t count;                     // elements
  uint64_t offset;                   // of the first byte, from the start of the file
  std::span<const std::byte> bytes;  // the elements, block after block
};

class GgufFile {
 public:
  /// Errors: those of MappedFile::open; kCorruptFile with the byte and what was expected there;
  /// kUnsupported (version 1, big-endian).
  static Result<std::shared_ptr<const GgufFile>> open(const std::filesystem::path& path);
  /// The same over bytes that the caller keeps alive. `name` begins the errors.
  static Result<std::shared_ptr<const GgufFile>> parse(std::span<const std::byte> bytes,
                                                       std::string name);

  const std::string& name() const { return name_; }
  uint32_t version() const { return version_; }
  uint64_t alignment() const { return alignment_; }
  /// Bytes of everything before the tensors' data.
  uint64_t header_bytes() const { return header_bytes_; }
  /// The whole file.
  std::span<const std::byte> bytes() const { return bytes_; }

  /// Keys in the file's order.
  const std::vector<std::string_view>& keys() const { return keys_; }
  /// Null when there is no such key.
  const GgufValue* find(std::string_view key) const;

  /// The value as a T: bool, std::string, std::string_view, float, double, any int of 32 or 64
  /// bits, or a std::vector of one of these. Integers of any width are accepted when the value
  /// fits. Errors: kNotFound (with the nearest keys), kCorruptFile ("llama.block_count is string,
  /// expected u32").
  template <typename T>
  Result<T> get(std::string_view key) const;
  /// `fallback` when the key is missing; a wrong type is still an error.
  template <typename T>
  Result<T> get_or(std::string_view key, T fallback) const {
    if (find(key) == nullptr) return fallback;
    return get<T>(key);
  }

  const std::vector<GgufTensor>& tensors() const { return tensors_; }
  /// Null when there is no such tensor.
  const GgufTensor* find_tensor(std::string_view name) const;

 private:
  friend class GgufParser;
  GgufFile() = default;

  std::shared_ptr<const MappedFile> mapping_;  // null when made by `parse`
  std::span<const std::byte> bytes_;
  std::string name_;
  uint32_t version_ = 0;
  uint64_t alignment_ = 32;
  uint64_t header_bytes_ = 0;
  std::vector<std::string_view> keys_;
  std::unordered_map<std::string_view, GgufValue> values_;
  std::vector<GgufTensor> tensors_;
  std::unordered_map<std::string_view, size_t> tensor_index_;
};

}  // namespace pellucid::files
