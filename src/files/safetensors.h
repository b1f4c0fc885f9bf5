#pragma once
// safetensors: read in place from mapped files, single or sharded; written whole or not at all.
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/status.h"
#include "files/mapped_file.h"
#include "files/safe_dtype.h"

namespace pellucid::files {

struct SafeTensor {
  std::string name;
  SafeDtype dtype;
  std::vector<int64_t> shape;        // row-major, outermost first; empty for a scalar
  int64_t count;                     // elements
  std::span<const std::byte> bytes;  // not always aligned to the element size
};

/// One file, or the files that an index names. Views live as long as this object. Immutable after
/// `open`: safe from any thread.
class Safetensors {
 public:
  /// `path`: a .safetensors file, or a model.safetensors.index.json beside its shards.
  /// Errors: those of MappedFile::open; kCorruptFile; kUnsupported (a dtype, by its name).
  static Result<std::shared_ptr<const Safetensors>> open(const std::filesystem::path& path);
  /// The same over the bytes of one file, which the caller keeps alive. `name` begins the errors.
  static Result<std::shared_ptr<const Safetensors>> parse(std::span<const std::byte> bytes,
                                                          const std::string& name);

  /// In the order of the data within each file, file after file.
  const std::vector<SafeTensor>& tensors() const { return tensors_; }
  /// Null when there is no such tensor.
  const SafeTensor* find(std::string_view name) const;
  /// The text pairs of `__metadata__`, of all files together.
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  /// The header of each file, without its 8 bytes of length.
  const std::vector<std::string_view>& headers() const { return headers_; }

 private:
  Safetensors() = default;
  Status add_file(std::span<const std::byte> bytes, const std::string& name);
  Status build_index(const std::string& name);
  static Result<std::shared_ptr<const Safetensors>> open_index(const std::filesystem::path& path);

  std::vector<std::shared_ptr<const MappedFile>> mappings_;
  std::vector<SafeTensor> tensors_;
  std::unordered_map<std::string_view, size_t> index_;
  std::map<std::string, std::string> metadata_;
  std::vector<std::string_view> headers_;
};

struct TensorToWrite {
  std::string name;
  SafeDtype dtype;
  std::vector<int64_t> shape;
  std::span<const std::byte> bytes;  // row-major and contiguous
};

/// Writes a new file beside `path` and renames it over `path` when all of it is on the disk:
/// readers see the old file or the new one, never a part. Tensors are laid out by element size,
/// then name. Errors: kInvalidArgument (a name twice, not UTF-8 or "__metadata__"; bytes that do
/// not fit the shape), kIo (a full disk, permissions): then nothing is left behind.
Status write_safetensors(const std::filesystem::path& path, std::span<const TensorToWrite> tensors,
                         const std::map<std::string, std::string>& metadata = {});

}  // namespace pellucid::files
