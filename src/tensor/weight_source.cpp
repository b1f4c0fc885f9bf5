#include "tensor/weight_source.h"

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <optional>
#include <unordered_map>

#include "base/nearest.h"
#include "tensor/dtype.h"
#include "tensor/mapped_tensor.h"
#include "tensor/quantised.h"

namespace pellucid::tensor {
namespace {

using files::GgmlType;

/// Elements that are dequantised at a time: bounds the float32 scratch when the dtype is another.
constexpr int64_t kChunk = 1 << 20;

/// torch's dtype for a file's, by name; nothing for quantised ones.
std::optional<at::ScalarType> plain_type(std::string_view file_name) {
  for (const DtypeInfo& info : dtypes()) {
    if (info.file_name == file_name) return info.type;
  }
  return std::nullopt;
}

/// What both kinds of file share: finding by name, and the errors.
class NamedWeights : public WeightSource {
 public:
  std::vector<std::string> names() const override { return names_; }

  const Info* find(std::string_view name) const override {
    const auto found = index_.find(std::string(name));
    return found == index_.end() ? nullptr : &infos_[found->second];
  }

 protected:
  void add(std::string_view name, Info info) {
    index_.emplace(name, infos_.size());
    names_.emplace_back(name);
    infos_.push_back(std::move(info));
  }

  Result<size_t> index_of(std::string_view name) const {
    const auto found = index_.find(std::string(name));
    if (found != index_.end()) return found->second;
    return error(Code::kNotFound,
                 did_you_mean(name, names_, "`pellucid inspect` lists what the model has"),
                 "no tensor named {}", files::printable(name));
  }

  static Status cannot_become(std::string_view name, std::string_view from, at::ScalarType dtype) {
    const DtypeInfo* wanted = find_dtype(dtype);
    return error(Code::kUnsupported, "choose a floating dtype such as float32",
                 "tensor {} is {} and cannot become {}", files::printable(name), from,
                 wanted != nullptr ? wanted->name : "that dtype");
  }

  /// A plain tensor of the file, as it is or converted.
  static Result<at::Tensor> load_plain(std::string_view name, std::span<const std::byte> bytes,
                                       const Info& info, at::ScalarType type, at::ScalarType dtype,
                                       std::shared_ptr<const void> owner) {
    if (type != dtype && !c10::isFloatingType(dtype)) return cannot_become(name, info.dtype, dtype);
    const at::Tensor view = mapped_tensor(bytes, info.shape, type, std::move(owner));
    return type == dtype ? view : view.to(dtype);
  }

 private:
  std::vector<std::string> names_;
  std::vector<Info> infos_;
  std::unordered_map<std::string, size_t> index_;

 protected:
  const Info& info(size_t index) const { return infos_[index]; }
};

/// Dequantises into a fresh tensor, chunk by chunk, on torch's threads.
at::Tensor dequantised(const files::GgufTensor& tensor, at::ScalarType dtype) {
  const files::GgmlTypeInfo& type = files::ggml_type_info(tensor.type);
  at::Tensor out = at::empty(tensor.shape, at::TensorOptions().dtype(dtype));
  const at::Tensor flat = out.view({-1});
  const int64_t num_chunks = (tensor.count + kChunk - 1) / kChunk;
  at::parallel_for(0, num_chunks, 1, [&](int64_t first, int64_t end) {
    for (int64_t chunk = first; chunk < end; ++chunk) {
      const int64_t begin = chunk * kChunk;
      const int64_t count = std::min(kChunk, tensor.count - begin);
      const auto bytes = tensor.bytes.subspan(begin / type.block_elements * type.block_bytes,
                                              count / type.block_elements * type.block_bytes);
      if (dtype == at::kFloat) {
        dequantise(tensor.type, bytes, count, out.mutable_data_ptr<float>() + begin);
      } else {
        const at::Tensor numbers = at::empty({count}, at::TensorOptions().dtype(at::kFloat));
        dequantise(tensor.type, bytes, count, numbers.mutable_data_ptr<float>());
        flat.narrow(0, begin, count).copy_(numbers);
      }
    }
  });
  return out;
}

class GgufWeights final : public NamedWeights {
 public:
  explicit GgufWeights(std::shared_ptr<const files::GgufFile> file) : file_(std::move(file)) {
    for (const files::GgufTensor& tensor : file_->tensors()) {
      add(tensor.name, {tensor.shape, std::string(files::ggml_type_info(tensor.type).name),
                        static_cast<int64_t>(tensor.bytes.size())});
    }
  }

  Result<at::Tensor> load(std::string_view name, at::ScalarType dtype) const override {
    PELLUCID_ASSIGN(const size_t index, index_of(name));
    const files::GgufTensor& tensor = file_->tensors()[index];
    if (const auto type = plain_type(info(index).dtype)) {
      return load_plain(name, tensor.bytes, info(index), *type, dtype, file_);
    }
    if (!can_dequantise(tensor.type)) {
      return error(Code::kUnsupported, "use a Q4_0 to Q8_0 or Q2_K to Q6_K file of the same model",
                   "tensor {} is quantised as {}, which is not read yet", files::printable(name),
                   info(index).dtype);
    }
    if (!c10::isFloatingType(dtype)) return cannot_become(name, info(index).dtype, dtype);
    return dequantised(tensor, dtype);
  }

 private:
  std::shared_ptr<const files::GgufFile> file_;
};

class SafetensorsWeights final : public NamedWeights {
 public:
  explicit SafetensorsWeights(std::shared_ptr<const files::Safetensors> file)
      : file_(std::move(file)) {
    for (const files::SafeTensor& tensor : file_->tensors()) {
      add(tensor.name, {tensor.shape, std::string(files::safe_dtype_info(tensor.dtype).name),
                        static_cast<int64_t>(tensor.bytes.size())});
    }
  }

  Result<at::Tensor> load(std::string_view name, at::ScalarType dtype) const override {
    PELLUCID_ASSIGN(const size_t index, index_of(name));
    // Both lists hold the same names, which dtype_test makes sure of.
    const at::ScalarType type = plain_type(info(index).dtype).value();
    return load_plain(name, file_->tensors()[index].bytes, info(index), type, dtype, file_);
  }

 private:
  std::shared_ptr<const files::Safetensors> file_;
};

}  // namespace

std::shared_ptr<WeightSource> gguf_weights(std::shared_ptr<const files::GgufFile> file) {
  return std::make_shared<GgufWeights>(std::move(file));
}

std::shared_ptr<WeightSource> safetensors_weights(std::shared_ptr<const files::Safetensors> file) {
  return std::make_shared<SafetensorsWeights>(std::move(file));
}

int64_t bytes_to_allocate(const WeightSource& weights, at::ScalarType dtype) {
  const DtypeInfo* wanted = find_dtype(dtype);
  int64_t total = 0;
  for (const std::string& name : weights.names()) {
    const WeightSource::Info& info = *weights.find(name);
    if (wanted != nullptr && info.dtype == wanted->file_name) continue;
    int64_t count = static_cast<int64_t>(c10::elementSize(dtype));
    for (const int64_t size : info.shape) count *= size;
    total += count;
  }
  return total;
}

}  // namespace pellucid::tensor
