#include "text/jinja/value.h"

#include <fmt/format.h>

#include <algorithm>

#include "text/utf8.h"

namespace pellucid::text::jinja {

void append(Text& to, const Text& from) {
  const size_t shift = to.text.size();
  for (const Mark& mark : from.marks) {
    to.marks.push_back({mark.message, mark.begin + shift, mark.end + shift});
  }
  to.text += from.text;
}

Text substring(const Text& text, size_t begin, size_t end) {
  Text out{text.text.substr(begin, end - begin), {}};
  for (const Mark& mark : text.marks) {
    const size_t b = std::max(mark.begin, begin);
    const size_t e = std::min(mark.end, end);
    if (b < e || (b == e && mark.begin == mark.end)) {
      out.marks.push_back({mark.message, b - begin, e - begin});
    }
  }
  return out;
}

Value Value::list(std::vector<Value> items, bool tuple) {
  auto made = std::make_shared<List>();
  for (const Value& item : items) made->depth = std::max(made->depth, item.depth() + 1);
  made->items = std::move(items);
  made->tuple = tuple;
  return Value(Data(std::shared_ptr<const List>(std::move(made))));
}

Value Value::dict(std::vector<std::pair<std::string, Value>> items) {
  auto made = std::make_shared<Dict>();
  for (auto& item : items) {  // the last of the same key wins, at the place of the first
    made->depth = std::max(made->depth, item.second.depth() + 1);
    const auto same = std::find_if(made->items.begin(), made->items.end(),
                                   [&](const auto& other) { return other.first == item.first; });
    if (same != made->items.end()) {
      same->second = std::move(item.second);
    } else {
      made->items.push_back(std::move(item));
    }
  }
  return Value(Data(std::shared_ptr<const Dict>(std::move(made))));
}

bool Value::integer_value(int64_t& out) const {
  if (const bool* b = as_bool()) {
    out = *b ? 1 : 0;
    return true;
  }
  if (const int64_t* i = as_integer()) {
    out = *i;
    return true;
  }
  return false;
}

double Value::real_value() const {
  if (const double* d = as_real()) return *d;
  int64_t i = 0;
  integer_value(i);
  return static_cast<double>(i);
}

bool Value::truthy() const {
  if (is_undefined() || is_none()) return false;
  if (is_number()) return real_value() != 0;
  if (const Text* text = as_text()) return !text->text.empty();
  if (const List* list = as_list()) return !list->items.empty();
  if (const Dict* dict = as_dict()) return !dict->items.empty();
  return true;
}

std::string_view Value::type_name() const {
  static constexpr std::string_view kNames[] = {"undefined", "None", "bool", "int",      "float",
                                                "str",       "list", "dict", "namespace"};
  if (as_list() && as_list()->tuple) return "tuple";
  return kNames[data_.index()];
}

int Value::depth() const {
  if (as_list()) return as_list()->depth;
  if (as_dict()) return as_dict()->depth;
  return 0;
}

const Value* Dict::find(std::string_view key) const {
  for (const auto& [name, value] : items) {
    if (name == key) return &value;
  }
  return nullptr;
}

std::string real_to_string(double value) {
  std::string text = fmt::format("{}", value);
  if (text.find_first_of(".en") == std::string::npos)
    text += ".0";  // "inf", "nan" and "1e+16" stay
  return text;
}

bool is_python_space(char32_t c) {
  return (c >= 9 && c <= 13) || (c >= 28 && c <= 32) || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F ||
         c == 0x3000;
}

std::pair<size_t, size_t> strip_bounds(std::string_view text, bool left, bool right) {
  size_t begin = 0;
  size_t end = text.size();
  while (left && begin < end) {
    const Utf8Step step = utf8_step(text.substr(begin));
    if (!is_python_space(step.code_point)) break;
    begin += step.size;
  }
  while (right && end > begin) {
    const size_t last = utf8_previous(text, end);
    if (!is_python_space(utf8_step(text.substr(last)).code_point)) break;
    end = last;
  }
  return {begin, end};
}

}  // namespace pellucid::text::jinja
