#include "model/groups.h"

#include <ATen/ops/cat.h>

#include "base/check.h"

namespace pellucid::model {

size_t num_active(const Step& step, int layer) {
  size_t count = 0;
  while (count < step.groups.size() && step.groups[count].join_layer <= layer) ++count;
  return count;
}

size_t stand_in(const Step& step, size_t group, int layer) {
  while (step.groups[group].join_layer > layer) {
    const int leader = step.groups[group].leader;
    PELLUCID_CHECK(leader >= 0 && static_cast<size_t>(leader) < group,
                   "group {} joins at block {} with leader {}", group,
                   step.groups[group].join_layer, leader);
    group = static_cast<size_t>(leader);
  }
  return group;
}

at::Tensor enter(const Step& step, int layer, const at::Tensor& x) {
  if (layer == 0) return x;
  std::vector<at::Tensor> parts{x};
  for (size_t i = 0; i < step.groups.size(); ++i) {
    const GroupSpan& group = step.groups[i];
    if (group.join_layer > layer) break;
    if (group.join_layer < layer) continue;
    const GroupSpan& leader = step.groups[stand_in(step, i, layer - 1)];
    PELLUCID_CHECK(leader.batch == group.batch && leader.seq == group.seq,
                   "group {} of {}x{} tokens follows one of {}x{}", i, group.batch, group.seq,
                   leader.batch, leader.seq);
    parts.push_back(x.narrow(0, leader.token_first, leader.tokens()));
  }
  return parts.size() == 1 ? x : at::cat(parts);
}

at::Tensor group_rows(const at::Tensor& x, const GroupSpan& group) {
  std::vector<int64_t> shape{group.batch, group.seq};
  shape.insert(shape.end(), x.sizes().begin() + 1, x.sizes().end());
  return x.narrow(0, group.token_first, group.tokens()).view(shape);
}

at::Tensor replace_rows(const Step& step, const at::Tensor& x,
                        const std::vector<Replacement>& replacements) {
  if (replacements.empty()) return x;
  std::vector<at::Tensor> parts;
  int64_t token = 0;
  const auto keep_until = [&](int64_t end) {
    if (token < end) parts.push_back(x.narrow(0, token, end - token));
    token = end;
  };
  for (const Replacement& replacement : replacements) {
    const GroupSpan& group = step.groups[replacement.group];
    keep_until(group.token_first);
    parts.push_back(replacement.rows.flatten(0, 1));
    token = group.token_end();
  }
  keep_until(x.size(0));
  return at::cat(parts);
}

}  // namespace pellucid::model
