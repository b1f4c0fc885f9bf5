#pragma once
// Names that other tools give to sites, the same for every family.
#include <span>
#include <string_view>

#include "hook/names.h"

namespace pellucid::hook {

/// TransformerLens (both vocabularies), nnterp, llama.cpp. Where a name is listed twice, the site
/// that the family has is meant (TransformerLens's mlp.hook_pre: gate or pre).
std::span<const Alias> common_aliases();

/// Known names that mean no single site here.
struct Refusal {
  std::string_view name;  // "{i}" stands for the layer
  std::string_view why;
};
std::span<const Refusal> refused_names();

}  // namespace pellucid::hook
