#include "model/rope.h"

#include <ATen/ops/add.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/sub.h>

#include <algorithm>
#include <cmath>

#include "base/check.h"

namespace pellucid::model {
namespace {

// Long waves are stretched by `factor`, short ones kept, those between are mixed [Llama 3.1].
double llama3_frequency(const RopeConfig& config, double frequency) {
  const double wavelength = 2 * M_PI / frequency;
  const double low_wavelength = config.original_max_positions / config.low_freq_factor;
  const double high_wavelength = config.original_max_positions / config.high_freq_factor;
  if (wavelength > low_wavelength) return frequency / config.factor;
  if (wavelength < high_wavelength) return frequency;
  const double smooth = (config.original_max_positions / wavelength - config.low_freq_factor) /
                        (config.high_freq_factor - config.low_freq_factor);
  return (1 - smooth) * frequency / config.factor + smooth * frequency;
}

// The dimension that turns `rotations` times over the original context.
double yarn_dimension(const RopeConfig& config, double rotations) {
  return config.head_width * std::log(config.original_max_positions / (rotations * 2 * M_PI)) /
         (2 * std::log(config.theta));
}

struct Ramp {
  double low, high;
  double operator()(double index) const {
    return std::clamp((index - low) / (high - low), 0.0, 1.0);
  }
};

Ramp yarn_ramp(const RopeConfig& config) {
  double low = yarn_dimension(config, config.beta_fast);
  double high = yarn_dimension(config, config.beta_slow);
  if (config.truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, static_cast<double>(config.head_width - 1));
  if (low == high) high += 0.001;  // as transformers does, against dividing by zero
  return {low, high};
}

}  // namespace

double yarn_attention_factor(double factor, double mscale) {
  return factor <= 1 ? 1.0 : 0.1 * mscale * std::log(factor) + 1.0;
}

std::vector<double> inverse_frequencies(const RopeConfig& config, int64_t length) {
  using Kind = RopeConfig::Kind;
  const double width = static_cast<double>(config.head_width);
  double theta = config.theta;
  if (config.kind == Kind::kDynamic && length > config.max_positions) {
    const double stretch =
        config.factor * static_cast<double>(length) / static_cast<double>(config.max_positions) -
        (config.factor - 1);
    theta *= std::pow(stretch, width / (width - 2));
  }
  const Ramp ramp = config.kind == Kind::kYarn ? yarn_ramp(config) : Ramp{0, 1};
  std::vector<double> frequencies(static_cast<size_t>(config.head_width / 2));
  for (size_t i = 0; i < frequencies.size(); ++i) {
    const double plain = std::pow(theta, -2.0 * static_cast<double>(i) / width);
    double& frequency = frequencies[i] = plain;
    switch (config.kind) {
      case Kind::kDefault:
      case Kind::kDynamic:
        break;
      case Kind::kLinear:
        frequency = plain / config.factor;
        break;
      case Kind::kLlama3:
        frequency = llama3_frequency(config, plain);
        break;
      case Kind::kYarn: {
        const double keep = 1 - ramp(static_cast<double>(i));
        frequency = plain / config.factor * (1 - keep) + plain * keep;
        break;
      }
      case Kind::kFactors:
        frequency = plain / config.factors[i];
        break;
    }
  }
  return frequencies;
}

RotaryTable rotary_table(const RopeConfig& config, const Step& step, at::ScalarType dtype) {
  const int64_t half = config.head_width / 2;
  const int64_t num_tokens = step.num_tokens();
  const at::Tensor positions_T = step.positions_T.cpu().contiguous();
  PELLUCID_CHECK(positions_T.numel() == num_tokens, "{} positions for {} tokens",
                 positions_T.numel(), num_tokens);
  const int64_t* positions = positions_T.const_data_ptr<int64_t>();
  at::Tensor cos = at::empty({num_tokens, 1, half}, at::TensorOptions(at::kDouble));
  at::Tensor sin = at::empty({num_tokens, 1, half}, at::TensorOptions(at::kDouble));
  double* cos_data = cos.mutable_data_ptr<double>();
  double* sin_data = sin.mutable_data_ptr<double>();
  std::vector<double> frequencies = inverse_frequencies(config, 0);
  for (const GroupSpan& group : step.groups) {
    if (config.kind == RopeConfig::Kind::kDynamic) {
      frequencies = inverse_frequencies(config, group.past + group.seq);
    }
    for (int64_t token = group.token_first; token < group.token_end(); ++token) {
      for (int64_t i = 0; i < half; ++i) {
        const double angle = static_cast<double>(positions[token]) * frequencies[i];
        cos_data[token * half + i] = std::cos(angle) * config.attention_factor;
        sin_data[token * half + i] = std::sin(angle) * config.attention_factor;
      }
    }
  }
  const auto options = step.positions_T.options().dtype(dtype);
  return {cos.to(options), sin.to(options)};
}

at::Tensor rotate(const at::Tensor& x_TNH, const RotaryTable& table) {
  const int64_t half = x_TNH.size(2) / 2;
  const at::Tensor cos = table.cos.narrow(0, 0, x_TNH.size(0));
  const at::Tensor sin = table.sin.narrow(0, 0, x_TNH.size(0));
  const at::Tensor x = x_TNH.to(cos.scalar_type());
  const at::Tensor first = x.narrow(2, 0, half);
  const at::Tensor second = x.narrow(2, half, half);
  const at::Tensor rotated = at::cat({at::sub(at::mul(first, cos), at::mul(second, sin)),
                                      at::add(at::mul(second, cos), at::mul(first, sin))},
                                     2);
  return rotated.to(x_TNH.scalar_type());
}

}  // namespace pellucid::model
