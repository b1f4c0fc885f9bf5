#include <doctest/doctest.h>

#include "program/tests/toy.h"

using namespace toy;

namespace {

Status refused(const Script& script) {
  const auto plan = script.plan();
  REQUIRE_FALSE(plan.ok());
  return plan.status();
}
bool has(const std::string& text, const std::string& part) { return text.find(part) != text.npos; }

std::map<std::string, at::Tensor> run(const Script& script, std::map<int, int> ends = {}) {
  auto saved = Machine(script, std::move(ends)).go();
  REQUIRE_MESSAGE(saved.ok(), saved.status().message());
  std::map<std::string, at::Tensor> out;
  for (auto& [name, one] : *saved) out[name] = one.value;
  return out;
}

}  // namespace

TEST_CASE(
    "order: a value of a later site cannot edit an earlier one: both sites and lines are named") {
  Script s;
  s.prompt({{1, 2, 3}});
  const int late = s.read("blocks.2.resid_post");         // line 0
  const int twice = s.op("mul.Tensor", {v(late), i(2)});  // line 1
  s.write("blocks.1.resid_pre", twice);                   // line 2
  const Status status = refused(s);
  CHECK(status.code == Code::kOutOfOrder);
  CHECK(status.where == "line 2");
  CHECK(has(status.what, "blocks.1.resid_pre"));
  CHECK(has(status.what, "blocks.2.resid_post"));
  CHECK(has(status.what, "line 0"));
}

TEST_CASE("order: an edit upstream of a site that was read is refused, even without a dependence") {
  Script s;
  s.prompt({{1, 2, 3}});
  s.save("late", s.read("blocks.2.resid_post"));  // lines 0, 1
  const int h = s.read("blocks.1.resid_pre");     // line 2
  s.op("mul_.Tensor", {v(h), i(2)});              // line 3
  const Status status = refused(s);
  CHECK(status.code == Code::kOutOfOrder);
  CHECK(status.where == "line 3");
  CHECK(has(status.what, "blocks.1.resid_pre is edited (line 3)"));
  CHECK(has(status.what, "blocks.2.resid_post was read (line 0)"));
}

TEST_CASE("order: reading an earlier site on a later line is fine") {
  Script s;
  s.prompt({{1, 2, 3}});
  const int late = s.read("blocks.2.resid_post");
  const int early = s.read("blocks.0.resid_pre");
  s.save("difference", s.op("sub.Tensor", {v(late), v(early)}));
  CHECK(run(s).at("difference").sizes() == at::IntArrayRef({1, 3, kModel}));
}

TEST_CASE(
    "order: later writes before earlier edits are fine while nothing was read (path patching)") {
  Script s;
  s.prompt({{1, 2, 3}});
  const int zero = s.op("zeros", {list({i(1), i(3), i(kModel)})});
  s.write("blocks.0.mlp.out", zero);
  s.write("blocks.1.mlp.out", zero);
  const int h = s.read("blocks.0.mlp.out");
  s.op("add_.Tensor", {v(h), f(1.0)});
  s.save("end", s.read("blocks.1.resid_post"));
  const at::Tensor tokens = at::tensor(std::vector<int64_t>{1, 2, 3}, at::kLong).reshape({1, 3});
  CHECK(run(s).at("end").equal(embed(tokens, 0) + 1));
}

TEST_CASE(
    "order: a write does not alias what was written; a later change of it warns and changes "
    "nothing") {
  Script s;
  s.prompt({{1, 2, 3}});
  const int ones = s.op("ones", {list({i(1), i(3), i(kModel)})});
  s.write("blocks.1.resid_pre", ones);
  s.op("mul_.Tensor", {v(ones), i(5)});
  s.save("site", s.read("blocks.1.resid_pre"));
  s.save("value", ones);
  const auto plan = s.plan();
  REQUIRE(plan.ok());
  REQUIRE((*plan)->warnings().size() == 1);
  CHECK(has((*plan)->warnings()[0], "line 2"));
  const auto out = run(s);
  CHECK(out.at("site").equal(at::ones({1, 3, kModel})));
  CHECK(out.at("value").equal(at::ones({1, 3, kModel}) * 5));
}

