#pragma once
// A value inside a trace: a place in a program that has not run yet. Methods do not compute; they
// add a line to the program, with PyTorch's meaning (views and in-place operations included).
//
// A Value belongs to one Trace; use both from one thread at a time. Copies are the same value.
// Methods throw Error "invalid_argument" for values of two traces or of a trace that has run;
// everything about shapes, dtypes and names is checked by Trace::run, before anything runs, with
// the line that asked for it.
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <source_location>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "pellucid/tensor.h"

namespace pellucid {

class Arg;
class Outputs;
class Trace;
struct TraceState;
using Where = std::source_location;

class Value {
 public:
  // Views: an in-place operation on one changes what it was taken from.
  Value select(int64_t dim, int64_t index, Where where = Where::current()) const;
  /// Elements [first, end) of a dimension, every `step`-th; negative ends count from the end.
  Value slice(int64_t dim, int64_t first, int64_t end, int64_t step = 1,
              Where where = Where::current()) const;
  Value narrow(int64_t dim, int64_t first, int64_t length, Where where = Where::current()) const;
  Value unsqueeze(int64_t dim, Where where = Where::current()) const;
  Value squeeze(int64_t dim, Where where = Where::current()) const;
  Value transpose(int64_t dim_a, int64_t dim_b, Where where = Where::current()) const;
  Value reshape(std::vector<int64_t> shape, Where where = Where::current()) const;
  Value expand(std::vector<int64_t> shape, Where where = Where::current()) const;

  // Elementwise. Other operands are values, tensors or numbers; they broadcast as in PyTorch.
  Value add(const Arg& other) const;
  Value sub(const Arg& other) const;
  Value mul(const Arg& other) const;
  Value div(const Arg& other) const;
  Value neg(Where where = Where::current()) const;
  Value abs(Where where = Where::current()) const;
  Value exp(Where where = Where::current()) const;
  Value log(Where where = Where::current()) const;
  Value sqrt(Where where = Where::current()) const;
  Value relu(Where where = Where::current()) const;
  Value silu(Where where = Where::current()) const;
  Value tanh(Where where = Where::current()) const;
  Value sigmoid(Where where = Where::current()) const;
  Value to(Dtype dtype, Where where = Where::current()) const;
  Value clone(Where where = Where::current()) const;

  // In place: on a value that was read, they edit the site. They return the value itself.
  Value add_(const Arg& other) const;
  Value sub_(const Arg& other) const;
  Value mul_(const Arg& other) const;
  Value div_(const Arg& other) const;
  Value copy_(const Arg& source) const;
  Value fill_(double number, Where where = Where::current()) const;
  Value zero_(Where where = Where::current()) const;

  // Along dimensions.
  Value matmul(const Arg& other) const;
  Value softmax(int64_t dim, Where where = Where::current()) const;
  Value log_softmax(int64_t dim, Where where = Where::current()) const;
  Value sum(std::vector<int64_t> dims, bool keep_dims = false,
            Where where = Where::current()) const;
  Value mean(std::vector<int64_t> dims, bool keep_dims = false,
             Where where = Where::current()) const;
  /// Euclidean norm along one dimension.
  Value norm(int64_t dim, bool keep_dim = false, Where where = Where::current()) const;
  Value argmax(int64_t dim, bool keep_dim = false, Where where = Where::current()) const;
  Value index_select(int64_t dim, const Arg& index) const;
  Value gather(int64_t dim, const Arg& index) const;
  /// Outputs: the values, then their indices (int64), greatest first.
  Outputs topk(int64_t k, int64_t dim = -1, Where where = Where::current()) const;

  friend Value operator+(const Arg& a, const Arg& b);
  friend Value operator-(const Arg& a, const Arg& b);
  friend Value operator*(const Arg& a, const Arg& b);
  friend Value operator/(const Arg& a, const Arg& b);

 private:
  friend class Trace;
  friend class Outputs;
  friend struct TraceState;
  enum class Kind { kNode, kConstant };
  Value(std::shared_ptr<TraceState> trace, Kind kind, int32_t index, int32_t output)
      : trace_(std::move(trace)), kind_(kind), index_(index), output_(output) {}

  std::shared_ptr<TraceState> trace_;
  Kind kind_;
  int32_t index_;   // of the node or the constant
  int32_t output_;  // of the node
};

/// An argument of an operation: nothing, a flag, a number, text, a dtype, a value, a tensor or a
/// list of these. Remembers the line on which it was made, for error messages.
class Arg {
 public:
  using List = std::vector<Arg>;
  Arg(std::nullopt_t, Where where = Where::current()) : where_(where) {}  // NOLINT: implicit
  Arg(bool flag, Where where = Where::current())
      : value_(flag), where_(where) {}             // NOLINT: implicit
  Arg(int number, Where where = Where::current())  // NOLINT: implicit
      : value_(int64_t{number}), where_(where) {}
  Arg(int64_t number, Where where = Where::current()) : value_(number), where_(where) {}  // NOLINT
  Arg(double number, Where where = Where::current()) : value_(number), where_(where) {}   // NOLINT
  Arg(const char* text, Where where = Where::current())  // NOLINT: implicit
      : value_(std::string(text)), where_(where) {}
  Arg(std::string text, Where where = Where::current())  // NOLINT: implicit
      : value_(std::move(text)), where_(where) {}
  Arg(Dtype dtype, Where where = Where::current())
      : value_(dtype), where_(where) {}             // NOLINT: implicit
  Arg(Value value, Where where = Where::current())  // NOLINT: implicit
      : value_(std::move(value)), where_(where) {}
  Arg(Outputs outputs, Where where = Where::current());  // NOLINT: implicit
  Arg(Tensor tensor, Where where = Where::current())     // NOLINT: implicit
      : value_(std::move(tensor)), where_(where) {}
  Arg(List list, Where where = Where::current())  // NOLINT: implicit
      : value_(std::move(list)), where_(where) {}
  Arg(std::initializer_list<Arg> list, Where where = Where::current())  // NOLINT: implicit
      : value_(List(list)), where_(where) {}
  Arg(const std::vector<int64_t>& numbers, Where where = Where::current());  // NOLINT: implicit

  const Where& where() const { return where_; }

 private:
  friend struct TraceState;
  std::variant<std::monostate, bool, int64_t, double, std::string, Dtype, Value, Tensor, List>
      value_;
  Where where_;
};

/// What an operation returns: mostly one value, and then it is one.
class Outputs {
 public:
  /// Output `index`. Throws Error "invalid_argument" when the operation has fewer; the length of a
  /// list of tensors (split, unbind) is known, and checked, by Trace::run only.
  Value operator[](int32_t index) const;
  /// The only output. Throws Error "invalid_argument" when there are several.
  operator Value() const;  // NOLINT: implicit by design

 private:
  friend class Trace;
  friend class Value;
  friend struct TraceState;
  Outputs(std::shared_ptr<TraceState> trace, int32_t node, int32_t count, std::string operation)
      : trace_(std::move(trace)), node_(node), count_(count), operation_(std::move(operation)) {}

  std::shared_ptr<TraceState> trace_;
  int32_t node_;
  int32_t count_;  // -1: a list of tensors
  std::string operation_;
};

}  // namespace pellucid
