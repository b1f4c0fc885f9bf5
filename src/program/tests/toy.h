#pragma once
// A toy model that fires sites as a real one does, and a short way to write programs, for tests.
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/sin.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/tril.h>
#include <ATen/ops/zeros.h>

#include <map>
#include <string>
#include <vector>

#include "program/plan.h"
#include "program/run.h"

namespace toy {

using namespace pellucid;
using hook::Site;
using wire::Arg;
using wire::Node;
using wire::NodeKind;
using wire::ValueRef;

inline constexpr int64_t kLayers = 3, kModel = 4, kHeads = 2, kVocab = 11;

inline const hook::Catalog& catalog() {
  static const hook::Catalog made = [] {
    hook::Catalog catalog;
    catalog.sizes = {kLayers, kModel, kHeads, kHeads, 2, 8, kVocab};
    for (const Site site :
         {Site::kTokens, Site::kEmbed, Site::kResidPre, Site::kAttnScores, Site::kAttnPattern,
          Site::kAttnZ, Site::kMlpOut, Site::kResidPost, Site::kLnFinalOut, Site::kLogits}) {
      catalog.present.set(static_cast<size_t>(site));
    }
    catalog.family = "toy";
    return catalog;
  }();
  return made;
}

inline Arg v(int node, int output = 0) { return {ValueRef{node, output}}; }
inline Arg c(int index) { return {wire::ConstantRef{index}}; }
inline Arg i(int64_t number) { return {number}; }
inline Arg f(double number) { return {number}; }
inline Arg b(bool yes) { return {yes}; }
inline Arg none() { return {}; }
inline Arg list(std::vector<Arg> items) { return {std::move(items)}; }
inline Arg dtype(std::string name) { return {wire::DtypeArg{std::move(name)}}; }

/// Writes programs. Lines are numbered like nodes: "line 3" is node 3.
struct Script {
  wire::Program program;
  std::vector<at::Tensor> constants;
  int group = -1;
  int step = 0, step_end = 1;
  bool per_step = false;

  int prompt(std::vector<std::vector<int64_t>> rows, int64_t max_new_tokens = 0) {
    wire::Group made;
    made.tokens = std::move(rows);
    made.max_new_tokens = max_new_tokens;
    program.groups.push_back(std::move(made));
    return group = static_cast<int>(program.groups.size()) - 1;
  }
  int add(NodeKind kind, std::string name, std::vector<Arg> args = {},
          std::vector<std::pair<std::string, Arg>> kwargs = {}) {
    Node node;
    node.kind = kind;
    node.name = std::move(name);
    node.args = std::move(args);
    node.kwargs = std::move(kwargs);
    const bool site = kind == NodeKind::kRead || kind == NodeKind::kWrite;
    node.group = site ? group : -1;
    node.step_first = step;
    node.step_end = per_step ? step_end : step + 1;
    node.per_step = per_step;
    node.where = "line " + std::to_string(program.nodes.size());
    program.nodes.push_back(std::move(node));
    return static_cast<int>(program.nodes.size()) - 1;
  }
  int read(std::string site) { return add(NodeKind::kRead, std::move(site)); }
  int write(std::string site, int value) {
    return add(NodeKind::kWrite, std::move(site), {v(value)});
  }
  int save(std::string name, int value, int output = 0) {
    return add(NodeKind::kSave, std::move(name), {v(value, output)});
  }
  int op(std::string name, std::vector<Arg> args,
         std::vector<std::pair<std::string, Arg>> kwargs = {}) {
    return add(NodeKind::kOp, "aten::" + name, std::move(args), std::move(kwargs));
  }
  int constant(at::Tensor tensor) {
    constants.push_back(std::move(tensor));
    program.constants.push_back({"", "float32", constants.back().sizes().vec()});
    return static_cast<int>(constants.size()) - 1;
  }
  void loop(int first, int end) { step = first, step_end = end, per_step = true; }
  void end_loop() { step = 0, step_end = 1, per_step = false; }

  program::PlanOptions options() const {
    program::PlanOptions out;
    out.catalog = &catalog();
    out.constants = constants;
    out.context_length = 64;
    out.weight = [](const std::string&) -> Result<at::Tensor> {
      return at::ones({kVocab, kModel});
    };
    return out;
  }
  Result<std::shared_ptr<const program::Plan>> plan() const {
    return program::Plan::make(program, options());
  }
};

/// Embeddings: token + position / 10 + dimension / 100, in every step.
inline at::Tensor embed(const at::Tensor& tokens, int64_t past) {
  const at::Tensor positions = at::arange(past, past + tokens.size(1), at::kFloat) / 10;
  return tokens.to(at::kFloat).unsqueeze(-1) + positions.unsqueeze(-1) +
         at::arange(kModel, at::kFloat) / 100;
}
inline at::Tensor mlp(const at::Tensor& x, int layer) { return at::sin(x) * (layer + 1); }
inline at::Tensor head() {
  return at::arange(kModel * kVocab, at::kFloat).reshape({kModel, kVocab}) / 50;
}

/// Runs a plan on the toy as an engine does: waves, steps, sites in order.
struct Machine {
  std::shared_ptr<const program::Plan> plan;
  std::unique_ptr<program::Run> run;
  std::map<int, int> ends;        // group -> last step, when it ends early
  std::vector<at::Tensor> given;  // every tensor that a visit was given, with a copy
  std::vector<at::Tensor> copies;
  std::map<int, at::Tensor> logits;  // of the last pass, by group

