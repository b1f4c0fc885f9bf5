#include "base/nearest.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace pellucid {

int edit_distance(std::string_view a, std::string_view b) {
  std::vector<int> row(b.size() + 1);
  std::iota(row.begin(), row.end(), 0);
  for (size_t i = 1; i <= a.size(); ++i) {
    int diagonal = row[0];
    row[0] = static_cast<int>(i);
    for (size_t j = 1; j <= b.size(); ++j) {
      const int substitute = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({substitute, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row[b.size()];
}

std::vector<std::string> nearest(std::string_view name, const std::vector<std::string>& known,
                                 int count) {
  std::vector<std::pair<int, std::string>> scored;
  for (const std::string& candidate : known) {
    const int distance = edit_distance(name, candidate);
    if (distance <= static_cast<int>(std::max<size_t>(2, name.size() / 2))) {
      scored.emplace_back(distance, candidate);
    }
  }
  std::stable_sort(scored.begin(), scored.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<std::string> out;
  for (auto& [distance, candidate] : scored) {
    if (static_cast<int>(out.size()) == count) break;
    if (std::find(out.begin(), out.end(), candidate) == out.end()) out.push_back(candidate);
  }
  return out;
}

std::string did_you_mean(std::string_view name, const std::vector<std::string>& known,
                         std::string otherwise) {
  const std::vector<std::string> names = nearest(name, known);
  if (names.empty()) return otherwise;
  std::string text = "did you mean ";
  for (size_t i = 0; i < names.size(); ++i) {
    if (i > 0) text += i + 1 == names.size() ? " or " : ", ";
    text += names[i];
  }
  return text + "?";
}

}  // namespace pellucid
