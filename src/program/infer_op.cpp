#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/record_function.h>

#include <algorithm>

#include "program/shape_functions.h"
#include "program/shapes.h"

namespace pellucid::program {
namespace {

struct Cost {
  double floating_point_operations = 0;
  int64_t largest_bytes = 0;  // of one tensor that was made inside
  double scratch_bytes = 0;   // what shape functions say
};
thread_local Cost* current_cost = nullptr;

double size_at(const c10::IValue& value, int64_t dim) {
  return static_cast<double>(value.toTensor().size(dim));
}

bool has_dims(c10::ArrayRef<const c10::IValue> inputs, size_t index, int64_t dims) {
  return index < inputs.size() && inputs[index].isTensor() && inputs[index].toTensor().defined() &&
         inputs[index].toTensor().dim() >= dims;
}

// Products of matrices are counted where they happen, inside whatever composite operation.
double products(std::string_view name, c10::ArrayRef<const c10::IValue> in) {
  const auto mm = [&](size_t a, size_t b) {
    return 2 * size_at(in[a], 0) * size_at(in[a], 1) * size_at(in[b], 1);
  };
  const auto bmm = [&](size_t a, size_t b) {
    return 2 * size_at(in[a], 0) * size_at(in[a], 1) * size_at(in[a], 2) * size_at(in[b], 2);
  };
  if (name == "aten::mm" && has_dims(in, 0, 2) && has_dims(in, 1, 2)) return mm(0, 1);
  if (name == "aten::addmm" && has_dims(in, 1, 2) && has_dims(in, 2, 2)) return mm(1, 2);
  if (name == "aten::bmm" && has_dims(in, 0, 3) && has_dims(in, 1, 3)) return bmm(0, 1);
  if (name == "aten::baddbmm" && has_dims(in, 1, 3) && has_dims(in, 2, 3)) return bmm(1, 2);
  if (name == "aten::addbmm" && has_dims(in, 1, 3) && has_dims(in, 2, 3)) return bmm(1, 2);
  if (name == "aten::mv" && has_dims(in, 0, 2)) return 2.0 * in[0].toTensor().numel();
  if (name == "aten::convolution" && has_dims(in, 0, 2) && has_dims(in, 1, 2)) {
    const at::Tensor& x = in[0].toTensor();
    return 2.0 * x.numel() / std::max<int64_t>(1, x.size(1)) * in[1].toTensor().numel();
  }
  if (name.starts_with("aten::linalg_") || name.starts_with("aten::_linalg_")) {
    if (!has_dims(in, 0, 2)) return 0;
    return 20.0 * in[0].toTensor().numel() * std::max(size_at(in[0], -1), size_at(in[0], -2));
  }
  if (name == "aten::_cdist_forward" && has_dims(in, 0, 2) && has_dims(in, 1, 2)) {
    return 3.0 * in[0].toTensor().numel() * size_at(in[1], -2);
  }
  return 0;
}

std::unique_ptr<at::ObserverContext> on_start(const at::RecordFunction& function) {
  if (current_cost != nullptr) {
    current_cost->floating_point_operations += products(function.name(), function.inputs());
  }
  return nullptr;
}

void on_end(const at::RecordFunction& function, at::ObserverContext*) {
  if (current_cost == nullptr) return;
  for (const c10::IValue& output : function.outputs()) {
    if (!output.isTensor() || !output.toTensor().defined()) continue;
    current_cost->largest_bytes =
        std::max(current_cost->largest_bytes, storage_bytes(output.toTensor()));
  }
}

std::string describe_all(std::span<const at::Tensor> operands) {
  std::string text;
  for (const at::Tensor& operand : operands) {
    if (!text.empty()) text += ", ";
    text += describe(operand);
  }
  return text;
}

bool same_storage(const at::Tensor& a, const at::Tensor& b) {
  return a.storage().unsafeGetStorageImpl() == b.storage().unsafeGetStorageImpl();
}

void count_outputs(Inferred& inferred, std::span<const at::Tensor> operands) {
  const auto& outputs = inferred.outputs;
  for (size_t i = 0; i < outputs.size(); ++i) {
    const auto shares = [&](const at::Tensor& other) { return same_storage(outputs[i], other); };
    inferred.floating_point_operations += outputs[i].numel();
    if (std::any_of(operands.begin(), operands.end(), shares)) continue;
    if (std::any_of(outputs.begin(), outputs.begin() + i, shares)) continue;
    inferred.output_bytes += storage_bytes(outputs[i]);
  }
  for (const at::Tensor& operand : operands) {
    inferred.floating_point_operations += operand.numel();
  }
}

/// Meta tensors of its own for what the call writes to: some kernels resize it where they should
/// refuse, and `operands` belong to other values.
std::vector<at::Tensor> with_own_targets(const Call& call, std::span<const at::Tensor> operands) {
  std::vector<at::Tensor> own(operands.begin(), operands.end());
  for (const int argument : call.operation->written) {
    for (const int i : call.operands_of(argument)) {
      own[i] = at::empty_strided(own[i].sizes(), own[i].strides(), own[i].options());
    }
  }
  return own;
}

constexpr int64_t kOutputsMax = 100'000;  // of one operation

int64_t int_argument(const Call& call, std::string_view name, int64_t otherwise) {
  const auto& arguments = call.operation->schema->arguments();
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i].name() == name && call.slots[i].fixed.isInt())
      return call.slots[i].fixed.toInt();
  }
  return otherwise;
}

