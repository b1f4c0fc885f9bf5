#pragma once
// Values of templates: Python's, as far as templates use them.
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace pellucid::text::jinja {

/// Bytes [begin, end) of a string come from the content of this message.
struct Mark {
  size_t message;
  size_t begin;
  size_t end;
};

/// A string that remembers which parts of it came from where.
struct Text {
  std::string text;
  std::vector<Mark> marks;
};
void append(Text& to, const Text& from);
Text substring(const Text& text, size_t begin, size_t end);

class Value;
struct List;
struct Dict;
struct Namespace;

struct Undefined {
  std::string name;
};
struct None {};

/// Cheap to copy. Only a Namespace can change after it is made, and it can neither hold another
/// nor be held by a list or dict, so values never form a cycle.
class Value {
 public:
  using Data = std::variant<Undefined, None, bool, int64_t, double, std::shared_ptr<const Text>,
                            std::shared_ptr<const List>, std::shared_ptr<const Dict>,
                            std::shared_ptr<Namespace>>;

  Value() = default;                            // undefined, without a name
  Value(Data data) : data_(std::move(data)) {}  // NOLINT: implicit by design
  static Value undefined(std::string name) { return Value(Data(Undefined{std::move(name)})); }
  static Value none() { return Value(Data(None{})); }
  static Value boolean(bool b) { return Value(Data(b)); }
  static Value integer(int64_t i) { return Value(Data(i)); }
  static Value real(double d) { return Value(Data(d)); }
  static Value string(Text text) {
    return Value(Data(std::make_shared<const Text>(std::move(text))));
  }
  static Value string(std::string_view text) { return string(Text{std::string(text), {}}); }
  static Value list(std::vector<Value> items, bool tuple = false);
  static Value dict(std::vector<std::pair<std::string, Value>> items);

  bool is_undefined() const { return std::holds_alternative<Undefined>(data_); }
  bool is_none() const { return std::holds_alternative<None>(data_); }
  const std::string& undefined_name() const { return std::get<Undefined>(data_).name; }
  const bool* as_bool() const { return std::get_if<bool>(&data_); }
  /// Null unless it is that type. A bool is no integer here; see `number`.
  const int64_t* as_integer() const { return std::get_if<int64_t>(&data_); }
  const double* as_real() const { return std::get_if<double>(&data_); }
  const Text* as_text() const { return get<const Text>(); }
  const List* as_list() const { return get<const List>(); }
  const Dict* as_dict() const { return get<const Dict>(); }
  Namespace* as_namespace() const { return get<Namespace>(); }

  bool is_number() const { return as_bool() || as_integer() || as_real(); }
  /// Python's bools count as 0 and 1. False unless an integer or bool.
  bool integer_value(int64_t& out) const;
  double real_value() const;  // only when is_number()

  bool truthy() const;
  std::string_view type_name() const;  // Python's
  /// How deep lists and dicts nest in it.
  int depth() const;

 private:
  template <typename T>
  T* get() const {
    const auto* held = std::get_if<std::shared_ptr<T>>(&data_);
    return held == nullptr ? nullptr : held->get();
  }
  Data data_;
};

struct List {
  std::vector<Value> items;
  bool tuple = false;
  int depth = 1;
};

/// In order of insertion; keys are strings (others are refused).
struct Dict {
  std::vector<std::pair<std::string, Value>> items;
  int depth = 1;
  const Value* find(std::string_view key) const;
};

struct Namespace {
  std::map<std::string, Value> values;
};

/// Python's repr of a float.
std::string real_to_string(double value);

/// str.isspace and the `\s` of Python's patterns.
bool is_python_space(char32_t c);
/// The first and one past the last byte that str.strip() keeps.
std::pair<size_t, size_t> strip_bounds(std::string_view text, bool left, bool right);

}  // namespace pellucid::text::jinja
