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

std::map<std::string, program::Saved> run(const Script& script, std::map<int, int> ends = {}) {
  auto saved = Machine(script, std::move(ends)).go();
  REQUIRE_MESSAGE(saved.ok(), saved.status().message());
  return *saved;
}

at::Tensor resid_at(int step, int layer) {  // of the token `step` after a prompt of 3
  at::Tensor x = embed(at::full({1, 1}, step, at::kLong), 3 + step - 1);
  for (int l = 0; l < layer; ++l) x = x + mlp(x, l);
  return x;
}

}  // namespace

TEST_CASE("steps: unrolled lines see their own step, with one position") {
  Script s;
  s.prompt({{1, 2, 3}}, 4);
  for (int k = 0; k < 4; ++k) {
    s.step = k;
    s.save("h" + std::to_string(k), s.read("blocks.1.resid_pre"));
    s.save("p" + std::to_string(k), s.read("blocks.1.attn.pattern"));
  }
  auto out = run(s);
  CHECK(out["h0"].value.sizes() == at::IntArrayRef({1, 3, kModel}));
  for (int k = 1; k < 4; ++k) {
    CHECK(out["h" + std::to_string(k)].value.equal(resid_at(k, 1)));
    CHECK(out["p" + std::to_string(k)].value.sizes() == at::IntArrayRef({1, kHeads, 1, 3 + k}));
  }
}

TEST_CASE("steps: a body recorded once runs at every step; saves stack; outer values persist") {
  Script s;
  s.prompt({{1, 2, 3}}, 5);
  const int total = s.op("zeros", {list({i(kModel)})});
  s.loop(1, 1 << 30);
  const int h = s.read("blocks.1.resid_pre");
  const int last = s.op("select.int", {v(h), i(1), i(-1)});
  const int row = s.op("select.int", {v(last), i(0), i(0)});
  s.op("add_.Tensor", {v(total), v(row)});
  s.save("rows", row);
  s.save("sums", total);
  s.end_loop();
  s.save("total", total);
  s.save("twice", s.op("mul.Tensor", {v(total), i(2)}));
  auto out = run(s);
  at::Tensor sum = at::zeros({kModel});
  REQUIRE(out["rows"].value.sizes() == at::IntArrayRef({4, kModel}));
  CHECK(out["rows"].steps == 4);
  for (int k = 1; k < 5; ++k) {
    sum = sum + resid_at(k, 1)[0][0];
    CHECK(out["rows"].value[k - 1].equal(resid_at(k, 1)[0][0]));
    CHECK(out["sums"].value[k - 1].equal(sum));
  }
  CHECK(out["total"].value.equal(sum));
  CHECK(out["twice"].value.equal(sum * 2));
}

TEST_CASE("steps: a loop that ends early keeps its saves, and the code after it runs") {
  Script s;
  s.prompt({{1, 2, 3}}, 10);
  const int total = s.op("zeros", {list({i(kModel)})});
  s.loop(1, 1 << 30);
  const int row = s.op("sum.dim_IntList", {v(s.read("blocks.1.resid_pre")), list({i(0), i(1)})});
  s.op("add_.Tensor", {v(total), v(row)});
  s.save("rows", row);
  s.end_loop();
  s.save("total", total);
  s.step = 7;
  s.save("never", s.read("blocks.0.resid_pre"));
  auto out = run(s, {{0, 2}});
  CHECK(out["rows"].value.size(0) == 2);
  CHECK(out["rows"].steps == 2);
  CHECK(out["total"].value.allclose(out["rows"].value.sum(0)));
  CHECK(out["never"].missing);
  CHECK_FALSE(out["never"].value.defined());
}

TEST_CASE("steps: what depends on a step that did not happen is missing, never a wrong number") {
  Script s;
  s.prompt({{1, 2, 3}}, 10);
  const int total = s.op("zeros", {list({i(kModel)})});
  for (int k = 1; k < 5; ++k) {
    s.step = k;
    s.op("add_.Tensor", {v(total), v(s.op("sum.dim_IntList",
                                          {v(s.read("blocks.1.resid_pre")), list({i(0), i(1)})}))});
    s.save("after" + std::to_string(k), total);
  }
  s.step = 0;
  s.save("total", total);
  s.save("other", s.op("ones", {list({i(2)})}));
  auto out = run(s, {{0, 2}});
  CHECK(out["after2"].value.defined());
  CHECK(out["after3"].missing);
  CHECK(out["total"].missing);
  CHECK(out["other"].value.equal(at::ones({2})));
}

TEST_CASE("steps: edits in a loop are applied at each of its steps") {
  Script s;
  s.prompt({{1, 2, 3}}, 3);
  s.loop(1, 1 << 30);
  s.op("mul_.Tensor", {v(s.read("blocks.1.resid_pre")), i(0)});
  s.save("end", s.read("blocks.1.resid_post"));
  s.end_loop();
  s.save("prompt", s.read("blocks.1.resid_pre"));
  auto out = run(s);
  CHECK(out["end"].value.equal(at::zeros({2, 1, 1, kModel})));
  CHECK_FALSE(out["prompt"].value.equal(at::zeros({1, 3, kModel})));
}

