#include "wire/program.h"

#include <doctest/doctest.h>

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <limits>
#include <random>

using namespace pellucid;
using namespace pellucid::wire;

namespace {

Arg value(int node, int output = 0) { return {ValueRef{node, output}}; }

/// One of everything. tests/golden/program_v1.* hold it.
Program example() {
  Program program;
  Group group;
  group.tokens = {{1, 2, 3}, {4, 5, 6}};
  group.max_new_tokens = 4;
  group.sampling = {0.7, 40, 0.95, 0.05, 1.1, 18446744073709551615u};
  group.stop = {"\n\n", "Größe 🦋"};
  group.stop_at_eos = false;
  group.where = "steer.py:3";
  program.groups = {group, Group{}};
  Node read;
  read.kind = NodeKind::kRead;
  read.name = "blocks.12.resid_post";
  read.group = 0;
  read.where = "steer.py:4";
  Node op;
  op.kind = NodeKind::kOp;
  op.name = "aten::index_put_";
  op.args = {value(0),
             {Arg::List{{}, {ConstantRef{0}}, {Arg::List{{int64_t{-7}}, {2.5}, {false}}}}},
             {-0.125}};
  op.kwargs = {
      {"accumulate", {true}}, {"dtype", {DtypeArg{"float32"}}}, {"mode", {std::string("sum")}}};
  op.grad_enabled = false;
  Node write;
  write.kind = NodeKind::kWrite;
  write.name = "blocks.12.resid_post";
  write.args = {value(1)};
  write.group = 0;
  write.step_first = 1;
  write.step_end = std::numeric_limits<int32_t>::max();
  write.per_step = true;
  Node part;
  part.kind = NodeKind::kPart;
  part.name = "unembed";
  part.args = {value(0)};
  Node weight;
  weight.kind = NodeKind::kWeight;
  weight.name = "unembed";
  Node save;
  save.kind = NodeKind::kSave;
  save.name = "logits";
  save.args = {value(3, 0)};
  program.nodes = {read, op, write, part, weight, save};
  program.constants = {{std::string(64, 'a'), "int64", {2, 0, 3}}, {"", "bool", {}}};
  program.budget = {1 << 20, 1 << 21, 1e12, 2.5, 1000};
  return program;
}

std::string file(const std::string& name) {
  const std::string path = std::string(PELLUCID_SOURCE_DIR) + "/tests/golden/" + name;
  if (std::getenv("PELLUCID_UPDATE_GOLDEN") != nullptr) {
    std::ofstream(path, std::ios::binary)
        << (name.ends_with(".pb") ? *serialise(example()) : *to_json(example()));
  }
  std::ifstream in(path, std::ios::binary);
  REQUIRE_MESSAGE(in.good(), name);
  return {std::istreambuf_iterator<char>(in), {}};
}

class Maker {
 public:
  explicit Maker(uint64_t seed) : random_(seed) {}

  Program program() {
    Program out;
    for (int i = below(3); i > 0; --i) out.groups.push_back(group());
    for (int i = below(3); i > 0; --i) {
      out.constants.push_back({text(), "float32", {below(4), below(4)}});
    }
    constants_ = static_cast<int>(out.constants.size());
    for (int i = 0, n = below(12); i < n; ++i) {
      index_ = i;
      Node node;
      node.kind = static_cast<NodeKind>(below(6));
      node.name = text();
      for (int a = below(4); a > 0; --a) node.args.push_back(arg(0));
      for (int a = below(3); a > 0; --a) node.kwargs.emplace_back(text(), arg(0));
      node.group = below(static_cast<int>(out.groups.size()) + 1) - 1;
      node.step_first = below(5);
      node.step_end = node.step_first + 1 + below(3);
      node.per_step = below(2) == 0;
      node.grad_enabled = below(2) == 0;
      node.where = text();
      out.nodes.push_back(std::move(node));
    }
    out.budget = {below(9), below(9), 0.5 * below(9), 0.25 * below(9), below(9)};
    return out;
  }

