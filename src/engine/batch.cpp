#include "engine/batch.h"

#include <algorithm>
#include <chrono>
#include <map>

#include "engine/pass.h"
#include "engine/steps.h"

namespace pellucid::engine {
namespace {

using Clock = std::chrono::steady_clock;

Status prepare(const Context& context, JobState& state) {
  for (const wire::Group& group : state.job.program.groups) {
    PELLUCID_TRY(check_group(context, group));
  }
  const model::Model& model = *context.model;
  program::PlanOptions options;
  options.catalog = &model.catalog();
  options.dtype = model.info().dtype;
  options.constants = state.job.constants;
  options.weight = [&model](const std::string& name) { return model.weight(name); };
  options.context_length = model.info().context_length;
  options.limits = context.options.limits;
  options.tokens_per_wave_max = context.options.tokens_per_pass_max;
  PELLUCID_ASSIGN(state.plan,
                  program::Plan::make(std::move(state.job.program), std::move(options)));
  state.result.warnings = state.plan->warnings();
  state.result.groups.resize(state.plan->program().groups.size());

  program::Environment environment;
  environment.constants = state.job.constants;
  environment.part = [&model](const std::string& part, const at::Tensor& x) {
    return part == "unembed" ? model.unembed(x) : model.final_norm(x);
  };
  environment.weight = [&model](const std::string& name) { return model.weight(name); };
  environment.call = state.job.call;
  state.run = program::Run::make(state.plan, std::move(environment));
  state.run->begin();
  return ok_status();
}

bool uses_beside_sites(const GroupState& group) {
  const auto uses = group.job->plan->uses(group.group, 0);
  return std::any_of(uses.begin(), uses.end(), [](const program::SiteUse& use) {
    return hook::site_info(use.key.site).route == hook::Route::kBeside;
  });
}

/// Rows of the same tokens share the pass below their first write (PROGRAMS ruling 7): of the
/// groups with the same prompts the one whose first write is highest leads, the others join it
/// there. Not while a group uses sites that are computed beside the fused path: those are visited
/// group by group, in the order on which the plan relies, which joining would change.
void share_prefixes(std::vector<PassGroup>& groups) {
  std::map<std::vector<std::vector<int64_t>>, std::vector<size_t>> by_prompt;
  for (size_t i = 0; i < groups.size(); ++i) {
    if (groups[i].state->generates() || groups[i].state->past > 0) continue;
    if (uses_beside_sites(*groups[i].state)) return;
    by_prompt[groups[i].state->spec->tokens].push_back(i);
  }
  const auto first_write = [&](size_t i) {
    return groups[i].state->job->plan->first_written_layer(groups[i].state->group);
  };
  std::vector<GroupState*> leader_of(groups.size(), nullptr);
  for (const auto& [prompt, members] : by_prompt) {
    const size_t leader =
        *std::max_element(members.begin(), members.end(),
                          [&](size_t a, size_t b) { return first_write(a) < first_write(b); });
    for (const size_t member : members) {
      if (member == leader || first_write(member) == 0) continue;
      groups[member].join_layer = first_write(member);
      leader_of[member] = groups[leader].state;
    }
  }
  std::map<const GroupState*, GroupState*> leaders;
  for (size_t i = 0; i < groups.size(); ++i) leaders[groups[i].state] = leader_of[i];
  std::stable_sort(groups.begin(), groups.end(), [](const PassGroup& a, const PassGroup& b) {
    return a.join_layer < b.join_layer;
  });
  for (PassGroup& group : groups) {
    if (leaders[group.state] == nullptr) continue;
    const auto leader = std::find_if(groups.begin(), groups.end(), [&](const PassGroup& other) {
      return other.state == leaders[group.state];
    });
    group.leader = static_cast<int>(leader - groups.begin());
  }
}

/// Feeds all but the last piece of long prompts whose step 0 no program looks at.
void prefill_ahead(const Context& context, int wave, std::vector<GroupState>& groups) {
  const int64_t chunk = context.options.prefill_chunk;
  if (chunk <= 0) return;
  while (true) {
    std::vector<PassGroup> pieces;
    for (GroupState& group : groups) {
      const int64_t left = group.prompt_length - group.past;
      if (group.cache == nullptr || left <= chunk) continue;
      if (!group.job->plan->uses(group.group, 0).empty()) continue;
      pieces.push_back({.state = &group,
                        .tokens = prompt_piece(group, group.past, group.past + chunk),
                        .seq = chunk,
                        .observed = false,
                        .last_logits_BV = {}});
    }
    if (pieces.empty()) return;
    run_pass(context, wave, pieces);
    for (PassGroup& piece : pieces) {
      piece.state->past += piece.seq;
      piece.state->cache->length = piece.state->past;
    }
  }
}

void close_group(GroupState& group) {
  group.job->run->group_ended(group.group, group.next_step - 1);
  group.job->result.groups[static_cast<size_t>(group.group)] = take_result(group);
}

/// Takes the groups through one pass and closes those that have ended.
void advance(const Context& context, int wave, std::vector<PassGroup>& passes) {
  run_pass(context, wave, passes);
  for (PassGroup& pass : passes) {
    try {
      finish_step(context, pass);
    } catch (...) {
      pass.state->job->failure = status_of_exception();
    }
    if (pass.state->ended && pass.state->job->live()) close_group(*pass.state);
  }
}

void run_wave(const Context& context, int wave, std::vector<GroupState>& groups) {
  prefill_ahead(context, wave, groups);
  for (bool first = true;; first = false) {
    std::vector<PassGroup> passes;
    for (GroupState& group : groups) {
      if (group.ended || !group.job->live()) continue;
      if (group.job->cancelled()) continue;
      passes.push_back(next_pass(group));
    }
    if (passes.empty()) break;
    if (first && context.options.share_prefixes) share_prefixes(passes);
    advance(context, wave, passes);
  }
}

/// A cancelled job keeps the text that it has when all that it does is generate.
Status after_cancel(JobState& state, std::vector<GroupState>& groups) {
  if (state.plan->program().nodes.empty()) {
    for (GroupState& group : groups) {
      if (group.job == &state && !group.ended) close_group(group);
    }
    return ok_status();
  }
  return error(Code::kCancelled, "", "the run was cancelled");
}

}  // namespace

std::vector<Result<JobResult>> run_batch(const Context& context, std::vector<Job> jobs) {
  const auto start = Clock::now();
  std::vector<std::unique_ptr<JobState>> states;
  int num_waves = 0;
  for (Job& job : jobs) {
    states.push_back(std::make_unique<JobState>());
    JobState& state = *states.back();
    state.job = std::move(job);
    try {
      state.failure = prepare(context, state);
    } catch (...) {
      state.failure = status_of_exception();
    }
    if (state.live()) num_waves = std::max(num_waves, state.plan->num_waves());
  }

  for (int wave = 0; wave < num_waves; ++wave) {
    std::vector<GroupState> groups;
    for (const auto& state : states) {
      if (!state->live() || wave >= state->plan->num_waves()) continue;
      for (size_t group = 0; group < state->plan->program().groups.size(); ++group) {
        if (state->plan->wave_of(static_cast<int>(group)) == wave) {
          groups.push_back(make_group_state(context, *state, state->plan->program().groups[group],
                                            static_cast<int>(group)));
        }
      }
    }
    try {
      run_wave(context, wave, groups);
    } catch (const PassAbandoned&) {
      // every job of the pass has failed or was cancelled; each knows why
    } catch (...) {
      const Status failure = status_of_exception();
      for (GroupState& group : groups) {
        if (group.job->live()) group.job->failure = failure;
      }
    }
    for (const auto& state : states) {
      if (state->live() && state->cancelled()) state->failure = after_cancel(*state, groups);
    }
  }

  std::vector<Result<JobResult>> results;
  for (const auto& state : states) {
    if (state->live()) {
      try {
        Result<std::vector<program::Saved>> saved = state->run->finish();
        if (saved.ok()) {
          state->result.saved = *std::move(saved);
        } else {
          state->failure = std::move(saved).status();
        }
      } catch (...) {
        state->failure = status_of_exception();
      }
    }
    state->result.seconds = std::chrono::duration<double>(Clock::now() - start).count();
    if (state->live()) {
      results.emplace_back(std::move(state->result));
    } else {
      results.emplace_back(state->failure);
    }
  }
  return results;
}

}  // namespace pellucid::engine
