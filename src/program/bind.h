#pragma once
// Arguments of a node, bound to the schema of its operation.
#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <span>
#include <vector>

#include "base/status.h"
#include "program/ops.h"
#include "wire/program.h"

namespace pellucid::program {

/// A value that a node uses: an output of another node or a constant.
struct Operand {
  bool constant = false;
  int32_t node = 0;  // or the constant's index
  int32_t output = 0;
  friend bool operator==(const Operand&, const Operand&) = default;
};

/// A tensor argument: an operand, a fixed scalar (a wrapped number), or nothing (None).
struct TensorSlot {
  int operand = -1;  // index into Call::operands
  at::Tensor fixed;
};

/// One argument of the schema.
struct Slot {
  enum class Kind : uint8_t { kFixed, kTensor, kTensorList, kOptionalTensorList, kDevice };
  Kind kind = Kind::kFixed;
  c10::IValue fixed;
  std::vector<TensorSlot> tensors;
};

/// An operation with its arguments, but for the operands' values. Shared by all steps of a node.
struct Call {
  const Operation* operation = nullptr;
  std::vector<Slot> slots;  // one for each argument of the schema
  std::vector<Operand> operands;

  /// Arguments for the dispatcher. `operands` as in Call::operands. On the meta device the fixed
  /// scalars are made meta too.
  std::vector<c10::IValue> stack(std::span<const at::Tensor> values, at::Device device) const;
  /// Schema argument -> indices of operands.
  std::vector<int> operands_of(int argument) const;
};

/// Checks arity, names and types, fills defaults. A name without overload means the first listed
/// overload that fits. Errors: kUnsupported (not listed), kInvalidArgument (names argument and
/// type).
Result<Call> bind(const wire::Node& node);

/// Flattens what an operation returned (tensors and lists of tensors).
std::vector<at::Tensor> tensors_of(std::vector<c10::IValue>&& stack);

Result<at::ScalarType> dtype_by_name(const std::string& name);
std::string dtype_name(at::ScalarType dtype);
/// "[2, 5, 64] float32"
std::string describe(const at::Tensor& tensor);
std::string describe(at::IntArrayRef shape);

}  // namespace pellucid::program