 private:
  int below(int n) { return static_cast<int>(random_() % static_cast<uint64_t>(n)); }
  std::string text() {
    constexpr std::string_view kPieces[] = {"",   "a",    "é",        "\"", "\\",
                                            "\n", "🦋", "blocks.1", " "};
    std::string out;
    for (int i = below(4); i > 0; --i) out += kPieces[below(9)];
    return out;
  }
  Group group() {
    Group out;
    for (int r = below(3); r > 0; --r) {
      auto& row = out.tokens.emplace_back();
      for (int t = below(4); t > 0; --t) row.push_back(static_cast<int64_t>(random_()));
    }
    out.max_new_tokens = below(100);
    out.sampling = {0.1 * below(20), below(50),          0.05 * below(20),
                    0.01 * below(9), 1 + 0.1 * below(3), random_()};
    for (int s = below(3); s > 0; --s) out.stop.push_back(text());
    out.stop_at_eos = below(2) == 0;
    return out;
  }
  Arg arg(int depth) {
    switch (below(depth < 3 ? 9 : 8)) {
      case 0:
        return {};
      case 1:
        return {below(2) == 0};
      case 2:
        return {static_cast<int64_t>(random_())};
      case 3: {
        constexpr double kNumbers[] = {0.,     -0.5, 1e300,
                                       5e-324, 0.1,  std::numeric_limits<double>::infinity()};
        return {kNumbers[below(6)]};
      }
      case 4:
        return {text()};
      case 5:
        return index_ > 0 ? value(below(index_), below(3)) : Arg{};
      case 6:
        return constants_ > 0 ? Arg{ConstantRef{below(constants_)}} : Arg{};
      case 7:
        return {DtypeArg{"int64"}};
      default: {
        Arg::List list;
        for (int i = below(4); i > 0; --i) list.push_back(arg(depth + 1));
        return {std::move(list)};
      }
    }
  }

  std::mt19937_64 random_;
  int index_ = 0, constants_ = 0;
};

Program parsed(const std::string& bytes) {
  auto out = parse_program(bytes);
  REQUIRE_MESSAGE(out.ok(), out.status().message());
  return *out;
}

}  // namespace

TEST_CASE("wire: the golden program of version 1 still means the same, in both forms") {
  const std::string bytes = file("program_v1.pb");
  CHECK(parsed(bytes) == example());
  CHECK(*serialise(example()) == bytes);
  const std::string json = file("program_v1.json");
  const auto from_json = program_from_json(json);
  REQUIRE_MESSAGE(from_json.ok(), from_json.status().message());
  CHECK(*from_json == example());
  CHECK(program_from_json(*to_json(example())).ok());
}

TEST_CASE("wire: programs survive both forms, 300 random ones") {
  for (uint64_t seed = 0; seed < 300; ++seed) {
    CAPTURE(seed);
    const Program program = Maker(seed).program();
    const auto bytes = serialise(program);
    REQUIRE(bytes.ok());
    REQUIRE(parsed(*bytes) == program);
    CHECK(*serialise(program) == *bytes);
    const auto json = to_json(program);
    REQUIRE_MESSAGE(json.ok(), json.status().message());
    const auto back = program_from_json(*json);
    REQUIRE_MESSAGE(back.ok(), back.status().message());
    REQUIRE(*back == program);
  }
}

TEST_CASE("wire: a newer version is refused with both numbers, in both forms") {
  Program program = example();
  program.version = kProgramVersion + 6;
  for (const auto& out :
       {parse_program(*serialise(program)), program_from_json(*to_json(program))}) {
    REQUIRE_FALSE(out.ok());
    CHECK(out.status().code == Code::kUnsupported);
    CHECK(out.status().what == "the program has version 7, this build reads up to 1");
  }
}

TEST_CASE("wire: a callback is never written; the message names it and its line") {
  Program program = example();
  Node call;
  call.kind = NodeKind::kCall;
  call.name = "knn";
  call.where = "x.py:9";
  program.nodes.push_back(call);
  for (const auto& out : {serialise(program), to_json(program)}) {
    REQUIRE_FALSE(out.ok());
    CHECK(out.status().code == Code::kUnsupported);
    CHECK(out.status().what.find("'knn'") != std::string::npos);
    CHECK(out.status().where == "x.py:9");
  }
}

TEST_CASE("wire: a node may use earlier nodes and constants that exist only") {
  for (const Arg& bad : {value(5), value(6), value(-1), value(0, -1), Arg{ConstantRef{2}},
                         Arg{ConstantRef{-1}}, Arg{Arg::List{{Arg::List{value(5)}}}}}) {
    Program program = example();
    program.nodes[5].args = {bad};
    const auto out = parse_program(*serialise(program));
    REQUIRE_FALSE(out.ok());
    CHECK(out.status().code == Code::kCorruptFile);
    CHECK(out.status().what.find("node 5") != std::string::npos);
  }
}

