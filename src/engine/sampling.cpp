#include "engine/sampling.h"

#include <algorithm>
#include <cmath>

namespace pellucid::engine {
namespace {

/// Divides positive scores of tokens already seen by the penalty and multiplies negative ones [CTRL
/// §4.1], each token once.
void penalise(std::vector<std::pair<float, int64_t>>& candidates, std::span<const int64_t> history,
              double penalty) {
  std::vector<int64_t> seen(history.begin(), history.end());
  std::sort(seen.begin(), seen.end());
  seen.erase(std::unique(seen.begin(), seen.end()), seen.end());
  for (const int64_t token : seen) {
    float& score = candidates[static_cast<size_t>(token)].first;
    score = static_cast<float>(score > 0 ? score / penalty : score * penalty);
  }
}

bool higher(const std::pair<float, int64_t>& a, const std::pair<float, int64_t>& b) {
  return a.first != b.first ? a.first > b.first : a.second < b.second;
}

}  // namespace

Status check_sampling(const wire::Sampling& sampling) {
  const auto refuse = [](std::string_view name, auto value, std::string_view allowed) {
    return error(Code::kInvalidArgument, fmt::format("{} is {}", name, allowed), "{} = {}", name,
                 value);
  };
  if (!(sampling.temperature >= 0) || !std::isfinite(sampling.temperature)) {
    return refuse("temperature", sampling.temperature, "a finite number, 0 (greedy) or more");
  }
  if (sampling.top_k < 0) return refuse("top_k", sampling.top_k, "0 (off) or more");
  if (!(sampling.top_p > 0 && sampling.top_p <= 1)) {
    return refuse("top_p", sampling.top_p, "more than 0 and at most 1 (off)");
  }
  if (!(sampling.min_p >= 0 && sampling.min_p <= 1)) {
    return refuse("min_p", sampling.min_p, "from 0 (off) to 1");
  }
  if (!(sampling.repetition_penalty > 0) || !std::isfinite(sampling.repetition_penalty)) {
    return refuse("repetition_penalty", sampling.repetition_penalty, "more than 0; 1 is off");
  }
  return ok_status();
}

Result<int64_t> Sampler::next(std::span<const float> logits, std::span<const int64_t> history) {
  candidates_.resize(logits.size());
  for (size_t i = 0; i < logits.size(); ++i) {
    if (std::isnan(logits[i])) {
      return error(Code::kInvalidArgument,
                   "an edit or the weights made it so; look at earlier sites with t.save",
                   "the logit of token {} is NaN: no token can be chosen", i);
    }
    candidates_[i] = {logits[i], static_cast<int64_t>(i)};
  }
  if (sampling_.repetition_penalty != 1) {
    penalise(candidates_, history, sampling_.repetition_penalty);
  }
  if (sampling_.temperature == 0) {
    return std::min_element(candidates_.begin(), candidates_.end(), higher)->second;
  }

  for (auto& [score, token] : candidates_) {
    score = static_cast<float>(score / sampling_.temperature);
  }
  if (sampling_.top_k > 0 && static_cast<size_t>(sampling_.top_k) < candidates_.size()) {
    std::nth_element(candidates_.begin(), candidates_.begin() + sampling_.top_k, candidates_.end(),
                     higher);
    candidates_.resize(static_cast<size_t>(sampling_.top_k));
  }
  // Sorted, so that the sum's order, and with it the choice, does not depend on the library.
  std::sort(candidates_.begin(), candidates_.end(), higher);
  const double top = candidates_.front().first;
  double total = 0;
  for (const auto& [score, token] : candidates_) total += std::exp(score - top);

  // Kept: the smallest prefix with probability >= top_p, then those of at least min_p times the
  // best.
  double kept = 0;
  size_t count = 0;
  while (count < candidates_.size() && (count == 0 || kept < sampling_.top_p * total)) {
    const double weight = std::exp(candidates_[count].first - top);
    if (count > 0 && weight < sampling_.min_p) break;
    kept += weight;
    ++count;
  }
  double left = rng_.uniform() * kept;
  for (size_t i = 0; i < count; ++i) {
    left -= std::exp(candidates_[i].first - top);
    if (left < 0) return candidates_[i].second;
  }
  return candidates_[count - 1].second;
}

}  // namespace pellucid::engine
