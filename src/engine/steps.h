#pragma once
// How a group moves from pass to pass: what it feeds, and what sampling makes of the logits.
#include "engine/pass.h"
#include "engine/states.h"

namespace pellucid::engine {

/// Tokens [first, end) of every row, row after row.
std::vector<int64_t> prompt_piece(const GroupState& group, int64_t first, int64_t end);

/// The group's next pass: whatever of its rows the cache does not hold yet.
PassGroup next_pass(GroupState& group);

/// After the pass: moves the group forward, samples each row's next token, ends rows and the group.
/// Throws StatusError when no token can be chosen.
void finish_step(const Context& context, PassGroup& pass);

/// What the rows generated; rows that have not ended are "cancelled". Frees the cache.
GroupResult take_result(GroupState& group);

}  // namespace pellucid::engine
