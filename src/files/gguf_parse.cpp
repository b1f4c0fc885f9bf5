#include <algorithm>
#include <bit>

#include "files/byte_reader.h"
#include "files/gguf.h"

namespace pellucid::files {
namespace {

constexpr uint32_t kMagic = 0x46554747;  // "GGUF"
constexpr uint64_t kKeyBytesMax = 65535;
constexpr uint64_t kTensorNameBytesMax = 1024;  // ggml writes at most 64
constexpr uint32_t kDimensionsMax = 4;
constexpr int kArrayDepthMax = 4;
constexpr uint64_t kAlignmentMax = 1 << 20;

std::string_view as_text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

/// Bytes of one value in the file; 0 for strings and arrays, whose sizes vary.
uint64_t fixed_bytes(GgufType type) {
  switch (type) {
    case GgufType::kU8:
    case GgufType::kI8:
    case GgufType::kBool:
      return 1;
    case GgufType::kU16:
    case GgufType::kI16:
      return 2;
    case GgufType::kU32:
    case GgufType::kI32:
    case GgufType::kF32:
      return 4;
    case GgufType::kU64:
    case GgufType::kI64:
    case GgufType::kF64:
      return 8;
    case GgufType::kString:
    case GgufType::kArray:
      break;
  }
  return 0;
}

}  // namespace

class GgufParser {
 public:
  GgufParser(std::span<const std::byte> bytes, std::string name)
      : in_(bytes, fmt::format("gguf {}", name)), file_(new GgufFile) {
    file_->bytes_ = bytes;
    file_->name_ = std::move(name);
  }

  Result<std::shared_ptr<const GgufFile>> parse(std::shared_ptr<const MappedFile> mapping) {
    file_->mapping_ = std::move(mapping);
    PELLUCID_TRY(read_version());
    // The smallest tensor takes 24 bytes, the smallest pair 13: counts are bounded by the file.
    PELLUCID_ASSIGN(const uint64_t num_tensors, read_count("the number of tensors", 24));
    PELLUCID_ASSIGN(const uint64_t num_pairs, read_count("the number of metadata pairs", 13));
    for (uint64_t i = 0; i < num_pairs; ++i) PELLUCID_TRY(read_pair());
    PELLUCID_TRY(read_alignment());
    for (uint64_t i = 0; i < num_tensors; ++i) PELLUCID_TRY(read_tensor_info());
    PELLUCID_TRY(place_tensors());
    return std::shared_ptr<const GgufFile>(std::move(file_));
  }

 private:
  Status read_version() {
    PELLUCID_ASSIGN(const uint32_t magic, in_.number<uint32_t>("the magic \"GGUF\""));
    if (magic != kMagic) return in_.corrupt(0, "not a GGUF file (it does not begin with \"GGUF\")");
    PELLUCID_ASSIGN(file_->version_, in_.number<uint32_t>("the version"));
    const uint32_t version = file_->version_;
    if (version == 2 || version == 3) return ok_status();
    if (version == 0x02000000 || version == 0x03000000) {
      return error(Code::kUnsupported,
                   "convert it to little-endian with gguf-py's gguf_convert_endian",
                   "gguf {} is big-endian", file_->name_);
    }
    return error(Code::kUnsupported, "convert the model again with a current llama.cpp",
                 "gguf {} has version {}, versions 2 and 3 are read", file_->name_, version);
  }

  /// A count of things of at least `bytes_min` bytes each.
  Result<uint64_t> read_count(std::string_view what, uint64_t bytes_min) {
    const uint64_t at = in_.position();
    PELLUCID_ASSIGN(const uint64_t count, in_.number<uint64_t>(what));
    if (count > in_.left() / bytes_min) {
      return in_.corrupt(at, "{} is {}, the file's {} bytes hold at most {}", what, count,
                         in_.left(), in_.left() / bytes_min);
    }
    return count;
  }

  Result<std::string_view> read_string(std::string_view what) {
    PELLUCID_ASSIGN(const uint64_t size, in_.number<uint64_t>("a string's length"));
    PELLUCID_ASSIGN(const auto bytes, in_.take(size, what));
    return as_text(bytes);
  }

  Result<GgufType> read_type(std::string_view key) {
    const uint64_t at = in_.position();
    PELLUCID_ASSIGN(const uint32_t type, in_.number<uint32_t>("a value's type"));
    if (type > static_cast<uint32_t>(GgufType::kF64)) {
      return in_.corrupt(at, "{} has value type {}, known are 0 to 12", printable(key), type);
    }
    return static_cast<GgufType>(type);
  }

  Status read_pair() {
    const uint64_t at = in_.position();
    PELLUCID_ASSIGN(const std::string_view key, read_string("a metadata key"));
    if (key.empty() || key.size() > kKeyBytesMax) {
      return in_.corrupt(at, "a metadata key of {} bytes, expected 1 to {}", key.size(),
                         kKeyBytesMax);
    }
    PELLUCID_ASSIGN(const GgufType type, read_type(key));
    PELLUCID_ASSIGN(const GgufValue value, read_value(key, type));
    if (!file_->values_.emplace(key, value).second) {
      return in_.corrupt(at, "the key {} is there twice", printable(key));
    }
    file_->keys_.push_back(key);
    return ok_status();
  }

