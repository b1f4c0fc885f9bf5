#include "tensor/weight_source.h"

#include <ATen/ops/equal.h>
#include <doctest/doctest.h>

#include <cstring>

#include "files/tests/gguf_builder.h"
#include "files/tests/temporary_folder.h"
#include "tensor/mapped_tensor.h"

namespace pellucid::tensor {
namespace {

using files::GgufBuilder;
using files::TemporaryFolder;

constexpr uint32_t kF32 = 0, kQ8_0 = 8, kIQ4_NL = 20, kI32 = 26;

std::string floats(std::vector<float> values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * 4};
}

/// Element i of each block is 0.5 * (i - 16).
std::string q8_blocks(int count) {
  std::string block("\x00\x38", 2);  // half 0.5
  for (int i = 0; i < 32; ++i) block += static_cast<char>(i - 16);
  std::string out;
  for (int i = 0; i < count; ++i) out += block;
  return out;
}

std::shared_ptr<WeightSource> open(const std::filesystem::path& path) {
  auto file = files::GgufFile::open(path);
  REQUIRE(file.ok());
  return gguf_weights(*file);
}

std::shared_ptr<WeightSource> sample(const TemporaryFolder& folder) {
  GgufBuilder file;
  file.tensor("plain", {3, 2}, kF32, floats({1, 2, 3, 4, 5, 6.5}));
  file.tensor("blocks", {32, 2}, kQ8_0, q8_blocks(2));
  file.tensor("ids", {2}, kI32, std::string(8, '\1'));
  file.tensor("strange", {32}, kIQ4_NL, std::string(18, 'x'));
  return open(folder.write("m.gguf", file.build()));
}

}  // namespace

TEST_CASE("weights: a tensor of the wanted dtype is a view of the file, others are fresh") {
  const TemporaryFolder folder;
  const auto weights = sample(folder);
  const auto first = weights->load("plain", at::kFloat),
             second = weights->load("plain", at::kFloat);
  REQUIRE(first.ok());
  CHECK(first->sizes() == at::IntArrayRef{2, 3});
  CHECK(first->const_data_ptr() == second->const_data_ptr());
  CHECK(first->const_data_ptr<float>()[5] == 6.5f);
  const auto wide = weights->load("plain", at::kDouble);
  CHECK((wide->scalar_type() == at::kDouble));
  CHECK(wide->const_data_ptr<double>()[5] == 6.5);
  CHECK(wide->const_data_ptr() != first->const_data_ptr());
}

TEST_CASE("weights: a view keeps the mapping alive after everything else is gone") {
  at::Tensor row;
  {
    const TemporaryFolder folder;
    row = sample(folder)->load("plain", at::kFloat)->select(0, 1);
  }
  CHECK(row.const_data_ptr<float>()[2] == 6.5f);
}

TEST_CASE("weights: quantised tensors come as numbers of any floating dtype") {
  const TemporaryFolder folder;
  const auto weights = sample(folder);
  const auto numbers = weights->load("blocks", at::kFloat);
  REQUIRE(numbers.ok());
  CHECK(numbers->sizes() == at::IntArrayRef{2, 32});
  CHECK(numbers->const_data_ptr<float>()[0] == -8.f);
  CHECK(numbers->const_data_ptr<float>()[63] == 7.5f);
  for (const at::ScalarType dtype : {at::kDouble, at::kBFloat16, at::kHalf}) {
    CHECK(at::equal(*weights->load("blocks", dtype), numbers->to(dtype)));
  }
}

TEST_CASE("weights: a tensor larger than one chunk is whole, in float32 and converted") {
  const TemporaryFolder folder;
  GgufBuilder file;
  const int blocks = (1 << 20) / 32 + 3;  // a chunk and three blocks
  file.tensor("t", {32, static_cast<uint64_t>(blocks)}, kQ8_0, q8_blocks(blocks));
  const auto weights = open(folder.write("m.gguf", file.build()));
  const at::Tensor numbers = *weights->load("t", at::kFloat);
  const at::Tensor halves = *weights->load("t", at::kHalf);
  const at::Tensor expected = numbers.narrow(0, 0, 1).expand({blocks, 32});
  CHECK(numbers.const_data_ptr<float>()[31] == 7.5f);
  CHECK(at::equal(numbers, expected));
  CHECK(at::equal(halves, expected.to(at::kHalf)));
}

