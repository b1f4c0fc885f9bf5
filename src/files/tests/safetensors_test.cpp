#include "files/safetensors.h"

#include <doctest/doctest.h>
#include <sys/resource.h>

#include <algorithm>
#include <csignal>
#include <cstring>

#include "files/tests/temporary_folder.h"

namespace pellucid::files {
namespace {

std::string file_of(const std::string& header, const std::string& data) {
  const uint64_t size = header.size();
  return std::string(reinterpret_cast<const char*>(&size), 8) + header + data;
}

std::string entry(const std::string& name, const std::string& dtype, const std::string& shape,
                  uint64_t begin, uint64_t end) {
  return fmt::format(R"("{}":{{"dtype":"{}","shape":{},"data_offsets":[{},{}]}})", name, dtype,
                     shape, begin, end);
}

std::string braces(const std::string& inner) { return fmt::format("{{{}}}", inner); }

std::string text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

Result<std::shared_ptr<const Safetensors>> parse(const std::string& bytes) {
  return Safetensors::parse(as_bytes(bytes), "x");
}

Status refusal(const std::string& header, const std::string& data) {
  const std::string bytes = file_of(header, data);
  auto parsed = parse(bytes);
  REQUIRE_FALSE(parsed.ok());
  return std::move(parsed).status();
}

bool contains(const std::string& text, std::string_view part) {
  const bool found = text.find(part) != std::string::npos;
  if (!found) MESSAGE(text);
  return found;
}

const std::string kSmall = "{\"__metadata__\":{\"format\":\"pt\"}," +
                           entry("a", "F32", "[2,1]", 0, 8) + "," + entry("b", "U8", "[3]", 8, 11) +
                           "," + entry("s", "BF16", "[]", 11, 13) + "," +
                           entry("none", "I64", "[0,7]", 13, 13) + "}";

}  // namespace

TEST_CASE("safetensors: tensors, shapes, bytes and metadata arrive") {
  const std::string bytes = file_of(kSmall, "AAAABBBBCCCDD");
  const auto parsed = parse(bytes);
  REQUIRE(parsed.ok());
  const Safetensors& file = **parsed;
  CHECK(file.metadata() == std::map<std::string, std::string>{{"format", "pt"}});
  REQUIRE(file.tensors().size() == 4);
  const SafeTensor* a = file.find("a");
  REQUIRE(a != nullptr);
  CHECK(a->dtype == SafeDtype::kF32);
  CHECK(a->shape == std::vector<int64_t>{2, 1});
  CHECK(text_of(a->bytes) == "AAAABBBB");
  CHECK(text_of(file.find("b")->bytes) == "CCC");
  CHECK(file.find("s")->shape.empty());
  CHECK(file.find("s")->count == 1);
  CHECK(file.find("none")->count == 0);
  CHECK(file.find("zzz") == nullptr);
}

TEST_CASE("safetensors: a file that ends early is an error at every byte") {
  const std::string whole = file_of(kSmall, "AAAABBBBCCCDD");
  for (size_t size = 0; size < whole.size(); ++size) {
    const std::string part = whole.substr(0, size);
    const auto parsed = parse(part);
    REQUIRE_FALSE(parsed.ok());
    REQUIRE(parsed.status().code == Code::kCorruptFile);
  }
}

TEST_CASE("safetensors: any one byte changed gives a file or an error, never a crash") {
  const std::string whole = file_of(kSmall, "AAAABBBBCCCDD");
  for (size_t at = 0; at < whole.size(); ++at) {
    for (const char value : {'\x00', '"', '[', '{', '9', '-', '\x80', '\xff'}) {
      std::string bytes = whole;
      bytes[at] = value;
      [[maybe_unused]] const auto parsed = parse(bytes);
    }
  }
}

TEST_CASE("safetensors: sizes, offsets and shapes that do not fit are refused with the numbers") {
  CHECK(contains(refusal(braces(entry("a", "F32", "[2]", 0, 4)), "AAAA").what,
                 "tensor \"a\" has 2 elements of F32 in 4 bytes"));
  CHECK(contains(refusal(braces(entry("a", "U8", "[9]", 0, 9)), "AAAA").what,
                 "takes bytes 0 to 9 of 4 bytes"));
  CHECK(
      contains(refusal(braces(entry("a", "U8", "[1]", 3, 2)), "AAAA").what, "takes bytes 3 to 2"));
  CHECK(contains(refusal(braces(entry("a", "U8", "[4294967296,4294967296]", 0, 4)), "AAAA").what,
                 "more elements than 64 bits count"));
  CHECK(contains(refusal(braces(entry("a", "U8", "[0,4294967296,4294967296]", 0, 0)), "").what,
                 "more elements than 64 bits count"));
  CHECK(contains(refusal(braces(entry("a", "F64", "[2305843009213693952]", 0, 4)), "AAAA").what,
                 "in 4 bytes"));
  CHECK(contains(refusal(braces(entry("a", "U8", "[18446744073709551615]", 0, 4)), "AAAA").what,
                 "64 bits"));
}

TEST_CASE("safetensors: every byte of the data belongs to exactly one tensor") {
  CHECK(contains(
      refusal(braces(entry("a", "U8", "[3]", 0, 3) + "," + entry("b", "U8", "[2]", 2, 4)), "AAAA")
          .what,
      "tensor \"b\" begins inside another"));
  CHECK(contains(
      refusal(braces(entry("a", "U8", "[1]", 0, 1) + "," + entry("b", "U8", "[1]", 3, 4)), "AAAA")
          .what,
      "2 bytes that no tensor names, before \"b\""));
  CHECK(contains(refusal(braces(entry("a", "U8", "[3]", 0, 3)), "AAAA").what,
                 "1 bytes after the last tensor"));
}

TEST_CASE("safetensors: dtypes that are not read are refused by name") {
  const Status status = refusal(braces(entry("a", "F8_E4M3", "[4]", 0, 4)), "AAAA");
  CHECK(status.code == Code::kUnsupported);
  CHECK(contains(status.what, "tensor \"a\" has dtype \"F8_E4M3\""));
}

TEST_CASE("safetensors: a header of another structure is refused with the place") {
  const std::string a = entry("a", "U8", "[1]", 0, 1);
  const std::pair<std::string, std::string> cases[] = {
      {"[]", "expected an object of tensors"},
      {"3", "expected an object of tensors"},
      {"{", "not valid JSON"},
      {braces(a) + " x", "not valid JSON"},
      {braces(a + "," + a), "\"a\" is there twice"},
      {R"({"a":{"dtype":"U8","dtype":"U8"}})", "\"dtype\" of \"a\" is there twice"},
      {R"({"a":{"dtype":"U8","shape":[1]}})", "tensor \"a\" has no data_offsets"},
      {R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0]}})", "has 1 data_offsets"},
      {R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1,2]}})", "has 3 data_offsets"},
      {R"({"a":{"dtype":8}})", "\"dtype\" of \"a\" is a number"},
      {R"({"a":{"dtype":["U8"]}})", "\"dtype\" of \"a\" is a list"},
      {R"({"a":{"shape":[-1]}})", "a negative number"},
      {R"({"a":{"shape":[1.5]}})", "a fraction"},
      {R"({"a":{"shape":[[1]]}})", "a list"},
      {R"({"a":{"shape":{}}})", "an object"},
      {R"({"a":{"colour":1}})", "a field \"colour\""},
      {R"({"a":7})", "\"a\" is a number"},
      {R"({"__metadata__":{"x":1}})", "\"x\" of \"__metadata__\" is a number"},
      {R"({"__metadata__":{"x":{}}})", "an object"},
      {R"({"":{}})", "without a name"},
      {std::string(200'000, '['), "expected an object of tensors"},
      {"{\"a\":{\"shape\":" + std::string(200'000, '['), "a list"},
  };
  for (const auto& [header, expected] : cases) {
    const Status status = refusal(header, "A");
    CHECK(status.code == Code::kCorruptFile);
    CHECK(contains(status.what, expected));
  }
  std::string many = "1";
  for (int i = 0; i < 64; ++i) many += ",1";
  CHECK(contains(refusal(braces(entry("a", "U8", "[" + many + "]", 0, 1)), "A").what,
                 "more than 64 numbers"));
}

TEST_CASE("safetensors: a header longer than the format allows is refused before it is read") {
  std::string bytes(16, '\0');
  const uint64_t size = 100'000'001;
  std::memcpy(bytes.data(), &size, 8);
  CHECK(contains(parse(bytes).status().what, "a header of 100000001 bytes"));
}

TEST_CASE("safetensors: what is written is read back, aligned") {
  const TemporaryFolder folder;
  const auto path = folder.path() / "out.safetensors";
  const std::string odd = "xyz", wide(16, 'w'), half = "hh";
  const TensorToWrite tensors[] = {
      {"odd", SafeDtype::kU8, {3}, as_bytes(odd)},
      {"wide", SafeDtype::kF64, {2, 1}, as_bytes(wide)},
      {"half \"\\ \xc3\xa9", SafeDtype::kBF16, {}, as_bytes(half)},
      {"none", SafeDtype::kI32, {3, 0}, {}},
  };
  REQUIRE(write_safetensors(path, tensors, {{"made by", "a \"test\""}}).ok());
  const auto read = Safetensors::open(path);
  REQUIRE(read.ok());
  CHECK((*read)->metadata().at("made by") == "a \"test\"");
  for (const TensorToWrite& tensor : tensors) {
    const SafeTensor* found = (*read)->find(tensor.name);
    REQUIRE(found != nullptr);
    CHECK(found->dtype == tensor.dtype);
    CHECK(found->shape == tensor.shape);
    CHECK(text_of(found->bytes) == text_of(tensor.bytes));
    const auto address = reinterpret_cast<uintptr_t>(found->bytes.data());
    CHECK(address % safe_dtype_info(tensor.dtype).bytes == 0);
  }
  REQUIRE(write_safetensors(path, {}).ok());  // over an old file; a file of nothing is a file
  CHECK((*Safetensors::open(path))->tensors().empty());
}

TEST_CASE("safetensors: tensors that cannot be written are refused and leave nothing") {
  const TemporaryFolder folder;
  const auto path = folder.path() / "out.safetensors";
  const std::string four = "1234";
  const auto refused = [&](std::vector<TensorToWrite> tensors) {
    const Status status = write_safetensors(path, tensors);
    CHECK(status.code == Code::kInvalidArgument);
    CHECK(std::filesystem::is_empty(folder.path()));
  };
  refused({{"a", SafeDtype::kF32, {2}, as_bytes(four)}});
  refused({{"a", SafeDtype::kF32, {-1}, as_bytes(four)}});
  refused({{"a", SafeDtype::kF32, {int64_t{1} << 40, int64_t{1} << 40}, as_bytes(four)}});
  refused(
      {{"a", SafeDtype::kF32, {1}, as_bytes(four)}, {"a", SafeDtype::kF32, {1}, as_bytes(four)}});
  refused({{"__metadata__", SafeDtype::kF32, {1}, as_bytes(four)}});
  refused({{"", SafeDtype::kF32, {1}, as_bytes(four)}});
  refused({{"\xff", SafeDtype::kF32, {1}, as_bytes(four)}});
}

TEST_CASE("safetensors: a disk that is full keeps the old file and leaves no part of the new one") {
  const TemporaryFolder folder;
  const auto path = folder.write("out.safetensors", "old");
  const std::string big(1 << 20, 'x');
  const TensorToWrite tensors[] = {{"a", SafeDtype::kU8, {1 << 20}, as_bytes(big)}};
  // A limit of this process's file sizes stands in for the disk.
  rlimit before{};
  REQUIRE(::getrlimit(RLIMIT_FSIZE, &before) == 0);
  const auto old_handler = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit small{64 << 10, before.rlim_max};
  REQUIRE(::setrlimit(RLIMIT_FSIZE, &small) == 0);
  const Status status = write_safetensors(path, tensors);
  ::setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, old_handler);
  CHECK(status.code == Code::kIo);
  CHECK(contains(status.what, "out.safetensors: File too large"));
  CHECK(*read_text_file(path, 100) == "old");
  CHECK(std::distance(std::filesystem::directory_iterator(folder.path()), {}) == 1);
  CHECK(write_safetensors(folder.path() / "no/such/folder.safetensors", tensors).code == Code::kIo);
}

TEST_CASE("safetensors: an index opens its shards as one") {
  const TemporaryFolder folder;
  const std::string index_name = "model.safetensors.index.json";
  folder.write("one.safetensors", file_of(braces(entry("a", "U8", "[1]", 0, 1)), "A"));
  folder.write("two.safetensors", file_of(braces(entry("b", "U8", "[1]", 0, 1)), "B"));
  const auto index = folder.write(
      index_name,
      R"({"metadata":{"total_size":2},"weight_map":{"a":"one.safetensors","b":"two.safetensors"}})");
  const auto file = Safetensors::open(index);
  REQUIRE(file.ok());
  CHECK(text_of((*file)->find("a")->bytes) == "A");
  CHECK(text_of((*file)->find("b")->bytes) == "B");
  CHECK((*file)->headers().size() == 2);

  const auto refused = [&](const std::string& json, Code code, std::string_view part) {
    const auto opened = Safetensors::open(folder.write(index_name, json));
    REQUIRE_FALSE(opened.ok());
    CHECK(opened.status().code == code);
    CHECK(contains(opened.status().what, part));
  };
  refused(R"({"weight_map":{"a":"three.safetensors"}})", Code::kNotFound,
          "three.safetensors, which is not there");
  refused(R"({"weight_map":{"c":"one.safetensors"}})", Code::kCorruptFile,
          "\"c\" is in one.safetensors, which does not hold it");
  refused(R"({"weight_map":{"a":"../one.safetensors"}})", Code::kCorruptFile,
          "is not beside the index");
  refused(R"({"weight_map":{"a":"/etc/passwd"}})", Code::kCorruptFile, "is not beside the index");
  refused(R"({"weight_map":{"a":".."}})", Code::kCorruptFile, "is not beside the index");
  refused(R"({"weight_map":{"a":7}})", Code::kCorruptFile, "the file of \"a\" is no string");
  refused(R"({"weight_map":{}})", Code::kCorruptFile, "weight_map is empty");
  refused(R"({"weight_map":[]})", Code::kCorruptFile, "expected an object \"weight_map\"");
  refused(R"([1])", Code::kCorruptFile, "expected an object \"weight_map\"");
  refused(R"({)", Code::kCorruptFile, "not valid JSON");
  refused(std::string(100'000, '['), Code::kCorruptFile, "nested more than 8 deep");
  folder.write(
      "two.safetensors",
      file_of(braces(entry("a", "U8", "[1]", 0, 1) + "," + entry("b", "U8", "[1]", 1, 2)), "AB"));
  refused(R"({"weight_map":{"a":"one.safetensors","b":"two.safetensors"}})", Code::kCorruptFile,
          "hold the tensor \"a\"");
}

TEST_CASE("safe dtypes: the list is in the order of its enumeration") {
  for (const SafeDtypeInfo& info : safe_dtypes()) {
    CHECK(&safe_dtype_info(info.dtype) == &info);
    CHECK(find_safe_dtype(info.name) == &info);
  }
}

}  // namespace pellucid::files