TEST_CASE("steps: a lost edit is an error, not a silent difference") {
  Script s;
  const int a = s.prompt({{1, 2, 3}}, 5);
  const int b = s.prompt({{4, 5, 6}}, 5);
  s.group = a;
  s.step = 3;
  const int h = s.read("blocks.0.resid_pre");
  s.group = b;
  s.write("blocks.1.resid_pre", h);
  const auto saved = Machine(s, {{a, 1}}).go();
  REQUIRE_FALSE(saved.ok());
  CHECK(saved.status().code == Code::kNotRun);
  CHECK(saved.status().where == "line 1");
}

TEST_CASE("steps: a step that cannot happen is refused with both numbers") {
  Script s;
  s.prompt({{1, 2, 3}}, 4);
  s.step = 4;
  s.read("blocks.0.resid_pre");
  const Status status = refused(s);
  CHECK(status.code == Code::kInvalidArgument);
  CHECK(has(status.what, "step 4"));
  CHECK(has(status.what, "4 passes"));
  Script none;
  none.prompt({{1, 2, 3}});
  none.step = 1;
  none.read("blocks.0.resid_pre");
  CHECK(has(refused(none).what, "1 pass"));
}

TEST_CASE(
    "steps: a loop's value outside of the loop is refused; so is stacking what changes its size") {
  Script s;
  s.prompt({{1, 2, 3}}, 4);
  s.loop(1, 4);
  const int h = s.read("blocks.1.resid_pre");
  s.end_loop();
  s.save("h", h);
  CHECK(has(refused(s).hint, "save it in the loop"));

  Script pattern;
  pattern.prompt({{1, 2, 3}}, 4);
  pattern.loop(1, 4);
  pattern.save("p", pattern.read("blocks.1.attn.pattern"));
  pattern.end_loop();
  const Status status = refused(pattern);
  CHECK(status.code == Code::kShapeMismatch);
  CHECK(has(status.hint, "unroll"));
}

TEST_CASE("steps: a later step's value cannot edit an earlier step") {
  Script s;
  s.prompt({{1, 2, 3}}, 4);
  s.step = 2;
  const int h = s.read("blocks.0.resid_pre");
  s.step = 1;
  s.write("blocks.2.resid_pre", h);
  const Status status = refused(s);
  CHECK(status.code == Code::kOutOfOrder);
  CHECK(has(status.what, "at step 2"));
  CHECK(has(status.what, "at step 1"));
}

TEST_CASE(
    "logits: only the positions that are looked at are asked for, and the values are the same") {
  Script s;
  s.prompt({{1, 2, 3, 4, 5}});
  const int logits = s.read("logits");
  const int all = s.op("slice.Tensor", {v(logits), i(0), none(), none(), i(1)});
  s.save("last", s.op("select.int", {v(all), i(1), i(-1)}));
  s.save("first two", s.op("slice.Tensor", {v(logits), i(1), i(0), i(2), i(1)}));
  const int ids = s.constant(at::tensor(std::vector<int64_t>{-1, 1}, at::kLong));
  s.save("picked", s.op("index.Tensor", {v(logits), list({none(), c(ids)})}));
  s.save("row", s.op("select.int", {v(s.op("select.int", {v(logits), i(0), i(0)})), i(0), i(4)}));
  const auto plan = s.plan();
  REQUIRE(plan.ok());
  const auto need = (*plan)->logits_need(0, 0);
  CHECK_FALSE(need.all);
  CHECK(need.positions == std::vector<int64_t>{0, 1, 4});
  Script whole;
  whole.prompt({{1, 2, 3, 4, 5}});
  whole.save("all", whole.read("logits"));
  CHECK((*whole.plan())->logits_need(0, 0).all);
  const at::Tensor want = run(whole)["all"].value;
  auto out = run(s);
  CHECK(out["last"].value.equal(want.select(1, 4)));
  CHECK(out["first two"].value.equal(want.slice(1, 0, 2)));
  CHECK(out["picked"].value.equal(
      want.index_select(1, at::tensor(std::vector<int64_t>{4, 1}, at::kLong))));
  CHECK(out["row"].value.equal(want[0][4]));
}

TEST_CASE("logits: an edit through a narrow view needs these positions and returns them") {
  Script s;
  s.prompt({{1, 2, 3, 4, 5}});
  const int last = s.op("select.int", {v(s.read("logits")), i(1), i(-1)});
  s.op("add_.Tensor", {v(last), f(1.0)});
  s.save("last", last);
  const auto plan = s.plan();
  REQUIRE(plan.ok());
  CHECK((*plan)->logits_need(0, 0).positions == std::vector<int64_t>{4});
  Machine machine(s);
  const auto saved = machine.go();
  REQUIRE(saved.ok());
  CHECK(machine.logits[0].sizes() == at::IntArrayRef({1, 1, kVocab}));
  CHECK(machine.logits[0].select(1, 0).equal(saved->at("last").value));
}

TEST_CASE("logits: nobody looks, nothing is asked for; a whole use asks for all") {
  Script s;
  s.prompt({{1, 2, 3}});
  s.save("h", s.read("blocks.0.resid_pre"));
  CHECK_FALSE((*s.plan())->logits_need(0, 0).all);
  CHECK((*s.plan())->logits_need(0, 0).positions.empty());
  Script sum;
  sum.prompt({{1, 2, 3}});
  sum.save("sum", sum.op("sum", {v(sum.read("logits"))}));
  CHECK((*sum.plan())->logits_need(0, 0).all);
}
