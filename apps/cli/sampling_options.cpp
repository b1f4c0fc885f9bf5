#include "apps/cli/sampling_options.h"

#include <ATen/Parallel.h>
#include <CLI/CLI.hpp>

#include <limits>

namespace pellucid::cli {

void add_sampling_options(CLI::App& app, SamplingOptions& options) {
  wire::Sampling& sampling = options.sampling;
  const double most = std::numeric_limits<double>::max();
  app.add_option("--max-tokens", options.max_tokens,
                 fmt::format("Most new tokens (default {})", options.max_tokens))
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 30));
  app.add_option("--temperature", sampling.temperature,
                 "0 (default): always the most probable token")
      ->check(CLI::Range(0.0, most));
  app.add_option("--top-k", sampling.top_k, "Choose among the k most probable tokens; 0: all")
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 30));
  app.add_option("--top-p", sampling.top_p,
                 "Choose among the most probable tokens that make up this much")
      ->check(CLI::Range(0.0, 1.0));
  app.add_option("--min-p", sampling.min_p,
                 "Leave out tokens below this share of the best one's probability")
      ->check(CLI::Range(0.0, 1.0));
  app.add_option("--repetition-penalty", sampling.repetition_penalty,
                 "Above 1: make repeated tokens less probable")
      ->check(CLI::Range(1e-3, 1e3));
  app.add_option("--seed", sampling.seed, "Same seed, same text (default 0)");
  app.add_option("--stop", options.stop, "End before this text; may be given several times")
      ->allow_extra_args(false);
  app.add_flag("-v,--verbose", options.verbose, "A line of timing on standard error");
}

wire::Group group_of(const SamplingOptions& options) {
  wire::Group group;
  group.max_new_tokens = options.max_tokens;
  group.sampling = options.sampling;
  group.stop = options.stop;
  return group;
}

std::string timing_text(int64_t tokens_read, int64_t tokens_made, double seconds,
                        const SamplingOptions& options) {
  return fmt::format(
      "{} tokens read, {} made in {:.2f} s ({:.1f} tokens/s); {} threads, exact path, seed {}",
      tokens_read, tokens_made, seconds, tokens_made / std::max(seconds, 1e-9),
      at::get_num_threads(), options.sampling.seed);
}

}  // namespace pellucid::cli
