#include "hook/names.h"

#include <fmt/format.h>

#include <charconv>
#include <optional>

#include "base/nearest.h"
#include "hook/common_aliases.h"
#include "hook/glob.h"

namespace pellucid::hook {
namespace {

constexpr std::string_view kLayer = "{i}";
constexpr size_t kNameMax = 200;  // longer names are cut in messages and not compared

std::string shown(std::string_view name) {
  std::string text;
  for (const char c : name.substr(0, kNameMax)) text += c >= 32 && c < 127 ? c : '?';
  return text + (name.size() > kNameMax ? "..." : "");
}

std::string with_layer(std::string_view pattern, int layer) {
  std::string text(pattern);
  for (size_t at = text.find(kLayer); at != std::string::npos; at = text.find(kLayer, at)) {
    text.replace(at, kLayer.size(), fmt::format("{}", layer));
  }
  return text;
}

// The layer that stands for {i}, -1 where the pattern has none; nothing when the name differs. A
// number that is too large for an int becomes INT_MAX, which is out of range for every model.
std::optional<int> match(std::string_view pattern, std::string_view name) {
  const size_t at = pattern.find(kLayer);
  if (at == std::string_view::npos) return pattern == name ? std::optional(-1) : std::nullopt;
  const std::string_view head = pattern.substr(0, at), tail = pattern.substr(at + kLayer.size());
  if (name.size() <= head.size() + tail.size() || !name.starts_with(head) ||
      !name.ends_with(tail)) {
    return std::nullopt;
  }
  const std::string_view digits = name.substr(at, name.size() - head.size() - tail.size());
  if (digits.find_first_not_of("0123456789") != std::string_view::npos) return std::nullopt;
  if (digits.size() > 1 && digits[0] == '0') return std::nullopt;
  int layer = 0;
  const auto parsed = std::from_chars(digits.data(), digits.data() + digits.size(), layer);
  return parsed.ec == std::errc() ? layer : std::numeric_limits<int>::max();
}

std::string canonical_pattern(const SiteInfo& info) {
  return info.per_block ? fmt::format("blocks.{}.{}", kLayer, info.name) : std::string(info.name);
}

// Why a family may lack a site, and where to look instead.
Status absent(const Catalog& catalog, std::string_view name, SiteKey key) {
  const bool gated = catalog.has(Site::kMlpGate);
  std::string hint;
  switch (key.site) {
    case Site::kMlpPre:
      hint =
          fmt::format("its MLP is gated: {} is the input of the activation, {} the other factor",
                      site_name({Site::kMlpGate, key.layer}), site_name({Site::kMlpUp, key.layer}));
      break;
    case Site::kMlpGate:
    case Site::kMlpUp:
      if (!gated) {
        hint = fmt::format("its MLP is not gated: {} is the input of the activation",
                           site_name({Site::kMlpPre, key.layer}));
      }
      break;
    case Site::kPosEmbed:
      hint = "its positions are not learned embeddings";
      break;
    case Site::kAttnRotQ:
    case Site::kAttnRotK:
      hint = "it has no rotary positions";
      break;
    case Site::kAttnQNorm:
    case Site::kAttnKNorm:
      hint = "it does not norm its queries and keys";
      break;
    case Site::kResidMid:
      hint = "attention and MLP run side by side in its blocks";
      break;
    default:
      break;
  }
  return error(Code::kNotFound, hint, "{} has no site {}", catalog.family, shown(name));
}

// The first number in a name, for suggestions of the same layer.
int mentioned_layer(const Catalog& catalog, std::string_view name) {
  const size_t at = name.find_first_of("0123456789");
  int layer = 0;
  if (at != std::string_view::npos) {
    std::from_chars(name.data() + at, name.data() + name.size(), layer);
  }
  return layer >= 0 && layer < catalog.sizes.num_layers ? layer : 0;
}

Status unknown(const Catalog& catalog, std::string_view name) {
  for (const Refusal& refusal : refused_names()) {
    const std::optional<int> layer = match(refusal.name, name);
    if (!layer) continue;
    return error(Code::kNotFound, with_layer(refusal.why, *layer), "{} means no single site",
                 shown(name));
  }
  const int layer = mentioned_layer(catalog, name);
  std::vector<std::string> known;
  for (const SiteInfo& info : all_sites()) {
    if (catalog.has(info.site))
      known.push_back(site_name({info.site, info.per_block ? layer : -1}));
  }
  for (const auto& aliases : {catalog.aliases, common_aliases()}) {
    for (const Alias& alias : aliases) {
      if (catalog.has(alias.site)) known.push_back(with_layer(alias.alias, layer));
    }
  }
  return error(
      Code::kNotFound,
      did_you_mean(name.substr(0, kNameMax), known, "`pellucid inspect MODEL --sites` lists them"),
      "no site named {}", shown(name));
}

Status check_layer(const Catalog& catalog, std::string_view name, int layer) {
  if (layer < catalog.sizes.num_layers) return ok_status();
  return error(Code::kInvalidArgument,
               fmt::format("layers are 0 to {}", catalog.sizes.num_layers - 1),
               "{}: layer {} of {} layers", shown(name), layer, catalog.sizes.num_layers);
}

Result<Resolved> found(const Catalog& catalog, std::string_view name, Site site, int layer,
                       bool flatten_heads) {
  if (layer >= 0) PELLUCID_TRY(check_layer(catalog, name, layer));
  // "model.norm.input": an alias without a layer of a block's site means the last block.
  if (layer < 0 && site_info(site).per_block) {
    layer = static_cast<int>(catalog.sizes.num_layers) - 1;
  }
  const SiteKey key{site, layer};
  if (!catalog.has(site)) return absent(catalog, name, key);
  return Resolved{key, flatten_heads};
}

// In the order of the forward pass.
std::vector<SiteKey> matching(const Catalog& catalog, std::string_view glob) {
  std::vector<SiteKey> keys;
  const auto add = [&](const SiteInfo& info, int layer) {
    const SiteKey key{info.site, layer};
    if (catalog.has(info.site) && glob_match(glob, site_name(key))) keys.push_back(key);
  };
  const auto add_outside = [&](bool after) {
    for (const SiteInfo& info : all_sites()) {
      if (!info.per_block && (info.site > kLastBlockSite) == after) add(info, -1);
    }
  };
  add_outside(false);
  for (int layer = 0; layer < catalog.sizes.num_layers; ++layer) {
    for (const SiteInfo& info : all_sites()) {
      if (info.per_block) add(info, layer);
    }
  }
  add_outside(true);
  return keys;
}

}  // namespace

Result<Resolved> resolve_site(const Catalog& catalog, std::string_view name) {
  for (const SiteInfo& info : all_sites()) {
    if (const auto layer = match(canonical_pattern(info), name)) {
      return found(catalog, name, info.site, *layer, false);
    }
  }
  // A name may stand for different sites by family: the one that is there wins.
  const Alias* lacking = nullptr;
  int lacking_layer = -1;
  for (const auto& aliases : {catalog.aliases, common_aliases()}) {
    for (const Alias& alias : aliases) {
      const auto layer = match(alias.alias, name);
      if (!layer) continue;
      if (catalog.has(alias.site)) {
        return found(catalog, name, alias.site, *layer, alias.flatten_heads);
      }
      lacking = &alias;
      lacking_layer = *layer;
    }
  }
  if (lacking != nullptr) return found(catalog, name, lacking->site, lacking_layer, false);
  return unknown(catalog, name);
}

std::vector<std::string> site_names(const Catalog& catalog) {
  std::vector<std::string> names;
  for (const SiteKey key : matching(catalog, "*")) names.push_back(site_name(key));
  return names;
}

Result<std::vector<SiteKey>> match_sites(const Catalog& catalog, std::string_view glob) {
  std::vector<SiteKey> keys = matching(catalog, glob);
  if (!keys.empty()) return keys;
  // No wildcard: the name's own error, or an alias.
  if (glob.find_first_of("*?") == std::string_view::npos) {
    PELLUCID_ASSIGN(const Resolved resolved, resolve_site(catalog, glob));
    return std::vector<SiteKey>{resolved.key};
  }
  return error(
      Code::kNotFound,
      "globs match canonical names: blocks.*.attn.z; `pellucid inspect MODEL --sites` lists them",
      "no site matches {}", shown(glob));
}

std::vector<int64_t> site_shape(const Catalog& catalog, SiteKey key, int64_t batch, int64_t seq,
                                int64_t key_seq) {
  std::vector<int64_t> shape;
  for (const Dim dim : site_info(key.site).dimensions()) {
    shape.push_back(catalog.sizes.size(dim, batch, seq, key_seq));
  }
  return shape;
}

}  // namespace pellucid::hook