/// Pieces are views, but each is an object: their number is bounded before torch makes a list.
void check_num_outputs(const Call& call, std::span<const at::Tensor> operands) {
  const auto& returns = call.operation->schema->returns();
  if (operands.empty() || returns.size() != 1 || returns[0].type()->str() != "Tensor[]") return;
  int64_t pieces = std::max(int_argument(call, "sections", 0), int_argument(call, "chunks", 0));
  const int64_t dim = int_argument(call, "dim", 0);
  const int64_t dims = operands[0].dim();
  if (dim >= -dims && dim < dims) {
    const int64_t size = operands[0].size(dim);
    if (call.operation->name == "aten::unbind.int") pieces = size;
    const int64_t piece = int_argument(call, "split_size", 0);
    if (piece > 0) pieces = size / piece;
  }
  TORCH_CHECK(pieces <= kOutputsMax, pieces, " pieces are too large a number: at most ",
              kOutputsMax);
}

void check_targets(std::span<const at::Tensor> operands, std::span<const at::Tensor> after) {
  for (size_t i = 0; i < operands.size(); ++i) {
    TORCH_CHECK(operands[i].sizes() == after[i].sizes(), "output with shape ", operands[i].sizes(),
                " doesn't match the broadcast shape ", after[i].sizes());
  }
}

}  // namespace

void add_cost(double floating_point_operations, double scratch_bytes) {
  if (current_cost == nullptr) return;
  current_cost->floating_point_operations += floating_point_operations;
  current_cost->scratch_bytes += scratch_bytes;
}

CostScope::CostScope() {
  handle_ = at::addThreadLocalCallback(at::RecordFunctionCallback(&on_start, &on_end)
                                           .needsInputs(true)
                                           .needsOutputs(true)
                                           .scopes({at::RecordScope::FUNCTION}));
}

CostScope::~CostScope() { at::removeCallback(handle_); }

int64_t storage_bytes(const at::Tensor& tensor) {
  return static_cast<int64_t>(tensor.storage().nbytes());
}

std::string sentence_of(const std::exception& error) {
  const auto* torch_error = dynamic_cast<const c10::Error*>(&error);
  std::string text =
      torch_error != nullptr ? torch_error->what_without_backtrace() : std::string(error.what());
  // Some messages carry a dispatch table of many lines; the first paragraph says what is wrong.
  const size_t end = text.find("\n\n");
  if (end != text.npos) text.resize(end);
  while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) text.pop_back();
  return text;
}

Result<Inferred> infer(const Call& call, std::span<const at::Tensor> given) {
  const Operation& operation = *call.operation;
  Inferred inferred;
  std::vector<at::Tensor> operands;
  Cost cost;
  current_cost = &cost;
  struct Reset {
    ~Reset() { current_cost = nullptr; }
  } reset;
  try {
    check_num_outputs(call, given);
    operands = with_own_targets(call, given);
    std::vector<c10::IValue> stack = call.stack(operands, at::kMeta);
    if (const ShapeFunction own = shape_function(operation.name)) {
      own(stack);
    } else {
      operation.handle->callBoxed(&stack);
    }
    inferred.outputs = tensors_of(std::move(stack));
    check_targets(given, operands);
  } catch (const std::exception& e) {
    const std::string text = sentence_of(e);
    // A "not implemented" may also be of a dtype: that is the user's.
    for (const std::string_view gap :
         {"no fake impl or Meta kernel", "_overrideable not implemented"}) {
      if (text.find(gap) == text.npos) continue;
      return error(Code::kUnsupported, "please report this", "{} has no shape function: {}",
                   operation.name, text);
    }
    const bool too_big = text.find("overflow") != text.npos || text.find("too large") != text.npos;
    return error(too_big ? Code::kOverBudget : Code::kShapeMismatch,
                 given.empty() ? "" : "its operands: " + describe_all(given), "{}: {}",
                 operation.name, text);
  }
  inferred.bounded = is_bounded_only(call, operands);
  count_outputs(inferred, operands);
  inferred.floating_point_operations += cost.floating_point_operations;
  const double scratch =
      std::max(cost.scratch_bytes, double(cost.largest_bytes - inferred.output_bytes));
  inferred.scratch_bytes = static_cast<int64_t>(std::clamp(scratch, 0.0, 1e18));
  return inferred;
}

}  // namespace pellucid::program
