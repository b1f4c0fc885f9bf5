#include "program/ops.h"

#include <doctest/doctest.h>

#include <set>

#include "program/tests/toy.h"

using namespace toy;
using pellucid::program::allowed_operations;
using pellucid::program::find_operation;

namespace {

Status refused(const Script& script) {
  const auto plan = script.plan();
  REQUIRE_FALSE(plan.ok());
  return plan.status();
}
bool has(const std::string& text, const std::string& part) { return text.find(part) != text.npos; }

std::map<std::string, at::Tensor> run(const Script& script) {
  auto saved = Machine(script).go();
  REQUIRE_MESSAGE(saved.ok(), saved.status().message());
  std::map<std::string, at::Tensor> out;
  for (auto& [name, one] : *saved) out[name] = one.value;
  return out;
}

/// One operation on a constant [2, 3] of ones.
Script one(std::string name, std::vector<Arg> args,
           std::vector<std::pair<std::string, Arg>> kwargs = {}) {
  Script s;
  s.constant(at::ones({2, 3}));
  s.save("out", s.op(std::move(name), std::move(args), std::move(kwargs)));
  return s;
}

}  // namespace

TEST_CASE("ops: every listed operation exists, once, and none begins with _") {
  std::set<std::string_view> seen;
  for (const std::string_view name : allowed_operations()) {
    CAPTURE(name);
    CHECK(name[0] != '_');
    CHECK(seen.insert(name).second);
    CHECK(find_operation(name).ok());
  }
  CHECK(seen.size() > 500);
}

TEST_CASE(
    "ops: what reads foreign memory, is random, or touches the world is refused with the reason") {
  for (const char* name : {"as_strided",
                           "set_.source_Tensor",
                           "resize_",
                           "empty.memory_format",
                           "empty_like",
                           "new_empty",
                           "rand",
                           "randn",
                           "rand_like",
                           "bernoulli",
                           "normal_",
                           "uniform_",
                           "multinomial",
                           "_softmax",
                           "_to_copy",
                           "_unsafe_view",
                           "from_file",
                           "to.device",
                           "item",
                           "bincount",
                           "repeat_interleave.Tensor",
                           "view.dtype",
                           "record_stream",
                           "as_strided_",
                           "empty_strided"}) {
    CAPTURE(name);
    const auto found = find_operation(std::string("aten::") + name);
    REQUIRE_FALSE(found.ok());
    CHECK(found.status().code == Code::kUnsupported);
    CHECK_FALSE(found.status().hint.empty());
  }
  CHECK_FALSE(find_operation("prim::If").ok());
  CHECK(has(find_operation("aten::softmaxx").status().hint, "aten::softmax.int"));
  CHECK(has(find_operation("aten::add.Tensr").status().hint, "aten::add.Tensor"));
}

TEST_CASE("ops: training mode of dropout, norms and attention is refused") {
  CHECK(has(refused(one("dropout", {c(0), f(0.5), b(true)})).what, "training"));
  CHECK(run(one("dropout", {c(0), f(0.5), b(false)}))["out"].equal(at::ones({2, 3})));
}

TEST_CASE("ops: a name without overload means the first listed one that fits") {
  CHECK(run(one("add", {c(0), i(2)}))["out"].equal(at::ones({2, 3}) + 2));
  CHECK(run(one("sum", {c(0)}))["out"].item().toDouble() == 6);
  CHECK(run(one("sum", {c(0), list({i(1)})}))["out"].sizes() == at::IntArrayRef({2}));
}

TEST_CASE("ops: numbers are wrapped: they never widen a dtype") {
  Script s;
  s.constant(at::ones({2}, at::kHalf));
  s.constant(at::ones({2}, at::kLong));
  s.save("half", s.op("mul.Tensor", {c(0), f(2.5)}));
  s.save("long", s.op("mul.Tensor", {c(1), i(2)}));
  s.save("float", s.op("mul.Tensor", {c(1), f(2.5)}));
  auto out = run(s);
  CHECK((out["half"].scalar_type() == at::kHalf));
  CHECK((out["long"].scalar_type() == at::kLong));
  CHECK((out["float"].scalar_type() == at::kFloat));
}