  template <typename Stored, typename Wide>
  Result<GgufValue> read_number(GgufType type) {
    PELLUCID_ASSIGN(const Stored value, in_.number<Stored>("a metadata value"));
    return GgufValue{type, static_cast<Wide>(value)};
  }

  Result<GgufValue> read_value(std::string_view key, GgufType type) {
    switch (type) {
      case GgufType::kU8:
        return read_number<uint8_t, uint64_t>(type);
      case GgufType::kU16:
        return read_number<uint16_t, uint64_t>(type);
      case GgufType::kU32:
        return read_number<uint32_t, uint64_t>(type);
      case GgufType::kU64:
        return read_number<uint64_t, uint64_t>(type);
      case GgufType::kI8:
        return read_number<int8_t, int64_t>(type);
      case GgufType::kI16:
        return read_number<int16_t, int64_t>(type);
      case GgufType::kI32:
        return read_number<int32_t, int64_t>(type);
      case GgufType::kI64:
        return read_number<int64_t, int64_t>(type);
      case GgufType::kF32:
        return read_number<float, double>(type);
      case GgufType::kF64:
        return read_number<double, double>(type);
      case GgufType::kBool: {
        const uint64_t at = in_.position();
        PELLUCID_ASSIGN(const uint8_t value, in_.number<uint8_t>("a bool"));
        if (value > 1)
          return in_.corrupt(at, "{} is a bool of {}, expected 0 or 1", printable(key), value);
        return GgufValue{type, value == 1};
      }
      case GgufType::kString: {
        PELLUCID_ASSIGN(const std::string_view text, read_string("a metadata string"));
        return GgufValue{type, text};
      }
      case GgufType::kArray:
        break;
    }
    PELLUCID_ASSIGN(const GgufArray array, read_array(key, 1));
    return GgufValue{type, array};
  }

  /// Walks over the elements, so that reading them later cannot fail; allocates nothing.
  Result<GgufArray> read_array(std::string_view key, int depth) {
    const uint64_t at = in_.position();
    if (depth > kArrayDepthMax) {
      return in_.corrupt(at, "{} nests arrays more than {} deep", printable(key), kArrayDepthMax);
    }
    PELLUCID_ASSIGN(const GgufType element, read_type(key));
    const uint64_t fixed = fixed_bytes(element);
    // An empty string takes 8 bytes, an empty array 12.
    const uint64_t bytes_min = fixed > 0 ? fixed : element == GgufType::kString ? 8 : 12;
    PELLUCID_ASSIGN(const uint64_t count, read_count("an array's length", bytes_min));
    const uint64_t begin = in_.position();
    if (fixed > 0) {
      PELLUCID_ASSIGN(const auto elements, in_.take(count * fixed, "an array"));
      if (element == GgufType::kBool) {
        const auto bad =
            std::ranges::find_if(elements, [](std::byte b) { return b > std::byte{1}; });
        if (bad != elements.end()) {
          return in_.corrupt(begin + (bad - elements.begin()),
                             "{} has a bool of {}, expected 0 or 1", printable(key),
                             std::to_integer<int>(*bad));
        }
      }
    } else {
      for (uint64_t i = 0; i < count; ++i) {
        if (element == GgufType::kString) {
          PELLUCID_ASSIGN([[maybe_unused]] const auto text, read_string("a string of an array"));
        } else {
          PELLUCID_ASSIGN([[maybe_unused]] const auto inner, read_array(key, depth + 1));
        }
      }
    }
    return GgufArray{element, count, file_->bytes_.subspan(begin, in_.position() - begin)};
  }

  Status read_alignment() {
    PELLUCID_ASSIGN(file_->alignment_, file_->get_or<uint64_t>("general.alignment", 32));
    const uint64_t alignment = file_->alignment_;
    if (!std::has_single_bit(alignment) || alignment > kAlignmentMax) {
      return in_.corrupt(in_.position(),
                         "general.alignment is {}, expected a power of two up to {}", alignment,
                         kAlignmentMax);
    }
    return ok_status();
  }

  /// Everything of a tensor but `bytes`; `offset` still counts from the start of the data.
  Status read_tensor_info() {
    const uint64_t at = in_.position();
    GgufTensor tensor;
    PELLUCID_ASSIGN(tensor.name, read_string("a tensor's name"));
    if (tensor.name.empty() || tensor.name.size() > kTensorNameBytesMax) {
      return in_.corrupt(at, "a tensor's name of {} bytes, expected 1 to {}", tensor.name.size(),
                         kTensorNameBytesMax);
    }
    PELLUCID_TRY(read_shape(tensor));
    const uint64_t type_at = in_.position();
    PELLUCID_ASSIGN(const uint32_t number, in_.number<uint32_t>("a tensor's type"));
    const GgmlTypeInfo* type = find_ggml_type(number);
    if (type == nullptr) {
      return in_.corrupt(type_at, "tensor {} has type {}, which is no ggml type that is known here",
                         printable(tensor.name), number);
    }
    tensor.type = type->type;
    const uint64_t offset_at = in_.position();
    PELLUCID_ASSIGN(tensor.offset, in_.number<uint64_t>("a tensor's offset"));
    if (tensor.offset % file_->alignment_ != 0) {
      return in_.corrupt(offset_at, "tensor {} begins at {}, which is no multiple of {}",
                         printable(tensor.name), tensor.offset, file_->alignment_);
    }
    if (!file_->tensor_index_.emplace(tensor.name, file_->tensors_.size()).second) {
      return in_.corrupt(at, "the tensor {} is there twice", printable(tensor.name));
    }
    file_->tensors_.push_back(std::move(tensor));
    return ok_status();
  }

