#include "engine/states.h"

namespace pellucid::engine {

Status check_group(const Context& context, const wire::Group& group) {
  const auto refuse = [&](Code code, std::string hint, std::string what) {
    return Status{code, std::move(what), std::move(hint), group.where};
  };
  if (group.tokens.empty()) {
    return refuse(Code::kInvalidArgument, "give at least one prompt", "a group without rows");
  }
  if (group.max_new_tokens < 0) {
    return refuse(Code::kInvalidArgument, "0 runs the prompt only",
                  fmt::format("max_new_tokens = {}", group.max_new_tokens));
  }
  PELLUCID_TRY(check_sampling(group.sampling).at(group.where));
  const size_t length = group.tokens.front().size();
  const int64_t vocab = context.model->info().sizes.vocab;
  for (const auto& row : group.tokens) {
    if (row.empty()) {
      return refuse(Code::kInvalidArgument, "a prompt has at least one token", "an empty prompt");
    }
    if (row.size() != length) {
      return refuse(Code::kShapeMismatch,
                    "rows of a group have equal lengths: open one t.prompt for each, or use lm.map",
                    fmt::format("prompts of {} and {} tokens in one group", length, row.size()));
    }
    for (const int64_t token : row) {
      if (token < 0 || token >= vocab) {
        return refuse(Code::kInvalidArgument, fmt::format("ids go from 0 to {}", vocab - 1),
                      fmt::format("token id {} is not in the vocabulary of {}", token, vocab));
      }
    }
  }
  // The last new token never passes through the model.
  const int64_t positions =
      static_cast<int64_t>(length) + std::max<int64_t>(group.max_new_tokens - 1, 0);
  const int64_t context_length = context.model->info().context_length;
  if (context_length > 0 && positions > context_length) {
    return refuse(
        Code::kInvalidArgument, "shorten the prompt or ask for fewer new tokens",
        fmt::format("a prompt of {} tokens and {} new ones need {} positions, the model's "
                    "context has {}",
                    length, group.max_new_tokens, positions, context_length));
  }
  return ok_status();
}

GroupState make_group_state(const Context& context, JobState& job, const wire::Group& spec,
                            int group) {
  GroupState state;
  state.job = &job;
  state.group = group;
  state.spec = &spec;
  state.prompt_length = static_cast<int64_t>(state.spec->tokens.front().size());
  for (size_t row = 0; row < state.spec->tokens.size(); ++row) {
    state.rows.push_back(RowState{state.spec->tokens[row],
                                  Sampler(state.spec->sampling, row),
                                  RowText(context.tokenizer, state.spec->stop),
                                  {},
                                  false});
  }
  if (state.spec->max_new_tokens > 1) {
    state.cache = std::make_unique<model::KvCache>();
    state.cache->capacity = state.prompt_length + state.spec->max_new_tokens - 1;
  }
  return state;
}

}  // namespace pellucid::engine
