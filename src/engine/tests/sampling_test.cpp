#include <doctest/doctest.h>

#include <array>
#include <cmath>
#include <map>

#include "engine/sampling.h"

namespace pellucid::engine {
namespace {

constexpr std::array<float, 5> kLogits{0.0f, 2.0f, 1.0f, 2.0f, -1.0f};

std::map<int64_t, int> draw(const wire::Sampling& sampling, int count) {
  Sampler sampler(sampling, 0);
  std::map<int64_t, int> out;
  for (int i = 0; i < count; ++i) ++out[*sampler.next(kLogits, {})];
  return out;
}

/// Probability of each token by the definition, over the tokens allowed.
double probability(int64_t token, std::vector<int64_t> allowed, double temperature) {
  double total = 0;
  for (const int64_t t : allowed) total += std::exp(kLogits[t] / temperature);
  return std::exp(kLogits[token] / temperature) / total;
}

void check_frequencies(const wire::Sampling& sampling, const std::vector<int64_t>& allowed) {
  constexpr int kDraws = 20000;
  const auto counts = draw(sampling, kDraws);
  CHECK(counts.size() == allowed.size());
  for (const int64_t token : allowed) {
    const double p = probability(token, allowed, sampling.temperature);
    const double sigma = std::sqrt(p * (1 - p) / kDraws);
    CAPTURE(token);
    CHECK(std::abs(counts.at(token) / double{kDraws} - p) < 5 * sigma);
  }
}

}  // namespace

TEST_CASE("sampling: greedy takes the highest logit, the lowest id among equals") {
  CHECK(*Sampler({}, 0).next(kLogits, {}) == 1);
}

TEST_CASE("sampling: frequencies are the softmax at the temperature") {
  check_frequencies({.temperature = 1.0, .seed = 3}, {0, 1, 2, 3, 4});
  check_frequencies({.temperature = 0.5, .seed = 4}, {0, 1, 2, 3, 4});
}

TEST_CASE("sampling: top-k, top-p and min-p keep the tokens that their definitions keep") {
  check_frequencies({.temperature = 1, .top_k = 3, .seed = 1}, {1, 2, 3});
  // probabilities .378 .378 .139 .051 .. : two tokens make .757, three .896
  check_frequencies({.temperature = 1, .top_p = 0.7, .seed = 1}, {1, 3});
  check_frequencies({.temperature = 1, .top_p = 0.8, .seed = 1}, {1, 2, 3});
  // exp(1 - 2) = .368 of the best, exp(0 - 2) = .135
  check_frequencies({.temperature = 1, .min_p = 0.3, .seed = 1}, {1, 2, 3});
}

TEST_CASE("sampling: the repetition penalty divides positive and multiplies negative logits") {
  const std::array<int64_t, 3> history{1, 3, 3};
  CHECK(*Sampler({.repetition_penalty = 3}, 0).next(kLogits, history) == 2);  // 2/3 twice, 1
}

TEST_CASE("sampling: a row's stream depends on its seed and its index alone") {
  const auto text = [](uint64_t seed, uint64_t row) {
    Sampler sampler({.temperature = 1, .seed = seed}, row);
    std::vector<int64_t> out;
    for (int i = 0; i < 32; ++i) out.push_back(*sampler.next(kLogits, {}));
    return out;
  };
  CHECK(text(7, 2) == text(7, 2));
  CHECK(text(7, 2) != text(7, 3));
  CHECK(text(7, 2) != text(8, 2));
}

TEST_CASE("sampling: NaN logits and options out of range are refused by name") {
  const std::array<float, 2> nan{0.0f, NAN};
  CHECK(Sampler({}, 0).next(nan, {}).status().what ==
        "the logit of token 1 is NaN: no token can be chosen");
  CHECK(check_sampling({.temperature = -1}).what == "temperature = -1");
  CHECK(check_sampling({.top_k = -2}).what == "top_k = -2");
  CHECK(check_sampling({.top_p = 0}).what == "top_p = 0");
  CHECK(check_sampling({.min_p = 1.5}).what == "min_p = 1.5");
  CHECK(check_sampling({.repetition_penalty = 0}).what == "repetition_penalty = 0");
  CHECK(check_sampling({}).ok());
}

}  // namespace pellucid::engine
