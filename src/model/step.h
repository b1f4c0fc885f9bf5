#pragma once
// One forward pass of many rows, packed token after token. Made by the engine, read by the model.
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <vector>

#include "hook/tap.h"
#include "model/shapes.h"

namespace pellucid::model {

/// Keys and values of one group. Owned by the engine's session, filled by the model.
struct KvCache {
  struct Layer {
    at::Tensor k_BPKH, v_BPKH;  // P: capacity, grows; the first `length` positions are valid
  };
  std::vector<Layer> layers;
  int64_t length = 0;  // positions filled in every layer: moved forward by the engine after a pass
  int64_t capacity = 0;  // positions to allocate at first use: the most that the group will need
};

/// Rows of equal length that share a program: tokens [token_first, token_first + batch * seq) of
/// the packed tensors are a [batch, seq] block.
struct GroupSpan {
  int64_t token_first = 0;
  int64_t batch = 0;
  int64_t seq = 0;           // new tokens of a row in this pass
  int64_t past = 0;          // tokens of a row that the cache already holds
  KvCache* cache = nullptr;  // null: the pass keeps nothing (no later pass needs it)

  /// Rows of the same tokens share the pass below their first write: this group enters before block
  /// `join_layer` with a copy of what group `leader` has there. 0 and -1: runs from the start.
  int join_layer = 0;
  int leader = -1;

  int64_t tokens() const { return batch * seq; }
  int64_t token_end() const { return token_first + tokens(); }
};

struct Step {
  at::Tensor tokens_T;     // int64, CPU or the model's device
  at::Tensor positions_T;  // int64: absolute position of each token in its row
  /// In packed order. Groups with join_layer 0 come first, then by join_layer: at every layer the
  /// active groups are a prefix of this list and their tokens a prefix of the packed tensors.
  std::vector<GroupSpan> groups;
  hook::Taps taps;

  /// Run blocks [0, layer_end) only: nobody needs a later site. Equal to the number of layers: all.
  int layer_end = 0;
  /// After the last block: run the final norm, and the head for these packed rows (int64 [R]).
  /// An undefined `logit_rows` means that nobody needs logits: no head.
  bool final_norm = true;
  at::Tensor logit_rows;

  /// Called once a block; throws to abandon the pass (cancelled, over budget).
  std::function<void()> poll;

  int64_t num_tokens() const { return groups.empty() ? 0 : groups.back().token_end(); }
};

}  // namespace pellucid::model
