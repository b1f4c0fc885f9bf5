#pragma once
// One forward pass of many groups: packs their tokens, makes their sites fire, hands each value to
// the program that asked for it.
#include <ATen/core/Tensor.h>

#include <exception>
#include <vector>

#include "engine/states.h"

namespace pellucid::engine {

/// One group's part of a pass.
struct PassGroup {
  GroupState* state = nullptr;
  std::vector<int64_t> tokens;  // row after row, batch * seq
  int64_t seq = 0;
  int step = 0;
  bool observed = true;  // false: a piece of a prompt ahead of step 0, which no program sees
  int join_layer = 0;    // see model::GroupSpan
  int leader = -1;

  /// Out: the logits that sampling reads, [batch, vocab]; only for groups that generate.
  at::Tensor last_logits_BV;
};

/// Thrown through the model when no job of the pass wants to go on (all failed or cancelled).
struct PassAbandoned : std::exception {
  const char* what() const noexcept override { return "no job of this pass is left"; }
};

/// Runs the pass. `groups` in packed order (joining groups last, by join_layer). Faults of a
/// program are kept in its JobState and do not disturb the others; faults of the model itself are
/// thrown.
void run_pass(const Context& context, int wave, std::vector<PassGroup>& groups);

/// The Status of whatever exception is being handled; call in a catch block.
Status status_of_exception();

}  // namespace pellucid::engine