TEST_CASE("order: editing what a site held before it was replaced is refused, not silently lost") {
  Script s;
  s.prompt({{1, 2, 3}});
  const int h = s.read("blocks.1.resid_pre");
  s.write("blocks.1.resid_pre", s.op("zeros_like", {v(h)}));
  s.op("add_.Tensor", {v(h), i(1)});
  const Status status = refused(s);
  CHECK(status.code == Code::kOutOfOrder);
  CHECK(has(status.hint, "again"));
}

TEST_CASE("order: `lm.x += v` recorded as read, add_ and write of the same tensor edits once") {
  Script s;
  s.prompt({{1, 2, 3}});
  const int h = s.read("blocks.1.resid_pre");
  const int sum = s.op("add_.Tensor", {v(h), i(1)});
  s.write("blocks.1.resid_pre", sum);
  s.op("add_.Tensor", {v(h), i(1)});
  s.save("end", s.read("blocks.1.resid_pre"));
  Script plain;
  plain.prompt({{1, 2, 3}});
  plain.save("end", plain.read("blocks.1.resid_pre"));
  CHECK(run(s).at("end").equal(run(plain).at("end") + 1 + 1));
}

TEST_CASE("order: two reads of a site are one tensor, and views of it see later edits") {
  Script s;
  s.prompt({{1, 2, 3}});
  const int a = s.read("blocks.1.resid_pre");
  const int b = s.read("blocks.1.resid_pre");
  const int view = s.op("select.int", {v(b), i(1), i(0)});
  const int before = s.op("mul.Tensor", {v(view), i(1)});
  s.op("zero_", {v(a)});
  s.save("b", b);
  s.save("view", view);
  s.save("before", before);
  const auto out = run(s);
  CHECK(out.at("b").equal(at::zeros({1, 3, kModel})));
  CHECK(out.at("view").equal(at::zeros({1, kModel})));
  CHECK_FALSE(out.at("before").equal(at::zeros({1, kModel})));
}

TEST_CASE("order: constants and weights are never written to, whatever view is taken") {
  for (const bool weight : {false, true}) {
    Script s;
    s.prompt({{1, 2, 3}});
    const int c0 = s.constant(at::ones({2, 3}));
    const int base = weight ? s.add(NodeKind::kWeight, "unembed") : s.op("t", {c(c0)});
    const int view = s.op("reshape", {v(base), list({i(-1)})});
    s.op("add_.Tensor", {v(view), i(1)});
    const Status status = refused(s);
    CHECK(status.code == Code::kInvalidArgument);
    CHECK(has(status.what, "never written to"));
    CHECK(status.where == "line 2");
  }
  Script s;  // a cast copies
  const int c0 = s.constant(at::ones({2, 3}));
  const int cast = s.op("to.dtype", {c(c0), dtype("float64")});
  s.op("add_.Tensor", {v(cast), i(1)});
  s.save("cast", cast);
  CHECK(run(s).at("cast").equal((at::ones({2, 3}) + 1).to(at::kDouble)));
  CHECK(s.constants[0].equal(at::ones({2, 3})));
}

TEST_CASE("waves: another prompt's later layer is used at an earlier one, in a later wave") {
  Script s;
  const int source = s.prompt({{4, 5, 6}});
  const int target = s.prompt({{1, 2, 3}});
  s.group = source;
  const int late = s.read("blocks.2.resid_post");
  s.group = target;
  s.write("blocks.0.resid_pre", late);
  s.save("end", s.read("blocks.0.resid_post"));
  const auto plan = s.plan();
  REQUIRE(plan.ok());
  CHECK((*plan)->num_waves() == 2);
  CHECK((*plan)->wave_of(source) == 0);
  CHECK((*plan)->wave_of(target) == 1);
  CHECK((*plan)->first_written_layer(source) == kLayers);
  CHECK((*plan)->first_written_layer(target) == 0);
  at::Tensor x = embed(at::tensor(std::vector<int64_t>{4, 5, 6}, at::kLong).reshape({1, 3}), 0);
  for (int l = 0; l < 3; ++l) x = x + mlp(x, l);
  CHECK(run(s).at("end").equal(x + mlp(x, 0)));
}

