#pragma once
// Runs jobs from checking to results: waves of groups, each wave's passes from the prompt to the
// last generated token.
#include <vector>

#include "engine/states.h"

namespace pellucid::engine {

/// Results in the order of `jobs`. A job that fails does not change the others.
std::vector<Result<JobResult>> run_batch(const Context& context, std::vector<Job> jobs);

}  // namespace pellucid::engine
