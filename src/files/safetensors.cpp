#include "files/safetensors.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <unordered_set>

#include "files/byte_reader.h"
#include "files/json.h"
#include "files/safetensors_header.h"

namespace pellucid::files {
namespace {

constexpr uint64_t kHeaderBytesMax = 100'000'000;  // the limit of the format's own library
constexpr size_t kIndexBytesMax = 64 << 20;

/// Checks one entry against the data's size and makes a tensor of it.
Result<SafeTensor> make_tensor(HeaderEntry entry, std::span<const std::byte> data,
                               const ByteReader& in, const std::string& label) {
  const SafeDtypeInfo* dtype = find_safe_dtype(entry.dtype);
  if (dtype == nullptr) {
    return error(Code::kUnsupported, "F64, F32, F16, BF16, I64, I32, I16, I8, U8 and BOOL are read",
                 "{}: tensor {} has dtype {}", label, printable(entry.name),
                 printable(entry.dtype));
  }
  SafeTensor tensor{std::move(entry.name), dtype->dtype, {}, 1, {}};
  int64_t extent = 1;  // as if no dimension were 0: strides must fit 64 bits as well
  for (const uint64_t size : entry.shape) {
    if (size > INT64_MAX || __builtin_mul_overflow(extent, std::max<int64_t>(size, 1), &extent)) {
      return in.corrupt(8, "tensor {} has a dimension of {}: more elements than 64 bits count",
                        printable(tensor.name), size);
    }
    tensor.count *= static_cast<int64_t>(size);
    tensor.shape.push_back(static_cast<int64_t>(size));
  }
  const uint64_t begin = entry.data_offsets[0], end = entry.data_offsets[1];
  if (begin > end || end > data.size()) {
    return in.corrupt(8, "tensor {} takes bytes {} to {} of {} bytes of data",
                      printable(tensor.name), begin, end, data.size());
  }
  int64_t size = 0;
  if (__builtin_mul_overflow(tensor.count, static_cast<int64_t>(dtype->bytes), &size) ||
      static_cast<uint64_t>(size) != end - begin) {
    return in.corrupt(8, "tensor {} has {} elements of {} in {} bytes", printable(tensor.name),
                      tensor.count, dtype->name, end - begin);
  }
  tensor.bytes = data.subspan(begin, end - begin);
  return tensor;
}

/// The format wants every byte of the data in exactly one tensor.
Status check_cover(std::span<const SafeTensor> sorted, std::span<const std::byte> data,
                   const ByteReader& in) {
  const uint64_t data_begin = in.position();
  const std::byte* next = data.data();
  for (const SafeTensor& tensor : sorted) {
    const std::byte* begin = tensor.bytes.data();
    if (begin < next) {
      return in.corrupt(data_begin + (begin - data.data()), "tensor {} begins inside another",
                        printable(tensor.name));
    }
    if (begin > next) {
      return in.corrupt(data_begin + (next - data.data()),
                        "{} bytes that no tensor names, before {}", begin - next,
                        printable(tensor.name));
    }
    next = begin + tensor.bytes.size();
  }
  if (next != data.data() + data.size()) {
    return in.corrupt(data_begin + (next - data.data()), "{} bytes after the last tensor",
                      data.data() + data.size() - next);
  }
  return ok_status();
}

/// The weight_map of an index file: tensor -> shard.
Result<std::map<std::string, std::string>> read_weight_map(const std::filesystem::path& path) {
  PELLUCID_ASSIGN(const std::string text, read_text_file(path, kIndexBytesMax));
  const std::string label = path.string();
  PELLUCID_TRY(check_json_depth(text, 8, label));
  const auto corrupt = [&label](std::string what) {
    return error(Code::kCorruptFile, "fetch the index again", "{}: {}", label, what);
  };
  const auto json = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded()) return corrupt("not valid JSON");
  const auto map = json.is_object() ? json.find("weight_map") : json.end();
  if (!json.is_object() || map == json.end() || !map->is_object()) {
    return corrupt("expected an object \"weight_map\" of tensors and files");
  }
  std::map<std::string, std::string> out;
  for (const auto& [tensor, file] : map->items()) {
    if (!file.is_string())
      return corrupt(fmt::format("the file of {} is no string", printable(tensor)));
    const std::string name = file.get<std::string>();
    // Only files beside the index: an index from the net must not open anything else.
    if (name.empty() || name == "." || name == ".." || name.find('/') != name.npos ||
        name.find('\0') != name.npos) {
      return corrupt(fmt::format("the file {} is not beside the index", printable(name)));
    }
    out[tensor] = name;
  }
  if (out.empty()) return corrupt("weight_map is empty");
  return out;
}

}  // namespace

