#include "text/jinja/interpreter.h"

#include <algorithm>
#include <map>
#include <optional>

#include "text/jinja/builtins.h"
#include "text/jinja/lexer.h"
#include "text/utf8.h"

namespace pellucid::text::jinja {
namespace {

constexpr int kValueDepthMax = 100;
using Kind = Expression::Kind;
enum class Flow { kNext, kBreak, kContinue };

class Interpreter {
 public:
  explicit Interpreter(std::vector<std::pair<std::string, Value>> variables) {
    scopes_.emplace_back();
    for (auto& [name, value] : variables) scopes_.back()[name] = std::move(value);
  }

  Result<Text> run(const Template& source) {
    PELLUCID_ASSIGN(const Flow flow, run(source.body));
    (void)flow;  // the parser lets no `break` outside a loop
    return std::move(output_);
  }

 private:
  // --- statements

  Result<Flow> run(const Block& block) {
    for (const Statement& statement : block) {
      auto flow = run(statement);
      if (!flow.ok()) return std::move(flow).status().at(at_line(statement.line));
      if (*flow != Flow::kNext) return *flow;
    }
    return Flow::kNext;
  }

  Result<Flow> run(const Statement& statement) {
    PELLUCID_TRY(budget_.step());
    switch (statement.kind) {
      case Statement::Kind::kData:
        PELLUCID_TRY(print(Text{statement.data, {}}));
        return Flow::kNext;
      case Statement::Kind::kOutput: {
        PELLUCID_ASSIGN(const Value value, eval(*statement.expression));
        PELLUCID_ASSIGN(const Text text, to_text(value));
        PELLUCID_TRY(print(text));
        return Flow::kNext;
      }
      case Statement::Kind::kFor:
        return loop(statement);
      case Statement::Kind::kIf:
        for (const auto& [condition, block] : statement.branches) {
          PELLUCID_ASSIGN(const Value value, eval(*condition));
          if (value.truthy()) return run(block);
        }
        return run(statement.otherwise);
      case Statement::Kind::kSet: {
        PELLUCID_ASSIGN(Value value, eval(*statement.expression));
        PELLUCID_TRY(assign(statement.target, std::move(value)));
        return Flow::kNext;
      }
      case Statement::Kind::kSetBlock: {
        Text outer = std::exchange(output_, {});
        scopes_.emplace_back();
        auto flow = run(statement.body);
        scopes_.pop_back();
        Text captured = std::exchange(output_, std::move(outer));
        PELLUCID_ASSIGN(const Flow inner, std::move(flow));
        PELLUCID_TRY(assign(statement.target, Value::string(std::move(captured))));
        return inner;
      }
      case Statement::Kind::kBreak:
        return Flow::kBreak;
      case Statement::Kind::kContinue:
        return Flow::kContinue;
    }
    return Flow::kNext;
  }

  Status print(const Text& text) {
    PELLUCID_TRY(budget_.charge(text.text.size() + text.marks.size() * sizeof(Mark)));
    append(output_, text);
    return ok_status();
  }

  Status assign(const Target& target, Value value) {
    if (!target.attribute.empty()) {
      Namespace* space = lookup(target.names[0]).as_namespace();
      if (space == nullptr) {
        return error(Code::kInvalidArgument, "only namespace() has attributes that can be set",
                     "`{}.{}` cannot be assigned to", target.names[0], target.attribute);
      }
      if (value.as_namespace())
        return error(Code::kUnsupported, "", "a namespace inside a namespace");
      space->values[target.attribute] = std::move(value);
      return ok_status();
    }
    if (target.names.size() == 1) {
      scopes_.back()[target.names[0]] = std::move(value);
      return ok_status();
    }
    PELLUCID_ASSIGN(std::vector<Value> items, to_items(value, budget_));
    if (items.size() != target.names.size()) {
      return error(Code::kInvalidArgument, "", "{} values for {} names", items.size(),
                   target.names.size());
    }
    for (size_t i = 0; i < items.size(); ++i) scopes_.back()[target.names[i]] = std::move(items[i]);
    return ok_status();
  }

