#pragma once
// From one row of logits to one token.
#include <cstdint>
#include <span>
#include <vector>

#include "base/rng.h"
#include "base/status.h"
#include "wire/program.h"

namespace pellucid::engine {

/// Errors name the option, its value and what is allowed.
Status check_sampling(const wire::Sampling& sampling);

/// The sampler of one row. Order of the steps as in transformers: repetition penalty, temperature,
/// top-k, top-p, min-p.
class Sampler {
 public:
  Sampler(const wire::Sampling& sampling, uint64_t row)
      : sampling_(sampling), rng_(sampling.seed, row) {}

  /// `logits`: [vocab]; `history`: the row's tokens so far, prompt included. Greedy decoding takes
  /// the lowest id among equals. Errors: kInvalidArgument when a logit is NaN.
  Result<int64_t> next(std::span<const float> logits, std::span<const int64_t> history);

 private:
  wire::Sampling sampling_;
  Rng rng_;
  std::vector<std::pair<float, int64_t>> candidates_;  // reused between tokens
};

}  // namespace pellucid::engine