TEST_CASE("waves: a value of the same or an earlier site shares the pass, also both ways") {
  Script s;
  const int a = s.prompt({{4, 5, 6}});
  const int b = s.prompt({{1, 2, 3}});
  s.group = a;
  const int from_a = s.read("blocks.0.resid_post");
  s.group = b;
  s.write("blocks.0.resid_post", from_a);
  const int from_b = s.read("blocks.1.resid_pre");
  s.group = a;
  s.write("blocks.2.resid_pre", from_b);
  const auto plan = s.plan();
  REQUIRE(plan.ok());
  CHECK((*plan)->num_waves() == 1);
  run(s);
}

TEST_CASE("waves: only a cycle is refused, with both prompts' lines") {
  Script s;
  const int a = s.prompt({{4, 5, 6}});
  const int b = s.prompt({{1, 2, 3}});
  s.group = a;
  const int from_a = s.read("blocks.2.resid_post");  // line 0
  s.group = b;
  s.write("blocks.0.resid_pre", from_a);            // line 1
  const int from_b = s.read("blocks.2.resid_pre");  // line 2
  s.group = a;
  s.program.nodes[0].name = "blocks.1.resid_post";
  s.write("blocks.1.resid_post", from_b);  // line 3: b waits for a, a for b
  const Status status = refused(s);
  CHECK(status.code == Code::kOutOfOrder);
  for (const char* line : {"line 0", "line 1", "line 2", "line 3"}) CHECK(has(status.what, line));
}

TEST_CASE(
    "waves: sites beside the fused path go group by group: an earlier group's needs no wave") {
  for (const bool backwards : {false, true}) {
    Script s;
    const int a = s.prompt({{4, 5, 6}});
    const int b = s.prompt({{1, 2, 3}});
    s.group = backwards ? b : a;
    const int pattern = s.read("blocks.1.attn.pattern");
    s.group = backwards ? a : b;
    s.write("blocks.1.attn.pattern", pattern);
    const auto plan = s.plan();
    REQUIRE(plan.ok());
    CHECK((*plan)->num_waves() == (backwards ? 2 : 1));
    run(s);
  }
}

TEST_CASE("write: shapes are never broadcast, floats are cast, integers refused") {
  Script s;
  s.prompt({{1, 2, 3}});
  const int small = s.op("zeros", {list({i(1), i(1), i(kModel)})});
  s.write("blocks.1.resid_pre", small);
  Status status = refused(s);
  CHECK(status.code == Code::kShapeMismatch);
  CHECK(status.where == "line 1");
  CHECK(has(status.what, "[1, 3, 4]"));
  CHECK(has(status.what, "[1, 1, 4]"));

  Script integer;
  integer.prompt({{1, 2, 3}});
  integer.write("blocks.1.resid_pre",
                integer.op("zeros", {list({i(1), i(3), i(kModel)})}, {{"dtype", dtype("int64")}}));
  CHECK(refused(integer).code == Code::kShapeMismatch);

  Script cast;
  cast.prompt({{1, 2, 3}});
  cast.write("blocks.1.resid_pre",
             cast.op("ones", {list({i(1), i(3), i(kModel)})}, {{"dtype", dtype("float64")}}));
  cast.save("site", cast.read("blocks.1.resid_pre"));
  CHECK(run(cast).at("site").equal(at::ones({1, 3, kModel})));

  Script tokens;
  tokens.prompt({{1, 2, 3}});
  tokens.write("tokens", tokens.op("ones", {list({i(1), i(3)})}));
  CHECK(refused(tokens).code == Code::kShapeMismatch);
}

TEST_CASE("sites: unknown names get the nearest ones, with the line") {
  Script s;
  s.prompt({{1, 2, 3}});
  s.read("blocks.1.resid_pots");
  const Status status = refused(s);
  CHECK(status.code == Code::kNotFound);
  CHECK(status.where == "line 0");
  CHECK(has(status.hint, "blocks.1.resid_post"));
}
