#include "engine/steps.h"

#include <algorithm>

namespace pellucid::engine {
namespace {

void emit(const GroupState& group, int row, int64_t token, std::string text) {
  if (!group.job->job.on_token) return;
  group.job->job.on_token({group.group, row, token, std::move(text),
                           group.rows[static_cast<size_t>(row)].result.ended});
}

/// Samples each row's next token, ends rows and the group.
void sample(const Context& context, PassGroup& pass) {
  GroupState& group = *pass.state;
  const at::Tensor logits_BV = pass.last_logits_BV.to(at::kFloat).contiguous();
  const std::vector<int64_t>& eos = context.options.eos_ids;
  for (size_t r = 0; r < group.rows.size(); ++r) {
    RowState& row = group.rows[r];
    const float* data =
        logits_BV.const_data_ptr<float>() + static_cast<int64_t>(r) * logits_BV.size(1);
    Result<int64_t> next =
        row.sampler.next({data, static_cast<size_t>(logits_BV.size(1))}, row.tokens);
    if (!next.ok()) throw StatusError(std::move(next).status().at(group.spec->where));
    row.tokens.push_back(*next);
    if (row.ended) continue;  // the group goes on for its other rows; what follows is not reported
    row.result.tokens.push_back(*next);
    const bool at_eos =
        group.spec->stop_at_eos && std::find(eos.begin(), eos.end(), *next) != eos.end();
    std::string text = at_eos ? "" : row.text.push(*next);
    if (at_eos) {
      row.result.ended = "eos";
    } else if (row.text.stopped()) {
      row.result.ended = "stop";
    } else if (static_cast<int64_t>(row.result.tokens.size()) == group.spec->max_new_tokens) {
      row.result.ended = "length";
    }
    row.ended = !row.result.ended.empty();
    if (row.ended) text += row.text.flush();
    emit(group, static_cast<int>(r), *next, std::move(text));
  }
}

}  // namespace

std::vector<int64_t> prompt_piece(const GroupState& group, int64_t first, int64_t end) {
  std::vector<int64_t> out;
  for (const RowState& row : group.rows) {
    out.insert(out.end(), row.tokens.begin() + first, row.tokens.begin() + end);
  }
  return out;
}

PassGroup next_pass(GroupState& group) {
  const int64_t length = static_cast<int64_t>(group.rows.front().tokens.size());
  PassGroup pass;
  pass.state = &group;
  pass.tokens = prompt_piece(group, group.past, length);
  pass.seq = length - group.past;
  pass.step = group.next_step;
  return pass;
}

void finish_step(const Context& context, PassGroup& pass) {
  GroupState& group = *pass.state;
  group.past += pass.seq;
  if (group.cache != nullptr) group.cache->length = group.past;
  ++group.next_step;
  if (!group.job->live()) return;
  if (group.generates()) sample(context, pass);
  const bool all_ended = std::all_of(group.rows.begin(), group.rows.end(),
                                     [](const RowState& row) { return row.ended; });
  group.ended = !group.generates() || all_ended;
}

GroupResult take_result(GroupState& group) {
  group.ended = true;
  GroupResult result;
  result.steps_run = group.next_step;
  for (RowState& row : group.rows) {
    if (group.generates() && !row.ended) row.result.ended = "cancelled";
    row.result.text = row.text.text();
    result.rows.push_back(std::move(row.result));
  }
  group.cache.reset();
  return result;
}

}  // namespace pellucid::engine