TEST_CASE("ops: wrong arguments are refused with their name, the wanted type and the line") {
  Status status = refused(one("softmax.int", {c(0), f(0.5)}));
  CHECK(has(status.what, "argument 'dim' wants an int, not float"));
  CHECK(status.where == "line 0");
  CHECK(has(refused(one("softmax.int", {c(0)})).what, "argument 'dim' is missing"));
  status = refused(one("softmax.int", {c(0), i(1)}, {{"dtpe", none()}}));
  CHECK(has(status.what, "no argument 'dtpe'"));
  CHECK(has(status.hint, "dtype"));
  CHECK(has(refused(one("softmax.int", {c(0), i(1)}, {{"dim", i(1)}})).what, "given twice"));
  CHECK(has(refused(one("relu", {c(0), i(1)})).what, "2 positional arguments"));
  CHECK(has(refused(one("cat", {c(0)})).what, "a list of tensors"));
}

TEST_CASE(
    "ops: shapes that do not fit are refused before anything runs, in torch's words, at the line") {
  Script s;
  s.constant(at::ones({2, 3}));
  s.constant(at::ones({4, 5}));
  s.save("out", s.op("matmul", {c(0), c(1)}));
  const Status status = refused(s);
  CHECK(status.code == Code::kShapeMismatch);
  CHECK(status.where == "line 0");
  CHECK(has(status.hint, "[2, 3] float32, [4, 5] float32"));
}

TEST_CASE("ops: of numbers only are refused: nothing is made while shapes are inferred") {
  for (const auto& script : {one("repeat", {f(1.5), list({i(int64_t{1} << 40)})}),
                             one("new_zeros", {f(1.5), list({i(int64_t{1} << 40)})})}) {
    CHECK(has(refused(script).what, "at least one operand must be a tensor"));
  }
}

TEST_CASE("budget: memory bombs are refused before anything is allocated") {
  const auto huge = i(int64_t{1} << 40);
  CHECK(refused(one("zeros", {list({huge})})).code == Code::kOverBudget);
  CHECK(refused(one("full", {list({huge, huge}), f(1.0)})).code == Code::kOverBudget);
  CHECK(refused(one("arange", {huge})).code == Code::kOverBudget);
  CHECK(refused(one("eye", {i(int64_t{1} << 30)})).code == Code::kOverBudget);
  CHECK(refused(one("repeat", {c(0), list({huge, i(1)})})).code == Code::kOverBudget);
  CHECK(refused(one("tril_indices", {i(1 << 30), i(1 << 30)})).code == Code::kOverBudget);
  CHECK(refused(one("constant_pad_nd", {c(0), list({i(0), huge})})).code == Code::kOverBudget);
  {
    Script s;  // an expanded view is free, a copy of it is not
    s.constant(at::ones({1, 1}));
    const int view = s.op("expand", {c(0), list({i(1 << 20), i(1 << 20)})});
    s.op("clone", {v(view)});
    const Status status = refused(s);
    CHECK(status.code == Code::kOverBudget);
    CHECK(status.where == "line 1");
  }
  {
    Script s;
    s.constant(at::ones({1 << 20}));
    s.op("outer", {c(0), c(0)});
    CHECK(refused(s).code == Code::kOverBudget);
  }
  {
    Script s;
    s.constant(at::zeros({10}, at::kLong));
    s.op("one_hot", {c(0), huge});
    CHECK(refused(s).code == Code::kOverBudget);
  }
  {
    Script s;  // the result is small, what is made inside is not
    s.constant(at::ones({1 << 17, 1, 8}));
    s.constant(at::ones({1, 1 << 17, 8}));
    s.op("cosine_similarity", {c(0), c(1), i(-1)});
    CHECK(refused(s).code == Code::kOverBudget);
  }
  {
    Script s;  // attention's scores
    s.constant(at::ones({1, 1 << 18, 2}));
    s.op("scaled_dot_product_attention", {c(0), c(0), c(0)});
    CHECK(refused(s).code == Code::kOverBudget);
  }
}

TEST_CASE("budget: so are lists of views that are too long, and many lists") {
  for (const char* name : {"tensor_split.sections", "hsplit.int", "chunk"}) {
    CHECK(refused(one(name, {c(0), i(int64_t{1} << 40)})).code == Code::kOverBudget);
  }
  for (const bool split : {false, true}) {
    Script s;
    s.constant(at::ones({1}));
    const int view = s.op("expand", {c(0), list({i(int64_t{1} << 40)})});
    split ? s.op("split.Tensor", {v(view), i(1)}) : s.op("unbind.int", {v(view)});
    CHECK(refused(s).code == Code::kOverBudget);
  }
  Script many;
  many.program.budget.nodes = 100;
  many.constant(at::ones({50}));
  for (int k = 0; k < 50; ++k) many.op("unbind.int", {c(0)});
  CHECK(refused(many).code == Code::kOverBudget);
}

