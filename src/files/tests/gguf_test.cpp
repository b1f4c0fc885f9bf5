#include "files/gguf.h"

#include <doctest/doctest.h>

#include <limits>

#include "files/tests/gguf_builder.h"
#include "files/tests/temporary_folder.h"

namespace pellucid::files {
namespace {

using B = GgufBuilder;
constexpr uint32_t kF32 = 0, kQ4_0 = 2;

GgufBuilder every_type() {
  GgufBuilder file;
  file.pair("u8", GgufType::kU8, B::raw<uint8_t>(255));
  file.pair("i8", GgufType::kI8, B::raw<int8_t>(-128));
  file.pair("u16", GgufType::kU16, B::raw<uint16_t>(65535));
  file.pair("i16", GgufType::kI16, B::raw<int16_t>(-32768));
  file.pair("u32", GgufType::kU32, B::raw<uint32_t>(4'000'000'000));
  file.pair("i32", GgufType::kI32, B::raw<int32_t>(-2'000'000'000));
  file.pair("f32", GgufType::kF32, B::raw(1.5f));
  file.pair("bool", GgufType::kBool, B::raw<uint8_t>(1));
  file.pair("string", GgufType::kString, B::text("caf\xc3\xa9"));
  file.pair("u64", GgufType::kU64, B::raw(std::numeric_limits<uint64_t>::max()));
  file.pair("i64", GgufType::kI64, B::raw(std::numeric_limits<int64_t>::min()));
  file.pair("f64", GgufType::kF64, B::raw(0.1));
  file.pair("strings", GgufType::kArray,
            B::array(GgufType::kString, 3, B::text("a") + B::text("") + B::text("ccc")));
  file.pair("ints", GgufType::kArray,
            B::array(GgufType::kI32, 2, B::raw<int32_t>(-1) + B::raw<int32_t>(7)));
  file.pair("floats", GgufType::kArray, B::array(GgufType::kF32, 2, B::raw(0.5f) + B::raw(-2.f)));
  file.pair("bools", GgufType::kArray, B::array(GgufType::kBool, 2, std::string("\0\1", 2)));
  file.pair("nested", GgufType::kArray,
            B::array(GgufType::kArray, 2,
                     B::array(GgufType::kU8, 2, "\x01\x02") +
                         B::array(GgufType::kString, 1, B::text("deep"))));
  file.pair("empty", GgufType::kArray, B::array(GgufType::kU32, 0, ""));
  file.tensor("plain", {3, 2}, kF32, std::string(24, 'x'));
  file.tensor("blocks", {64, 2, 1}, kQ4_0, std::string(4 * 18, 'y'));
  file.tensor("scalar", {}, kF32, B::raw(1.f));
  return file;
}

Result<std::shared_ptr<const GgufFile>> parse(const std::string& bytes) {
  return GgufFile::parse(as_bytes(bytes), "x.gguf");
}

/// The error's text; fails the test when there is none.
std::string refusal(const GgufBuilder& file) {
  const std::string bytes = file.build();
  const auto parsed = parse(bytes);
  REQUIRE_FALSE(parsed.ok());
  CHECK(parsed.status().code == Code::kCorruptFile);
  return parsed.status().what;
}

bool contains(const std::string& text, std::string_view part) {
  const bool found = text.find(part) != std::string::npos;
  if (!found) MESSAGE(text);
  return found;
}

}  // namespace

TEST_CASE("gguf: every metadata type arrives with its value") {
  for (const uint32_t version : {2u, 3u}) {
    GgufBuilder builder = every_type();
    builder.version = version;
    const std::string bytes = builder.build();
    const auto parsed = parse(bytes);
    REQUIRE(parsed.ok());
    const GgufFile& file = **parsed;
    CHECK(file.version() == version);
    CHECK(*file.get<uint32_t>("u8") == 255);
    CHECK(*file.get<int32_t>("i8") == -128);
    CHECK(*file.get<int64_t>("u16") == 65535);
    CHECK(*file.get<int64_t>("i16") == -32768);
    CHECK(*file.get<uint32_t>("u32") == 4'000'000'000);
    CHECK(*file.get<int64_t>("i32") == -2'000'000'000);
    CHECK(*file.get<float>("f32") == 1.5f);
    CHECK(*file.get<bool>("bool"));
    CHECK(*file.get<std::string>("string") == "caf\xc3\xa9");
    CHECK(*file.get<uint64_t>("u64") == std::numeric_limits<uint64_t>::max());
    CHECK(*file.get<int64_t>("i64") == std::numeric_limits<int64_t>::min());
    CHECK(*file.get<double>("f64") == 0.1);
    CHECK(*file.get<std::vector<std::string>>("strings") ==
          std::vector<std::string>{"a", "", "ccc"});
    CHECK(*file.get<std::vector<int64_t>>("ints") == std::vector<int64_t>{-1, 7});
    CHECK(*file.get<std::vector<float>>("floats") == std::vector<float>{0.5f, -2.f});
    CHECK(*file.get<std::vector<bool>>("bools") == std::vector<bool>{false, true});
    CHECK(file.get<std::vector<std::string>>("empty")->empty());
    const auto inner = std::get<GgufArray>(file.find("nested")->data).arrays();
    REQUIRE(inner.size() == 2);
    CHECK(inner[0].element == GgufType::kU8);
    CHECK(inner[0].bytes.size() == 2);
    CHECK(inner[1].strings() == std::vector<std::string_view>{"deep"});
    CHECK(file.keys().front() == "u8");
    CHECK(file.keys().size() == 18);
  }
}

TEST_CASE("gguf: tensors carry both orders of their shape and exactly their bytes") {
  const std::string bytes = every_type().build();
  const auto parsed = parse(bytes);
  REQUIRE(parsed.ok());
  const GgufTensor* blocks = (*parsed)->find_tensor("blocks");
  REQUIRE(blocks != nullptr);
  CHECK(blocks->ggml_shape == std::vector<int64_t>{64, 2, 1});
  CHECK(blocks->shape == std::vector<int64_t>{1, 2, 64});
  CHECK(blocks->count == 128);
  CHECK(blocks->type == GgmlType::kQ4_0);
  CHECK(blocks->offset % 32 == 0);
  CHECK(std::string(reinterpret_cast<const char*>(blocks->bytes.data()), blocks->bytes.size()) ==
        std::string(72, 'y'));
  CHECK((*parsed)->find_tensor("scalar")->count == 1);
  CHECK((*parsed)->find_tensor("nothing") == nullptr);
}

TEST_CASE("gguf: a wrong type, a number that does not fit and a missing key are told apart") {
  const std::string bytes = every_type().build();
  const auto parsed = parse(bytes);
  REQUIRE(parsed.ok());
  const GgufFile& file = **parsed;
  CHECK(file.get<uint32_t>("string").status().what ==
        "string is string, expected u32 (gguf x.gguf)");
  CHECK(file.get<uint32_t>("f32").status().what == "f32 is f32, expected u32 (gguf x.gguf)");
  CHECK(file.get<float>("u8").status().code == Code::kCorruptFile);
  CHECK(file.get<bool>("u8").status().code == Code::kCorruptFile);
  CHECK(file.get<std::vector<int64_t>>("strings").status().what ==
        "strings is array of string, expected array of i64 (gguf x.gguf)");
  CHECK(contains(file.get<uint32_t>("i8").status().what, "does not fit u32"));
  CHECK(contains(file.get<int64_t>("u64").status().what, "does not fit i64"));
  CHECK(file.get<uint32_t>("u33").status().code == Code::kNotFound);
  CHECK(contains(file.get<uint32_t>("u33").status().hint, "u32"));
  CHECK(*file.get_or<uint32_t>("u33", 5) == 5);
  CHECK_FALSE(file.get_or<uint32_t>("string", 5).ok());
}

TEST_CASE("gguf: a file that ends early is an error at every byte") {
  const std::string whole = every_type().build();
  for (size_t size = 0; size < whole.size(); ++size) {
    const std::string part = whole.substr(0, size);  // its own allocation, for the sanitizer
    const auto parsed = parse(part);
    REQUIRE_FALSE(parsed.ok());
    REQUIRE(parsed.status().code == Code::kCorruptFile);
  }
  CHECK(contains(parse(whole.substr(0, 12)).status().what,
                 "byte 8: expected 8 bytes of the number of tensors, the file has 4 more"));
}

TEST_CASE("gguf: any one byte changed gives a file or an error, never a crash") {
  const std::string whole = every_type().build();
  for (size_t at = 0; at < whole.size(); ++at) {
    for (const char value : {'\x00', '\x01', '\x7f', '\x80', '\xff'}) {
      std::string bytes = whole;
      bytes[at] = value;
      const auto parsed = parse(bytes);
      if (!parsed.ok()) continue;
      for (const auto key : (*parsed)->keys()) {
        const GgufValue& found = *(*parsed)->find(key);
        if (const auto* array = std::get_if<GgufArray>(&found.data)) {
          if (array->element == GgufType::kString) array->strings();
          if (array->element == GgufType::kArray) array->arrays();
        }
      }
    }
  }
}

TEST_CASE("gguf: counts and lengths beyond the file are refused before anything is allocated") {
  constexpr uint64_t kHuge = uint64_t{1} << 62;
  std::string tensors = "GGUF" + B::raw<uint32_t>(3) + B::raw(kHuge) + B::raw<uint64_t>(0);
  CHECK(contains(parse(tensors).status().what, "the number of tensors is 4611686018427387904"));
  std::string pairs = "GGUF" + B::raw<uint32_t>(3) + B::raw<uint64_t>(0) + B::raw(kHuge);
  CHECK(contains(parse(pairs).status().what, "the number of metadata pairs is"));

  for (const GgufType element :
       {GgufType::kU8, GgufType::kF64, GgufType::kString, GgufType::kArray}) {
    GgufBuilder array;
    array.pair("a", GgufType::kArray, B::array(element, kHuge, ""));
    CHECK(contains(refusal(array), "an array's length is 4611686018427387904"));
  }
  GgufBuilder string;
  string.pair("s", GgufType::kString, B::raw(std::numeric_limits<uint64_t>::max()));
  CHECK(contains(refusal(string), "expected 18446744073709551615 bytes of a metadata string"));
}

TEST_CASE("gguf: arrays nest so deep and no deeper") {
  const auto nested = [](int depth) {
    std::string value = B::array(GgufType::kU8, 1, "x");
    for (int i = 1; i < depth; ++i) value = B::array(GgufType::kArray, 1, value);
    GgufBuilder file;
    file.pair("deep", GgufType::kArray, value);
    return file;
  };
  const std::string four = nested(4).build();
  CHECK(parse(four).ok());
  CHECK(contains(refusal(nested(5)), "\"deep\" nests arrays more than 4 deep"));
  CHECK(contains(refusal(nested(1000)), "nests arrays"));
}

TEST_CASE("gguf: names that are there twice, empty or endless are refused") {
  GgufBuilder keys;
  keys.pair("a", GgufType::kU8, "x");
  keys.pair("a", GgufType::kU8, "y");
  CHECK(contains(refusal(keys), "the key \"a\" is there twice"));
  GgufBuilder tensors;
  tensors.tensor("t", {1}, kF32, "1234");
  tensors.tensor("t", {1}, kF32, "1234");
  CHECK(contains(refusal(tensors), "the tensor \"t\" is there twice"));
  GgufBuilder empty_key;
  empty_key.pair("", GgufType::kU8, "x");
  CHECK(contains(refusal(empty_key), "a metadata key of 0 bytes"));
  GgufBuilder long_name;
  long_name.tensor(std::string(1025, 'n'), {1}, kF32, "1234");
  CHECK(contains(refusal(long_name), "a tensor's name of 1025 bytes"));
}

TEST_CASE("gguf: types, alignments and bools that do not exist are named") {
  GgufBuilder value;
  value.pair("v", static_cast<GgufType>(13), "x");
  CHECK(contains(refusal(value), "\"v\" has value type 13"));
  GgufBuilder tensor;
  tensor.tensor("t", {1}, 99, "1234");
  CHECK(contains(refusal(tensor), "tensor \"t\" has type 99"));
  for (const uint32_t bad : {0u, 3u, 1u << 21}) {
    GgufBuilder alignment;
    alignment.pair("general.alignment", GgufType::kU32, B::raw(bad));
    CHECK(contains(refusal(alignment), "general.alignment is"));
  }
  GgufBuilder boolean;
  boolean.pair("b", GgufType::kBool, "\x02");
  CHECK(contains(refusal(boolean), "\"b\" is a bool of 2"));
  GgufBuilder booleans;
  booleans.pair("b", GgufType::kArray, B::array(GgufType::kBool, 2, "\x01\x05"));
  CHECK(contains(refusal(booleans), "\"b\" has a bool of 5"));
}

TEST_CASE("gguf: tensors that lie outside the file, in each other or askew are refused") {
  GgufBuilder outside;
  outside.tensor("t", {2}, kF32, "1234");
  CHECK(contains(refusal(outside), "ends beyond the file"));
  GgufBuilder far;
  far.tensor("a", {1}, kF32, "1234");
  far.tensor_at("t", {1}, kF32, ~uint64_t{31});
  CHECK(contains(refusal(far), "tensor \"t\""));
  GgufBuilder askew;
  askew.tensor("a", {9}, kF32, std::string(36, 'x'));
  askew.tensor_at("t", {1}, kF32, 4);
  CHECK(contains(refusal(askew), "begins at 4, which is no multiple of 32"));
  GgufBuilder overlapping;
  overlapping.tensor("a", {9}, kF32, std::string(36, 'x'));
  overlapping.tensor_at("t", {1}, kF32, 32);
  CHECK(contains(refusal(overlapping), "tensor \"t\" begins inside tensor \"a\""));
  GgufBuilder broken_block;
  broken_block.tensor("t", {33}, kQ4_0, std::string(36, 'x'));
  CHECK(contains(refusal(broken_block), "rows of 33 elements, Q4_0 comes in blocks of 32"));
}

TEST_CASE("gguf: shapes whose product overflows are refused, with a zero among them or not") {
  constexpr uint64_t kBig = uint64_t{1} << 40;
  for (const auto& shape : std::vector<std::vector<uint64_t>>{
           {kBig, kBig}, {kBig, kBig, 0}, {0, kBig, kBig}, {uint64_t{1} << 63}, {~uint64_t{0}}}) {
    GgufBuilder file;
    file.tensor("t", shape, kF32, "1234");
    CHECK(contains(refusal(file), "more elements than 64 bits count"));
  }
  GgufBuilder five;
  five.tensor("t", {1, 1, 1, 1, 1}, kF32, "1234");
  CHECK(contains(refusal(five), "5 dimensions"));
  GgufBuilder bytes_overflow;
  bytes_overflow.tensor("t", {uint64_t{1} << 62}, kF32, "1234");
  CHECK(contains(refusal(bytes_overflow), "ends beyond the file"));
}

TEST_CASE("gguf: an empty tensor takes no bytes, and another alignment is honoured") {
  GgufBuilder file;
  file.alignment = 64;
  file.pair("general.alignment", GgufType::kU32, B::raw<uint32_t>(64));
  file.tensor("a", {1}, kF32, "1234");
  file.tensor("none", {0, 5}, kF32, "");
  file.tensor("b", {1}, kF32, "5678");
  const std::string bytes = file.build();
  const auto parsed = parse(bytes);
  REQUIRE(parsed.ok());
  CHECK((*parsed)->alignment() == 64);
  CHECK((*parsed)->find_tensor("none")->bytes.empty());
  const GgufTensor& b = *(*parsed)->find_tensor("b");
  CHECK(b.offset % 64 == 0);
  CHECK(static_cast<char>(b.bytes[0]) == '5');
}

TEST_CASE("gguf: other files, old versions and big-endian ones are told apart") {
  CHECK(contains(parse("PK\x03\x04 something else").status().what, "not a GGUF file"));
  GgufBuilder file = every_type();
  file.version = 1;
  CHECK(parse(file.build()).status().code == Code::kUnsupported);
  file.version = 0x03000000;
  CHECK(contains(parse(file.build()).status().what, "big-endian"));
  file.version = 4;
  CHECK(contains(parse(file.build()).status().what, "version 4, versions 2 and 3 are read"));
}

TEST_CASE("gguf: names out of a file cannot play with the terminal") {
  GgufBuilder file;
  file.tensor("\x1b[2J\n", {1}, 99, "1234");
  const std::string text = refusal(file);
  CHECK(contains(text, "\"\\x1b[2J\\x0a\""));
}

TEST_CASE("gguf: opens a file by its path, and the mapping outlives the name") {
  const TemporaryFolder folder;
  const auto path = folder.write("m.gguf", every_type().build());
  const auto file = GgufFile::open(path);
  REQUIRE(file.ok());
  std::filesystem::remove(path);
  CHECK(*(*file)->get<std::string>("string") == "caf\xc3\xa9");
  CHECK(GgufFile::open(path).status().code == Code::kNotFound);
}

}  // namespace pellucid::files
