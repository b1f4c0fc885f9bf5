#pragma once
// Groups that join the pass below the first block, and rows of groups in packed tensors.
#include <ATen/core/Tensor.h>

#include <vector>

#include "model/step.h"

namespace pellucid::model {

/// How many of step.groups have entered by the start of block `layer`: a prefix of the list.
size_t num_active(const Step& step, int layer);

/// The group whose rows stand for `group` at the start of block `layer`: itself once it has
/// entered, else its leader's stand-in.
size_t stand_in(const Step& step, size_t group, int layer);

/// Appends, for every group that enters before block `layer`, a copy of its leader's rows.
/// x: [T, ...] of those that were there; the result covers all active groups.
at::Tensor enter(const Step& step, int layer, const at::Tensor& x);

/// x's rows of one group as [batch, seq, ...]: a view.
at::Tensor group_rows(const at::Tensor& x, const GroupSpan& group);

/// New values for one group's rows, [batch, seq, ...].
struct Replacement {
  size_t group;
  at::Tensor rows;
};
/// x with these groups' rows replaced (in the list's order): a fresh tensor, or x if there are
/// none.
at::Tensor replace_rows(const Step& step, const at::Tensor& x,
                        const std::vector<Replacement>& replacements);

}  // namespace pellucid::model
