#pragma once
// What every reader of JSON from outside does before it hands the text to the JSON library, which
// itself knows no limits. Sources only include the library; no header of ours does.
#include <cstddef>
#include <string>
#include <string_view>

#include "base/status.h"

namespace pellucid::files {

/// Errors: kCorruptFile when objects and arrays nest deeper than `depth_max`. `what` begins the
/// message: "config.json of model x".
Status check_json_depth(std::string_view text, int depth_max, std::string_view what);

}  // namespace pellucid::files
