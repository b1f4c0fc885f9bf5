// Python's operators on template values.
#include <fmt/format.h>

#include <cmath>

#include "text/jinja/builtins.h"
#include "text/utf8.h"

namespace pellucid::text::jinja {
namespace {

// Comparing a list that holds itself many times over would take exponential time: each step counts.
constexpr int kDepthMax = 100;

Status bad_operands(std::string_view op, const Value& a, const Value& b) {
  if (a.is_undefined() || b.is_undefined()) {
    const std::string& name = a.is_undefined() ? a.undefined_name() : b.undefined_name();
    return error(Code::kInvalidArgument, "", "`{}` is undefined", name);
  }
  return error(Code::kInvalidArgument, "", "`{}` does not go with {} and {}", op, a.type_name(),
               b.type_name());
}

Result<Value> integers(std::string_view op, int64_t a, int64_t b) {
  int64_t out = 0;
  bool overflow = false;
  if (op == "+") {
    overflow = __builtin_add_overflow(a, b, &out);
  } else if (op == "-") {
    overflow = __builtin_sub_overflow(a, b, &out);
  } else if (op == "*") {
    overflow = __builtin_mul_overflow(a, b, &out);
  } else if (op == "//" || op == "%") {
    if (b == -1) {
      overflow = op == "//" && __builtin_sub_overflow(int64_t{0}, a, &out);
    } else {  // rounds down, and the rest has the divisor's sign
      const int64_t rest = a % b;
      const bool adjust = rest != 0 && (rest < 0) != (b < 0);
      out = op == "//" ? a / b - (adjust ? 1 : 0) : rest + (adjust ? b : 0);
    }
  } else if (a >= -1 && a <= 1) {  // ** with b >= 0
    out = b == 0 ? 1 : b % 2 == 0 ? a * a : a;
  } else {  // overflows after 63 rounds at most
    out = 1;
    for (int64_t i = 0; i < b && !overflow; ++i) overflow = __builtin_mul_overflow(out, a, &out);
  }
  if (overflow) {
    return error(Code::kUnsupported, "", "an integer beyond 64 bits: {} {} {}", a, op, b);
  }
  return Value::integer(out);
}

double reals(std::string_view op, double a, double b) {
  if (op == "+") return a + b;
  if (op == "-") return a - b;
  if (op == "*") return a * b;
  if (op == "/") return a / b;
  if (op == "**") return std::pow(a, b);
  double rest = std::fmod(a, b);
  if (rest != 0 && (rest < 0) != (b < 0)) rest += b;
  return op == "%" ? rest : std::floor((a - rest) / b + 0.5);
}

Result<Value> repeat(const Value& sequence, int64_t times, Budget& budget) {
  const auto count = static_cast<size_t>(std::max<int64_t>(times, 0));
  const size_t size = sequence.as_text() ? sequence.as_text()->text.size() + 1
                                         : (sequence.as_list()->items.size() + 1) * sizeof(Value);
  size_t bytes = 0;
  if (__builtin_mul_overflow(count, size, &bytes)) bytes = SIZE_MAX;
  PELLUCID_TRY(budget.charge(bytes));
  if (const Text* text = sequence.as_text()) {
    Text out;
    for (size_t i = 0; i < count; ++i) append(out, *text);
    return Value::string(std::move(out));
  }
  std::vector<Value> items;
  for (size_t i = 0; i < count; ++i) {
    items.insert(items.end(), sequence.as_list()->items.begin(), sequence.as_list()->items.end());
  }
  return Value::list(std::move(items), sequence.as_list()->tuple);
}

Result<Value> add_sequences(const Value& a, const Value& b, Budget& budget) {
  if (a.as_text()) {
    PELLUCID_TRY(
        budget.charge(a.as_text()->text.size() + b.as_text()->text.size() +
                      (a.as_text()->marks.size() + b.as_text()->marks.size()) * sizeof(Mark)));
    Text out = *a.as_text();
    append(out, *b.as_text());
    return Value::string(std::move(out));
  }
  const List& left = *a.as_list();
  const List& right = *b.as_list();
  PELLUCID_TRY(budget.charge((left.items.size() + right.items.size()) * sizeof(Value)));
  std::vector<Value> items = left.items;
  items.insert(items.end(), right.items.begin(), right.items.end());
  return Value::list(std::move(items), left.tuple);
}

Result<bool> equal(const Value& a, const Value& b, Budget& budget) {
  PELLUCID_TRY(budget.step());
  if (a.is_number() && b.is_number()) {
    int64_t x = 0;
    int64_t y = 0;
    if (a.integer_value(x) && b.integer_value(y)) return x == y;
    return a.real_value() == b.real_value();
  }
  if (a.as_text() && b.as_text()) return a.as_text()->text == b.as_text()->text;
  if (a.as_list() && b.as_list()) {
    const List& left = *a.as_list();
    const List& right = *b.as_list();
    if (left.tuple != right.tuple || left.items.size() != right.items.size()) return false;
    for (size_t i = 0; i < left.items.size(); ++i) {
      PELLUCID_ASSIGN(const bool same, equal(left.items[i], right.items[i], budget));
      if (!same) return false;
    }
    return true;
  }
  if (a.as_dict() && b.as_dict()) {
    const Dict& left = *a.as_dict();
    if (left.items.size() != b.as_dict()->items.size()) return false;
    for (const auto& [key, value] : left.items) {
      const Value* other = b.as_dict()->find(key);
      if (other == nullptr) return false;
      PELLUCID_ASSIGN(const bool same, equal(value, *other, budget));
      if (!same) return false;
    }
    return true;
  }
  if (a.as_namespace() || b.as_namespace()) return a.as_namespace() == b.as_namespace();
  return (a.is_none() && b.is_none()) || (a.is_undefined() && b.is_undefined());
}

Result<bool> less(std::string_view op, const Value& a, const Value& b) {
  if (a.is_number() && b.is_number()) {
    int64_t x = 0;
    int64_t y = 0;
    if (a.integer_value(x) && b.integer_value(y)) return x < y;
    return a.real_value() < b.real_value();
  }
  if (a.as_text() && b.as_text()) return a.as_text()->text < b.as_text()->text;
  if (a.as_list() && b.as_list()) {
    return error(Code::kUnsupported, "", "`{}` of lists", op);
  }
  return bad_operands(op, a, b);
}

Result<bool> contains(const Value& item, const Value& container, Budget& budget) {
  if (const Text* text = container.as_text()) {
    if (!item.as_text()) return bad_operands("in", item, container);
    PELLUCID_TRY(budget.charge(text->text.size()));
    return text->text.find(item.as_text()->text) != std::string::npos;
  }
  if (const List* list = container.as_list()) {
    for (const Value& other : list->items) {
      PELLUCID_ASSIGN(const bool same, equal(item, other, budget));
      if (same) return true;
    }
    return false;
  }
  if (const Dict* dict = container.as_dict()) {
    PELLUCID_TRY(budget.charge(dict->items.size()));
    return item.as_text() && dict->find(item.as_text()->text) != nullptr;
  }
  if (container.is_undefined()) return false;
  return bad_operands("in", item, container);
}

}  // namespace

Result<Value> arithmetic(std::string_view op, const Value& a, const Value& b, Budget& budget) {
  if (op == "~") {
    PELLUCID_ASSIGN(Text left, to_text(a));
    PELLUCID_ASSIGN(const Text right, to_text(b));
    PELLUCID_TRY(budget.charge(left.text.size() + right.text.size() +
                               (left.marks.size() + right.marks.size()) * sizeof(Mark)));
    append(left, right);
    return Value::string(std::move(left));
  }
  if (a.is_number() && b.is_number()) {
    if ((op == "/" || op == "//" || op == "%") && b.real_value() == 0) {
      return error(Code::kInvalidArgument, "", "division by zero");
    }
    int64_t x = 0;
    int64_t y = 0;
    const bool whole = a.integer_value(x) && b.integer_value(y);
    if (whole && op != "/" && !(op == "**" && y < 0)) return integers(op, x, y);
    if (op == "**" && a.real_value() < 0 && std::floor(b.real_value()) != b.real_value()) {
      return error(Code::kUnsupported, "", "a complex number");
    }
    if (op == "**" && a.real_value() == 0 && b.real_value() < 0) {
      return error(Code::kInvalidArgument, "", "division by zero");
    }
    return Value::real(reals(op, a.real_value(), b.real_value()));
  }
  const bool texts = a.as_text() && b.as_text();
  const bool lists = a.as_list() && b.as_list() && a.as_list()->tuple == b.as_list()->tuple;
  if (op == "+" && (texts || lists)) return add_sequences(a, b, budget);
  int64_t times = 0;
  if (op == "*" && (a.as_text() || a.as_list()) && b.integer_value(times))
    return repeat(a, times, budget);
  if (op == "*" && (b.as_text() || b.as_list()) && a.integer_value(times))
    return repeat(b, times, budget);
  if (op == "%" && a.as_text()) {
    return error(Code::kUnsupported, "use `~` to join strings", "`%` on a string");
  }
  return bad_operands(op, a, b);
}

Result<bool> compare(std::string_view op, const Value& a, const Value& b, Budget& budget) {
  if (a.depth() > kDepthMax || b.depth() > kDepthMax) {
    return error(Code::kOverBudget, "", "a list nested more than {} deep", kDepthMax);
  }
  if (op == "==" || op == "!=") {
    PELLUCID_ASSIGN(const bool same, equal(a, b, budget));
    return same == (op == "==");
  }
  if (op == "in" || op == "not in") {
    PELLUCID_ASSIGN(const bool inside, contains(a, b, budget));
    return inside == (op == "in");
  }
  if (op == "<") return less(op, a, b);
  if (op == ">") return less(op, b, a);
  // Not the negation of the opposite: nothing compares with NaN.
  PELLUCID_ASSIGN(const bool smaller, op == "<=" ? less(op, a, b) : less(op, b, a));
  PELLUCID_ASSIGN(const bool same, equal(a, b, budget));
  return smaller || same;
}

Result<Text> to_text(const Value& value) {
  if (const Text* text = value.as_text()) return *text;
  if (value.is_undefined()) return Text{};
  if (value.is_none()) return Text{"None", {}};
  if (const bool* b = value.as_bool()) return Text{*b ? "True" : "False", {}};
  if (const int64_t* i = value.as_integer()) return Text{fmt::format("{}", *i), {}};
  if (const double* d = value.as_real()) return Text{real_to_string(*d), {}};
  return error(Code::kUnsupported, "print its parts, or use the filter `tojson`", "printing a {}",
               value.type_name());
}

Result<std::vector<Value>> to_items(const Value& value, Budget& budget) {
  std::vector<Value> items;
  if (const List* list = value.as_list()) {
    PELLUCID_TRY(budget.charge(list->items.size() * sizeof(Value)));
    return list->items;
  }
  if (const Dict* dict = value.as_dict()) {
    PELLUCID_TRY(budget.charge(dict->items.size() * sizeof(Value)));
    for (const auto& [key, item] : dict->items) items.push_back(Value::string(key));
    return items;
  }
  if (const Text* text = value.as_text()) {
    PELLUCID_TRY(budget.charge(text->text.size() * (sizeof(Value) + 64)));
    for (size_t at = 0; at < text->text.size();) {
      const size_t size = utf8_size_at(text->text, at);
      PELLUCID_TRY(budget.charge(text->marks.size()));
      items.push_back(Value::string(substring(*text, at, at + size)));
      at += size;
    }
    return items;
  }
  if (value.is_undefined()) return items;
  return error(Code::kInvalidArgument, "", "{} cannot be iterated over", value.type_name());
}

}  // namespace pellucid::text::jinja