  Machine(const Script& script, std::map<int, int> ends = {}) : ends(std::move(ends)) {
    auto made = script.plan();
    if (!made.ok()) throw std::runtime_error(made.status().message());
    plan = *made;
    program::Environment environment;
    environment.constants = script.constants;
    environment.part = [](const std::string& name, const at::Tensor& x) {
      return name == "unembed" ? at::matmul(x, head()) : x * 2;
    };
    environment.weight = [](const std::string&) -> Result<at::Tensor> {
      return at::ones({kVocab, kModel});
    };
    environment.call = [](const std::string&, std::vector<at::Tensor> in) { return in[0]; };
    run = program::Run::make(plan, std::move(environment));
  }

  using Values = std::map<int, at::Tensor>;

  void at_site(int wave, int step, hook::SiteKey key, Values& values) {
    const bool beside = hook::site_info(key.site).route == hook::Route::kBeside;
    std::vector<program::GroupValue> groups;
    const auto fire = [&] {
      if (groups.empty()) return;
      for (const auto& one : groups) {
        given.push_back(one.value);
        copies.push_back(one.value.clone());
      }
      run->visit(wave, step, key, groups);
      for (const auto& one : groups) {
        if (one.written) values[one.group] = one.value;
      }
      groups.clear();
    };
    for (auto& [group, value] : values) {
      for (const program::SiteUse& use : plan->uses(group, step)) {
        if (use.key == key) groups.push_back({group, value, false});
      }
      if (beside) fire();
    }
    fire();
  }

  void pass(int wave, int step, const std::vector<int>& groups) {
    Values x;
    for (const int group : groups) {
      const auto& rows = plan->program().groups[group].tokens;
      at::Tensor tokens;
      if (step == 0) {
        std::vector<int64_t> flat;
        for (const auto& row : rows) flat.insert(flat.end(), row.begin(), row.end());
        tokens =
            at::tensor(flat, at::kLong).reshape({int64_t(rows.size()), int64_t(rows[0].size())});
      } else {
        tokens = at::full({int64_t(rows.size()), 1}, step, at::kLong);
      }
      x[group] = tokens;
    }
    at_site(wave, step, {Site::kTokens, -1}, x);
    std::map<int, int64_t> past;
    for (auto& [group, tokens] : x) {
      past[group] =
          step == 0 ? 0 : int64_t(plan->program().groups[group].tokens[0].size()) + step - 1;
      tokens = embed(tokens, past[group]);
    }
    at_site(wave, step, {Site::kEmbed, -1}, x);
    for (int layer = 0; layer < kLayers; ++layer) {
      at_site(wave, step, {Site::kResidPre, layer}, x);
      Values pattern, out;
      for (auto& [group, value] : x) {
        pattern[group] =
            at::ones({value.size(0), kHeads, value.size(1), past[group] + value.size(1)});
      }
      at_site(wave, step, {Site::kAttnScores, layer}, pattern);
      at_site(wave, step, {Site::kAttnPattern, layer}, pattern);
      for (auto& [group, value] : x) out[group] = mlp(value, layer) * pattern[group].mean();
      at_site(wave, step, {Site::kMlpOut, layer}, out);
      for (auto& [group, value] : x) value = value + out[group];
      at_site(wave, step, {Site::kResidPost, layer}, x);
    }
    at_site(wave, step, {Site::kLnFinalOut, -1}, x);
    Values scores;
    for (auto& [group, value] : x) {
      scores[group] = at::matmul(value, head());
      const program::LogitsNeed need = plan->logits_need(group, step);
      if (!need.all && !need.positions.empty()) {
        scores[group] = scores[group].index_select(1, at::tensor(need.positions, at::kLong));
      }
    }
    at_site(wave, step, {Site::kLogits, -1}, scores);
    logits = scores;
  }

  Result<std::map<std::string, program::Saved>> go() {
    run->begin();
    const auto& groups = plan->program().groups;
    for (int wave = 0; wave < plan->num_waves(); ++wave) {
      for (int step = 0;; ++step) {
        std::vector<int> active;
        for (size_t g = 0; g < groups.size(); ++g) {
          const int group = static_cast<int>(g);
          const int last = ends.contains(group)
                               ? ends[group]
                               : std::max<int>(0, int(groups[g].max_new_tokens) - 1);
          if (plan->wave_of(group) != wave || step > last) continue;
          active.push_back(group);
        }
        if (active.empty()) break;
        pass(wave, step, active);
        for (const int group : active) {
          if (ends.contains(group) && ends[group] == step) run->group_ended(group, step);
        }
      }
    }
    auto saved = run->finish();
    if (!saved.ok()) return saved.status();
    std::map<std::string, program::Saved> out;
    for (auto& one : *saved) out[one.name] = one;
    for (size_t g = 0; g < given.size(); ++g) {
      if (!given[g].equal(copies[g])) throw std::runtime_error("a visit changed what it was given");
    }
    return out;
  }
};

}  // namespace toy
