#include "engine/pass.h"

#include <ATen/ops/from_blob.h>
#include <ATen/ops/tensor.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <map>
#include <new>
#include <optional>

#include "base/check.h"

namespace pellucid::engine {
namespace {

using hook::Route;
using hook::Site;
using hook::SiteKey;

/// Where a group's rows lie in a packed tensor: batch * seq rows from `first`, of which a program
/// sees the first `visible` of each batch entry (logits may have one more, for sampling).
struct Region {
  int64_t first = 0, batch = 0, seq = 0, visible = 0;

  at::Tensor view(const at::Tensor& packed) const {
    return packed.narrow(0, first, batch * seq).unflatten(0, {batch, seq}).narrow(1, 0, visible);
  }
  bool is_all_of(const at::Tensor& packed) const {
    return first == 0 && visible == seq && batch * seq == packed.size(0);
  }
};

/// The positions whose logits a group needs in this pass: those that its program reads, then the
/// last one if it is sampled and not among them.
struct LogitRows {
  std::vector<int64_t> positions;
  int64_t visible = 0;
};

LogitRows logit_rows_of(const PassGroup& group) {
  LogitRows rows;
  const program::LogitsNeed need =
      group.observed && group.state->job->live()
          ? group.state->job->plan->logits_need(group.state->group, group.step)
          : program::LogitsNeed{};
  rows.positions = need.positions;
  if (need.all) {
    rows.positions.resize(static_cast<size_t>(group.seq));
    for (int64_t i = 0; i < group.seq; ++i) rows.positions[static_cast<size_t>(i)] = i;
  }
  rows.visible = static_cast<int64_t>(rows.positions.size());
  const bool sampled = group.observed && group.state->generates();
  if (sampled && (rows.positions.empty() || rows.positions.back() != group.seq - 1)) {
    rows.positions.push_back(group.seq - 1);
  }
  return rows;
}

class Pass final : public hook::Listener {
 public:
  Pass(const Context& context, int wave, std::vector<PassGroup>& groups)
      : context_(context),
        wave_(wave),
        groups_(groups),
        num_layers_(static_cast<int>(context.model->info().sizes.num_layers)) {}

  void run() {
    pack();
    watch();
    const at::Tensor logits_RV = context_.model->forward(step_);
    for (size_t i = 0; i < groups_.size(); ++i) {
      if (!groups_[i].observed || !groups_[i].state->generates()) continue;
      const Region& region = logits_[i];
      groups_[i].last_logits_BV = logits_RV.narrow(0, region.first, region.batch * region.seq)
                                      .unflatten(0, {region.batch, region.seq})
                                      .select(1, region.seq - 1);
    }
  }

  at::Tensor packed(SiteKey key, at::Tensor x) override {
    const auto users = users_.find(key.order(num_layers_));
    if (users == users_.end()) return x;
    return visit(key, std::move(x), users->second, [&](int group) -> std::optional<Region> {
      return key.site == Site::kLogits ? logits_[group] : region_at(key, group);
    });
  }

  at::Tensor beside(SiteKey key, int group, at::Tensor x) override {
    const auto users = users_.find(key.order(num_layers_));
    if (users == users_.end()) return x;
    std::vector<int> here;  // the group itself, and those that still share its pass
    for (const int user : users->second) {
      if (user == group ||
          (groups_[user].leader == group && key.layer < groups_[user].join_layer)) {
        here.push_back(user);
      }
    }
    return visit(key, std::move(x), here, [](int) { return std::optional<Region>(); });
  }

 private:
  void pack() {
    std::vector<int64_t> tokens, positions, rows;
    for (PassGroup& group : groups_) {
      model::GroupSpan span{.token_first = static_cast<int64_t>(tokens.size()),
                            .batch = group.state->batch(),
                            .seq = group.seq,
                            .past = group.state->past,
                            .cache = group.state->cache.get(),
                            .join_layer = group.join_layer,
                            .leader = group.leader};
      tokens.insert(tokens.end(), group.tokens.begin(), group.tokens.end());
      for (int64_t row = 0; row < span.batch; ++row) {
        for (int64_t i = 0; i < span.seq; ++i) positions.push_back(span.past + i);
      }
      const LogitRows wanted = logit_rows_of(group);
      logits_.push_back(Region{static_cast<int64_t>(rows.size()), span.batch,
                               static_cast<int64_t>(wanted.positions.size()), wanted.visible});
      for (int64_t row = 0; row < span.batch; ++row) {
        for (const int64_t position : wanted.positions) {
          rows.push_back(span.token_first + row * span.seq + position);
        }
      }
      step_.groups.push_back(span);
    }
    step_.tokens_T = at::tensor(tokens);
    step_.positions_T = at::tensor(positions);
    if (!rows.empty()) step_.logit_rows = at::tensor(rows);
    step_.poll = [this] { leave_if_nobody_is_left(); };
  }

