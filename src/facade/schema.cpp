#include <ATen/core/dispatch/Dispatcher.h>

#include "facade/trace_state.h"

namespace pellucid::facade {

int32_t num_outputs(const std::string& operation) {
  const size_t dot = operation.find('.');
  const auto handle = c10::Dispatcher::singleton().findSchema(
      {operation.substr(0, dot), dot == std::string::npos ? "" : operation.substr(dot + 1)});
  if (!handle) return kUnknown;
  const auto& returns = handle->schema().returns();
  for (const c10::Argument& output : returns) {
    if (output.type()->kind() == c10::TypeKind::ListType) return kList;
  }
  return static_cast<int32_t>(returns.size());
}

}  // namespace pellucid::facade
