#include <ATen/core/Tensor.h>

#include "apps/cli/lens.h"

namespace pellucid::cli {
namespace {

using wire::Arg;
using wire::NodeKind;
using wire::ValueRef;

/// Writes nodes one after another.
struct Lines {
  wire::Program program;

  ValueRef add(NodeKind kind, std::string name, std::vector<Arg> args, int32_t group = -1) {
    wire::Node node;
    node.kind = kind;
    node.name = std::move(name);
    node.args = std::move(args);
    node.group = group;
    node.grad_enabled = false;
    program.nodes.push_back(std::move(node));
    return {static_cast<int32_t>(program.nodes.size()) - 1, 0};
  }
  ValueRef op(const char* name, std::vector<Arg> args) {
    return add(NodeKind::kOp, name, std::move(args));
  }
  ValueRef read(const std::string& site) { return add(NodeKind::kRead, site, {}, 0); }
  void save(const std::string& name, ValueRef value) { add(NodeKind::kSave, name, {{value}}); }
};

Arg number(int64_t value) { return {value}; }

struct Source {
  std::string site, label;
};

std::vector<Source> sources_of(const model::Model& model) {
  std::vector<Source> sources = {{"blocks.0.resid_pre", "embed"}};
  for (int64_t layer = 0; layer < model.info().sizes.num_layers; ++layer) {
    sources.push_back({fmt::format("blocks.{}.resid_post", layer), std::to_string(layer)});
  }
  return sources;
}

wire::Group group_of(const std::vector<int64_t>& tokens) {
  wire::Group group;
  group.tokens = {tokens};
  return group;
}

/// [1, seq]: what the whole model puts first at each position.
Result<at::Tensor> final_answers(const engine::LoadedModel& loaded,
                                 const std::vector<int64_t>& tokens,
                                 const engine::CancelFlag& cancelled) {
  Lines lines;
  lines.program.groups = {group_of(tokens)};
  lines.save("answers", lines.op("aten::argmax", {{lines.read("logits")}, number(-1)}));
  engine::Job job;
  job.program = std::move(lines.program);
  job.cancelled = cancelled;
  PELLUCID_ASSIGN(engine::JobResult result, loaded.engine->run(std::move(job)));
  return result.saved.at(0).value;
}

/// What is saved of each layer, by name, in this order: top probabilities, their ids, their logits
/// [1, seq, k]; rank - 1 of the answer [1, seq]; its probability [1, seq, 1].
wire::Program lens_program(const std::vector<Source>& sources, const std::vector<int64_t>& tokens,
                           int top_count, const at::Tensor& answers_1S1) {
  Lines lines;
  lines.program.groups = {group_of(tokens)};
  lines.program.constants = {{"", "int64", answers_1S1.sizes().vec()}};
  const Arg answers{wire::ConstantRef{0}};
  for (const Source& source : sources) {
    const ValueRef normed = lines.add(NodeKind::kPart, "ln_final", {{lines.read(source.site)}});
    const ValueRef raw = lines.add(NodeKind::kPart, "unembed", {{normed}});
    const ValueRef logits = lines.op("aten::to.dtype", {{raw}, {wire::DtypeArg{"float64"}}});
    const ValueRef probabilities = lines.op("aten::softmax.int", {{logits}, number(-1)});
    const ValueRef top = lines.op("aten::topk", {{logits}, number(top_count), number(-1)});
    const ValueRef top_ids{top.node, 1};
    const ValueRef answer_logit = lines.op("aten::gather", {{logits}, number(-1), answers});
    const ValueRef above = lines.op("aten::gt.Tensor", {{logits}, {answer_logit}});
    lines.save(source.site + ".probability",
               lines.op("aten::gather", {{probabilities}, number(-1), {top_ids}}));
    lines.save(source.site + ".id", top_ids);
    lines.save(source.site + ".logit", top);
    lines.save(source.site + ".rank",
               lines.op("aten::sum.dim_IntList", {{above}, {Arg::List{number(-1)}}}));
    lines.save(source.site + ".answer",
               lines.op("aten::gather", {{probabilities}, number(-1), answers}));
  }
  return std::move(lines.program);
}

Result<LensToken> token_of(const text::Tokenizer& tokenizer, int64_t id) {
  LensToken token;
  token.id = id;
  if (id < tokenizer.vocab_size()) {  // a model's vocabulary may be padded beyond the tokenizer's
    PELLUCID_ASSIGN(token.text, tokenizer.token_bytes(id));
  }
  return token;
}

}  // namespace

Result<Lens> run_lens(const engine::LoadedModel& loaded, const std::string& prompt, int top_count,
                      const engine::CancelFlag& cancelled) {
  const text::Tokenizer& tokenizer = *loaded.tokenizer;
  PELLUCID_ASSIGN(const std::vector<int64_t> tokens, encode_prompt(loaded, prompt));
  PELLUCID_ASSIGN(const at::Tensor answers_1S, final_answers(loaded, tokens, cancelled));
  const at::Tensor answers_1S1 = answers_1S.unsqueeze(-1);

  const std::vector<Source> sources = sources_of(*loaded.model);
  engine::Job job;
  job.program = lens_program(sources, tokens, top_count, answers_1S1);
  job.constants = {answers_1S1};
  job.cancelled = cancelled;
  PELLUCID_ASSIGN(const engine::JobResult result, loaded.engine->run(std::move(job)));

  std::map<std::string, at::Tensor> saved;
  for (const program::Saved& value : result.saved) saved[value.name] = value.value.contiguous();
  Lens lens;
  lens.prompt = prompt;
  for (size_t position = 0; position < tokens.size(); ++position) {
    PELLUCID_ASSIGN(LensToken token, token_of(tokenizer, tokens[position]));
    lens.tokens.push_back(std::move(token));
    PELLUCID_ASSIGN(LensToken answer,
                    token_of(tokenizer, answers_1S.const_data_ptr<int64_t>()[position]));
    lens.answers.push_back(std::move(answer));
  }
  for (const Source& source : sources) {
    const auto* probability = saved.at(source.site + ".probability").const_data_ptr<double>();
    const auto* id = saved.at(source.site + ".id").const_data_ptr<int64_t>();
    const auto* logit = saved.at(source.site + ".logit").const_data_ptr<double>();
    const auto* rank = saved.at(source.site + ".rank").const_data_ptr<int64_t>();
    const auto* answer = saved.at(source.site + ".answer").const_data_ptr<double>();
    LensLayer layer{source.site, source.label, {}};
    for (size_t position = 0; position < tokens.size(); ++position) {
      LensCell cell{{}, rank[position] + 1, answer[position]};
      for (int i = 0; i < top_count; ++i) {
        const size_t at = position * top_count + i;
        PELLUCID_ASSIGN(LensToken token, token_of(tokenizer, id[at]));
        token.probability = probability[at];
        token.logit = logit[at];
        cell.top.push_back(std::move(token));
      }
      layer.cells.push_back(std::move(cell));
    }
    lens.layers.push_back(std::move(layer));
  }
  return lens;
}

}  // namespace pellucid::cli