TEST_CASE("budget: many values that are alive together are refused while running") {
  Script s;
  s.program.budget.temporary_bytes = 4000;
  std::vector<Arg> parts;
  for (int k = 0; k < 5; ++k)
    parts.push_back(v(s.op("full", {list({i(200)}), i(k)}, {{"dtype", dtype("float32")}})));
  s.save("sum", s.op("sum", {v(s.op("stack", {list(parts)}))}));
  Machine machine(s);
  try {
    (void)machine.go();
    FAIL("not refused");
  } catch (const program::RunError& e) {
    CHECK(e.status().code == Code::kOverBudget);
    CHECK_FALSE(e.status().where.empty());
  }
  Script freed;  // the same amount, one after another
  freed.program.budget.temporary_bytes = 4000;
  int sum = freed.op("zeros", {list({i(200)})});
  for (int k = 0; k < 50; ++k) {
    sum = freed.op("add.Tensor", {v(sum), v(freed.op("full", {list({i(200)}), f(1.0)}))});
  }
  freed.save("sum", sum);
  CHECK(run(freed)["sum"].equal(at::ones({200}) * 50));
}

TEST_CASE("budget: saved bytes, work, nodes and seconds are limits with both numbers") {
  Script saved = one("mul.Tensor", {c(0), i(2)});
  saved.program.budget.saved_bytes = 23;
  CHECK(has(refused(saved).what, "bytes of saved values: 24, at most 23"));
  Script work = one("mul.Tensor", {c(0), i(2)});
  work.program.budget.floating_point_operations = 1;
  CHECK(refused(work).code == Code::kOverBudget);
  Script nodes = one("mul.Tensor", {c(0), i(2)});
  nodes.program.budget.nodes = 1;
  CHECK(has(refused(nodes).what, "2 nodes, at most 1"));
  Script loop;
  loop.prompt({{1, 2, 3}}, 50);
  loop.program.budget.nodes = 60;
  loop.loop(0, 1 << 30);
  loop.op("sum", {v(loop.read("blocks.0.resid_pre"))});
  CHECK(has(refused(loop).what, "with loops unrolled"));
  Script seconds = one("mul.Tensor", {c(0), i(2)});
  seconds.program.budget.seconds = 1e-12;
  CHECK_THROWS_AS((void)Machine(seconds).go(), program::RunError);
}

TEST_CASE("budget: matmuls count as they are, inside composite operations too") {
  Script s;
  s.constant(at::ones({10, 20}));
  s.constant(at::ones({30, 20}));
  s.save("out", s.op("linear", {c(0), c(1)}));
  s.program.budget.floating_point_operations = 2.0 * 10 * 20 * 30 - 1;
  CHECK(refused(s).code == Code::kOverBudget);
  s.program.budget.floating_point_operations = 2.0 * 10 * 20 * 30 + 5000;
  CHECK(s.plan().ok());
}

TEST_CASE(
    "bounded: boolean indices give a length that only running tells; the bound is the budget's") {
  Script s;
  const int x = s.constant(at::arange(6, at::kFloat));
  const int mask = s.op("gt.Scalar", {c(x), f(2.5)});
  const int picked = s.op("index.Tensor", {c(x), list({v(mask)})});
  s.save("picked", picked);
  s.save("doubled", s.op("mul.Tensor", {v(picked), i(2)}));
  s.save("where", s.op("nonzero", {v(mask)}));
  s.save("selected", s.op("masked_select", {c(x), v(mask)}));
  const int copy = s.op("clone", {c(x)});
  s.op("index_put_", {v(copy), list({v(mask)}), v(s.op("neg", {v(picked)}))});
  s.save("put", copy);
  auto plan = s.plan();
  REQUIRE(plan.ok());
  CHECK((*plan)->saved_bytes() == 6 * 4 * 4 + 6 * 8);
  auto out = run(s);
  CHECK(out["picked"].equal(at::tensor(std::vector<float>{3, 4, 5})));
  CHECK(out["doubled"].equal(at::tensor(std::vector<float>{6, 8, 10})));
  CHECK(out["where"].equal(at::tensor(std::vector<int64_t>{3, 4, 5}, at::kLong).unsqueeze(1)));
  CHECK(out["selected"].equal(out["picked"]));
  CHECK(out["put"].equal(at::tensor(std::vector<float>{0, 1, 2, -3, -4, -5})));
}

