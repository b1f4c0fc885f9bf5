#include <doctest/doctest.h>

#include "program/tests/toy.h"

using namespace toy;

namespace {

at::Tensor tokens() { return at::tensor(std::vector<int64_t>{1, 2, 3}, at::kLong).reshape({1, 3}); }
at::Tensor resid(int layer) {
  at::Tensor x = embed(tokens(), 0);
  for (int l = 0; l < layer; ++l) x = x + mlp(x, l);
  return x;
}

std::map<std::string, at::Tensor> run(const Script& script) {
  auto saved = Machine(script).go();
  REQUIRE_MESSAGE(saved.ok(), saved.status().message());
  std::map<std::string, at::Tensor> out;
  for (auto& [name, one] : *saved) {
    REQUIRE(one.value.defined());
    CHECK(one.value.storage().nbytes() == one.value.nbytes());
    out[name] = one.value;
  }
  return out;
}

}  // namespace

TEST_CASE("run: a value is read, computed with and saved") {
  Script s;
  s.prompt({{1, 2, 3}});
  const int h = s.read("blocks.1.resid_pre");
  const int doubled = s.op("mul.Tensor", {v(h), i(2)});
  s.save("h", h);
  s.save("doubled", doubled);
  const auto out = run(s);
  CHECK(out.at("h").equal(resid(1)));
  CHECK(out.at("doubled").equal(resid(1) * 2));
}

TEST_CASE("run: a write takes the site's place, and what was read before keeps its value") {
  Script s;
  s.prompt({{1, 2, 3}});
  const int h = s.read("blocks.1.resid_pre");
  const int zero = s.op("zeros_like", {v(h)});
  s.write("blocks.1.resid_pre", zero);
  const int again = s.read("blocks.1.resid_pre");
  s.save("before", h);
  s.save("after", again);
  s.save("end", s.read("blocks.2.resid_post"));
  const auto out = run(s);
  CHECK(out.at("before").equal(resid(1)));
  CHECK(out.at("after").equal(at::zeros({1, 3, kModel})));
  CHECK(out.at("end").equal(at::zeros({1, 3, kModel})));
}

TEST_CASE("run: an edit through a view changes the pass; a save keeps the value of its line") {
  Script s;
  s.prompt({{1, 2, 3}});
  const int h = s.read("blocks.1.resid_pre");
  s.save("before", h);
  const int last = s.op("select.int", {v(h), i(1), i(-1)});
  s.op("zero_", {v(last)});
  s.save("after", h);
  s.save("end", s.read("blocks.1.resid_post"));
  const auto out = run(s);
  at::Tensor edited = resid(1).clone();
  edited.select(1, 2).zero_();
  CHECK(out.at("before").equal(resid(1)));
  CHECK(out.at("after").equal(edited));
  CHECK(out.at("end").equal(edited + mlp(edited, 1)));
}
