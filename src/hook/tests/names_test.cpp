#include <doctest/doctest.h>
#include <fmt/format.h>

#include <set>

#include "hook/common_aliases.h"
#include "hook/glob.h"
#include "hook/names.h"

using namespace pellucid;
using namespace pellucid::hook;

namespace {

constexpr Alias kOwn[] = {
    {"model.layers.{i}.self_attn.o_proj.input", Site::kAttnZ, true},
    {"model.layers.{i}.output", Site::kResidPost},
    {"model.norm.input", Site::kResidPost},
};

Catalog gated() {
  Catalog catalog;
  catalog.sizes = {4, 12, 6, 2, 2, 20, 50};
  catalog.present.set();
  for (const Site absent : {Site::kPosEmbed, Site::kAttnQNorm, Site::kAttnKNorm, Site::kMlpPre}) {
    catalog.present.reset(static_cast<size_t>(absent));
  }
  catalog.family = "llama";
  catalog.aliases = kOwn;
  return catalog;
}

Catalog plain() {
  Catalog catalog = gated();
  catalog.present.set();
  for (const Site absent : {Site::kMlpGate, Site::kMlpUp, Site::kAttnRotQ, Site::kAttnRotK}) {
    catalog.present.reset(static_cast<size_t>(absent));
  }
  catalog.family = "gpt2";
  catalog.aliases = {};
  return catalog;
}

// The canonical name, or the error.
std::string resolved(const Catalog& catalog, std::string_view name) {
  const auto result = resolve_site(catalog, name);
  if (!result.ok()) return fmt::format("{} ({})", result.status().what, result.status().hint);
  return site_name(result->key) + (result->flatten_heads ? " flat" : "");
}

}  // namespace

TEST_CASE("names: every canonical name means itself") {
  for (const Catalog& catalog : {gated(), plain()}) {
    const auto names = site_names(catalog);
    CHECK(std::set<std::string>(names.begin(), names.end()).size() == names.size());
    for (const std::string& name : names) CHECK(resolved(catalog, name) == name);
  }
  CHECK(site_names(gated()).front() == "tokens");
  CHECK(site_names(gated()).back() == "logits");
  CHECK(site_names(gated())[2] == "blocks.0.resid_pre");
}

TEST_CASE("names: names are in the order of the forward pass") {
  const Catalog catalog = gated();
  int before = -1;
  for (const std::string& name : site_names(catalog)) {
    const int order = resolve_site(catalog, name)->key.order(4);
    CHECK(order > before);
    before = order;
  }
}

TEST_CASE("names: aliases of other tools") {
  const Catalog llama = gated();
  CHECK(resolved(llama, "blocks.3.hook_resid_post") == "blocks.3.resid_post");
  CHECK(resolved(llama, "blocks.3.attn.hook_z") == "blocks.3.attn.z");
  CHECK(resolved(llama, "blocks.3.attn.hook_attn_scores") == "blocks.3.attn.scores");
  CHECK(resolved(llama, "blocks.3.hook_mlp_in") == "blocks.3.mlp.resid");
  CHECK(resolved(llama, "blocks.3.hook_attn_out") == "blocks.3.attn.delta");
  CHECK(resolved(llama, "blocks.3.mlp.hook_pre") == "blocks.3.mlp.gate");
  CHECK(resolved(llama, "blocks.3.mlp.in.hook_out") == "blocks.3.mlp.up");
  CHECK(resolved(plain(), "blocks.3.mlp.hook_pre") == "blocks.3.mlp.pre");
  CHECK(resolved(plain(), "blocks.3.mlp.in.hook_out") == "blocks.3.mlp.pre");
  CHECK(resolved(llama, "ln_final.hook_normalized") == "ln_final.normalized");
  CHECK(resolved(llama, "hook_embed") == "embed");
  CHECK(resolved(llama, "unembed.hook_out") == "logits");
  CHECK(resolved(llama, "layers_output[2]") == "blocks.2.resid_post");
  CHECK(resolved(llama, "attention_probabilities[0]") == "blocks.0.attn.pattern");
  CHECK(resolved(llama, "l_out-3") == "blocks.3.resid_post");
  CHECK(resolved(llama, "kq_soft_max-3") == "blocks.3.attn.pattern");
  CHECK(resolved(llama, "Vcur-1") == "blocks.1.attn.v flat");
  CHECK(resolved(llama, "model.layers.1.self_attn.o_proj.input") == "blocks.1.attn.z flat");
  CHECK(resolved(llama, "model.norm.input") == "blocks.3.resid_post");
}

TEST_CASE("names: a wrong name offers the nearest ones") {
  CHECK(
      resolved(gated(), "blocks.3.resid_pots") ==
      "no site named blocks.3.resid_pots (did you mean blocks.3.resid_post, blocks.3.resid_pre or "
      "blocks.3.resid_mid?)");
  CHECK(resolved(gated(), "model.layers.2.self_attn.o_prj.input")
            .find("did you mean model.layers.2.self_attn.o_proj.input") != std::string::npos);
  CHECK(resolved(gated(), "") == "no site named  (`pellucid inspect MODEL --sites` lists them)");
  CHECK(resolved(gated(), std::string(100000, 'x')).size() < 400);
  CHECK(resolved(gated(), "a\x1b[31m").find('\x1b') == std::string::npos);
}