  Result<Flow> loop(const Statement& statement) {
    PELLUCID_ASSIGN(const Value over, eval(*statement.expression));
    PELLUCID_ASSIGN(std::vector<Value> items, to_items(over, budget_));
    if (statement.filter != nullptr) {
      std::vector<Value> kept;
      for (Value& item : items) {
        PELLUCID_TRY(budget_.step());
        scopes_.emplace_back();
        Status assigned = assign(statement.target, item);
        auto keep = assigned.ok() ? eval(*statement.filter) : Result<Value>(std::move(assigned));
        scopes_.pop_back();
        PELLUCID_ASSIGN(const Value wanted, std::move(keep));
        if (wanted.truthy()) kept.push_back(std::move(item));
      }
      items = std::move(kept);
    }
    for (size_t i = 0; i < items.size(); ++i) {
      PELLUCID_TRY(budget_.step());
      scopes_.emplace_back();
      scopes_.back()["loop"] = loop_value(items, i);
      const Status assigned = assign(statement.target, items[i]);
      auto flow = assigned.ok() ? run(statement.body) : Result<Flow>(assigned);
      scopes_.pop_back();
      PELLUCID_ASSIGN(const Flow next, std::move(flow));
      if (next == Flow::kBreak) return Flow::kNext;
    }
    return items.empty() ? run(statement.otherwise) : Flow::kNext;
  }

  static Value loop_value(const std::vector<Value>& items, size_t i) {
    const auto integer = [](size_t n) { return Value::integer(static_cast<int64_t>(n)); };
    const size_t n = items.size();
    return Value::dict({
        {"index", integer(i + 1)},
        {"index0", integer(i)},
        {"revindex", integer(n - i)},
        {"revindex0", integer(n - i - 1)},
        {"first", Value::boolean(i == 0)},
        {"last", Value::boolean(i + 1 == n)},
        {"length", integer(n)},
        {"depth", integer(1)},
        {"depth0", integer(0)},
        {"previtem", i == 0 ? Value::undefined("loop.previtem") : items[i - 1]},
        {"nextitem", i + 1 == n ? Value::undefined("loop.nextitem") : items[i + 1]},
    });
  }

  // --- expressions

  Value lookup(const std::string& name) const {
    for (auto scope = scopes_.rbegin(); scope != scopes_.rend(); ++scope) {
      if (const auto found = scope->find(name); found != scope->end()) return found->second;
    }
    return Value::undefined(name);
  }

  Result<Value> eval(const Expression& node) {
    PELLUCID_TRY(budget_.step());
    auto value = eval_node(node);
    if (!value.ok()) return std::move(value).status().at(at_line(node.line));
    return value;
  }
  Result<Value> child(const Expression& node, size_t i) { return eval(*node.children[i]); }

  Result<std::vector<Value>> children(const Expression& node) {
    std::vector<Value> values;
    values.reserve(node.children.size());
    for (const ExpressionPtr& each : node.children) {
      PELLUCID_ASSIGN(Value value, eval(*each));
      values.push_back(std::move(value));
    }
    return values;
  }

  Result<Value> eval_node(const Expression& node) {
    switch (node.kind) {
      case Kind::kConstant:
        return node.value;
      case Kind::kName:
        return lookup(node.name);
      case Kind::kList:
      case Kind::kTuple:
        return list(node);
      case Kind::kDict:
        return dict(node);
      case Kind::kAttribute: {
        PELLUCID_ASSIGN(const Value object, child(node, 0));
        return attribute(object, node.name);
      }
      case Kind::kItem: {
        PELLUCID_ASSIGN(const Value object, child(node, 0));
        PELLUCID_ASSIGN(const Value key, child(node, 1));
        return item(object, key);
      }
      case Kind::kSlice:
        return slice(node);
      case Kind::kCall:
        return call(node);
      case Kind::kMethod: {
        PELLUCID_ASSIGN(const std::vector<Value> arguments, children(node));
        return run_method(node.name, arguments, budget_);
      }
      case Kind::kFilter: {
        PELLUCID_ASSIGN(const std::vector<Value> arguments, children(node));
        return run_filter(node.name, arguments, budget_);
      }
      case Kind::kTest: {
        PELLUCID_ASSIGN(const std::vector<Value> arguments, children(node));
        PELLUCID_ASSIGN(const bool holds, run_test(node.name, arguments, budget_));
        return Value::boolean(holds);
      }
      case Kind::kNot: {
        PELLUCID_ASSIGN(const Value operand, child(node, 0));
        return Value::boolean(!operand.truthy());
      }
      case Kind::kNegate:
      case Kind::kPlus: {
        PELLUCID_ASSIGN(const Value operand, child(node, 0));
        if (const double* d = operand.as_real())
          return Value::real(node.kind == Kind::kPlus ? *d : -*d);
        return arithmetic(node.kind == Kind::kPlus ? "+" : "-", Value::integer(0), operand,
                          budget_);
      }
      case Kind::kArithmetic: {
        PELLUCID_ASSIGN(const Value left, child(node, 0));
        PELLUCID_ASSIGN(const Value right, child(node, 1));
        return arithmetic(node.name, left, right, budget_);
      }
      case Kind::kCompare:
        return comparison(node);
      case Kind::kAnd:
      case Kind::kOr: {  // the value that decides, as in Python
        PELLUCID_ASSIGN(const Value left, child(node, 0));
        return left.truthy() == (node.kind == Kind::kOr) ? Result<Value>(left) : child(node, 1);
      }
      case Kind::kConditional: {
        PELLUCID_ASSIGN(const Value condition, child(node, 1));
        if (condition.truthy()) return child(node, 0);
        if (node.children[2] != nullptr) return child(node, 2);
        return Value::undefined("the missing else of an inline if");
      }
    }
    return error(Code::kInternal, "", "an unknown kind of expression");
  }

