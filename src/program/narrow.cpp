// Narrowed reads: when a program looks at some positions of the logits only, the head runs for
// these alone. The consumers' indices are rewritten to ranks among the positions that are there.
#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>

#include <algorithm>
#include <limits>
#include <set>

#include "program/graph.h"
#include "program/shapes.h"

namespace pellucid::program {
namespace {

constexpr std::string_view kSelect = "aten::select.int";
constexpr std::string_view kSlice = "aten::slice.Tensor";
constexpr std::string_view kIndex = "aten::index.Tensor";

/// An operation that picks positions, and which ones.
struct Pick {
  int task = -1;
  std::vector<int64_t> positions;
};

struct Range {
  int64_t start = 0, end = 0, step = 1;
};

Range slice_range(const Call& call, int64_t size) {
  const auto number = [&](size_t slot, int64_t otherwise) {
    return call.slots[slot].fixed.isInt() ? call.slots[slot].fixed.toInt() : otherwise;
  };
  const auto clamp = [&](int64_t at) {
    return std::clamp<int64_t>(at < 0 ? at + size : at, 0, size);
  };
  return {clamp(number(2, 0)), clamp(number(3, size)), number(4, 1)};
}

class Narrower {
 public:
  explicit Narrower(Graph& graph) : graph_(graph), users_(graph.values.size()) {
    for (size_t t = 0; t < graph.tasks.size(); ++t) {
      for (const int value : graph.tasks[t].operands) users_[value].push_back(static_cast<int>(t));
    }
  }

  Status site(int index) {
    SiteUsed& site = graph_.sites[index];
    const int64_t size = value_at(graph_.tasks[site.arrive].first_value).meta.size(1);
    LogitsNeed& need = graph_.logits[index];
    need.all = true;
    if (size <= 1) return ok_status();
    picks_.clear();
    passing_.clear();
    between_ = {graph_.tasks[site.arrive].first_value};
    if (!find_picks(index)) return ok_status();

    std::set<int64_t> positions;
    for (const Pick& pick : picks_) positions.insert(pick.positions.begin(), pick.positions.end());
    std::vector<int64_t> sorted(positions.begin(), positions.end());
    if (static_cast<int64_t>(sorted.size()) == size || !can_rewrite(sorted)) return ok_status();
    need.all = false;
    need.positions = sorted;
    return rewrite(sorted);
  }

 private:
  Value& value_at(int id) { return graph_.values[id]; }

  bool find_picks(int index) {
    for (size_t t = 0; t < graph_.tasks.size(); ++t) {
      const Task& task = graph_.tasks[t];
      if (task.site != index) continue;
      if (task.kind == TaskKind::kWrite) return false;
      if (task.kind != TaskKind::kRead) continue;
      between_.push_back(task.first_value);
      if (!follow(task.first_value, 1)) return false;
    }
    return true;
  }

  /// Every use of the value picks positions along `dim`, or leaves that dimension alone.
  bool follow(int value, int64_t dim) {
    for (const int t : users_[value]) {
      const Task& task = graph_.tasks[t];
      if (task.kind != TaskKind::kOp || !task.written.empty()) return false;
      if (task.operands.size() > 2 || task.operands[0] != value) return false;
      const Call& call = *task.call;
      const std::string& name = call.operation->name;
      const int64_t dims = value_at(value).meta.dim();
      const int64_t size = value_at(value).meta.size(dim);
      if (name == kIndex) {
        if (!pick_index(t, dim, size)) return false;
        continue;
      }
      if (name != kSelect && name != kSlice) return false;
      int64_t along = call.slots[1].fixed.toInt();
      if (along < 0) along += dims;
      if (along != dim) {
        between_.push_back(task.first_value);
        passing_.push_back(t);
        if (!follow(task.first_value, name == kSelect && along < dim ? dim - 1 : dim)) return false;
      } else if (name == kSelect) {
        const int64_t at = call.slots[2].fixed.toInt();
        picks_.push_back({t, {at < 0 ? at + size : at}});
      } else {
        const Range range = slice_range(call, size);
        if (range.step < 1) return false;
        if (range.start == 0 && range.end == size && range.step == 1) {  // [:] takes nothing away
          between_.push_back(task.first_value);
          passing_.push_back(t);
          if (!follow(task.first_value, dim)) return false;
          continue;
        }
        Pick pick{t, {}};
        for (int64_t at = range.start; at < range.end; at += range.step)
          pick.positions.push_back(at);
        picks_.push_back(std::move(pick));
      }
    }
    return true;
  }