TEST_CASE("run: an index out of range is an error with the line, not foreign memory") {
  Script s;
  s.constant(at::ones({2, 3}));
  s.constant(at::tensor(std::vector<int64_t>{5}, at::kLong));
  s.save("out", s.op("index_select", {c(0), i(0), c(1)}));
  try {
    (void)Machine(s).go();
    FAIL("not refused");
  } catch (const program::RunError& e) {
    CHECK(e.status().where == "line 0");
    CHECK(has(e.what(), "line 0"));
  }
}

TEST_CASE("save: compact, owned, detached; the same value twice is two tensors") {
  Script s;
  const int x = s.constant(at::arange(12, at::kFloat).reshape({3, 4}));
  s.save("constant", s.op("alias", {c(x)}));
  const int twice = s.op("mul.Tensor", {c(x), i(2)});
  s.save("a", twice);
  s.save("b", twice);
  s.save("row", s.op("select.int", {v(twice), i(0), i(1)}));
  s.save("transposed", s.op("t", {v(twice)}));
  s.save("expanded", s.op("expand", {v(s.op("ones", {list({i(1)})})), list({i(4)})}));
  auto out = run(s);
  std::set<const void*> storages{s.constants[0].const_data_ptr()};
  for (auto& [name, value] : out) {
    CAPTURE(name);
    CHECK(value.is_contiguous());
    CHECK(value.storage().nbytes() == value.nbytes());
    CHECK(storages.insert(value.const_data_ptr()).second);
  }
  CHECK(out["row"].equal(s.constants[0][1] * 2));
  CHECK(out["transposed"].equal((s.constants[0] * 2).t()));
}

TEST_CASE("warnings: a computed line that nobody uses is named; a mere read is not") {
  Script s;
  s.prompt({{1, 2, 3}});
  const int h = s.read("blocks.0.resid_pre");
  s.op("add.Tensor", {v(h), i(1)});  // `h = h + 1` without a write
  s.save("h", h);
  s.read("blocks.1.resid_pre");
  const auto plan = s.plan();
  REQUIRE(plan.ok());
  REQUIRE((*plan)->warnings().size() == 1);
  CHECK(has((*plan)->warnings()[0], "line 1"));
}

TEST_CASE("parts, weights and callbacks run through the environment") {
  Script s;
  s.prompt({{1, 2, 3}});
  const int h = s.read("blocks.2.resid_post");
  const int normed = s.add(NodeKind::kPart, "ln_final", {v(h)});
  const int logits = s.add(NodeKind::kPart, "unembed", {v(normed)});
  s.save("lens", logits);
  s.save("weight", s.add(NodeKind::kWeight, "unembed"));
  s.save("called", s.add(NodeKind::kCall, "same", {v(h)}, {{"like", v(h)}}));
  auto out = run(s);
  CHECK(out["lens"].sizes() == at::IntArrayRef({1, 3, kVocab}));
  CHECK(out["lens"].equal(at::matmul(out["called"] * 2, head())));
  CHECK(out["weight"].equal(at::ones({kVocab, kModel})));
  Script wrong;
  wrong.constant(at::ones({2, 3}));
  wrong.save("x", wrong.add(NodeKind::kPart, "unembed", {c(0)}));
  CHECK(refused(wrong).code == Code::kShapeMismatch);
}

TEST_CASE("a site that was asked for and never fired is an error with its line") {
  Script s;
  s.prompt({{1, 2, 3}});
  s.save("h", s.read("blocks.1.resid_pre"));
  const auto plan = s.plan();
  auto run = program::Run::make(*plan, {});
  run->begin();
  const auto out = run->finish();
  REQUIRE_FALSE(out.ok());
  CHECK(out.status().code == Code::kNotRun);
  CHECK(out.status().where == "line 0");
  CHECK(has(out.status().what, "blocks.1.resid_pre"));
}

TEST_CASE("groups: unequal rows, ids outside of the vocabulary and too long prompts are refused") {
  Script s;
  s.prompt({{1, 2, 3}, {1}});
  CHECK(has(refused(s).what, "lengths 3 and 1"));
  Script ids;
  ids.prompt({{1, kVocab}});
  CHECK(has(refused(ids).what, "token id 11"));
  Script longer;
  longer.prompt({std::vector<int64_t>(60, 1)}, 6);
  CHECK(has(refused(longer).what,
            "60 tokens of prompt and 6 new ones: the model's context holds 64"));
  Script fits;
  fits.prompt({std::vector<int64_t>(60, 1)}, 5);
  CHECK(fits.plan().ok());
  Script forever;
  forever.prompt({{1}}, std::numeric_limits<int64_t>::max());
  CHECK_FALSE(forever.plan().ok());
  Script empty;
  empty.prompt({});
  CHECK_FALSE(empty.plan().ok());
}