  static Status check_held(const std::vector<Value>& values) {
    for (const Value& value : values) {
      if (value.as_namespace())
        return error(Code::kUnsupported, "", "a namespace inside a list or dict");
      if (value.depth() >= kValueDepthMax) {
        return error(Code::kOverBudget, "", "lists nested more than {} deep", kValueDepthMax);
      }
    }
    return ok_status();
  }

  Result<Value> list(const Expression& node) {
    PELLUCID_TRY(budget_.charge(node.children.size() * sizeof(Value)));
    PELLUCID_ASSIGN(std::vector<Value> values, children(node));
    PELLUCID_TRY(check_held(values));
    return Value::list(std::move(values), node.kind == Kind::kTuple);
  }

  Result<Value> dict(const Expression& node) {
    const size_t count = node.children.size() / 2;
    PELLUCID_TRY(
        budget_.charge(count * sizeof(Value) + count * count));  // keys are compared one by one
    PELLUCID_ASSIGN(std::vector<Value> values, children(node));
    PELLUCID_TRY(check_held(values));
    std::vector<std::pair<std::string, Value>> items;
    for (size_t i = 0; i < count; ++i) {
      const Text* key = values[2 * i].as_text();
      if (key == nullptr) return error(Code::kUnsupported, "", "a dict key that is no string");
      items.emplace_back(key->text, std::move(values[2 * i + 1]));
    }
    return Value::dict(std::move(items));
  }

  // `object.name`: what Python finds there, else the item of that name, else undefined.
  static Result<Value> attribute(const Value& object, const std::string& name) {
    if (object.is_undefined()) {
      return error(Code::kInvalidArgument, "", "`{}` is undefined, so it has no `{}`",
                   object.undefined_name(), name);
    }
    if (const Namespace* space = object.as_namespace()) {
      const auto found = space->values.find(name);
      return found == space->values.end() ? Value::undefined(name) : found->second;
    }
    if (is_method(name) && (object.as_dict() || object.as_text())) {
      return error(Code::kUnsupported, "", "the method `{}` without a call", name);
    }
    const Value* found = object.as_dict() ? object.as_dict()->find(name) : nullptr;
    return found != nullptr ? *found : Value::undefined(name);
  }

  Result<Value> item(const Value& object, const Value& key) {
    if (object.is_undefined()) {
      return error(Code::kInvalidArgument, "", "`{}` is undefined, so it has no items",
                   object.undefined_name());
    }
    const Text* name = key.as_text();
    if (const Dict* dict = object.as_dict()) {
      const Value* found = name != nullptr ? dict->find(name->text) : nullptr;
      if (found != nullptr || name == nullptr)
        return found != nullptr ? *found : Value::undefined("item");
    }
    if (name != nullptr) return attribute(object, name->text);
    int64_t index = 0;
    if (!key.integer_value(index)) return Value::undefined("item");
    if (const List* list = object.as_list()) {
      const auto size = static_cast<int64_t>(list->items.size());
      if (index < 0) index += size;
      if (index < 0 || index >= size) return Value::undefined("item beyond the end");
      return list->items[static_cast<size_t>(index)];
    }
    if (const Text* text = object.as_text()) {
      PELLUCID_ASSIGN(const std::vector<size_t> places, characters(*text));
      const auto size = static_cast<int64_t>(places.size()) - 1;
      if (index < 0) index += size;
      if (index < 0 || index >= size) return Value::undefined("character beyond the end");
      const auto at = static_cast<size_t>(index);
      return Value::string(substring(*text, places[at], places[at + 1]));
    }
    return Value::undefined("item");
  }

