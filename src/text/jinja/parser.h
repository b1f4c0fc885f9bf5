#pragma once
#include <string_view>

#include "base/status.h"
#include "text/jinja/ast.h"

namespace pellucid::text::jinja {

/// Parses a template. Unknown tags, filters, tests, functions and methods are refused here, whether
/// or not they would ever run. Errors: kUnsupported, kInvalidArgument, with the line in `where`.
Result<Template> parse(std::string_view source);

}  // namespace pellucid::text::jinja