Status Safetensors::add_file(std::span<const std::byte> bytes, const std::string& name) {
  const std::string label = fmt::format("safetensors {}", name);
  ByteReader in(bytes, label);
  PELLUCID_ASSIGN(const uint64_t header_size, in.number<uint64_t>("the header's length"));
  if (header_size > kHeaderBytesMax) {
    return in.corrupt(0, "a header of {} bytes, at most {} are allowed", header_size,
                      kHeaderBytesMax);
  }
  PELLUCID_ASSIGN(const auto header_bytes, in.take(header_size, "the header"));
  const std::string_view json(reinterpret_cast<const char*>(header_bytes.data()), header_size);
  PELLUCID_ASSIGN(SafetensorsHeader header, parse_safetensors_header(json, label));

  const auto data = bytes.subspan(in.position());
  std::vector<SafeTensor> added;
  added.reserve(header.entries.size());
  for (HeaderEntry& entry : header.entries) {
    PELLUCID_ASSIGN(SafeTensor tensor, make_tensor(std::move(entry), data, in, label));
    added.push_back(std::move(tensor));
  }
  // An empty tensor sorts before the one that begins at the same byte.
  std::ranges::sort(added, [](const SafeTensor& a, const SafeTensor& b) {
    return std::pair(a.bytes.data(), a.bytes.size()) < std::pair(b.bytes.data(), b.bytes.size());
  });
  PELLUCID_TRY(check_cover(added, data, in));
  std::ranges::move(added, std::back_inserter(tensors_));
  metadata_.merge(header.metadata);
  headers_.push_back(json);
  return ok_status();
}

Status Safetensors::build_index(const std::string& name) {
  for (size_t i = 0; i < tensors_.size(); ++i) {
    if (!index_.emplace(tensors_[i].name, i)
             .second) {  // within one file the header's reader refuses
      return error(Code::kCorruptFile, "fetch the index and its files again",
                   "two files of {} hold the tensor {}", name, printable(tensors_[i].name));
    }
  }
  return ok_status();
}

Result<std::shared_ptr<const Safetensors>> Safetensors::parse(std::span<const std::byte> bytes,
                                                              const std::string& name) {
  std::shared_ptr<Safetensors> made(new Safetensors);
  PELLUCID_TRY(made->add_file(bytes, name));
  PELLUCID_TRY(made->build_index(name));
  return std::shared_ptr<const Safetensors>(std::move(made));
}

Result<std::shared_ptr<const Safetensors>> Safetensors::open(const std::filesystem::path& path) {
  if (path.extension() == ".json") return open_index(path);
  PELLUCID_ASSIGN(auto mapping, MappedFile::open(path));
  std::shared_ptr<Safetensors> made(new Safetensors);
  PELLUCID_TRY(made->add_file(mapping->bytes(), path.string()));
  made->mappings_.push_back(std::move(mapping));
  PELLUCID_TRY(made->build_index(path.string()));
  return std::shared_ptr<const Safetensors>(std::move(made));
}

Result<std::shared_ptr<const Safetensors>> Safetensors::open_index(
    const std::filesystem::path& path) {
  PELLUCID_ASSIGN(const auto weight_map, read_weight_map(path));
  std::map<std::string, std::vector<std::string>> tensors_of_file;
  for (const auto& [tensor, file] : weight_map) tensors_of_file[file].push_back(tensor);

  std::shared_ptr<Safetensors> made(new Safetensors);
  for (const auto& [file, wanted] : tensors_of_file) {
    const std::filesystem::path shard = path.parent_path() / file;
    auto mapping = MappedFile::open(shard);
    if (!mapping.ok() && mapping.status().code == Code::kNotFound) {
      return error(Code::kNotFound, "fetch the missing part", "{} names {}, which is not there",
                   path.string(), shard.string());
    }
    if (!mapping.ok()) return std::move(mapping).status();
    const size_t first = made->tensors_.size();
    PELLUCID_TRY(made->add_file((*mapping)->bytes(), shard.string()));
    made->mappings_.push_back(*std::move(mapping));
    std::unordered_set<std::string_view> present;
    for (size_t i = first; i < made->tensors_.size(); ++i) present.insert(made->tensors_[i].name);
    for (const std::string& name : wanted) {
      if (!present.contains(name)) {
        return error(Code::kCorruptFile, "fetch the index and its files again",
                     "{} says that {} is in {}, which does not hold it", path.string(),
                     printable(name), file);
      }
    }
  }
  PELLUCID_TRY(made->build_index(path.string()));
  return std::shared_ptr<const Safetensors>(std::move(made));
}

const SafeTensor* Safetensors::find(std::string_view name) const {
  const auto found = index_.find(name);
  return found == index_.end() ? nullptr : &tensors_[found->second];
}

}  // namespace pellucid::files
