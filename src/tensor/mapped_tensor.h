#pragma once
// Tensors over the bytes of a mapped file, without a copy.
#include <ATen/core/Tensor.h>

#include <cstddef>
#include <memory>
#include <span>

namespace pellucid::tensor {

/// A contiguous CPU tensor of `shape` and `type` over `bytes`, which holds exactly its elements.
/// `owner` (the mapped file) lives until the tensor's storage goes, views of it included.
/// Nobody may write to the tensor: the pages are read-only and a write ends the process. Whoever
/// hands it to a user who might, clones it first.
/// Bytes that are not aligned for `type` are copied, since kernels may rely on alignment.
/// PELLUCID_CHECKs that sizes agree. Any thread.
at::Tensor mapped_tensor(std::span<const std::byte> bytes, at::IntArrayRef shape,
                         at::ScalarType type, std::shared_ptr<const void> owner);

}  // namespace pellucid::tensor
