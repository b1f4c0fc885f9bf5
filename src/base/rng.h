#pragma once
// Random numbers by counter: a row's stream depends on its seed and its own index alone, so that
// the same seed gives the same text whatever else is in the batch.
#include <cstdint>

namespace pellucid {

/// SplitMix64 [Steele, Lea, Flood 2014, "Fast splittable pseudorandom number generators", fig. 15].
class Rng {
 public:
  Rng(uint64_t seed, uint64_t stream) : state_(mix(seed) ^ mix(mix(stream) + kGamma)) {}

  uint64_t next() {
    state_ += kGamma;
    return mix(state_);
  }
  /// Uniform in [0, 1), 53 bits.
  double uniform() { return static_cast<double>(next() >> 11) * 0x1.0p-53; }

 private:
  static constexpr uint64_t kGamma = 0x9e3779b97f4a7c15;
  static uint64_t mix(uint64_t z) {
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
  }
  uint64_t state_;
};

}  // namespace pellucid