TEST_CASE("names: what a family lacks is explained") {
  CHECK(
      resolved(gated(), "blocks.1.mlp.pre") ==
      "llama has no site blocks.1.mlp.pre (its MLP is gated: blocks.1.mlp.gate is the input of the "
      "activation, blocks.1.mlp.up the other factor)");
  CHECK(
      resolved(plain(), "blocks.1.mlp.gate") ==
      "gpt2 has no site blocks.1.mlp.gate (its MLP is not gated: blocks.1.mlp.pre is the input of "
      "the activation)");
  CHECK(resolved(gated(), "hook_pos_embed") ==
        "llama has no site hook_pos_embed (its positions are not learned embeddings)");
  CHECK(resolved(plain(), "blocks.0.attn.hook_rot_q") ==
        "gpt2 has no site blocks.0.attn.hook_rot_q (it has no rotary positions)");
  CHECK(resolved(gated(), "Qcur-2").starts_with("Qcur-2 means no single site (llama.cpp uses"));
}

TEST_CASE("names: a layer out of range names both numbers") {
  CHECK(resolved(gated(), "blocks.4.resid_pre") ==
        "blocks.4.resid_pre: layer 4 of 4 layers (layers are 0 to 3)");
  CHECK(resolve_site(gated(), "blocks.4.resid_pre").status().code == Code::kInvalidArgument);
  CHECK(resolve_site(gated(), "blocks.99999999999999999999.resid_pre").status().code ==
        Code::kInvalidArgument);
  CHECK(resolve_site(gated(), "l_out-4").status().code == Code::kInvalidArgument);
  for (const char* name : {"blocks.-1.resid_pre", "blocks.01.resid_pre", "blocks..resid_pre",
                           "blocks.1 .resid_pre", "blocks.+1.resid_pre", "blocks.1.resid_pre "}) {
    CHECK(resolve_site(gated(), name).status().code == Code::kNotFound);
  }
}

TEST_CASE("names: globs") {
  const auto keys = match_sites(gated(), "blocks.*.attn.z");
  REQUIRE(keys.ok());
  CHECK((*keys == std::vector<SiteKey>{
                      {Site::kAttnZ, 0}, {Site::kAttnZ, 1}, {Site::kAttnZ, 2}, {Site::kAttnZ, 3}}));
  CHECK(match_sites(gated(), "blocks.3.*")->size() == kSitesPerBlock - 3);
  CHECK(match_sites(gated(), "*")->size() == site_names(gated()).size());
  CHECK((*match_sites(gated(), "l_out-2") == std::vector<SiteKey>{{Site::kResidPost, 2}}));
  CHECK(match_sites(gated(), "blocks.*.nothing").status().what ==
        "no site matches blocks.*.nothing");
  CHECK(match_sites(gated(), "blocks.7.resid_pre").status().code == Code::kInvalidArgument);
  CHECK(glob_match("a*b*c", "aXbXbc"));
  CHECK_FALSE(glob_match("a*b*c", "aXbXb"));
  CHECK(glob_match("?b", "ab"));
  CHECK_FALSE(glob_match("?b", "b"));
  // Many stars against a long text that does not match: linear, not exponential.
  CHECK_FALSE(glob_match(std::string(200, '*') + "x", std::string(5000, 'a')));
}

TEST_CASE("names: shapes") {
  const Catalog catalog = gated();
  CHECK(site_shape(catalog, {Site::kAttnQ, 0}, 3, 5, 9) == std::vector<int64_t>{3, 5, 6, 2});
  CHECK(site_shape(catalog, {Site::kAttnK, 0}, 3, 5, 9) == std::vector<int64_t>{3, 5, 2, 2});
  CHECK(site_shape(catalog, {Site::kAttnPattern, 0}, 3, 5, 9) == std::vector<int64_t>{3, 6, 5, 9});
  CHECK(site_shape(catalog, {Site::kLn1Scale, 0}, 3, 5, 9) == std::vector<int64_t>{3, 5, 1});
  CHECK(site_shape(catalog, {Site::kLogits, -1}, 3, 5, 9) == std::vector<int64_t>{3, 5, 50});
}

TEST_CASE("names: no alias hides a canonical name or another alias") {
  std::set<std::string_view> pairs;
  for (const Alias& alias : common_aliases()) {
    for (const SiteInfo& info : all_sites()) CHECK(alias.alias != info.name);
    const bool by_family = alias.alias.ends_with("mlp.hook_pre") ||
                           alias.alias.ends_with("mlp.in.hook_out") || alias.alias == "ffn_up-{i}";
    if (!by_family) CHECK(pairs.insert(alias.alias).second);
    CHECK((alias.alias.find("{i}") != std::string_view::npos) == site_info(alias.site).per_block);
  }
}
