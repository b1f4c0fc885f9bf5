#pragma once
// How a forward pass announces its sites. A model calls `Taps::at` (or, for sites that only exist
// when somebody looks, asks `beside` first); nobody watching costs one branch on a bit mask.
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "hook/site.h"

namespace pellucid::hook {

/// What stands behind the taps: the engine. Called on the engine's thread, in the order of the
/// forward pass. May block (eager traces, local callbacks) and may throw (c10::Error, Stop).
class Listener {
 public:
  virtual ~Listener() = default;

  /// A packed site: x is [T, ...], the tokens of all rows. Returns x itself or a fresh tensor of
  /// the same shape and dtype; never changes x. The caller goes on with what is returned and drops
  /// x.
  virtual at::Tensor packed(SiteKey key, at::Tensor x) = 0;

  /// A site of Route::kBeside of one group: x is [batch, ...] by the site's dimensions. The result
  /// is used only when the group writes the site (then the model is on the explicit path).
  virtual at::Tensor beside(SiteKey key, int group, at::Tensor x) = 0;
};

/// The watched sites of one forward pass. Plain data, made by the engine.
class Taps {
 public:
  Taps() = default;
  Taps(Listener* listener, int num_layers, int num_groups)
      : listener_(listener),
        global_(0),
        layers_(num_layers, 0),
        reads_(static_cast<size_t>(num_layers) * num_groups, 0),
        writes_(static_cast<size_t>(num_layers) * num_groups, 0),
        num_groups_(num_groups) {}

  /// Makes packed sites fire.
  void watch(SiteKey key) { (key.layer < 0 ? global_ : layers_[key.layer]) |= bit(key.site); }
  /// Makes a beside site of one group fire; `write` asks for the explicit path.
  void watch_beside(SiteKey key, int group, bool write) {
    const size_t at = static_cast<size_t>(key.layer) * num_groups_ + group;
    (write ? writes_ : reads_)[at] |= bit(key.site);
    layers_[key.layer] |= bit(key.site);
  }

  /// The value with which the forward pass goes on.
  at::Tensor at(Site site, int layer, at::Tensor x) {
#ifndef PELLUCID_NO_TAPS
    if ((mask(layer) & bit(site)) != 0) [[unlikely]] {
      return listener_->packed({site, layer}, std::move(x));
    }
#endif
    return x;
  }

  /// Does any group watch this site in this layer?
  bool any(Site site, int layer) const { return (mask(layer) & bit(site)) != 0; }
  bool reads(Site site, int layer, int group) const {
    return (beside(reads_, layer, group) & bit(site)) != 0;
  }
  /// Asked after `at_beside`: an eager trace learns there whether its caller edits the value.
  bool writes(Site site, int layer, int group) const {
    return (beside(writes_, layer, group) & bit(site)) != 0;
  }
  at::Tensor at_beside(Site site, int layer, int group, at::Tensor x) {
    return listener_->beside({site, layer}, group, std::move(x));
  }

 private:
  static constexpr uint64_t bit(Site site) { return uint64_t{1} << static_cast<int>(site); }
  uint64_t mask(int layer) const {
#ifdef PELLUCID_NO_TAPS
    return 0;
#endif
    if (listener_ == nullptr) return 0;
    return layer < 0 ? global_ : layers_[layer];
  }
  uint64_t beside(const std::vector<uint64_t>& masks, int layer, int group) const {
#ifdef PELLUCID_NO_TAPS
    return 0;
#endif
    if (listener_ == nullptr) return 0;
    return masks[static_cast<size_t>(layer) * num_groups_ + group];
  }

  Listener* listener_ = nullptr;
  uint64_t global_ = 0;
  std::vector<uint64_t> layers_;          // by layer
  std::vector<uint64_t> reads_, writes_;  // beside sites, by layer and group
  int num_groups_ = 0;
};

static_assert(kNumSites <= 64, "a site is one bit of a mask");

}  // namespace pellucid::hook
