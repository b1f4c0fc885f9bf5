#include <algorithm>

#include "facade/trace_state.h"

namespace pellucid {
namespace {

using facade::raise;
using facade::unwrap;

/// The bytes of each token of a row.
std::vector<std::string> pieces_of(const TraceState& trace, const std::vector<int64_t>& tokens) {
  std::vector<std::string> pieces;
  for (const int64_t token : tokens) {
    pieces.emplace_back(unwrap(trace.model.impl()->loaded.tokenizer->token_bytes(token)));
  }
  return pieces;
}

[[noreturn]] void raise_no_text(std::string_view text, int nth,
                                const std::vector<std::string>& pieces, const char* kind) {
  std::string listed;
  for (const std::string& piece : pieces)
    listed += fmt::format("{}'{}'", listed.empty() ? "" : " ", piece);
  raise(error(Code::kNotFound, fmt::format("its tokens are {}", listed),
              "the prompt has no {} '{}'{}", kind, text,
              nth == 0 ? "" : fmt::format(" number {} (counted from 0)", nth)));
}

}  // namespace

Value Prompt::read(std::string_view site, Where where) const {
  const hook::Resolved resolved = trace_->resolve(site, where);
  const Value value = trace_->value(
      trace_->add(wire::NodeKind::kRead, hook::site_name(resolved.key), {}, group_, where));
  // A view, so that an edit in place still edits the site.
  return resolved.flatten_heads ? trace_->one("aten::flatten.using_ints", {value, -2, -1}, where)
                                : value;
}

void Prompt::write(std::string_view site, const Arg& value) const {
  const hook::Resolved resolved = trace_->resolve(site, value.where());
  wire::Arg written = trace_->to_wire(value);
  if (resolved.flatten_heads) {
    const hook::Catalog& catalog = trace_->model.impl()->loaded.model->catalog();
    const std::vector<int64_t> shape = hook::site_shape(catalog, resolved.key, 1, 1, 1);
    const std::vector<int64_t> heads(shape.end() - 2, shape.end());
    written =
        trace_->to_wire(trace_->one("aten::unflatten.int", {value, -1, heads}, value.where()));
  }
  trace_->add(wire::NodeKind::kWrite, hook::site_name(resolved.key), {std::move(written)}, group_,
              value.where());
}

const std::vector<int64_t>& Prompt::tokens() const {
  const auto& rows = trace_->groups[group_].tokens;
  if (rows.empty())
    raise(error(Code::kInvalidArgument, "give it a row of tokens", "the prompt has no rows"));
  return rows.front();
}

int64_t Prompt::at(std::string_view token_text, int nth) const {
  const std::vector<std::string> pieces = pieces_of(*trace_, tokens());
  int seen = 0;
  for (size_t i = 0; i < pieces.size(); ++i) {
    if (pieces[i] == token_text && seen++ == nth) return static_cast<int64_t>(i);
  }
  raise_no_text(token_text, nth, pieces, "token");
}

std::pair<int64_t, int64_t> Prompt::span(std::string_view text, int nth) const {
  const std::vector<std::string> pieces = pieces_of(*trace_, tokens());
  std::string whole;
  for (const std::string& piece : pieces) whole += piece;
  size_t begin = text.empty() ? std::string::npos : whole.find(text);
  for (int i = 0; i < nth && begin != std::string::npos; ++i) begin = whole.find(text, begin + 1);
  if (begin == std::string::npos) raise_no_text(text, nth, pieces, "text");
  const size_t end = begin + text.size();
  int64_t first = -1, last = -1;
  size_t offset = 0;
  for (size_t i = 0; i < pieces.size(); ++i) {
    const size_t next = offset + pieces[i].size();
    if (next > begin && first < 0) first = static_cast<int64_t>(i);
    if (offset < end) last = static_cast<int64_t>(i) + 1;
    offset = next;
  }
  return {first, last};
}

const Generation& Prompt::generated(int row) const {
  const auto& rows = trace_->groups[group_].rows;
  if (!trace_->ran)
    raise(error(Code::kNotRun, "call Trace::run first", "nothing is generated yet"));
  if (row < 0 || static_cast<size_t>(row) >= rows.size()) {
    raise(error(Code::kInvalidArgument, "count from 0", "row {} of a prompt of {}", row,
                rows.size()));
  }
  return rows[row];
}

int64_t Prompt::steps_run() const { return trace_->groups[group_].steps_run; }

}  // namespace pellucid
