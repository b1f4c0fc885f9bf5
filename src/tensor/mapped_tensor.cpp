#include "tensor/mapped_tensor.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>

#include <cstdint>
#include <cstring>

#include "base/check.h"

namespace pellucid::tensor {

at::Tensor mapped_tensor(std::span<const std::byte> bytes, at::IntArrayRef shape,
                         at::ScalarType type, std::shared_ptr<const void> owner) {
  int64_t size = static_cast<int64_t>(c10::elementSize(type));
  const size_t alignment = c10::elementSize(type);
  for (const int64_t dimension : shape) size *= dimension;
  PELLUCID_CHECK(static_cast<uint64_t>(size) == bytes.size(), "{} bytes for a tensor of {}",
                 bytes.size(), size);
  const bool aligned = reinterpret_cast<uintptr_t>(bytes.data()) % alignment == 0;
  if (bytes.empty() || !aligned) {
    at::Tensor copy = at::empty(shape, at::TensorOptions().dtype(type));
    if (!bytes.empty()) std::memcpy(copy.mutable_data_ptr(), bytes.data(), bytes.size());
    return copy;
  }
  // from_blob wants a writable pointer; the contract above says that nobody uses it so.
  return at::from_blob(
      const_cast<std::byte*>(bytes.data()), shape, [owner = std::move(owner)](void*) {},
      at::TensorOptions().dtype(type));
}

}  // namespace pellucid::tensor