TEST_CASE("weights: what cannot be loaded says why") {
  const TemporaryFolder folder;
  const auto weights = sample(folder);
  const auto missing = weights->load("plian", at::kFloat);
  CHECK(missing.status().code == Code::kNotFound);
  CHECK(missing.status().hint == "did you mean plain?");
  CHECK(weights->find("plian") == nullptr);
  const auto strange = weights->load("strange", at::kFloat);
  CHECK(strange.status().code == Code::kUnsupported);
  CHECK(strange.status().what ==
        "tensor \"strange\" is quantised as IQ4_NL, which is not read yet");
  CHECK(weights->load("plain", at::kLong).status().what ==
        "tensor \"plain\" is F32 and cannot become int64");
  CHECK(weights->load("blocks", at::kInt).status().code == Code::kUnsupported);
  CHECK(weights->load("ids", at::kInt)->const_data_ptr<int>()[0] == 0x01010101);
  CHECK(weights->load("ids", at::kDouble)->const_data_ptr<double>()[0] == 0x01010101);
}

TEST_CASE("weights: names keep the file's order, and the facts are those of the file") {
  const TemporaryFolder folder;
  const auto weights = sample(folder);
  CHECK(weights->names() == std::vector<std::string>{"plain", "blocks", "ids", "strange"});
  const WeightSource::Info* info = weights->find("blocks");
  REQUIRE(info != nullptr);
  CHECK(info->dtype == "Q8_0");
  CHECK(info->bytes == 68);
  CHECK(info->shape == std::vector<int64_t>{2, 32});
  // plain is a view in float32; blocks 64, ids 2 and strange 32 elements are allocated.
  CHECK(bytes_to_allocate(*weights, at::kFloat) == 4 * (64 + 2 + 32));
  CHECK(bytes_to_allocate(*weights, at::kDouble) == 8 * (6 + 64 + 2 + 32));
}

TEST_CASE("mapped tensor: bytes askew are copied, bytes of nothing are a tensor of nothing") {
  alignas(8) static const std::byte buffer[24] = {};
  const auto owner = std::make_shared<int>(0);
  CHECK(mapped_tensor(std::span(buffer).first(16), {2}, at::kDouble, owner).const_data_ptr() ==
        buffer);
  CHECK(owner.use_count() == 1);
  const at::Tensor askew = mapped_tensor(std::span(buffer).subspan(4, 16), {2}, at::kDouble, owner);
  CHECK(askew.const_data_ptr() != buffer + 4);
  CHECK(askew.numel() == 2);
  CHECK(mapped_tensor({}, {0, 3}, at::kFloat, owner).sizes() == at::IntArrayRef{0, 3});
}

TEST_CASE("memory: a model that cannot fit is refused with both numbers") {
  struct Huge final : WeightSource {
    Info info{{int64_t{1} << 40, 1024}, "Q4_0", 0};
    std::vector<std::string> names() const override { return {"t"}; }
    const Info* find(std::string_view) const override { return &info; }
    Result<at::Tensor> load(std::string_view, at::ScalarType) const override {
      return error(Code::kInternal, "", "never loaded");
    }
  };
  CHECK(available_memory_bytes() > 1 << 20);
  const Status status = check_fits_memory(Huge(), at::kFloat);
  CHECK(status.code == Code::kOutOfMemory);
  CHECK(status.what.starts_with("the weights take 4503599.6 GB in float32"));
  const TemporaryFolder folder;
  CHECK(check_fits_memory(*sample(folder), at::kFloat).ok());
}

}  // namespace pellucid::tensor
