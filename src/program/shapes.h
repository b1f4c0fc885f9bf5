#pragma once
// What an operation will return and cost, known before it runs: on meta tensors through the
// dispatcher, or by a shape function of our own where C++ torch has no meta kernel.
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "program/bind.h"

namespace pellucid::program {

struct Inferred {
  std::vector<at::Tensor> outputs;  // meta tensors
  /// A length depends on numbers (boolean index, nonzero): `outputs` has the upper bound.
  bool bounded = false;
  double floating_point_operations = 0;
  /// Fresh memory: of the outputs, and the largest intermediate inside a composite operation.
  int64_t output_bytes = 0;
  int64_t scratch_bytes = 0;
};

/// Counts what operations do inside while it lives. One a thread.
class CostScope {
 public:
  CostScope();
  ~CostScope();
  CostScope(const CostScope&) = delete;

 private:
  uint64_t handle_;
};

/// `operands` are meta tensors, as in Call::operands. Call inside of a CostScope.
/// Errors: kShapeMismatch (torch's own sentence), kOverBudget (a size that overflows).
Result<Inferred> infer(const Call& call, std::span<const at::Tensor> operands);

/// Changes the arguments (meta) on the stack into the results, as a boxed kernel does.
using ShapeFunction = void (*)(std::vector<c10::IValue>& stack);
/// Null when the meta kernel of torch is used.
ShapeFunction shape_function(std::string_view operation);
/// Lengths depend on numbers for these arguments.
bool is_bounded_only(const Call& call, std::span<const at::Tensor> operands);

/// Memory that a tensor's storage takes.
int64_t storage_bytes(const at::Tensor& tensor);

/// torch's own sentence without the C++ backtrace.
std::string sentence_of(const std::exception& error);

}  // namespace pellucid::program
