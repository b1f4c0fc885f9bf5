#pragma once
// Rotary positions: frequencies with every scaling that transformers' Llama knows, and the
// rotation.
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <vector>

#include "model/step.h"

namespace pellucid::model {

struct RopeConfig {
  enum class Kind : uint8_t {
    kDefault,
    kLinear,
    kDynamic,  // NTK by the row's length
    kLlama3,
    kYarn,
    kFactors,  // GGUF: each frequency divided by a factor from the file
  };
  Kind kind = Kind::kDefault;
  int64_t head_width = 0;
  double theta = 10000.0;
  double factor = 1.0;
  int64_t max_positions = 0;          // kDynamic: positions up to which nothing is scaled
  double original_max_positions = 0;  // kLlama3, kYarn
  double low_freq_factor = 1.0, high_freq_factor = 4.0;  // kLlama3
  double beta_fast = 32.0, beta_slow = 1.0;              // kYarn
  bool truncate = true;                                  // kYarn
  double attention_factor = 1.0;  // kYarn: cosines and sines are multiplied by it
  std::vector<double> factors;    // kFactors: [head_width / 2]
};

/// YaRN's default attention factor [YaRN §3.4]: 0.1 * mscale * ln(factor) + 1.
double yarn_attention_factor(double factor, double mscale);

/// [head_width / 2] inverse frequencies for a row of `length` positions (kDynamic depends on it).
std::vector<double> inverse_frequencies(const RopeConfig& config, int64_t length);

/// Cosines and sines, [T, 1, head_width / 2] each, in `dtype`.
struct RotaryTable {
  at::Tensor cos, sin;
};

/// Computed in double one by one, so that a token's values never depend on its neighbours.
/// Dynamic scaling goes by each row's own length.
RotaryTable rotary_table(const RopeConfig& config, const Step& step, at::ScalarType dtype);

/// x: [T, heads, head_width], halves rotated against each other (Hugging Face's layout); the
/// table's first T rows are used. Computed in the table's dtype, result in x's.
at::Tensor rotate(const at::Tensor& x_TNH, const RotaryTable& table);

}  // namespace pellucid::model