  Status read_shape(GgufTensor& tensor) {
    const uint64_t at = in_.position();
    PELLUCID_ASSIGN(const uint32_t num_dimensions, in_.number<uint32_t>("a tensor's dimensions"));
    if (num_dimensions > kDimensionsMax) {
      return in_.corrupt(at, "tensor {} has {} dimensions, at most {} are possible",
                         printable(tensor.name), num_dimensions, kDimensionsMax);
    }
    tensor.count = 1;
    int64_t extent = 1;  // the count as if no dimension were 0: strides must fit 64 bits as well
    for (uint32_t i = 0; i < num_dimensions; ++i) {
      const uint64_t size_at = in_.position();
      PELLUCID_ASSIGN(const int64_t size, in_.number<int64_t>("a tensor's shape"));
      if (size < 0 || __builtin_mul_overflow(extent, std::max<int64_t>(size, 1), &extent)) {
        return in_.corrupt(size_at,
                           "tensor {} has a dimension of {}: more elements than 64 bits count",
                           printable(tensor.name), static_cast<uint64_t>(size));
      }
      tensor.count *= size;
      tensor.ggml_shape.push_back(size);
    }
    tensor.shape.assign(tensor.ggml_shape.rbegin(), tensor.ggml_shape.rend());
    return ok_status();
  }

  /// The data begins at the next aligned byte; every tensor must lie in the file, none in another.
  Status place_tensors() {
    const uint64_t alignment = file_->alignment_;
    const uint64_t data_begin = (in_.position() + alignment - 1) / alignment * alignment;
    file_->header_bytes_ = in_.position();
    for (GgufTensor& tensor : file_->tensors_) PELLUCID_TRY(place(tensor, data_begin));

    std::vector<const GgufTensor*> by_offset;
    for (const GgufTensor& tensor : file_->tensors_) {
      if (!tensor.bytes.empty()) by_offset.push_back(&tensor);
    }
    std::ranges::sort(by_offset, {}, &GgufTensor::offset);
    for (size_t i = 1; i < by_offset.size(); ++i) {
      const GgufTensor& before = *by_offset[i - 1];
      if (before.offset + before.bytes.size() > by_offset[i]->offset) {
        return in_.corrupt(by_offset[i]->offset, "tensor {} begins inside tensor {}",
                           printable(by_offset[i]->name), printable(before.name));
      }
    }
    return ok_status();
  }

  Status place(GgufTensor& tensor, uint64_t data_begin) {
    const GgmlTypeInfo& type = ggml_type_info(tensor.type);
    const int64_t row = tensor.ggml_shape.empty() ? 1 : tensor.ggml_shape[0];
    if (row % type.block_elements != 0) {
      return in_.corrupt(in_.position(),
                         "tensor {} has rows of {} elements, {} comes in blocks of {}",
                         printable(tensor.name), row, type.name, type.block_elements);
    }
    const uint64_t file_size = file_->bytes_.size();
    if (tensor.count == 0) {  // nothing to read, and the file may end before its padding does
      tensor.offset = file_size;
      return ok_status();
    }
    uint64_t size = 0;
    const uint64_t blocks = static_cast<uint64_t>(tensor.count) / type.block_elements;
    if (__builtin_mul_overflow(blocks, static_cast<uint64_t>(type.block_bytes), &size) ||
        __builtin_add_overflow(tensor.offset, data_begin, &tensor.offset) ||
        tensor.offset > file_size || size > file_size - tensor.offset) {
      return in_.corrupt(in_.position(),
                         "tensor {} ({} {} blocks from byte {}) ends beyond the file's {} bytes",
                         printable(tensor.name), blocks, type.name, tensor.offset, file_size);
    }
    tensor.bytes = file_->bytes_.subspan(tensor.offset, size);
    return ok_status();
  }

  ByteReader in_;
  std::unique_ptr<GgufFile> file_;
};

Result<std::shared_ptr<const GgufFile>> GgufFile::open(const std::filesystem::path& path) {
  PELLUCID_ASSIGN(auto mapping, MappedFile::open(path));
  const auto bytes = mapping->bytes();
  return GgufParser(bytes, path.string()).parse(std::move(mapping));
}

Result<std::shared_ptr<const GgufFile>> GgufFile::parse(std::span<const std::byte> bytes,
                                                        std::string name) {
  return GgufParser(bytes, std::move(name)).parse(nullptr);
}

}  // namespace pellucid::files
