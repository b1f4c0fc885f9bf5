#include "pellucid/tensor.h"

#include <ATen/ops/empty.h>
#include <fmt/core.h>
#include <fmt/ranges.h>

#include <array>
#include <cstring>

#include "facade/convert.h"
#include "pellucid/torch.h"

namespace pellucid {
namespace {

struct DtypeRow {
  Dtype dtype;
  at::ScalarType type;
  const char* name;
};
constexpr std::array<DtypeRow, 10> kDtypes{{
    {Dtype::kFloat64, at::kDouble, "float64"},
    {Dtype::kFloat32, at::kFloat, "float32"},
    {Dtype::kFloat16, at::kHalf, "float16"},
    {Dtype::kBFloat16, at::kBFloat16, "bfloat16"},
    {Dtype::kInt64, at::kLong, "int64"},
    {Dtype::kInt32, at::kInt, "int32"},
    {Dtype::kInt16, at::kShort, "int16"},
    {Dtype::kInt8, at::kChar, "int8"},
    {Dtype::kUInt8, at::kByte, "uint8"},
    {Dtype::kBool, at::kBool, "bool"},
}};

const DtypeRow& row_of(Dtype dtype) {
  for (const DtypeRow& row : kDtypes) {
    if (row.dtype == dtype) return row;
  }
  facade::raise(error(Code::kInvalidArgument, "use one of pellucid::Dtype", "no dtype {}",
                      static_cast<int>(dtype)));
}

/// The number of elements, or throws for negative and overflowing sizes.
int64_t count_of(const std::vector<int64_t>& shape) {
  int64_t count = 1;
  for (const int64_t size : shape) {
    if (size < 0 || __builtin_mul_overflow(count, size, &count)) {
      facade::raise(error(Code::kInvalidArgument,
                          "sizes are 0 or more, and their product fits int64",
                          "the shape [{}] is impossible", fmt::join(shape, ", ")));
    }
  }
  return count;
}

template <typename T>
constexpr at::ScalarType kTypeOf = at::kLong;
template <>
constexpr at::ScalarType kTypeOf<double> = at::kDouble;
template <>
constexpr at::ScalarType kTypeOf<float> = at::kFloat;
template <>
constexpr at::ScalarType kTypeOf<int32_t> = at::kInt;

}  // namespace

const char* name_of(Dtype dtype) { return row_of(dtype).name; }

namespace facade {

at::ScalarType scalar_type(Dtype dtype) { return row_of(dtype).type; }

Dtype dtype_of(at::ScalarType type) {
  for (const DtypeRow& row : kDtypes) {
    if (row.type == type) return row.dtype;
  }
  raise(error(Code::kUnsupported, "convert it first", "tensors of dtype {} cannot leave a trace",
              c10::toString(type)));
}

}  // namespace facade

at::Tensor to_torch(const Tensor& tensor) {
  return tensor.defined() ? tensor.impl()->tensor : at::Tensor();
}

Tensor from_torch(const at::Tensor& tensor) {
  if (!tensor.defined()) return Tensor();
  const Dtype dtype = facade::dtype_of(tensor.scalar_type());
  at::Tensor plain = tensor.detach().cpu().contiguous();
  std::vector<int64_t> shape = plain.sizes().vec();
  return Tensor(std::make_shared<const Tensor::Impl>(
      Tensor::Impl{std::move(plain), std::move(shape), dtype}));
}

const Tensor::Impl& Tensor::get() const {
  if (impl_ == nullptr) {
    facade::raise(
        error(Code::kInvalidArgument, "ask defined() first", "this Tensor holds nothing"));
  }
  return *impl_;
}

const std::vector<int64_t>& Tensor::shape() const { return get().shape; }
Dtype Tensor::dtype() const { return get().dtype; }
int64_t Tensor::num_elements() const { return get().tensor.numel(); }
int64_t Tensor::num_bytes() const { return static_cast<int64_t>(get().tensor.nbytes()); }
const void* Tensor::data() const { return get().tensor.const_data_ptr(); }

std::string Tensor::describe() const {
  return fmt::format("{} [{}]", name_of(dtype()), fmt::join(shape(), ", "));
}

template <typename T>
Tensor Tensor::from(const std::vector<T>& values, std::vector<int64_t> shape) {
  if (count_of(shape) != static_cast<int64_t>(values.size())) {
    facade::raise(error(Code::kShapeMismatch, "give as many values as the shape has elements",
                        "{} values for the shape [{}]", values.size(), fmt::join(shape, ", ")));
  }
  const at::Tensor tensor = at::empty(shape, at::TensorOptions().dtype(kTypeOf<T>));
  if (!values.empty()) std::memcpy(tensor.mutable_data_ptr(), values.data(), tensor.nbytes());
  return from_torch(tensor);
}

template <typename T>
std::vector<T> Tensor::to_vector() const {
  const at::Tensor converted = get().tensor.to(kTypeOf<T>);
  std::vector<T> values(converted.numel());
  if (!values.empty()) std::memcpy(values.data(), converted.const_data_ptr(), converted.nbytes());
  return values;
}

template <typename T>
T Tensor::item() const {
  if (num_elements() != 1) {
    facade::raise(error(Code::kShapeMismatch, "use to_vector or at",
                        "item() of {}, which has {} elements", describe(), num_elements()));
  }
  return to_vector<T>().front();
}

double Tensor::at(const std::vector<int64_t>& indices) const {
  const std::vector<int64_t>& sizes = shape();
  if (indices.size() != sizes.size()) {
    facade::raise(error(Code::kInvalidArgument, "give one index a dimension", "{} indices into {}",
                        indices.size(), describe()));
  }
  at::Tensor element = get().tensor;
  for (size_t dim = 0; dim < sizes.size(); ++dim) {
    if (indices[dim] < -sizes[dim] || indices[dim] >= sizes[dim]) {
      facade::raise(error(Code::kInvalidArgument, "count from 0, or from the end with -1",
                          "index {} of dimension {} of {}", indices[dim], dim, describe()));
    }
    element = element.select(0, indices[dim]);
  }
  return element.item().toDouble();
}

template Tensor Tensor::from<double>(const std::vector<double>&, std::vector<int64_t>);
template Tensor Tensor::from<float>(const std::vector<float>&, std::vector<int64_t>);
template Tensor Tensor::from<int64_t>(const std::vector<int64_t>&, std::vector<int64_t>);
template Tensor Tensor::from<int32_t>(const std::vector<int32_t>&, std::vector<int64_t>);
template std::vector<double> Tensor::to_vector<double>() const;
template std::vector<float> Tensor::to_vector<float>() const;
template std::vector<int64_t> Tensor::to_vector<int64_t>() const;
template std::vector<int32_t> Tensor::to_vector<int32_t>() const;
template double Tensor::item<double>() const;
template float Tensor::item<float>() const;
template int64_t Tensor::item<int64_t>() const;
template int32_t Tensor::item<int32_t>() const;

}  // namespace pellucid
