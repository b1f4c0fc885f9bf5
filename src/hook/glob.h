#pragma once
#include <string_view>

namespace pellucid::hook {

/// Does the whole of `text` match? `*` stands for any characters, dots too, `?` for one.
bool glob_match(std::string_view pattern, std::string_view text);

}  // namespace pellucid::hook
