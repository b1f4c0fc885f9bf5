#pragma once
// Options of commands that generate: run and chat.
#include "apps/cli/command.h"
#include "wire/program.h"

namespace pellucid::cli {

struct SamplingOptions {
  wire::Sampling sampling;
  int64_t max_tokens = 128;
  std::vector<std::string> stop;
  bool verbose = false;
};

void add_sampling_options(CLI::App& app, SamplingOptions& options);
/// A group without prompts.
wire::Group group_of(const SamplingOptions& options);
/// "8 tokens read, 40 made in 1.20 s (33.3 tokens/s); ...", for --verbose.
std::string timing_text(int64_t tokens_read, int64_t tokens_made, double seconds,
                        const SamplingOptions& options);

}  // namespace pellucid::cli