  bool pick_index(int t, int64_t dim, int64_t size) {
    const Task& task = graph_.tasks[t];
    const auto& indices = task.call->slots[1].tensors;
    Pick pick{t, {}};
    for (size_t d = 0; d < indices.size(); ++d) {
      const bool none = indices[d].operand < 0 && !indices[d].fixed.defined();
      if (none) continue;
      if (static_cast<int64_t>(d) != dim || indices[d].operand < 0) return false;
      const Value& index = value_at(task.operands[indices[d].operand]);
      if (index.task >= 0 || index.meta.scalar_type() != at::kLong) return false;
      const at::Tensor ids =
          graph_.options.constants[task.operands[indices[d].operand]].contiguous();
      if (!ids.device().is_cpu()) return false;
      for (int64_t i = 0; i < ids.numel(); ++i) {
        const int64_t at = ids.const_data_ptr<int64_t>()[i];
        if (at < -size || at >= size) return false;  // torch says so when it runs
        pick.positions.push_back(at < 0 ? at + size : at);
      }
    }
    picks_.push_back(std::move(pick));
    return true;
  }

  static int64_t rank(const std::vector<int64_t>& sorted, int64_t position) {
    return std::lower_bound(sorted.begin(), sorted.end(), position) - sorted.begin();
  }

  /// A slice must still be one among the positions that are there.
  bool can_rewrite(const std::vector<int64_t>& sorted) const {
    for (const Pick& pick : picks_) {
      if (graph_.tasks[pick.task].call->operation->name != kSlice) continue;
      for (size_t i = 2; i < pick.positions.size(); ++i) {
        const int64_t first = rank(sorted, pick.positions[1]) - rank(sorted, pick.positions[0]);
        const int64_t next = rank(sorted, pick.positions[i]) - rank(sorted, pick.positions[i - 1]);
        if (next != first) return false;
      }
    }
    return true;
  }

  Status rewrite(const std::vector<int64_t>& sorted) {
    const int64_t count = static_cast<int64_t>(sorted.size());
    const Value& whole = value_at(between_[0]);
    std::vector<int64_t> shape = whole.meta.sizes().vec();
    shape[1] = count;
    const at::Tensor narrow = at::empty(shape, whole.meta.options());
    for (const int value : between_) {
      const bool tensor_of_site = value_at(value).identity == value_at(between_[0]).identity;
      if (tensor_of_site) value_at(value).meta = narrow;
    }
    for (const Pick& pick : picks_) {
      auto call = std::make_shared<Call>(*graph_.tasks[pick.task].call);
      const std::string& name = call->operation->name;
      std::vector<int64_t> ranks;
      for (const int64_t position : pick.positions) ranks.push_back(rank(sorted, position));
      if (name == kSelect) {
        call->slots[2].fixed = ranks[0];
      } else if (name == kSlice) {
        const int64_t step = ranks.size() > 1 ? ranks[1] - ranks[0] : 1;
        call->slots[2].fixed = ranks.empty() ? int64_t{0} : ranks[0];
        call->slots[3].fixed = ranks.empty() ? int64_t{0} : ranks.back() + 1;
        call->slots[4].fixed = step;
      } else {
        replace_index(pick, *call, ranks);
      }
      graph_.tasks[pick.task].call = std::move(call);
    }
    std::sort(passing_.begin(), passing_.end());
    for (const int t : passing_) {
      Task& task = graph_.tasks[t];
      std::vector<at::Tensor> metas;
      for (const int operand : task.operands) metas.push_back(value_at(operand).meta);
      PELLUCID_ASSIGN(const Inferred again, infer(*task.call, metas));
      value_at(task.first_value).meta = again.outputs[0];
    }
    return ok_status();
  }

  /// The constant stays an operand (it may have other uses); the call no longer looks at it.
  void replace_index(const Pick& pick, Call& call, const std::vector<int64_t>& ranks) {
    const Task& task = graph_.tasks[pick.task];
    for (TensorSlot& slot : call.slots[1].tensors) {
      if (slot.operand < 0) continue;
      const at::Tensor& index = value_at(task.operands[slot.operand]).meta;
      slot.fixed = at::tensor(ranks, at::kLong).reshape(index.sizes());
      slot.operand = -1;
    }
  }

  Graph& graph_;
  std::vector<std::vector<int>> users_;  // by value
  std::vector<Pick> picks_;
  std::vector<int> between_;  // values of the site that still have all positions
  std::vector<int> passing_;  // tasks that leave the dimension alone
};

}  // namespace

Status narrow_logits(Graph& graph) {
  graph.logits.assign(graph.sites.size(), {});
  const CostScope costs;
  Narrower narrower(graph);
  for (size_t s = 0; s < graph.sites.size(); ++s) {
    if (graph.sites[s].key.site != hook::Site::kLogits) continue;
    PELLUCID_TRY(narrower.site(static_cast<int>(s)));
  }
  return ok_status();
}

}  // namespace pellucid::program
