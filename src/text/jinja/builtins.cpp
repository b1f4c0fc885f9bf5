#include "text/jinja/builtins.h"

#include <fmt/format.h>

#include <algorithm>

#include "text/utf8.h"

namespace pellucid::text::jinja {
namespace {

using Args = Arguments;

template <typename Out>
struct Entry {
  std::string_view name;
  size_t arguments_max;  // besides the value itself
  Result<Out> (*run)(const Args&, Budget&);
};

template <typename Table>
auto find(const Table& table, std::string_view name) {
  const auto found = std::find_if(std::begin(table), std::end(table),
                                  [&](const auto& entry) { return entry.name == name; });
  return found == std::end(table) ? nullptr : &*found;
}
template <typename Table>
std::vector<std::string> names_of(const Table& table) {
  std::vector<std::string> names;
  for (const auto& entry : table) names.emplace_back(entry.name);
  return names;
}

Status wrong_type(std::string_view wanted, const Value& value) {
  if (value.is_undefined()) {
    return error(Code::kInvalidArgument, "", "`{}` is undefined", value.undefined_name());
  }
  return error(Code::kInvalidArgument, "", "expected {}, found {}", wanted, value.type_name());
}

// --- strings

Result<Text> text_argument(const Args& args, size_t at, Budget& budget) {
  const Text* text = args[at].as_text();
  if (text == nullptr) return wrong_type("a string", args[at]);
  PELLUCID_TRY(budget.charge(text->text.size()));
  return *text;
}

// strip() takes white space, strip(characters) any of these.
Result<Value> strip(const Text& text, const Args& args, bool left, bool right, Budget& budget) {
  PELLUCID_TRY(budget.charge(text.text.size()));
  if (args.size() < 2 || args[1].is_none()) {
    const auto [begin, end] = strip_bounds(text.text, left, right);
    return Value::string(substring(text, begin, end));
  }
  PELLUCID_ASSIGN(const Text characters, text_argument(args, 1, budget));
  PELLUCID_TRY(budget.charge(text.text.size() * (characters.text.size() / 64 + 1)));
  const auto strips = [&](size_t at) {
    const std::string_view one =
        std::string_view(text.text).substr(at, utf8_size_at(text.text, at));
    return characters.text.find(one) != std::string::npos;
  };
  size_t begin = 0;
  size_t end = text.text.size();
  while (left && begin < end && strips(begin)) begin += utf8_size_at(text.text, begin);
  while (right && end > begin && strips(utf8_previous(text.text, end))) {
    end = utf8_previous(text.text, end);
  }
  return Value::string(substring(text, begin, end));
}
template <bool kLeft, bool kRight>
Result<Value> strip_method(const Args& args, Budget& budget) {
  PELLUCID_ASSIGN(const Text text, text_argument(args, 0, budget));
  return strip(text, args, kLeft, kRight, budget);
}
Result<Value> trim_filter(const Args& args, Budget& budget) {
  PELLUCID_ASSIGN(const Text text, to_text(args[0]));
  return strip(text, args, true, true, budget);
}

// Case of ASCII letters only; other scripts need tables that are not here.
Result<Value> change_case(const Text& text, char first, char last) {
  Text out{text.text, {}};
  for (char& c : out.text) {
    if (static_cast<unsigned char>(c) >= 0x80) {
      return error(Code::kUnsupported, "", "upper and lower case of letters beyond ASCII");
    }
    if (c >= first && c <= last) c = static_cast<char>(c ^ 0x20);
  }
  if (out.text == text.text) out.marks = text.marks;
  return Value::string(std::move(out));
}
template <char kFirst, char kLast>
Result<Value> case_filter(const Args& args, Budget& budget) {
  PELLUCID_ASSIGN(const Text text, to_text(args[0]));
  PELLUCID_TRY(budget.charge(text.text.size()));
  return change_case(text, kFirst, kLast);
}
template <char kFirst, char kLast>
Result<Value> case_method(const Args& args, Budget& budget) {
  PELLUCID_ASSIGN(const Text text, text_argument(args, 0, budget));
  return change_case(text, kFirst, kLast);
}

template <bool kStart>
Result<Value> affix_method(const Args& args, Budget& budget) {
  PELLUCID_ASSIGN(const Text text, text_argument(args, 0, budget));
  if (args.size() < 2)
    return error(Code::kInvalidArgument, "", "startswith and endswith take a string");
  std::vector<Value> candidates{args[1]};
  if (args[1].as_list() && args[1].as_list()->tuple) candidates = args[1].as_list()->items;
  for (size_t i = 0; i < candidates.size(); ++i) {
    PELLUCID_ASSIGN(const Text affix, text_argument(candidates, i, budget));
    if (kStart ? text.text.starts_with(affix.text) : text.text.ends_with(affix.text)) {
      return Value::boolean(true);
    }
  }
  return Value::boolean(false);
}

Result<Value> split_method(const Args& args, Budget& budget) {
  PELLUCID_ASSIGN(const Text text, text_argument(args, 0, budget));
  int64_t most = -1;
  if (args.size() > 2 && !args[2].integer_value(most)) return wrong_type("an integer", args[2]);
  const size_t size = text.text.size();
  std::vector<Value> pieces;
  const auto add = [&](size_t begin, size_t end) -> Status {
    PELLUCID_TRY(budget.charge(end - begin + sizeof(Value) + 64 + text.marks.size()));
    pieces.push_back(Value::string(substring(text, begin, end)));
    return ok_status();
  };
  const auto more = [&] { return most < 0 || static_cast<int64_t>(pieces.size()) < most; };
  if (args.size() < 2 || args[1].is_none()) {  // at runs of white space, nothing empty
    size_t begin = 0;
    while (true) {
      begin += strip_bounds(std::string_view(text.text).substr(begin), true, false).first;
      if (begin == size) break;
      if (!more()) {
        PELLUCID_TRY(add(begin, strip_bounds(text.text, false, true).second));
        break;
      }
      size_t end = begin;
      while (end < size &&
             !is_python_space(utf8_step(std::string_view(text.text).substr(end)).code_point)) {
        end += utf8_size_at(text.text, end);
      }
      PELLUCID_TRY(add(begin, end));
      begin = end;
    }
    return Value::list(std::move(pieces));
  }
  PELLUCID_ASSIGN(const Text separator, text_argument(args, 1, budget));
  if (separator.text.empty())
    return error(Code::kInvalidArgument, "", "split with an empty separator");
  size_t begin = 0;
  while (more()) {
    const size_t at = text.text.find(separator.text, begin);
    if (at == std::string::npos) break;
    PELLUCID_TRY(add(begin, at));
    begin = at + separator.text.size();
  }
  PELLUCID_TRY(add(begin, size));
  return Value::list(std::move(pieces));
}

Result<Value> replace(const Text& text, const Args& args, Budget& budget) {
  if (args.size() != 3) {
    return error(Code::kUnsupported, "", "replace with other than two arguments");
  }
  PELLUCID_ASSIGN(const Text from, text_argument(args, 1, budget));
  PELLUCID_ASSIGN(const Text to, text_argument(args, 2, budget));
  if (from.text.empty()) return error(Code::kUnsupported, "", "replace of an empty string");
  std::string out;
  size_t begin = 0;
  for (size_t at = text.text.find(from.text); at != std::string::npos;
       at = text.text.find(from.text, begin)) {
    PELLUCID_TRY(budget.charge(at - begin + to.text.size()));
    out.append(text.text, begin, at - begin);
    out += to.text;
    begin = at + from.text.size();
  }
  if (begin == 0) return Value::string(text);
  PELLUCID_TRY(budget.charge(text.text.size() - begin));
  out.append(text.text, begin);
  return Value::string(out);
}
Result<Value> replace_method(const Args& args, Budget& budget) {
  PELLUCID_ASSIGN(const Text text, text_argument(args, 0, budget));
  return replace(text, args, budget);
}
Result<Value> replace_filter(const Args& args, Budget& budget) {
  PELLUCID_ASSIGN(const Text text, to_text(args[0]));
  return replace(text, args, budget);
}

// --- lists and dicts

Result<Value> length_filter(const Args& args, Budget& budget) {
  const Value& value = args[0];
  size_t length = 0;
  if (const Text* text = value.as_text()) {
    PELLUCID_TRY(budget.charge(text->text.size()));
    length = static_cast<size_t>(std::count_if(text->text.begin(), text->text.end(), [](char c) {
      return (static_cast<unsigned char>(c) & 0xC0) != 0x80;
    }));
  } else if (value.as_list()) {
    length = value.as_list()->items.size();
  } else if (value.as_dict()) {
    length = value.as_dict()->items.size();
  } else if (!value.is_undefined()) {
    return wrong_type("something with a length", value);
  }
  return Value::integer(static_cast<int64_t>(length));
}

Result<Value> default_filter(const Args& args, Budget&) {
  const bool any_false = args.size() > 2 && args[2].truthy();
  const bool missing = args[0].is_undefined() || (any_false && !args[0].truthy());
  if (!missing) return args[0];
  return args.size() > 1 ? args[1] : Value::string("");
}

Result<Value> join_filter(const Args& args, Budget& budget) {
  PELLUCID_ASSIGN(const std::vector<Value> items, to_items(args[0], budget));
  Text separator;
  if (args.size() > 1) {
    PELLUCID_ASSIGN(separator, to_text(args[1]));
  }
  Text out;
  for (size_t i = 0; i < items.size(); ++i) {
    PELLUCID_ASSIGN(const Text item, to_text(items[i]));
    PELLUCID_TRY(budget.charge(item.text.size() + separator.text.size()));
    if (i > 0) append(out, separator);
    append(out, item);
  }
  return Value::string(std::move(out));
}

template <bool kFirst>
Result<Value> end_filter(const Args& args, Budget& budget) {
  PELLUCID_ASSIGN(const std::vector<Value> items, to_items(args[0], budget));
  if (items.empty()) return Value::undefined(kFirst ? "first of nothing" : "last of nothing");
  return kFirst ? items.front() : items.back();
}

Result<Value> string_filter(const Args& args, Budget&) {
  PELLUCID_ASSIGN(Text text, to_text(args[0]));
  return Value::string(std::move(text));
}

Result<Value> list_filter(const Args& args, Budget& budget) {
  PELLUCID_ASSIGN(std::vector<Value> items, to_items(args[0], budget));
  return Value::list(std::move(items));
}

// json.dumps(value, ensure_ascii=False)
Status append_json(std::string& out, const Value& value, Budget& budget) {
  PELLUCID_TRY(budget.step());
  if (const Text* text = value.as_text()) {
    PELLUCID_TRY(budget.charge(text->text.size() * 6));
    out += '"';
    for (const char c : text->text) {
      static constexpr std::string_view kFrom = "\"\\\n\r\t\b\f";
      static constexpr std::string_view kTo = "\"\\nrtbf";
      if (const size_t at = kFrom.find(c); at != std::string_view::npos) {
        out += '\\';
        out += kTo[at];
      } else if (static_cast<unsigned char>(c) < 0x20) {
        out += fmt::format("\\u{:04x}", c);
      } else {
        out += c;
      }
    }
    out += '"';
  } else if (const List* list = value.as_list()) {
    out += '[';
    for (size_t i = 0; i < list->items.size(); ++i) {
      if (i > 0) out += ", ";
      PELLUCID_TRY(append_json(out, list->items[i], budget));
    }
    out += ']';
  } else if (const Dict* dict = value.as_dict()) {
    out += '{';
    for (size_t i = 0; i < dict->items.size(); ++i) {
      if (i > 0) out += ", ";
      PELLUCID_TRY(append_json(out, Value::string(dict->items[i].first), budget));
      out += ": ";
      PELLUCID_TRY(append_json(out, dict->items[i].second, budget));
    }
    out += '}';
  } else if (value.is_none()) {
    out += "null";
  } else if (const bool* b = value.as_bool()) {
    out += *b ? "true" : "false";
  } else if (value.is_number()) {
    PELLUCID_ASSIGN(const Text number, to_text(value));
    const bool finite = number.text.find_first_of("in") == std::string::npos;
    if (!finite) return error(Code::kUnsupported, "", "tojson of {}", number.text);
    out += number.text;
  } else {
    return wrong_type("something that JSON has", value);
  }
  return ok_status();
}
Result<Value> tojson_filter(const Args& args, Budget& budget) {
  std::string out;
  PELLUCID_TRY(append_json(out, args[0], budget));
  return Value::string(out);
}

Result<Value> get_method(const Args& args, Budget& budget) {
  const Dict* dict = args[0].as_dict();
  if (dict == nullptr) return wrong_type("a dict", args[0]);
  if (args.size() < 2) return error(Code::kInvalidArgument, "", "get without a key");
  PELLUCID_TRY(budget.charge(dict->items.size()));
  const Value* found = args[1].as_text() ? dict->find(args[1].as_text()->text) : nullptr;
  if (found != nullptr) return *found;
  return args.size() > 2 ? args[2] : Value::none();
}

enum class View { kItems, kKeys, kValues };
template <View kView>
Result<Value> view_method(const Args& args, Budget& budget) {
  const Dict* dict = args[0].as_dict();
  if (dict == nullptr) return wrong_type("a dict", args[0]);
  PELLUCID_TRY(budget.charge(dict->items.size() * 4 * sizeof(Value)));
  std::vector<Value> out;
  for (const auto& [key, value] : dict->items) {
    const Value name = Value::string(key);
    out.push_back(kView == View::kKeys     ? name
                  : kView == View::kValues ? value
                                           : Value::list({name, value}, /*tuple=*/true));
  }
  return Value::list(std::move(out));
}

// --- functions

Result<Value> raise_exception(const Args& args, Budget&) {
  Text message;
  if (!args.empty()) {
    PELLUCID_ASSIGN(message, to_text(args[0]));
  }
  if (message.text.empty()) message.text = "an exception without a text";
  return error(Code::kInvalidArgument, "the model's chat template refuses these messages", "{}",
               message.text.substr(0, 1000));
}

Result<Value> range(const Args& args, Budget& budget) {
  int64_t numbers[3] = {0, 0, 1};
  if (args.empty()) return error(Code::kInvalidArgument, "", "range without a bound");
  for (size_t i = 0; i < args.size(); ++i) {
    if (!args[i].integer_value(numbers[args.size() == 1 ? 1 : i]))
      return wrong_type("an integer", args[i]);
  }
  const auto [begin, end, step] = numbers;
  if (step == 0) return error(Code::kInvalidArgument, "", "range with step 0");
  constexpr int64_t kRangeMax = 100'000;  // Jinja's sandbox has the same
  std::vector<Value> items;
  for (int64_t i = begin; step > 0 ? i < end : i > end;) {
    if (items.size() == kRangeMax) {
      return error(Code::kOverBudget, "", "a range of more than {} numbers", kRangeMax);
    }
    items.push_back(Value::integer(i));
    if (__builtin_add_overflow(i, step, &i)) break;
  }
  PELLUCID_TRY(budget.charge(items.size() * sizeof(Value)));
  return Value::list(std::move(items));
}

Result<Value> make_namespace(const Args& args, Budget&) {
  if (!args.empty())
    return error(Code::kUnsupported, "", "namespace() of something without a name");
  return Value(Value::Data(std::make_shared<Namespace>()));
}

// --- tests

template <bool kEven>
Result<bool> parity(const Args& args, Budget&) {
  int64_t value = 0;
  if (!args[0].integer_value(value)) return wrong_type("an integer", args[0]);
  return (value % 2 == 0) == kEven;
}

Result<bool> divisible(const Args& args, Budget&) {
  int64_t value = 0;
  int64_t by = 0;
  if (args.size() != 2 || !args[0].integer_value(value) || !args[1].integer_value(by) || by == 0) {
    return error(Code::kInvalidArgument, "", "divisibleby takes integers");
  }
  return by == -1 || value % by == 0;
}

Result<bool> equality(const Args& args, Budget& budget) {
  if (args.size() != 2) return error(Code::kInvalidArgument, "", "equalto takes one value");
  return compare("==", args[0], args[1], budget);
}
Result<bool> inequality(const Args& args, Budget& budget) {
  if (args.size() != 2) return error(Code::kInvalidArgument, "", "ne takes one value");
  return compare("!=", args[0], args[1], budget);
}
Result<bool> membership(const Args& args, Budget& budget) {
  if (args.size() != 2) return error(Code::kInvalidArgument, "", "in takes one value");
  return compare("in", args[0], args[1], budget);
}

template <bool (*kHolds)(const Value&)>
Result<bool> simple(const Args& args, Budget&) {
  return kHolds(args[0]);
}
bool is_bool_value(const Value& v, bool wanted) { return v.as_bool() && *v.as_bool() == wanted; }
bool defined(const Value& v) { return !v.is_undefined(); }
bool undefined(const Value& v) { return v.is_undefined(); }
bool none(const Value& v) { return v.is_none(); }
bool string(const Value& v) { return v.as_text() != nullptr; }
bool mapping(const Value& v) { return v.as_dict() != nullptr; }
bool number(const Value& v) { return v.is_number(); }
bool integer(const Value& v) { return v.as_integer() != nullptr; }
bool real(const Value& v) { return v.as_real() != nullptr; }
bool boolean(const Value& v) { return v.as_bool() != nullptr; }
bool is_true(const Value& v) { return is_bool_value(v, true); }
bool is_false(const Value& v) { return is_bool_value(v, false); }
bool sequence(const Value& v) { return v.as_text() || v.as_list() || v.as_dict(); }
bool iterable(const Value& v) { return sequence(v) || v.is_undefined(); }

constexpr Entry<Value> kFilters[] = {
    {"trim", 1, trim_filter},
    {"length", 0, length_filter},
    {"count", 0, length_filter},
    {"default", 2, default_filter},
    {"d", 2, default_filter},
    {"join", 1, join_filter},
    {"first", 0, end_filter<true>},
    {"last", 0, end_filter<false>},
    {"upper", 0, case_filter<'a', 'z'>},
    {"lower", 0, case_filter<'A', 'Z'>},
    {"string", 0, string_filter},
    {"list", 0, list_filter},
    {"replace", 2, replace_filter},
    {"tojson", 0, tojson_filter},
};
constexpr Entry<bool> kTests[] = {
    {"defined", 0, simple<defined>},
    {"undefined", 0, simple<undefined>},
    {"none", 0, simple<none>},
    {"string", 0, simple<string>},
    {"mapping", 0, simple<mapping>},
    {"number", 0, simple<number>},
    {"integer", 0, simple<integer>},
    {"float", 0, simple<real>},
    {"boolean", 0, simple<boolean>},
    {"true", 0, simple<is_true>},
    {"false", 0, simple<is_false>},
    {"sequence", 0, simple<sequence>},
    {"iterable", 0, simple<iterable>},
    {"even", 0, parity<true>},
    {"odd", 0, parity<false>},
    {"divisibleby", 1, divisible},
    {"equalto", 1, equality},
    {"eq", 1, equality},
    {"ne", 1, inequality},
    {"in", 1, membership},
};
constexpr Entry<Value> kMethods[] = {
    {"strip", 1, strip_method<true, true>},
    {"lstrip", 1, strip_method<true, false>},
    {"rstrip", 1, strip_method<false, true>},
    {"startswith", 1, affix_method<true>},
    {"endswith", 1, affix_method<false>},
    {"split", 2, split_method},
    {"upper", 0, case_method<'a', 'z'>},
    {"lower", 0, case_method<'A', 'Z'>},
    {"replace", 2, replace_method},
    {"get", 2, get_method},
    {"items", 0, view_method<View::kItems>},
    {"keys", 0, view_method<View::kKeys>},
    {"values", 0, view_method<View::kValues>},
};
constexpr Entry<Value> kFunctions[] = {
    {"raise_exception", 1, raise_exception},
    {"range", 3, range},
    {"namespace", 0, make_namespace},
};

template <typename Table, typename Out>
Result<Out> run(const Table& table, std::string_view name, const Args& args, size_t values,
                Budget& budget) {
  const auto* entry = find(table, name);
  if (entry == nullptr) return error(Code::kUnsupported, "", "`{}`", name);
  if (args.size() > values + entry->arguments_max) {
    return error(Code::kUnsupported, "", "`{}` with {} arguments", name, args.size() - values);
  }
  return entry->run(args, budget);
}

}  // namespace

bool is_filter(std::string_view name) { return find(kFilters, name) != nullptr; }
bool is_test(std::string_view name) { return find(kTests, name) != nullptr; }
bool is_function(std::string_view name) { return find(kFunctions, name) != nullptr; }
bool is_method(std::string_view name) { return find(kMethods, name) != nullptr; }
std::vector<std::string> filter_names() { return names_of(kFilters); }
std::vector<std::string> test_names() { return names_of(kTests); }
std::vector<std::string> method_names() { return names_of(kMethods); }

Result<Value> run_filter(std::string_view name, const Arguments& arguments, Budget& budget) {
  return run<decltype(kFilters), Value>(kFilters, name, arguments, 1, budget);
}
Result<bool> run_test(std::string_view name, const Arguments& arguments, Budget& budget) {
  return run<decltype(kTests), bool>(kTests, name, arguments, 1, budget);
}
Result<Value> run_method(std::string_view name, const Arguments& arguments, Budget& budget) {
  return run<decltype(kMethods), Value>(kMethods, name, arguments, 1, budget);
}
Result<Value> run_function(std::string_view name, const Arguments& arguments, Budget& budget) {
  return run<decltype(kFunctions), Value>(kFunctions, name, arguments, 0, budget);
}

}  // namespace pellucid::text::jinja
