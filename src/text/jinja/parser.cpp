#include "text/jinja/parser.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <initializer_list>

#include "base/nearest.h"
#include "text/jinja/builtins.h"
#include "text/jinja/lexer.h"

namespace pellucid::text::jinja {
namespace {

// Deeper than any honest template; shallow enough that walking a tree never runs out of stack.
constexpr int kNestingMax = 64;
constexpr int kTreeDepthMax = 256;
constexpr size_t kSourceBytesMax = 1 << 20;

using Kind = Expression::Kind;

class Parser {
 public:
  explicit Parser(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

  Result<Template> run() {
    Template result;
    PELLUCID_ASSIGN(result.body, body({}));
    return result;
  }

 private:
  // --- tokens

  const Token& here() const { return tokens_[at_]; }
  Token take() { return tokens_[at_ + 1 < tokens_.size() ? at_++ : at_]; }
  bool is(TokenKind kind, std::string_view text) const {
    return here().kind == kind && here().text == text;
  }
  bool is_op(std::string_view text) const { return is(TokenKind::kOperator, text); }
  bool is_word(std::string_view text) const { return is(TokenKind::kName, text); }
  bool skip_op(std::string_view text) { return is_op(text) && (take(), true); }
  bool skip_word(std::string_view text) { return is_word(text) && (take(), true); }

  Status invalid(std::string what, int line) const {
    return error(Code::kInvalidArgument, "the chat template is malformed", "{}", what)
        .at(at_line(line));
  }
  Status unsupported(std::string what, std::string hint = "") const {
    if (hint.empty()) hint = "this chat template is not supported yet";
    return error(Code::kUnsupported, std::move(hint), "{}", what).at(at_line(here().line));
  }
  Status unexpected(std::string_view wanted) const {
    static constexpr std::string_view kNames[] = {"text", "{{", "}}", "{%", "%}"};
    const auto kind = static_cast<size_t>(here().kind);
    const std::string found = kind < std::size(kNames)         ? std::string(kNames[kind])
                              : here().kind == TokenKind::kEnd ? "the end"
                                                               : here().text.substr(0, 60);
    return invalid(fmt::format("expected {}, found `{}`", wanted, found), here().line);
  }
  Status expect_op(std::string_view text) {
    return skip_op(text) ? ok_status() : unexpected(fmt::format("`{}`", text));
  }
  Status expect(TokenKind kind, std::string_view name) {
    if (here().kind != kind) return unexpected(name);
    take();
    return ok_status();
  }

  // Counts how deep the parser itself is; every recursive rule holds one.
  struct Nesting {
    explicit Nesting(int& depth) : depth_(depth) { ++depth_; }
    ~Nesting() { --depth_; }
    int& depth_;
  };
  Status too_deep() const {
    return error(Code::kOverBudget, "", "the chat template nests too deep")
        .at(at_line(here().line));
  }

  // --- statements

  // Up to a block tag whose word is in `ends`; that word is the current token then.
  Result<Block> body(std::initializer_list<std::string_view> ends) {
    const Nesting nesting(nesting_);
    if (nesting_ > kNestingMax) return too_deep();
    Block block;
    while (here().kind != TokenKind::kEnd) {
      const int line = here().line;
      if (here().kind == TokenKind::kData) {
        Statement data{.kind = Statement::Kind::kData, .line = line};
        data.data = take().text;
        block.push_back(std::move(data));
      } else if (here().kind == TokenKind::kVariableBegin) {
        take();
        Statement output{.kind = Statement::Kind::kOutput, .line = line};
        PELLUCID_ASSIGN(output.expression, tuple_or_one(true));
        PELLUCID_TRY(expect(TokenKind::kVariableEnd, "`}}`"));
        block.push_back(std::move(output));
      } else {
        PELLUCID_TRY(expect(TokenKind::kBlockBegin, "a tag"));
        if (here().kind != TokenKind::kName) return unexpected("the name of a tag");
        if (std::find(ends.begin(), ends.end(), here().text) != ends.end()) return block;
        PELLUCID_ASSIGN(Statement statement, tag());
        block.push_back(std::move(statement));
      }
    }
    if (ends.size() != 0) return unexpected(fmt::format("`{}`", *(ends.end() - 1)));
    return block;
  }

  Result<Statement> tag() {
    if (is_word("for")) return for_tag();
    if (is_word("if")) return if_tag();
    if (is_word("set")) return set_tag();
    if (is_word("break") || is_word("continue")) {
      if (loops_ == 0) return invalid(fmt::format("`{}` outside a loop", here().text), here().line);
      Statement jump{
          .kind = is_word("break") ? Statement::Kind::kBreak : Statement::Kind::kContinue,
          .line = take().line};
      PELLUCID_TRY(expect(TokenKind::kBlockEnd, "`%}`"));
      return jump;
    }
    if (here().text.starts_with("end") || is_word("else") || is_word("elif")) {
      return invalid(fmt::format("`{}` without its beginning", here().text), here().line);
    }
    return unsupported(fmt::format("tag `{}`", here().text));
  }

  Result<Statement> for_tag() {
    Statement loop{.kind = Statement::Kind::kFor, .line = take().line};
    PELLUCID_ASSIGN(loop.target, target(false));
    if (!skip_word("in")) return unexpected("`in`");
    PELLUCID_ASSIGN(loop.expression, tuple_or_one(false));
    if (skip_word("if")) {
      PELLUCID_ASSIGN(loop.filter, conditional());
    }
    if (is_word("recursive")) return unsupported("`recursive` loops");
    PELLUCID_TRY(expect(TokenKind::kBlockEnd, "`%}`"));
    ++loops_;
    auto inner = body({"else", "endfor"});
    --loops_;
    PELLUCID_ASSIGN(loop.body, std::move(inner));
    if (skip_word("else")) {
      PELLUCID_TRY(expect(TokenKind::kBlockEnd, "`%}`"));
      PELLUCID_ASSIGN(loop.otherwise, body({"endfor"}));
    }
    take();
    PELLUCID_TRY(expect(TokenKind::kBlockEnd, "`%}`"));
    return loop;
  }

  Result<Statement> if_tag() {
    Statement choice{.kind = Statement::Kind::kIf, .line = here().line};
    do {
      take();
      PELLUCID_ASSIGN(ExpressionPtr condition, tuple_or_one(false));
      PELLUCID_TRY(expect(TokenKind::kBlockEnd, "`%}`"));
      PELLUCID_ASSIGN(Block block, body({"elif", "else", "endif"}));
      choice.branches.emplace_back(std::move(condition), std::move(block));
    } while (is_word("elif"));
    if (skip_word("else")) {
      PELLUCID_TRY(expect(TokenKind::kBlockEnd, "`%}`"));
      PELLUCID_ASSIGN(choice.otherwise, body({"endif"}));
    }
    take();
    PELLUCID_TRY(expect(TokenKind::kBlockEnd, "`%}`"));
    return choice;
  }

  Result<Statement> set_tag() {
    Statement set{.kind = Statement::Kind::kSet, .line = take().line};
    PELLUCID_ASSIGN(set.target, target(true));
    if (skip_op("=")) {
      PELLUCID_ASSIGN(set.expression, tuple_or_one(true));
      PELLUCID_TRY(expect(TokenKind::kBlockEnd, "`%}`"));
      return set;
    }
    if (is_op("|")) return unsupported("a filter on a `set` block");
    if (set.target.names.size() != 1) return unexpected("`=`");
    set.kind = Statement::Kind::kSetBlock;
    PELLUCID_TRY(expect(TokenKind::kBlockEnd, "`=` or `%}`"));
    // A `break` in there would leave the capture open.
    const int loops = std::exchange(loops_, 0);
    auto inner = body({"endset"});
    loops_ = loops;
    PELLUCID_ASSIGN(set.body, std::move(inner));
    take();
    PELLUCID_TRY(expect(TokenKind::kBlockEnd, "`%}`"));
    return set;
  }

  Result<Target> target(bool with_attribute) {
    Target result;
    const bool parenthesis = skip_op("(");
    do {
      if (here().kind != TokenKind::kName || is_word("in"))
        return unexpected("a name to assign to");
      static constexpr std::string_view kReserved[] = {"true", "false", "none",
                                                       "True", "False", "None"};
      if (std::find(std::begin(kReserved), std::end(kReserved), here().text) !=
          std::end(kReserved)) {
        return unexpected("a name to assign to");
      }
      result.names.push_back(take().text);
    } while (skip_op(","));
    if (parenthesis) PELLUCID_TRY(expect_op(")"));
    if (with_attribute && result.names.size() == 1 && skip_op(".")) {
      PELLUCID_ASSIGN(result.attribute, attribute_name());
    }
    return result;
  }

  // --- expressions, loosest binding first

  Result<ExpressionPtr> make(Kind kind, int line, std::vector<ExpressionPtr> children,
                             std::string name = "") {
    auto node = std::make_unique<Expression>();
    node->kind = kind;
    node->line = line;
    node->name = std::move(name);
    for (const ExpressionPtr& child : children) {
      if (child != nullptr) node->depth = std::max(node->depth, child->depth + 1);
    }
    if (node->depth > kTreeDepthMax) return too_deep();
    node->children = std::move(children);
    return node;
  }
  static std::vector<ExpressionPtr> list_of(ExpressionPtr a, ExpressionPtr b = nullptr) {
    std::vector<ExpressionPtr> out;
    out.push_back(std::move(a));
    if (b != nullptr) out.push_back(std::move(b));
    return out;
  }

  // `a, b` is a tuple, also without parentheses.
  Result<ExpressionPtr> tuple_or_one(bool with_conditional) {
    const int line = here().line;
    const auto part = [&] { return with_conditional ? conditional() : or_rule(); };
    PELLUCID_ASSIGN(ExpressionPtr first, part());
    if (!is_op(",")) return first;
    std::vector<ExpressionPtr> items = list_of(std::move(first));
    while (skip_op(",")) {
      if (here().kind == TokenKind::kVariableEnd || here().kind == TokenKind::kBlockEnd) break;
      PELLUCID_ASSIGN(ExpressionPtr item, part());
      items.push_back(std::move(item));
    }
    return make(Kind::kTuple, line, std::move(items));
  }

  Result<ExpressionPtr> conditional() {
    const Nesting nesting(nesting_);
    if (nesting_ > kNestingMax) return too_deep();
    PELLUCID_ASSIGN(ExpressionPtr value, or_rule());
    while (is_word("if")) {
      const int line = take().line;
      PELLUCID_ASSIGN(ExpressionPtr condition, or_rule());
      ExpressionPtr otherwise;
      if (skip_word("else")) {
        PELLUCID_ASSIGN(otherwise, conditional());
      }
      std::vector<ExpressionPtr> parts = list_of(std::move(value), std::move(condition));
      parts.push_back(std::move(otherwise));
      PELLUCID_ASSIGN(value, make(Kind::kConditional, line, std::move(parts)));
    }
    return value;
  }

  Result<ExpressionPtr> or_rule() {
    const Nesting nesting(nesting_);
    if (nesting_ > kNestingMax) return too_deep();
    PELLUCID_ASSIGN(ExpressionPtr left, and_rule());
    while (is_word("or")) {
      const int line = take().line;
      PELLUCID_ASSIGN(ExpressionPtr right, and_rule());
      PELLUCID_ASSIGN(left, make(Kind::kOr, line, list_of(std::move(left), std::move(right))));
    }
    return left;
  }

  Result<ExpressionPtr> and_rule() {
    PELLUCID_ASSIGN(ExpressionPtr left, not_rule());
    while (is_word("and")) {
      const int line = take().line;
      PELLUCID_ASSIGN(ExpressionPtr right, not_rule());
      PELLUCID_ASSIGN(left, make(Kind::kAnd, line, list_of(std::move(left), std::move(right))));
    }
    return left;
  }

  Result<ExpressionPtr> not_rule() {
    if (!is_word("not")) return comparison();
    const Nesting nesting(nesting_);
    if (nesting_ > kNestingMax) return too_deep();
    const int line = take().line;
    PELLUCID_ASSIGN(ExpressionPtr operand, not_rule());
    return make(Kind::kNot, line, list_of(std::move(operand)));
  }

  // A comparison operator at the current place, consumed; "" when there is none.
  std::string comparison_operator() {
    static constexpr std::string_view kOperators[] = {"==", "!=", "<", "<=", ">", ">="};
    for (const std::string_view op : kOperators) {
      if (is_op(op)) return take().text;
    }
    if (skip_word("in")) return "in";
    if (is_word("not") && at_ + 1 < tokens_.size() && tokens_[at_ + 1].kind == TokenKind::kName &&
        tokens_[at_ + 1].text == "in") {
      take();
      take();
      return "not in";
    }
    return "";
  }

  Result<ExpressionPtr> comparison() {
    const int line = here().line;
    PELLUCID_ASSIGN(ExpressionPtr first, sum());
    std::vector<ExpressionPtr> operands;
    std::vector<std::string> operators;
    for (std::string op = comparison_operator(); !op.empty(); op = comparison_operator()) {
      if (operands.empty()) operands.push_back(std::move(first));
      operators.push_back(std::move(op));
      PELLUCID_ASSIGN(ExpressionPtr operand, sum());
      operands.push_back(std::move(operand));
    }
    if (operands.empty()) return first;
    PELLUCID_ASSIGN(ExpressionPtr node, make(Kind::kCompare, line, std::move(operands)));
    node->operators = std::move(operators);
    return node;
  }

  // Left-associative operators of one strength.
  template <typename Next>
  Result<ExpressionPtr> chain(std::initializer_list<std::string_view> operators, Next next) {
    PELLUCID_ASSIGN(ExpressionPtr left, next());
    while (here().kind == TokenKind::kOperator &&
           std::find(operators.begin(), operators.end(), here().text) != operators.end()) {
      const Token op = take();
      PELLUCID_ASSIGN(ExpressionPtr right, next());
      PELLUCID_ASSIGN(left, make(Kind::kArithmetic, op.line,
                                 list_of(std::move(left), std::move(right)), op.text));
    }
    return left;
  }
  Result<ExpressionPtr> sum() {
    return chain({"+", "-"}, [&] { return concatenation(); });
  }
  Result<ExpressionPtr> concatenation() {
    return chain({"~"}, [&] { return product(); });
  }
  Result<ExpressionPtr> product() {
    return chain({"*", "/", "//", "%"}, [&] { return power(); });
  }
  Result<ExpressionPtr> power() {
    return chain({"**"}, [&] { return unary(true); });
  }

  Result<ExpressionPtr> unary(bool with_filters) {
    const int line = here().line;
    ExpressionPtr node;
    if (is_op("-") || is_op("+")) {
      const Nesting nesting(nesting_);
      if (nesting_ > kNestingMax) return too_deep();
      const Kind kind = take().text == "-" ? Kind::kNegate : Kind::kPlus;
      PELLUCID_ASSIGN(ExpressionPtr operand, unary(false));
      PELLUCID_ASSIGN(node, make(kind, line, list_of(std::move(operand))));
    } else {
      PELLUCID_ASSIGN(node, primary());
    }
    PELLUCID_ASSIGN(node, postfix(std::move(node)));
    return with_filters ? filters(std::move(node)) : Result<ExpressionPtr>(std::move(node));
  }

  Result<ExpressionPtr> constant(Value value, int line) {
    PELLUCID_ASSIGN(ExpressionPtr node, make(Kind::kConstant, line, {}));
    node->value = std::move(value);
    return node;
  }

  Result<ExpressionPtr> primary() {
    const int line = here().line;
    switch (here().kind) {
      case TokenKind::kName: {
        const std::string name = here().text;
        if (name == "true" || name == "True") return take(), constant(Value::boolean(true), line);
        if (name == "false" || name == "False")
          return take(), constant(Value::boolean(false), line);
        if (name == "none" || name == "None") return take(), constant(Value::none(), line);
        static constexpr std::string_view kGlobals[] = {"strftime_now", "lipsum", "cycler",
                                                        "joiner",       "dict",   "self"};
        if (std::find(std::begin(kGlobals), std::end(kGlobals), name) != std::end(kGlobals)) {
          return unsupported(fmt::format("`{}`", name));
        }
        take();
        if (name == "loop" && !is_op("."))
          return unsupported("`loop` other than as `loop.index` and the like");
        return make(Kind::kName, line, {}, name);
      }
      case TokenKind::kString: {
        std::string text = take().text;
        while (here().kind == TokenKind::kString) text += take().text;  // as in Python
        return constant(Value::string(text), line);
      }
      case TokenKind::kInteger: {
        const std::string digits = here().text;
        int64_t value = 0;
        if (std::from_chars(digits.data(), digits.data() + digits.size(), value).ec !=
            std::errc()) {
          return unsupported(fmt::format("the integer {}", digits.substr(0, 60)));
        }
        take();
        return constant(Value::integer(value), line);
      }
      case TokenKind::kReal: {
        const std::string digits = take().text;
        double value = 0;
        std::from_chars(digits.data(), digits.data() + digits.size(), value);
        return constant(Value::real(value), line);
      }
      default:
        break;
    }
    if (skip_op("(")) return parenthesis(line);
    if (skip_op("[")) {
      PELLUCID_ASSIGN(std::vector<ExpressionPtr> items, items_until("]"));
      return make(Kind::kList, line, std::move(items));
    }
    if (skip_op("{")) return dict(line);
    return unexpected("a value");
  }

  Result<ExpressionPtr> parenthesis(int line) {
    if (skip_op(")")) return make(Kind::kTuple, line, {});
    PELLUCID_ASSIGN(ExpressionPtr first, conditional());
    if (skip_op(")")) return first;
    PELLUCID_TRY(expect_op(","));
    PELLUCID_ASSIGN(std::vector<ExpressionPtr> rest, items_until(")"));
    rest.insert(rest.begin(), std::move(first));
    return make(Kind::kTuple, line, std::move(rest));
  }

  Result<std::vector<ExpressionPtr>> items_until(std::string_view close) {
    std::vector<ExpressionPtr> items;
    while (!skip_op(close)) {
      PELLUCID_ASSIGN(ExpressionPtr item, conditional());
      items.push_back(std::move(item));
      if (!is_op(close)) PELLUCID_TRY(expect_op(","));
    }
    return items;
  }

  Result<ExpressionPtr> dict(int line) {
    std::vector<ExpressionPtr> items;
    while (!skip_op("}")) {
      PELLUCID_ASSIGN(ExpressionPtr key, conditional());
      PELLUCID_TRY(expect_op(":"));
      PELLUCID_ASSIGN(ExpressionPtr value, conditional());
      items.push_back(std::move(key));
      items.push_back(std::move(value));
      if (!is_op("}")) PELLUCID_TRY(expect_op(","));
    }
    return make(Kind::kDict, line, std::move(items));
  }

  Result<std::string> attribute_name() {
    if (here().kind != TokenKind::kName) return unexpected("an attribute");
    if (here().text.starts_with('_')) {  // the sandbox of the reference refuses them too
      return unsupported(fmt::format("the attribute `{}`", here().text));
    }
    return take().text;
  }

  Result<ExpressionPtr> postfix(ExpressionPtr node) {
    while (true) {
      const int line = here().line;
      if (skip_op(".")) {
        if (here().kind == TokenKind::kInteger) {
          PELLUCID_ASSIGN(ExpressionPtr index, primary());
          PELLUCID_ASSIGN(node,
                          make(Kind::kItem, line, list_of(std::move(node), std::move(index))));
          continue;
        }
        PELLUCID_ASSIGN(const std::string name, attribute_name());
        PELLUCID_ASSIGN(node, make(Kind::kAttribute, line, list_of(std::move(node)), name));
      } else if (skip_op("[")) {
        PELLUCID_ASSIGN(node, subscript(std::move(node), line));
      } else if (is_op("(")) {
        PELLUCID_ASSIGN(node, call(std::move(node), line));
      } else {
        return node;
      }
    }
  }

  Result<ExpressionPtr> subscript(ExpressionPtr node, int line) {
    std::vector<ExpressionPtr> parts = list_of(std::move(node));
    size_t colons = 0;
    while (!is_op("]")) {
      if (is_op(":")) {
        if (parts.size() == colons + 1)
          parts.push_back(nullptr);  // the bound before it is left out
        take();
        if (++colons > 2) return unexpected("`]`");
      } else {
        if (parts.size() != colons + 1) return unexpected("`]` or `:`");
        PELLUCID_ASSIGN(ExpressionPtr part, conditional());
        parts.push_back(std::move(part));
      }
    }
    take();
    if (colons == 0) {
      if (parts.size() != 2) return unexpected("an index");
      return make(Kind::kItem, line, std::move(parts));
    }
    parts.resize(4);
    return make(Kind::kSlice, line, std::move(parts));
  }

  // `callee(...)`: a function by name, or a method.
  Result<ExpressionPtr> call(ExpressionPtr callee, int line) {
    if (callee->kind == Kind::kName) {
      if (!is_function(callee->name))
        return unsupported(fmt::format("function `{}`", callee->name));
      PELLUCID_ASSIGN(ExpressionPtr node, make(Kind::kCall, line, {}, callee->name));
      PELLUCID_TRY(arguments(*node, callee->name == "namespace"));
      return node;
    }
    if (callee->kind != Kind::kAttribute) return unsupported("a call of something without a name");
    const std::string name = callee->name;
    if (!is_method(name)) {
      return unsupported(fmt::format("method `{}`", name), did_you_mean(name, method_names()));
    }
    PELLUCID_ASSIGN(ExpressionPtr node,
                    make(Kind::kMethod, line, std::move(callee->children), name));
    PELLUCID_TRY(arguments(*node, false));
    return node;
  }

  Status arguments(Expression& node, bool keywords) {
    PELLUCID_TRY(expect_op("("));
    while (!skip_op(")")) {
      const bool keyword = here().kind == TokenKind::kName && at_ + 1 < tokens_.size() &&
                           tokens_[at_ + 1].kind == TokenKind::kOperator &&
                           tokens_[at_ + 1].text == "=";
      if (is_op("*") || is_op("**")) return unsupported("unpacked arguments");
      if (keyword && !keywords) {
        return unsupported(
            fmt::format("the keyword argument `{}` of `{}`", here().text, node.name));
      }
      if (keyword) {
        PELLUCID_ASSIGN(std::string name, attribute_name());
        take();
        PELLUCID_ASSIGN(ExpressionPtr value, conditional());
        node.depth = std::max(node.depth, value->depth + 1);
        node.keywords.emplace_back(std::move(name), std::move(value));
      } else {
        PELLUCID_ASSIGN(ExpressionPtr value, conditional());
        node.depth = std::max(node.depth, value->depth + 1);
        node.children.push_back(std::move(value));
      }
      if (node.depth > kTreeDepthMax) return too_deep();
      if (!is_op(")")) PELLUCID_TRY(expect_op(","));
    }
    return ok_status();
  }

  Result<ExpressionPtr> filters(ExpressionPtr node) {
    while (true) {
      const int line = here().line;
      if (skip_op("|")) {
        if (here().kind != TokenKind::kName) return unexpected("the name of a filter");
        const std::string name = here().text;
        if (!is_filter(name)) {
          return unsupported(fmt::format("filter `{}`", name), did_you_mean(name, filter_names()));
        }
        take();
        PELLUCID_ASSIGN(node, make(Kind::kFilter, line, list_of(std::move(node)), name));
        if (is_op("(")) PELLUCID_TRY(arguments(*node, false));
      } else if (is_word("is")) {
        PELLUCID_ASSIGN(node, test(std::move(node), line));
      } else if (is_op("(")) {
        return unsupported("a call of something without a name");
      } else {
        return node;
      }
    }
  }

  Result<ExpressionPtr> test(ExpressionPtr node, int line) {
    take();
    const bool negated = skip_word("not");
    if (here().kind != TokenKind::kName) return unexpected("the name of a test");
    const std::string name = here().text;
    if (!is_test(name)) {
      return unsupported(fmt::format("test `{}`", name), did_you_mean(name, test_names()));
    }
    take();
    PELLUCID_ASSIGN(node, make(Kind::kTest, line, list_of(std::move(node)), name));
    const bool operand = here().kind == TokenKind::kString || here().kind == TokenKind::kInteger ||
                         here().kind == TokenKind::kReal || is_op("[") || is_op("{") ||
                         (here().kind == TokenKind::kName && !is_word("else") && !is_word("or") &&
                          !is_word("and") && !is_word("if") && !is_word("in") && !is_word("not"));
    if (is_op("(")) {
      PELLUCID_TRY(arguments(*node, false));
    } else if (operand) {
      if (is_word("is")) return invalid("tests cannot be chained with `is`", line);
      PELLUCID_ASSIGN(ExpressionPtr argument, primary());
      PELLUCID_ASSIGN(argument, postfix(std::move(argument)));
      node->depth = std::max(node->depth, argument->depth + 1);
      node->children.push_back(std::move(argument));
    }
    return negated ? make(Kind::kNot, line, list_of(std::move(node)))
                   : Result<ExpressionPtr>(std::move(node));
  }

  std::vector<Token> tokens_;
  size_t at_ = 0;
  int nesting_ = 0;
  int loops_ = 0;
};

}  // namespace

Result<Template> parse(std::string_view source) {
  if (source.size() > kSourceBytesMax) {
    return error(Code::kOverBudget, "", "a chat template of {} bytes (limit {})", source.size(),
                 kSourceBytesMax);
  }
  PELLUCID_ASSIGN(std::vector<Token> tokens, tokenize(source));
  return Parser(std::move(tokens)).run();
}

}  // namespace pellucid::text::jinja