  Result<Value> slice(const Expression& node) {
    PELLUCID_ASSIGN(const Value object, child(node, 0));
    std::optional<int64_t> bounds[3];
    for (size_t i = 0; i < 3; ++i) {
      if (node.children[i + 1] == nullptr) continue;
      PELLUCID_ASSIGN(const Value bound, child(node, i + 1));
      int64_t value = 0;
      if (bound.is_none()) continue;
      if (!bound.integer_value(value)) {
        return error(Code::kInvalidArgument, "", "a slice bound that is {}", bound.type_name());
      }
      bounds[i] = value;
    }
    if (!object.as_list() && !object.as_text()) {
      return object.is_undefined()
                 ? error(Code::kInvalidArgument, "", "`{}` is undefined", object.undefined_name())
                 : error(Code::kInvalidArgument, "", "{} cannot be sliced", object.type_name());
    }
    const int64_t step = bounds[2].value_or(1);
    if (step == 0) return error(Code::kInvalidArgument, "", "a slice with step 0");
    std::vector<size_t> places;
    if (object.as_text()) {
      PELLUCID_ASSIGN(places, characters(*object.as_text()));
    }
    const auto size =
        static_cast<int64_t>(object.as_text() ? places.size() - 1 : object.as_list()->items.size());
    const int64_t low = step > 0 ? 0 : -1;
    const int64_t high = step > 0 ? size : size - 1;
    const auto place = [&](std::optional<int64_t> bound, int64_t otherwise) {
      if (!bound) return otherwise;
      return std::clamp(*bound < 0 ? *bound + size : *bound, low, high);
    };
    const int64_t begin = place(bounds[0], step > 0 ? low : high);
    const int64_t end = place(bounds[1], step > 0 ? high : low);
    if (object.as_text() && step == 1) {
      return Value::string(substring(*object.as_text(), places[static_cast<size_t>(begin)],
                                     places[static_cast<size_t>(std::max(begin, end))]));
    }
    Text text;
    std::vector<Value> items;
    for (int64_t i = begin; step > 0 ? i < end : i > end;) {
      PELLUCID_TRY(budget_.charge(sizeof(Value)));
      const auto at = static_cast<size_t>(i);
      if (object.as_text()) {
        text.text.append(object.as_text()->text, places[at], places[at + 1] - places[at]);
      } else {
        items.push_back(object.as_list()->items[at]);
      }
      if (__builtin_add_overflow(i, step, &i)) break;
    }
    if (object.as_text()) return Value::string(std::move(text));
    return Value::list(std::move(items), object.as_list()->tuple);
  }

  // Where each character of the string begins, and the end.
  Result<std::vector<size_t>> characters(const Text& text) {
    PELLUCID_TRY(budget_.charge(text.text.size() * sizeof(size_t)));
    std::vector<size_t> places;
    for (size_t at = 0; at < text.text.size(); at += utf8_size_at(text.text, at))
      places.push_back(at);
    places.push_back(text.text.size());
    return places;
  }

  Result<Value> call(const Expression& node) {
    if (!lookup(node.name).is_undefined()) {
      return error(Code::kInvalidArgument, "", "`{}` is a variable here and cannot be called",
                   node.name);
    }
    PELLUCID_ASSIGN(const std::vector<Value> arguments, children(node));
    PELLUCID_ASSIGN(Value result, run_function(node.name, arguments, budget_));
    for (const auto& [name, expression] :
         node.keywords) {  // of namespace(), the parser saw to that
      PELLUCID_ASSIGN(Value value, eval(*expression));
      if (value.as_namespace())
        return error(Code::kUnsupported, "", "a namespace inside a namespace");
      result.as_namespace()->values[name] = std::move(value);
    }
    return result;
  }

  Result<Value> comparison(const Expression& node) {
    PELLUCID_ASSIGN(Value left, child(node, 0));
    for (size_t i = 0; i < node.operators.size(); ++i) {  // a < b < c: and, each evaluated once
      PELLUCID_ASSIGN(Value right, child(node, i + 1));
      PELLUCID_ASSIGN(const bool holds, compare(node.operators[i], left, right, budget_));
      if (!holds) return Value::boolean(false);
      left = std::move(right);
    }
    return Value::boolean(true);
  }

  std::vector<std::map<std::string, Value>> scopes_;
  Text output_;
  Budget budget_;
};

}  // namespace

Result<Text> run(const Template& source, std::vector<std::pair<std::string, Value>> variables) {
  return Interpreter(std::move(variables)).run(source);
}

}  // namespace pellucid::text::jinja