  /// Makes the sites fire that somebody uses, and ends the pass after the last of them.
  void watch() {
    step_.taps = hook::Taps(this, num_layers_, static_cast<int>(groups_.size()));
    int last = -1;  // order of the last site that anybody needs
    const int first_after_blocks = SiteKey{Site::kLnFinalScale, -1}.order(num_layers_);
    for (size_t i = 0; i < groups_.size(); ++i) {
      const PassGroup& group = groups_[i];
      if (group.state->cache != nullptr) last = std::max(last, first_after_blocks - 1);
      if (!group.observed) continue;
      if (group.state->generates()) last = std::max(last, first_after_blocks);
      if (!group.state->job->live()) continue;
      for (const program::SiteUse& use :
           group.state->job->plan->uses(group.state->group, group.step)) {
        last = std::max(last, use.key.order(num_layers_));
        users_[use.key.order(num_layers_)].push_back(static_cast<int>(i));
        if (hook::site_info(use.key.site).route == Route::kPacked) {
          step_.taps.watch(use.key);
          continue;
        }
        const bool shared = use.key.layer < group.join_layer;
        step_.taps.watch_beside(use.key, shared ? group.leader : static_cast<int>(i), use.written);
      }
    }
    step_.final_norm = last >= first_after_blocks;
    step_.layer_end = num_layers_;
    if (!step_.final_norm) {
      const int first_block_site = SiteKey{hook::kFirstBlockSite, 0}.order(num_layers_);
      step_.layer_end =
          last < first_block_site ? 0 : (last - first_block_site) / hook::kSitesPerBlock + 1;
    }
  }

  /// A group that has not joined yet is where its leader is.
  Region region_at(SiteKey key, int group) const {
    const bool before_blocks = key.layer < 0 && key.site < hook::kFirstBlockSite;
    const bool shared =
        groups_[group].leader >= 0 &&
        (before_blocks || (key.layer >= 0 && key.layer < groups_[group].join_layer));
    const model::GroupSpan& span = step_.groups[shared ? groups_[group].leader : group];
    return Region{span.token_first, span.batch, span.seq, span.seq};
  }

  /// Hands the value to the programs of `users` (indices of groups, ascending), job by job.
  /// `region` gives each one's place in x; none: x is the group's own value.
  template <typename RegionOf>
  at::Tensor visit(SiteKey key, at::Tensor x, const std::vector<int>& users, RegionOf region) {
    struct Written {
      std::optional<Region> region;
      at::Tensor value;
    };
    std::vector<Written> written;
    std::vector<bool> done(users.size(), false);
    for (size_t first = 0; first < users.size(); ++first) {
      JobState* job = groups_[users[first]].state->job;
      if (done[first] || !job->live()) continue;
      std::vector<program::GroupValue> values;
      std::vector<std::optional<Region>> regions;
      for (size_t i = first; i < users.size(); ++i) {
        const PassGroup& group = groups_[users[i]];
        if (group.state->job != job) continue;
        done[i] = true;
        regions.push_back(region(users[i]));
        values.push_back({group.state->group, regions.back() ? regions.back()->view(x) : x, false});
      }
      try {
        job->run->visit(wave_, groups_[users[first]].step, key, values);
      } catch (...) {
        job->failure = status_of_exception();
        leave_if_nobody_is_left();
        continue;
      }
      for (size_t i = 0; i < values.size(); ++i) {
        if (values[i].written) written.push_back({regions[i], values[i].value});
      }
    }
    if (written.empty()) return x;
    if (!written.front().region) return written.front().value;
    if (written.size() == 1 && written.front().region->is_all_of(x)) {
      return written.front().value.flatten(0, 1).contiguous();
    }
    at::Tensor fresh = x.clone();
    for (const Written& part : written) part.region->view(fresh).copy_(part.value);
    return fresh;
  }

  void leave_if_nobody_is_left() const {
    for (const PassGroup& group : groups_) {
      if (group.state->job->live() && !group.state->job->cancelled()) return;
    }
    throw PassAbandoned();
  }

  const Context& context_;
  const int wave_;
  std::vector<PassGroup>& groups_;
  const int num_layers_;
  model::Step step_;
  std::vector<Region> logits_;             // by group
  std::map<int, std::vector<int>> users_;  // order of a site -> groups that use it
};

}  // namespace

void run_pass(const Context& context, int wave, std::vector<PassGroup>& groups) {
  Pass(context, wave, groups).run();
}

Status status_of_exception() {
  try {
    throw;
  } catch (const StatusError& e) {
    return e.status;
  } catch (const c10::OutOfMemoryError& e) {
    return {
        Code::kOutOfMemory, e.what_without_backtrace(), "use fewer or shorter rows at once", {}};
  } catch (const std::bad_alloc&) {
    return {Code::kOutOfMemory, "out of memory", "use fewer or shorter rows at once", {}};
  } catch (const c10::Error& e) {
    return {Code::kInvalidArgument, e.what_without_backtrace(), "", {}};
  } catch (const InternalError& e) {
    return {Code::kInternal, e.what(), "", {}};
  } catch (const std::exception& e) {
    return {Code::kInternal, e.what(), "", {}};
  }
}

}  // namespace pellucid::engine
