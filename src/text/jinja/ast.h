#pragma once
// Templates as trees. Depth is bounded by the parser, so walking and freeing may recurse.
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "text/jinja/value.h"

namespace pellucid::text::jinja {

struct Expression;
using ExpressionPtr = std::unique_ptr<Expression>;

struct Expression {
  enum class Kind {
    kConstant,     // value
    kName,         // name
    kList,         // children
    kTuple,        // children
    kDict,         // children: key, value, key, value, ...
    kAttribute,    // children[0] . name
    kItem,         // children[0] [ children[1] ]
    kSlice,        // children[0] [ children[1] : children[2] : children[3] ], each may be null
    kCall,         // name ( children, keywords )
    kMethod,       // children[0] . name ( the rest )
    kFilter,       // children[0] | name ( the rest )
    kTest,         // children[0] is name ( the rest )
    kNot,          // children[0]
    kNegate,       // children[0]
    kPlus,         // children[0]
    kArithmetic,   // children[0] name children[1]; name: + - * / // % ** ~
    kCompare,      // children[0] operators[0] children[1] operators[1] children[2] ...
    kAnd,          // children[0], children[1]
    kOr,           // children[0], children[1]
    kConditional,  // children[0] if children[1] else children[2] (may be null)
  };

  Kind kind;
  int line = 0;
  int depth = 1;
  std::string name;
  Value value;
  std::vector<ExpressionPtr> children;
  std::vector<std::pair<std::string, ExpressionPtr>> keywords;
  std::vector<std::string> operators;  // of kCompare; "not in" is one
};

/// What `for` and `set` assign to: names, or `name.attribute` of a namespace.
struct Target {
  std::vector<std::string> names;  // several: unpacks
  std::string attribute;           // with exactly one name
};

struct Statement;
using Block = std::vector<Statement>;

struct Statement {
  enum class Kind { kData, kOutput, kFor, kIf, kSet, kSetBlock, kBreak, kContinue };

  Kind kind;
  int line = 0;
  std::string data = {};          // kData
  ExpressionPtr expression = {};  // kOutput, kSet: the value; kFor: what is iterated
  ExpressionPtr filter = {};      // kFor: `if`, may be null
  Target target = {};             // kFor, kSet, kSetBlock
  Block body = {};                // kFor, kSetBlock
  Block otherwise = {};           // kFor, kIf: `else`
  std::vector<std::pair<ExpressionPtr, Block>> branches = {};  // kIf: if, elif, ...
};

struct Template {
  Block body;
};

}  // namespace pellucid::text::jinja
