#pragma once
// The operations that a program may use. Everything else is refused: what is listed touches no
// file, no device, no process and no global random state, sees only its operands' elements, and has
// a size that is known (or bounded) before it runs.
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"

namespace c10 {
class OperatorHandle;
struct FunctionSchema;
}  // namespace c10

namespace pellucid::program {

/// One listed operation, looked up in the dispatcher once. Lives as long as the process.
struct Operation {
  std::string name;  // with overload, "aten::add.Tensor"
  const c10::OperatorHandle* handle = nullptr;
  const c10::FunctionSchema* schema = nullptr;
  std::vector<int> written;  // schema arguments that are changed in place
  /// (return, schema argument): the return is, or may be, a view of the argument.
  std::vector<std::pair<int, int>> aliases;
  bool makes = false;  // has no tensor operand: made on the model's device
};

/// "add.Tensor", without "aten::", grouped by subject in op_list.cpp.
std::span<const std::string_view> allowed_operations();

/// By schema name and overload; "aten::" may be left out. Errors: kUnsupported, with the reason for
/// what is kept off the list on purpose, or the nearest listed names.
Result<const Operation*> find_operation(std::string_view name);

/// The overloads that "aten::add" may mean: itself when it is exact, else all listed ones in the
/// order of the list.
std::vector<std::string> overloads(std::string_view name);

}  // namespace pellucid::program
