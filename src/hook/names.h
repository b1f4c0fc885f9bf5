#pragma once
// Names of sites: canonical ones, and aliases (Hugging Face module paths, TransformerLens names),
// resolved when a program is built. An unknown name is an error that offers the nearest ones.
#include <array>
#include <bitset>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "hook/site.h"

namespace pellucid::hook {

/// A family's own names. `{i}` stands for the layer. `alias` of a Hugging Face path ends in
/// ".input" or ".output" (`model.layers.{i}.self_attn.o_proj.input`).
struct Alias {
  std::string_view alias;
  Site site;
  /// The alias shows heads and head width as one dimension (o_proj's input is [batch, seq, H * h]).
  bool flatten_heads = false;
};

/// Which sites a model has and what they are called there.
struct Catalog {
  SiteSizes sizes;
  std::bitset<kNumSites> present;
  std::string family;              // for error messages
  std::span<const Alias> aliases;  // the family's; TransformerLens names are common to all

  bool has(Site site) const { return present[static_cast<size_t>(site)]; }
};

struct Resolved {
  SiteKey key;
  bool flatten_heads = false;
};

/// Canonical name or alias -> site. Errors: kNotFound with the nearest names, or the reason why the
/// family has no such site; kInvalidArgument for a layer out of range (names both numbers).
Result<Resolved> resolve_site(const Catalog& catalog, std::string_view name);

/// All canonical names of the model, in the order of the forward pass.
std::vector<std::string> site_names(const Catalog& catalog);

/// Canonical names that match a glob ("blocks.*.attn.z", "blocks.3.*"), in the order of the forward
/// pass. kNotFound when nothing matches.
Result<std::vector<SiteKey>> match_sites(const Catalog& catalog, std::string_view glob);

/// [batch, seq, ...] of the site for a group.
std::vector<int64_t> site_shape(const Catalog& catalog, SiteKey key, int64_t batch, int64_t seq,
                                int64_t key_seq);

}  // namespace pellucid::hook
