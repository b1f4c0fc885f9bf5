#pragma once
// A small handle on numbers: shape, dtype, contiguous row-major data in main memory. What goes into
// a trace as a constant and comes out of it as a saved value. For whoever has ATen,
// pellucid/torch.h converts to and from at::Tensor.
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace pellucid {

enum class Dtype {
  kFloat64,
  kFloat32,
  kFloat16,
  kBFloat16,
  kInt64,
  kInt32,
  kInt16,
  kInt8,
  kUInt8,
  kBool
};

/// "float32"; static storage.
const char* name_of(Dtype dtype);

/// Immutable; copies share the data. Any thread may use one.
class Tensor {
 public:
  /// No tensor: `defined()` is false and everything else throws Error "invalid_argument".
  Tensor() = default;

  /// Copies `values`, row-major. Without a shape: one dimension. T is double, float, int64_t or
  /// int32_t. Throws Error "shape_mismatch" when the shape holds another number of elements.
  template <typename T>
  static Tensor from(const std::vector<T>& values, std::vector<int64_t> shape);
  template <typename T>
  static Tensor from(const std::vector<T>& values) {
    return from(values, {static_cast<int64_t>(values.size())});
  }

  bool defined() const { return impl_ != nullptr; }
  const std::vector<int64_t>& shape() const;
  Dtype dtype() const;
  int64_t num_elements() const;
  int64_t num_bytes() const;
  /// num_bytes() bytes, row-major; lives as long as any copy of this handle.
  const void* data() const;

  /// All elements, row-major, converted. T as in `from`.
  template <typename T>
  std::vector<T> to_vector() const;
  /// The only element. Throws Error "shape_mismatch" when there are more or none.
  template <typename T>
  T item() const;
  /// One element; a negative index counts from the end. Throws Error "invalid_argument" for a wrong
  /// number of indices or one out of range.
  double at(const std::vector<int64_t>& indices) const;
  /// "float32 [1, 5, 576]", for messages.
  std::string describe() const;

  struct Impl;
  /// For the library and pellucid/torch.h.
  explicit Tensor(std::shared_ptr<const Impl> impl) : impl_(std::move(impl)) {}
  const std::shared_ptr<const Impl>& impl() const { return impl_; }

 private:
  const Impl& get() const;
  std::shared_ptr<const Impl> impl_;
};

extern template Tensor Tensor::from<double>(const std::vector<double>&, std::vector<int64_t>);
extern template Tensor Tensor::from<float>(const std::vector<float>&, std::vector<int64_t>);
extern template Tensor Tensor::from<int64_t>(const std::vector<int64_t>&, std::vector<int64_t>);
extern template Tensor Tensor::from<int32_t>(const std::vector<int32_t>&, std::vector<int64_t>);
extern template std::vector<double> Tensor::to_vector<double>() const;
extern template std::vector<float> Tensor::to_vector<float>() const;
extern template std::vector<int64_t> Tensor::to_vector<int64_t>() const;
extern template std::vector<int32_t> Tensor::to_vector<int32_t>() const;
extern template double Tensor::item<double>() const;
extern template float Tensor::item<float>() const;
extern template int64_t Tensor::item<int64_t>() const;
extern template int32_t Tensor::item<int32_t>() const;

}  // namespace pellucid
