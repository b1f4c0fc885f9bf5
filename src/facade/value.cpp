// One line an operation: the schema name that PyTorch gives it.
#include "pellucid/value.h"

#include "facade/trace_state.h"

namespace pellucid {
namespace {

/// "aten::add.Tensor" takes a number as well, as a wrapped number.
Value binary(const char* name, const std::shared_ptr<TraceState>& trace, const Arg& a, const Arg& b,
             const Where& where) {
  return trace->one(name, {a, b}, where);
}

}  // namespace

Value Value::select(int64_t dim, int64_t index, Where where) const {
  return trace_->one("aten::select.int", {*this, dim, index}, where);
}
Value Value::slice(int64_t dim, int64_t first, int64_t end, int64_t step, Where where) const {
  return trace_->one("aten::slice.Tensor", {*this, dim, first, end, step}, where);
}
Value Value::narrow(int64_t dim, int64_t first, int64_t length, Where where) const {
  return slice(dim, first, first + length, 1, where);
}
Value Value::unsqueeze(int64_t dim, Where where) const {
  return trace_->one("aten::unsqueeze", {*this, dim}, where);
}
Value Value::squeeze(int64_t dim, Where where) const {
  return trace_->one("aten::squeeze.dim", {*this, dim}, where);
}
Value Value::transpose(int64_t dim_a, int64_t dim_b, Where where) const {
  return trace_->one("aten::transpose.int", {*this, dim_a, dim_b}, where);
}
Value Value::reshape(std::vector<int64_t> shape, Where where) const {
  return trace_->one("aten::reshape", {*this, shape}, where);
}
Value Value::expand(std::vector<int64_t> shape, Where where) const {
  return trace_->one("aten::expand", {*this, shape}, where);
}

Value Value::add(const Arg& other) const {
  return binary("aten::add.Tensor", trace_, *this, other, other.where());
}
Value Value::sub(const Arg& other) const {
  return binary("aten::sub.Tensor", trace_, *this, other, other.where());
}
Value Value::mul(const Arg& other) const {
  return binary("aten::mul.Tensor", trace_, *this, other, other.where());
}
Value Value::div(const Arg& other) const {
  return binary("aten::div.Tensor", trace_, *this, other, other.where());
}
Value Value::neg(Where where) const { return trace_->one("aten::neg", {*this}, where); }
Value Value::abs(Where where) const { return trace_->one("aten::abs", {*this}, where); }
Value Value::exp(Where where) const { return trace_->one("aten::exp", {*this}, where); }
Value Value::log(Where where) const { return trace_->one("aten::log", {*this}, where); }
Value Value::sqrt(Where where) const { return trace_->one("aten::sqrt", {*this}, where); }
Value Value::relu(Where where) const { return trace_->one("aten::relu", {*this}, where); }
Value Value::silu(Where where) const { return trace_->one("aten::silu", {*this}, where); }
Value Value::tanh(Where where) const { return trace_->one("aten::tanh", {*this}, where); }
Value Value::sigmoid(Where where) const { return trace_->one("aten::sigmoid", {*this}, where); }
Value Value::to(Dtype dtype, Where where) const {
  return trace_->one("aten::to.dtype", {*this, dtype}, where);
}
Value Value::clone(Where where) const { return trace_->one("aten::clone", {*this}, where); }

Value Value::add_(const Arg& other) const {
  return binary("aten::add_.Tensor", trace_, *this, other, other.where());
}
Value Value::sub_(const Arg& other) const {
  return binary("aten::sub_.Tensor", trace_, *this, other, other.where());
}
Value Value::mul_(const Arg& other) const {
  return binary("aten::mul_.Tensor", trace_, *this, other, other.where());
}
Value Value::div_(const Arg& other) const {
  return binary("aten::div_.Tensor", trace_, *this, other, other.where());
}
Value Value::copy_(const Arg& source) const {
  return binary("aten::copy_", trace_, *this, source, source.where());
}
Value Value::fill_(double number, Where where) const {
  return trace_->one("aten::fill_.Scalar", {*this, number}, where);
}
Value Value::zero_(Where where) const { return trace_->one("aten::zero_", {*this}, where); }

Value Value::matmul(const Arg& other) const {
  return binary("aten::matmul", trace_, *this, other, other.where());
}
Value Value::softmax(int64_t dim, Where where) const {
  return trace_->one("aten::softmax.int", {*this, dim}, where);
}
Value Value::log_softmax(int64_t dim, Where where) const {
  return trace_->one("aten::log_softmax.int", {*this, dim}, where);
}
Value Value::sum(std::vector<int64_t> dims, bool keep_dims, Where where) const {
  return trace_->one("aten::sum.dim_IntList", {*this, dims, keep_dims}, where);
}
Value Value::mean(std::vector<int64_t> dims, bool keep_dims, Where where) const {
  return trace_->one("aten::mean.dim", {*this, dims, keep_dims}, where);
}
Value Value::norm(int64_t dim, bool keep_dim, Where where) const {
  return trace_->one("aten::linalg_vector_norm", {*this, 2.0, std::vector<int64_t>{dim}, keep_dim},
                     where);
}
Value Value::argmax(int64_t dim, bool keep_dim, Where where) const {
  return trace_->one("aten::argmax", {*this, dim, keep_dim}, where);
}
Value Value::index_select(int64_t dim, const Arg& index) const {
  return trace_->one("aten::index_select", {*this, dim, index}, index.where());
}
Value Value::gather(int64_t dim, const Arg& index) const {
  return trace_->one("aten::gather", {*this, dim, index}, index.where());
}
Outputs Value::topk(int64_t k, int64_t dim, Where where) const {
  return trace_->op("aten::topk", {*this, k, dim}, {}, where);
}

Value operator+(const Arg& a, const Arg& b) {
  return binary("aten::add.Tensor", TraceState::of(a, b), a, b, a.where());
}
Value operator-(const Arg& a, const Arg& b) {
  return binary("aten::sub.Tensor", TraceState::of(a, b), a, b, a.where());
}
Value operator*(const Arg& a, const Arg& b) {
  return binary("aten::mul.Tensor", TraceState::of(a, b), a, b, a.where());
}
Value operator/(const Arg& a, const Arg& b) {
  return binary("aten::div.Tensor", TraceState::of(a, b), a, b, a.where());
}

Arg::Arg(Outputs outputs, Where where) : value_(static_cast<Value>(outputs)), where_(where) {}

Arg::Arg(const std::vector<int64_t>& numbers, Where where)
    : value_(List(numbers.begin(), numbers.end())), where_(where) {}

Value Outputs::operator[](int32_t index) const {
  if (index < 0 || (count_ >= 0 && index >= count_)) {
    facade::raise(error(Code::kInvalidArgument, "count from 0", "output {} of {}, which has {}",
                        index, operation_, count_ >= 0 ? std::to_string(count_) : "a list"));
  }
  return trace_->value(node_, index);
}

Outputs::operator Value() const {
  if (count_ != 1 && count_ != facade::kUnknown) {
    facade::raise(
        error(Code::kInvalidArgument, "choose one: outputs[0]", "{} returns {}, not one value",
              operation_,
              count_ == facade::kList ? "a list of tensors" : fmt::format("{} values", count_)));
  }
  return trace_->value(node_, 0);
}

}  // namespace pellucid
