#include "model/cache.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>

#include <algorithm>

#include "base/check.h"

namespace pellucid::model {
namespace {

constexpr int64_t kGrowthMin = 16;

at::Tensor store(const GroupSpan& group, at::Tensor& buffer, const at::Tensor& fresh) {
  const int64_t length = group.past + group.seq;
  if (at::GradMode::is_enabled() &&
      (fresh.requires_grad() || (buffer.defined() && buffer.requires_grad()))) {
    buffer = group.past == 0 ? fresh : at::cat({buffer.narrow(1, 0, group.past), fresh}, 1);
    return buffer;
  }
  const int64_t held = buffer.defined() ? buffer.size(1) : 0;
  if (held < length) {
    const int64_t wanted =
        std::max({length, group.cache->capacity, held == 0 ? 0 : held + held / 2});
    std::vector<int64_t> shape = fresh.sizes().vec();
    shape[1] = held == 0 ? wanted : std::max(wanted, length + kGrowthMin);
    at::Tensor grown = at::empty(shape, fresh.options());
    if (group.past > 0) grown.narrow(1, 0, group.past).copy_(buffer.narrow(1, 0, group.past));
    buffer = grown;
  }
  buffer.narrow(1, group.past, group.seq).copy_(fresh);
  return buffer.narrow(1, 0, length);
}

}  // namespace

KeysValues append(const GroupSpan& group, int layer, const at::Tensor& k_BSKH,
                  const at::Tensor& v_BSKH) {
  if (group.cache == nullptr) {
    PELLUCID_CHECK(group.past == 0, "{} past positions without a cache", group.past);
    return {k_BSKH, v_BSKH};
  }
  auto& layers = group.cache->layers;
  if (layers.size() <= static_cast<size_t>(layer)) layers.resize(layer + 1);
  KvCache::Layer& cached = layers[layer];
  PELLUCID_CHECK(group.past == 0 || cached.k_BPKH.defined(), "block {} has no cached keys", layer);
  return {store(group, cached.k_BPKH, k_BSKH), store(group, cached.v_BPKH, v_BSKH)};
}

}  // namespace pellucid::model
