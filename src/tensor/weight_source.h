#pragma once
// The weights of a model, whatever the files: what the model layer loads from.
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "files/gguf.h"
#include "files/safetensors.h"

namespace pellucid::tensor {

/// All tensors of a model by their name in the file. Immutable: safe from any thread.
class WeightSource {
 public:
  struct Info {
    std::vector<int64_t> shape;  // row-major, outermost first, as torch has it
    std::string dtype;           // as the file calls it: "Q4_1", "BF16"
    int64_t bytes;               // in the file
  };

  virtual ~WeightSource() = default;

  /// In the file's order.
  virtual std::vector<std::string> names() const = 0;
  /// Null when there is no such tensor.
  virtual const Info* find(std::string_view name) const = 0;

  /// The tensor in `dtype`, contiguous, on the CPU: a read-only view of the mapped file when the
  /// file's dtype is the same (see mapped_tensor.h: clone before anybody writes), else a fresh one.
  /// Quantised formats go through float32. Numbers become floating dtypes only.
  /// Errors: kNotFound (with the nearest names), kUnsupported (a format or conversion, by name).
  virtual Result<at::Tensor> load(std::string_view name, at::ScalarType dtype) const = 0;
};

std::shared_ptr<WeightSource> gguf_weights(std::shared_ptr<const files::GgufFile> file);
std::shared_ptr<WeightSource> safetensors_weights(std::shared_ptr<const files::Safetensors> file);

/// An open model: where it is, its weights, and what describes it.
struct ModelFiles {
  std::filesystem::path path;  // of the .gguf file or of the folder
  bool is_gguf = false;
  std::shared_ptr<WeightSource> weights;
  std::shared_ptr<const files::GgufFile> gguf;  // null for folders
  std::string config_json;                      // text of config.json; "" for GGUF
  /// Content id, 64 hex digits: SHA-256 over the headers (names, shapes, metadata), config.json and
  /// the first, middle and last KiB of every tensor. Not over every byte: that would read the whole
  /// model. The same wherever the file lies.
  std::string hash;
};

/// Opens what `pellucid.load(...)` takes (see model_folder.h). Reads headers only. No network.
/// Errors: those of resolve_model; kCorruptFile; kUnsupported (one part of a split GGUF).
Result<ModelFiles> open_model(const std::string& name_or_path);

/// Bytes that all of the model's tensors would take newly allocated in `dtype`: 0 for those that
/// are views of the file.
int64_t bytes_to_allocate(const WeightSource& weights, at::ScalarType dtype);
/// Memory that a new allocation can hope for, in bytes: what the system says is available, or less
/// where a cgroup limits this process. 0 when unknown.
int64_t available_memory_bytes();
/// Errors: kOutOfMemory with both numbers and the smaller dtypes, before anything is loaded.
Status check_fits_memory(const WeightSource& weights, at::ScalarType dtype);

}  // namespace pellucid::tensor
