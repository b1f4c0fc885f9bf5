#pragma once
// Keys and values of earlier passes.
#include <ATen/core/Tensor.h>

#include "model/step.h"

namespace pellucid::model {

struct KeysValues {
  at::Tensor k_BPKH, v_BPKH;  // past and present positions: views of the cache where there is one
};

/// Stores the new keys and values of one layer ([batch, seq, K, H]) behind the group's `past`
/// positions, and returns all of them. The cache is made at first use with its `capacity` and grows
/// when that is not enough. With gradients it is concatenated, never written in place.
KeysValues append(const GroupSpan& group, int layer, const at::Tensor& k_BSKH,
                  const at::Tensor& v_BSKH);

}  // namespace pellucid::model
