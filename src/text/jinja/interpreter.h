#pragma once
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "text/jinja/ast.h"

namespace pellucid::text::jinja {

/// Runs a template on these variables. Bounded in steps and bytes (see Budget).
/// Errors: kInvalidArgument, kUnsupported, kOverBudget, with the line in `where`.
Result<Text> run(const Template& source, std::vector<std::pair<std::string, Value>> variables);

}  // namespace pellucid::text::jinja
