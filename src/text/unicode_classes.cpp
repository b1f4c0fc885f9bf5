#include "text/unicode_classes.h"

#include <algorithm>
#include <array>

namespace pellucid::text {
namespace {

enum class Category : uint8_t {
  kLu,
  kLl,
  kLt,
  kLm,
  kLo,
  kMn,
  kMc,
  kMe,
  kNd,
  kNl,
  kNo,
  kPc,
  kPd,
  kPs,
  kPe,
  kPi,
  kPf,
  kPo,
  kSm,
  kSc,
  kSk,
  kSo,
  kZs,
  kZl,
  kZp,
  kCc,
  kCf,
  kCo,
  kCn,
};
constexpr std::array<std::string_view, 29> kNames{
    "Lu", "Ll", "Lt", "Lm", "Lo", "Mn", "Mc", "Me", "Nd", "Nl", "No", "Pc", "Pd", "Ps", "Pe",
    "Pi", "Pf", "Po", "Sm", "Sc", "Sk", "So", "Zs", "Zl", "Zp", "Cc", "Cf", "Co", "Cn"};
constexpr std::string_view kMajor = "LMNPSZC";

struct CategoryRange {
  uint32_t first;
  uint32_t last;
  Category category;
};

#include "text/unicode_table.inc"

void append(CodePointSet& set, uint32_t first, uint32_t last) {
  if (!set.empty() && set.back().last + 1 == first) {
    set.back().last = last;
  } else {
    set.push_back({first, last});
  }
}

template <typename Wanted>
CodePointSet collect(Wanted wanted) {
  CodePointSet set;
  for (const CategoryRange& range : kCategories) {
    if (wanted(kNames[static_cast<size_t>(range.category)])) append(set, range.first, range.last);
  }
  return set;
}

}  // namespace

std::optional<CodePointSet> general_category(std::string_view name) {
  if (name == "Cn" || name == "C") {  // the table leaves unassigned code points out
    const bool all = name == "C";
    return complement(collect([&](std::string_view n) { return !(all && n[0] == 'C'); }));
  }
  const bool major = name.size() == 1 && kMajor.find(name) != std::string_view::npos;
  if (!major && std::find(kNames.begin(), kNames.end(), name) == kNames.end()) return std::nullopt;
  return collect([&](std::string_view n) { return major ? n[0] == name[0] : n == name; });
}

std::vector<std::string_view> general_category_names() {
  std::vector<std::string_view> names(kNames.begin(), kNames.end());
  for (size_t i = 0; i < kMajor.size(); ++i) names.push_back(kMajor.substr(i, 1));
  return names;
}

std::span<const CodePointRange> space_set() { return kSpace; }
std::span<const CodePointRange> word_set() { return kWord; }
std::span<const CodePointRange> word_beside_added_token_set() { return kWordBesideAddedToken; }
std::span<const CodePointRange> numeric_set() { return kNumeric; }

bool contains(std::span<const CodePointRange> set, char32_t c) {
  const auto after = std::upper_bound(
      set.begin(), set.end(), c, [](char32_t a, const CodePointRange& b) { return a < b.first; });
  return after != set.begin() && c <= std::prev(after)->last;
}

CodePointSet complement(std::span<const CodePointRange> set) {
  CodePointSet out;
  uint32_t next = 0;
  const auto gap = [&](uint32_t first, uint32_t end) {  // [first, end) without surrogates
    if (first < std::min(end, 0xD800U)) out.push_back({first, std::min(end, 0xD800U) - 1});
    if (std::max(first, 0xE000U) < end) out.push_back({std::max(first, 0xE000U), end - 1});
  };
  for (const CodePointRange& range : set) {
    if (range.first > next) gap(next, range.first);
    next = range.last + 1;
  }
  if (next < 0x110000) gap(next, 0x110000);
  return out;
}

}  // namespace pellucid::text
