#pragma once
// The list of sites: every typed place in a forward pass that a program may read or write.
// Names, shapes and meanings do not depend on the architecture; docs/reference/sites.md is
// generated from this list. Order in the list = order in the forward pass.
#include <array>
#include <compare>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace pellucid::hook {

enum class Site : uint8_t {
  // before the blocks
  kTokens,
  kEmbed,
  kPosEmbed,
  // in each block
  kResidPre,
  kAttnQResid,
  kAttnKResid,
  kAttnVResid,
  kLn1Scale,
  kLn1Normalized,
  kLn1Out,
  kAttnInput,
  kAttnQ,
  kAttnK,
  kAttnV,
  kAttnQNorm,
  kAttnKNorm,
  kAttnRotQ,
  kAttnRotK,
  kAttnScores,
  kAttnPattern,
  kAttnZ,
  kAttnResult,
  kAttnOut,
  kAttnDelta,
  kResidMid,
  kMlpResid,
  kLn2Scale,
  kLn2Normalized,
  kLn2Out,
  kMlpInput,
  kMlpGate,
  kMlpUp,
  kMlpPre,
  kMlpPost,
  kMlpOut,
  kMlpDelta,
  kResidPost,
  // after the blocks
  kLnFinalScale,
  kLnFinalNormalized,
  kLnFinalOut,
  kLogits,
};
inline constexpr int kNumSites = static_cast<int>(Site::kLogits) + 1;
inline constexpr Site kFirstBlockSite = Site::kResidPre;
inline constexpr Site kLastBlockSite = Site::kResidPost;
inline constexpr int kSitesPerBlock =
    static_cast<int>(kLastBlockSite) - static_cast<int>(kFirstBlockSite) + 1;

/// Names of dimensions. A group's value has `batch` first; the packed tensor inside a model has one
/// token dimension T instead of `batch seq`.
enum class Dim : uint8_t {
  kBatch,
  kSeq,
  kKeySeq,  // positions that may be attended to: past and present
  kModel,
  kHeads,
  kKvHeads,
  kHeadWidth,
  kMlp,
  kVocab,
  kOne,
};

enum class Placement : uint8_t { kReplicate, kShardHeads, kShardMlp, kShardVocab, kPartial };

/// How the model makes the site's value.
enum class Route : uint8_t {
  kPacked,  // a tensor of the forward pass itself, [T, ...]: written in place of it
  kBeside,  // computed for a group that reads it, next to the fused path; a write moves that group
            // and layer to the explicit path
};

struct SiteInfo {
  Site site;
  std::string_view name;  // without "blocks.{i}."
  bool per_block;
  Route route;
  bool integer;  // token ids rather than floats
  Placement placement;
  std::array<Dim, 5> dims;
  int num_dims;
  std::string_view meaning;  // the ONE written meaning: before or after rotary, norm, post-norm

  std::span<const Dim> dimensions() const { return {dims.data(), static_cast<size_t>(num_dims)}; }
};

const SiteInfo& site_info(Site site);
std::span<const SiteInfo> all_sites();
/// Floats are in the wider of float32 and the model's dtype: what a norm divides by is never
/// rounded.
constexpr bool is_wide(Site site) {
  return site == Site::kLn1Scale || site == Site::kLn2Scale || site == Site::kLnFinalScale;
}
std::string_view dim_name(Dim dim);            // "batch", "seq", "d_model", ...
std::string_view placement_name(Placement p);  // "Replicate", "Shard(heads)", ...

/// A site of one model: `layer` is -1 outside the blocks.
struct SiteKey {
  Site site = Site::kTokens;
  int layer = -1;

  /// Position in the forward pass: sites compare in the order in which they fire.
  int order(int num_layers) const;
  friend bool operator==(const SiteKey&, const SiteKey&) = default;
};

/// "blocks.5.attn.q", "embed".
std::string site_name(SiteKey key);

/// Sizes that turn dimensions into numbers; from the model's config.
struct SiteSizes {
  int64_t num_layers = 0, d_model = 0, num_heads = 0, num_kv_heads = 0, head_width = 0, d_mlp = 0,
          vocab = 0;

  /// `batch`, `seq` and `key_seq` are the group's; everything else comes from the model.
  int64_t size(Dim dim, int64_t batch, int64_t seq, int64_t key_seq) const;
};

}  // namespace pellucid::hook
