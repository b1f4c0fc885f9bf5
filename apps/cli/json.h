#pragma once
// For commands' .cpp files, which include <nlohmann/json.hpp> themselves: no header of ours does.
#include "apps/cli/common.h"

namespace pellucid::cli {

/// One document, on one line; text that is not UTF-8 shows U+FFFD.
template <typename JsonDocument>
void put_json(const JsonDocument& json) {
  put(json.dump(-1, ' ', false, JsonDocument::error_handler_t::replace) + "\n");
}

}  // namespace pellucid::cli
