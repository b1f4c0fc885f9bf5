#include <doctest/doctest.h>

#include <cmath>

#include "facade/tests/tiny_model.h"
#include "pellucid/pellucid.h"

namespace pellucid {
namespace {

/// Float64, so that values that are equal by definition are equal to 1e-12.
const Model& lm() {
  static const tiny::Folder folder;
  static const Model model = load(folder.path(), {.dtype = Dtype::kFloat64});
  return model;
}

double difference(const Tensor& a, const Tensor& b) {
  REQUIRE(a.shape() == b.shape());
  const auto x = a.to_vector<double>(), y = b.to_vector<double>();
  double most = 0;
  for (size_t i = 0; i < x.size(); ++i) most = std::max(most, std::abs(x[i] - y[i]));
  return most;
}

template <typename F>
Error thrown(F call) {
  try {
    call();
  } catch (const Error& error) {
    return error;
  }
  return Error("nothing", "was thrown");
}

TEST_CASE("Model: says what it is, encodes and decodes") {
  const ModelInfo info = lm().info();
  CHECK(info.family == "llama");
  CHECK(info.num_layers == 2);
  CHECK(info.vocab_size == 28);
  CHECK(info.context_length == 24);
  CHECK(info.dtype == Dtype::kFloat64);
  CHECK(lm().encode("abc z") == std::vector<int64_t>{0, 1, 2, 26, 25});
  CHECK(lm().decode({0, 1, 26, 2}) == "ab c");
  CHECK(lm().id("q") == 16);
  CHECK(thrown([] { lm().id("ab"); }).code() == "invalid_argument");
  CHECK(lm().sites().front() == "tokens");
  CHECK(lm().sites().back() == "logits");
}

TEST_CASE("load: an unknown model is an error, with the code and a hint") {
  const Error error = thrown([] { load("no-such-model"); });
  CHECK(error.code() == "not_found");
  CHECK(error.message().find("no-such-model") != std::string::npos);
  CHECK_FALSE(error.hint().empty());
}

TEST_CASE("Trace: reads the shapes that the sites promise, of the prompt's own length") {
  Trace t(lm(), "hello");
  const Saved resid = t.save(t.read("blocks.1.resid_post"));
  const Saved q = t.save(t.read("blocks.0.attn.q"));
  const Saved pattern = t.save(t.read("blocks.1.attn.pattern"));
  const Saved flat = t.save(t.read("model.layers.0.self_attn.o_proj.input"));
  const Saved z = t.save(t.read("blocks.0.attn.z"));
  t.run();
  CHECK(resid.value().shape() == std::vector<int64_t>{1, 5, 16});
  CHECK(q.value().shape() == std::vector<int64_t>{1, 5, 4, 4});
  CHECK(pattern.value().shape() == std::vector<int64_t>{1, 4, 5, 5});
  CHECK(flat.value().shape() == std::vector<int64_t>{1, 5, 16});
  CHECK(flat.value().to_vector<double>() == z.value().to_vector<double>());
  const Tensor rows = pattern.value();
  for (int64_t i = 0; i < 5; ++i) {
    double sum = 0;
    for (int64_t j = 0; j < 5; ++j) sum += rows.at({0, 2, i, j});
    CHECK(std::abs(sum - 1) < 1e-12);
  }
}

TEST_CASE("Trace: the lens of the last residual is the logits, inside and outside a trace") {
  Trace t(lm(), "hello world");
  const Value h = t.read("blocks.1.resid_post");
  const Saved resid = t.save(h);
  const Saved lens = t.save(t.lens(h));
  const Saved logits = t.save(t.read("logits"));
  t.run();
  CHECK(difference(lens.value(), logits.value()) < 1e-12);
  CHECK(difference(lm().unembed(lm().ln_final(resid.value())), logits.value()) < 1e-12);
}

TEST_CASE("Trace: an edit through a view changes the site; a save before it keeps the old value") {
  Trace t(lm(), "abcd");
  const Value h = t.read("blocks.0.resid_post");
  const Saved before = t.save(h);
  h.select(1, -1).mul_(2).add_(Tensor::from<double>(std::vector<double>(16, 0.5)));
  const Saved after = t.save(t.read("blocks.0.resid_post"));
  const Saved seen = t.save(t.read("blocks.1.resid_pre"));
  t.run();
  for (int64_t i = 0; i < 16; ++i) {
    CHECK(before.value().at({0, 0, i}) == after.value().at({0, 0, i}));
    CHECK(after.value().at({0, 3, i}) == before.value().at({0, 3, i}) * 2 + 0.5);
  }
  CHECK(difference(after.value(), seen.value()) == 0);
}

TEST_CASE("Trace: patching a residual from another prompt gives that prompt's logits") {
  Trace t(lm());
  const Prompt donor = t.prompt("abcd");
  const Value residual = donor.read("blocks.1.resid_post");
  const Saved wanted = t.save(donor.read("logits"));
  const Prompt receiver = t.prompt("wxyz");
  receiver.write("blocks.1.resid_post", residual);
  const Saved got = t.save(receiver.read("logits"));
  t.run();
  CHECK(difference(got.value(), wanted.value()) < 1e-12);
}

TEST_CASE("Trace: operators, numbers on either side and constants mean what they mean in PyTorch") {
  Trace t(lm(), "ab");
  const Value h = t.read("embed").select(1, 0);
  const Tensor ones = Tensor::from<double>(std::vector<double>(16, 1));
  const Saved plain = t.save(h);
  const Saved computed = t.save(2 - h * 3 / 2 + ones);
  const Saved same = t.save(t.constant(ones).mul(3).add(h.mul(-1.5)));
  t.run();
  CHECK(difference(computed.value(), same.value()) < 1e-12);
  CHECK(std::abs(computed.value().at({0, 5}) - (3 - 1.5 * plain.value().at({0, 5}))) < 1e-12);
}

TEST_CASE("Trace: operations with several outputs, by method and by name") {
  Trace t(lm(), "abc");
  const Value last = t.read("logits").select(1, -1);
  const Saved logits = t.save(last);
  const Saved top = t.save(last.topk(3), "top");
  const Saved by_name = t.save(t.op("aten::topk", {last, 3, -1, true, true})[1]);
  const Saved best = t.save(last.argmax(-1));
  t.run();
  CHECK(top.value(1).to_vector<int64_t>() == by_name.value().to_vector<int64_t>());
  CHECK(top.value(1).at({0, 0}) == best.value().at({0}));
  CHECK(top.value(0).at({0, 0}) == logits.value().at({0, top.value(1).to_vector<int64_t>()[0]}));
  CHECK(thrown([&] { top.value(2); }).message() == "output 2 of a save of 2");
  Trace other(lm(), "abc");
  CHECK(thrown([&] { Value wrong = other.read("logits").topk(2); }).message() ==
        "aten::topk returns 2 values, not one value");
  CHECK(thrown([&] { other.read("logits").topk(2)[2]; }).message() ==
        "output 2 of aten::topk, which has 2");
}

TEST_CASE("Trace: steps of generation, one by one and stacked") {
  GenerateOptions options;
  options.max_new_tokens = 3;
  std::string streamed;
  options.on_text = [&](std::string_view text) { streamed += text; };
  Trace t(lm(), "abc", options);
  const Prompt prompt = t.current();
  std::optional<Saved> second, all;
  {
    const StepScope scope = t.step(1);
    second = t.save(t.read("logits").select(1, -1).argmax(-1));
  }
  {
    const StepScope scope = t.steps(0, 3);
    all = t.save(t.read("logits").select(1, -1).argmax(-1));
  }
  t.run();
  const Generation& generated = prompt.generated();
  if (generated.tokens.size() == 3) {
    CHECK(all->value().to_vector<int64_t>() == generated.tokens);
    CHECK(all->steps() == 3);
    CHECK(second->value().to_vector<int64_t>()[0] == generated.tokens[1]);
  }
  CHECK(prompt.steps_run() == static_cast<int64_t>(generated.tokens.size()));
  CHECK(streamed == generated.text);
  CHECK(generated.tokens == lm().generate("abc", {.max_new_tokens = 3}).tokens);
}

TEST_CASE("Prompt: finds tokens and spans of its text") {
  Trace t(lm());
  const Prompt prompt = t.prompt("abc abc");
  CHECK(prompt.tokens().size() == 7);
  CHECK(prompt.at("c") == 2);
  CHECK(prompt.at("c", 1) == 6);
  CHECK(prompt.span("bc a") == std::pair<int64_t, int64_t>{1, 5});
  CHECK(prompt.span("abc", 1) == std::pair<int64_t, int64_t>{4, 7});
  const Error error = thrown([&] { prompt.at("z"); });
  CHECK(error.message() == "the prompt has no token 'z'");
  CHECK(error.hint() == "its tokens are 'a' 'b' 'c' ' ' 'a' 'b' 'c'");
}

TEST_CASE("Trace: what is wrong is refused, with the line that is wrong") {
  SUBCASE("an unknown site, when it is written, with the nearest names") {
    Trace t(lm(), "abc");
    const Error error = thrown([&] { t.read("blocks.0.resid_pots"); });
    CHECK(error.code() == "not_found");
    CHECK(std::string(error.what()).find("blocks.0.resid_post") != std::string::npos);
    CHECK(error.where().starts_with("trace_test.cpp:"));
  }
  SUBCASE("a layer that the model does not have") {
    Trace t(lm(), "abc");
    const Error error = thrown([&] { t.read("blocks.2.resid_pre"); });
    CHECK(error.code() == "invalid_argument");
  }
  SUBCASE("an unknown operation, by run") {
    Trace t(lm(), "abc");
    t.save(t.op("aten::tpok", {t.read("logits"), 2})[0]);
    const Error error = thrown([&] { t.run(); });
    CHECK(error.where().starts_with("trace_test.cpp:"));
    CHECK(std::string(error.what()).find("topk") != std::string::npos);
  }
  SUBCASE("shapes that do not fit, before anything runs") {
    Trace t(lm(), "abc");
    t.save(t.read("embed").add(Tensor::from<double>({1, 2, 3})));
    const Error error = thrown([&] { t.run(); });
    CHECK(error.code() == "shape_mismatch");
    CHECK(error.where().starts_with("trace_test.cpp:"));
  }
  SUBCASE("an edit upstream of a site already read") {
    Trace t(lm(), "abc");
    const Value late = t.read("blocks.1.resid_post");
    t.write("blocks.0.resid_pre", late);
    CHECK(thrown([&] { t.run(); }).code() == "out_of_order");
  }
  SUBCASE("rows of unequal lengths in one prompt, with both lengths") {
    Trace t(lm());
    CHECK(thrown([&] {
            t.prompt(std::vector<std::string>{"abc", "ab"});
          }).message() == "rows of 3 and 2 tokens in one prompt");
  }
  SUBCASE("values of another trace") {
    Trace a(lm(), "abc"), b(lm(), "abc");
    const Value x = a.read("embed"), y = b.read("embed");
    CHECK(thrown([&] { x.add(y); }).message() == "a value of another trace");
  }
  SUBCASE("a second run, a line after it, a value before it") {
    Trace t(lm(), "abc");
    const Value x = t.read("embed");
    const Saved saved = t.save(x, "mine");
    CHECK(thrown([&] { saved.value(); }).code() == "not_run");
    CHECK(thrown([&] { t.save(x, "mine"); }).message() == "two saves named 'mine'");
    t.run();
    CHECK(thrown([&] { t.run(); }).code() == "invalid_argument");
    CHECK(thrown([&] { x.add(1); }).message() == "a line in a trace that has run");
  }
  SUBCASE("a prompt longer than the context, with both numbers") {
    const std::string what = thrown([] { lm().generate(std::string(30, 'a')); }).what();
    CHECK(what.find("30") != std::string::npos);
    CHECK(what.find("24") != std::string::npos);
  }
}

TEST_CASE("Trace: rows of a group and groups among others equal their solo runs, bit for bit") {
  const auto solo = [](const char* text) {
    Trace t(lm(), text);
    const Saved logits = t.save(t.read("logits"));
    t.run();
    return logits.value().to_vector<double>();
  };
  Trace t(lm());
  const Saved pair = t.save(t.prompt(std::vector<std::string>{"abcd", "wxyz"}).read("logits"));
  const Saved single = t.save(t.prompt("hi").read("logits"));
  t.run();
  std::vector<double> expected = solo("abcd");
  const std::vector<double> second = solo("wxyz");
  expected.insert(expected.end(), second.begin(), second.end());
  CHECK(pair.value().to_vector<double>() == expected);
  CHECK(single.value().to_vector<double>() == solo("hi"));
}

TEST_CASE("generate: same seed, same text; stop strings and cancellation end it") {
  GenerateOptions options{.max_new_tokens = 12, .temperature = 1.0, .seed = 7};
  const Generation first = lm().generate("abc", options);
  CHECK(lm().generate("abc", options).tokens == first.tokens);
  CHECK(lm().decode({first.tokens[0]}) == first.text.substr(0, 1));
  options.stop = {first.text.substr(2, 1)};
  const Generation stopped = lm().generate("abc", options);
  CHECK(stopped.ended == "stop");
  CHECK(first.text.starts_with(stopped.text));
  options.stop.clear();
  options.cancelled = std::make_shared<std::atomic<bool>>(true);
  CHECK(lm().generate("abc", options).ended == "cancelled");
}

}  // namespace
}  // namespace pellucid
