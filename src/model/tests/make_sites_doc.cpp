// make_sites_doc > docs/reference/sites.md
//
// Writes the reference of sites from the lists in hook/ and model/families/.
#include <fmt/format.h>

#include <cstdio>

#include "hook/common_aliases.h"
#include "model/family.h"

namespace {

using namespace pellucid;

constexpr const char* kHead = R"(# Sites

<!-- Written by make_sites_doc from src/hook and src/model: edit those, then run
     build/dev/src/model/tests/make_sites_doc > docs/reference/sites.md -->

Every typed place in a forward pass that a program may read or write. Names, shapes and meanings do
not depend on the model's family; a family may lack a site, and asking for it is an error that says
why. Sites are listed in the order of the forward pass; `{i}` is the layer, from 0.

`batch` and `seq` are those of a group of rows: rows of equal length, never padded. `key_seq` counts
the positions that may be attended to, earlier passes included. Values have the model's dtype, except
for `ln1.scale`, `ln2.scale` and `ln_final.scale`, which have the wider of float32 and it, and
`tokens`, which are int64.

Placement says how a value is divided when a model is split over devices. "Beside" marks what the
fused path does not make: it is computed next to it when somebody reads it, and only a write moves
that group and layer to the explicit path. Reading any site changes no bit of anything else.

)";

std::string shape(const hook::SiteInfo& info) {
  std::string text;
  for (const hook::Dim dim : info.dimensions()) {
    text += fmt::format("{}{}", text.empty() ? "" : " ", hook::dim_name(dim));
  }
  return text;
}

std::string full_name(const hook::SiteInfo& info) {
  return info.per_block ? fmt::format("blocks.{{i}}.{}", info.name) : std::string(info.name);
}

void write_sites() {
  std::fputs("| site | shape | placement | what it is |\n|---|---|---|---|\n", stdout);
  for (const hook::SiteInfo& info : hook::all_sites()) {
    fmt::print("| `{}` | {} | {}{} | {} |\n", full_name(info), shape(info),
               hook::placement_name(info.placement),
               info.route == hook::Route::kBeside ? ", beside" : "", info.meaning);
  }
}

void write_aliases(std::string_view title, std::string_view text,
                   std::span<const hook::Alias> aliases) {
  fmt::print("\n## {}\n\n{}\n\n| name | site |\n|---|---|\n", title, text);
  for (const hook::Alias& alias : aliases) {
    const bool last =
        hook::site_info(alias.site).per_block && alias.alias.find("{i}") == std::string_view::npos;
    fmt::print("| `{}` | `{}`{}{} |\n", alias.alias, full_name(hook::site_info(alias.site)),
               alias.flatten_heads ? ", heads and width as one dimension" : "",
               last ? " of the last block" : "");
  }
}

}  // namespace

int main() {
  std::fputs(kHead, stdout);
  write_sites();
  write_aliases(
      "Names of other tools",
      "For every family: TransformerLens's two vocabularies, nnterp's, llama.cpp's. A name "
      "that is listed twice means the site\nthat the family has.",
      hook::common_aliases());
  for (const model::Family* family : model::families()) {
    write_aliases(fmt::format("Hugging Face module paths: {}", family->name),
                  "Inputs and outputs of transformers' modules, where they mean the same.",
                  family->aliases);
  }
  fmt::print("\n## Names that mean no single site\n\n| name | why, and what to use |\n|---|---|\n");
  for (const hook::Refusal& refusal : hook::refused_names()) {
    fmt::print("| `{}` | {} |\n", refusal.name, refusal.why);
  }
}
