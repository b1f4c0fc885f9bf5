#pragma once
// "Unknown name" errors offer the nearest known ones.
#include <string>
#include <string_view>
#include <vector>

namespace pellucid {

/// Levenshtein distance in bytes.
int edit_distance(std::string_view a, std::string_view b);

/// Up to `count` of `known`, nearest to `name` first; only those within half of its length.
std::vector<std::string> nearest(std::string_view name, const std::vector<std::string>& known,
                                 int count = 3);

/// "did you mean a, b or c?" or, when nothing is near, `otherwise`.
std::string did_you_mean(std::string_view name, const std::vector<std::string>& known,
                         std::string otherwise = "");

}  // namespace pellucid
