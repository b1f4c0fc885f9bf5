#pragma once
// What the engine keeps of the jobs, groups and rows that it is running.
#include <memory>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "engine/row_text.h"
#include "engine/sampling.h"

namespace pellucid::engine {

struct JobState {
  Job job;
  std::shared_ptr<const program::Plan> plan;
  std::unique_ptr<program::Run> run;
  Status failure;  // once it is not ok, the job's rows go on plain and nothing of it is visited
  JobResult result;

  bool live() const { return failure.ok(); }
  bool cancelled() const { return job.cancelled != nullptr && job.cancelled->load(); }
};

struct RowState {
  std::vector<int64_t> tokens;  // prompt and new ones
  Sampler sampler;
  RowText text;
  RowResult result;
  bool ended = false;
};

struct GroupState {
  JobState* job = nullptr;
  int group = 0;  // index in the job's program
  const wire::Group* spec = nullptr;
  int64_t prompt_length = 0;
  std::vector<RowState> rows;
  std::unique_ptr<model::KvCache> cache;  // null: one pass only
  int64_t past = 0;                       // positions already in the cache
  int next_step = 0;
  bool ended = false;

  int64_t batch() const { return static_cast<int64_t>(rows.size()); }
  bool generates() const { return spec->max_new_tokens > 0; }
};

/// What every part of the engine needs.
struct Context {
  std::shared_ptr<const model::Model> model;
  std::shared_ptr<const text::Tokenizer> tokenizer;
  EngineOptions options;
};

/// Refuses prompts that the model cannot take: empty, of unequal lengths, ids outside the
/// vocabulary, longer than the context (both numbers).
Status check_group(const Context& context, const wire::Group& group);

/// `spec` must outlive the state.
GroupState make_group_state(const Context& context, JobState& job, const wire::Group& spec,
                            int group);

}  // namespace pellucid::engine