TEST_CASE("wire: impossible groups, steps and sizes are refused") {
  const auto refused = [](auto change) {
    Program program = example();
    change(program);
    return !parse_program(*serialise(program)).ok();
  };
  CHECK(refused([](Program& p) { p.nodes[0].group = 2; }));
  CHECK(refused([](Program& p) { p.nodes[0].group = -2; }));
  CHECK(refused([](Program& p) { p.nodes[0].step_first = -1; }));
  CHECK(refused([](Program& p) { p.nodes[0].step_first = 3; }));
  CHECK(refused([](Program& p) { p.groups[0].max_new_tokens = -1; }));
  CHECK(refused([](Program& p) { p.constants[0].shape = {int64_t{1} << 40, int64_t{1} << 40}; }));
  CHECK(refused([](Program& p) { p.constants[0].shape = {-1}; }));
  CHECK(refused([](Program& p) { p.nodes[0].name = std::string(5000, 'x'); }));
  CHECK(refused([](Program& p) { p.budget.seconds = -1; }));
}

TEST_CASE("wire: lists that are nested too deep are refused, not followed") {
  Arg deep;
  for (int i = 0; i < 9; ++i) deep = Arg{Arg::List{deep}};
  Program program = example();
  program.nodes[5].args.push_back(deep);
  CHECK_FALSE(serialise(program).ok());
  // As bytes and text that this writer would not make.
  std::string json = R"({"version":1,"nodes":[{"kind":"OP","name":"x","args":[)";
  for (int i = 0; i < 100000; ++i) json += R"({"list":{"items":[)";
  CHECK_FALSE(program_from_json(json).ok());
  std::string bytes;  // field 10 (list) of field 2 (items) of ..., 60 times
  for (int i = 0; i < 30; ++i) {
    bytes = "\x12" + std::string(1, static_cast<char>(bytes.size())) + bytes;
    bytes = "\x52" + std::string(1, static_cast<char>(bytes.size())) + bytes;
    if (bytes.size() > 100) break;
  }
  bytes = "\x22" + std::string(1, static_cast<char>(bytes.size())) + bytes;
  bytes = "\x08\x01\x1a" + std::string(1, static_cast<char>(bytes.size())) + bytes;
  const auto out = parse_program(bytes);
  REQUIRE_FALSE(out.ok());
  CHECK(out.status().code == Code::kCorruptFile);
}

TEST_CASE("wire: every truncation and every changed byte of a program is read or refused") {
  const std::string bytes = *serialise(example());
  for (size_t size = 0; size < bytes.size(); ++size) {
    if (const auto out = parse_program(bytes.substr(0, size)); out.ok())
      CHECK(serialise(*out).ok());
  }
  for (size_t at = 0; at < bytes.size(); ++at) {
    for (const int flip : {1, 0x80, 0xff}) {
      std::string changed = bytes;
      changed[at] = static_cast<char>(changed[at] ^ flip);
      if (const auto out = parse_program(changed); out.ok()) CHECK(serialise(*out).ok());
    }
  }
  CHECK_FALSE(parse_program("").ok());
  CHECK_FALSE(parse_program("not a program").ok());
}

TEST_CASE(
    "wire: strings that are not UTF-8 are refused when written, since they could not be read") {
  for (const std::string bad : {"\xff", "a\xc3", "\xed\xa0\x80", "\xc0\x80", "\xf4\x90\x80\x80"}) {
    Program program = example();
    program.nodes[0].name = bad;
    CHECK_FALSE(serialise(program).ok());
    program = example();
    program.groups[0].stop = {bad};
    CHECK_FALSE(serialise(program).ok());
  }
}

TEST_CASE("wire: a program written by hand may leave the usual out") {
  const auto out = program_from_json(R"({
    "version": 1,
    "groups": [{"max_new_tokens": 3}],
    "nodes": [
      {"kind": "READ", "name": "logits", "step_first": 2},
      {"kind": "OP", "name": "aten::argmax", "args": [{"node": {}}, {"integer": -1}]},
      {"kind": "SAVE", "name": "top", "args": [{"node": {"node": 1}}]}
    ]})");
  REQUIRE_MESSAGE(out.ok(), out.status().message());
  CHECK(out->nodes[0].group == 0);
  CHECK(out->nodes[0].step_end == 3);
  CHECK(out->nodes[1].group == -1);
  CHECK(out->nodes[1].grad_enabled);
  CHECK(out->nodes[1].args == std::vector<Arg>{value(0), Arg{int64_t{-1}}});
  CHECK(out->groups[0].stop_at_eos);
  CHECK(out->groups[0].sampling.top_p == 1);
  const auto wrong = program_from_json(R"({"version": 1, "nods": []})");
  REQUIRE_FALSE(wrong.ok());
  CHECK(wrong.status().what.find("nods") != std::string::npos);
}
