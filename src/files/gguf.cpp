// What is asked of a GGUF file after it was read: lookups and typed values.
#include "files/gguf.h"

#include <concepts>
#include <limits>
#include <optional>

#include "base/nearest.h"
#include "files/byte_reader.h"

namespace pellucid::files {
namespace {

constexpr std::string_view kTypeNames[] = {"u8",   "i8",     "u16",   "i16", "u32", "i32", "f32",
                                           "bool", "string", "array", "u64", "i64", "f64"};

template <typename T>
T read_at(std::span<const std::byte> bytes, uint64_t offset) {
  T value;
  std::memcpy(&value, bytes.data() + offset, sizeof(T));
  return value;
}

std::string_view string_at(std::span<const std::byte> bytes, uint64_t& offset) {
  const auto size = read_at<uint64_t>(bytes, offset);
  const auto* text = reinterpret_cast<const char*>(bytes.data() + offset + 8);
  offset += 8 + size;
  return {text, size};
}

/// What `get` calls the type that it wants.
template <typename T>
struct Name;
template <>
struct Name<bool> {
  static constexpr std::string_view value = "bool";
};
template <>
struct Name<float> {
  static constexpr std::string_view value = "f32";
};
template <>
struct Name<double> {
  static constexpr std::string_view value = "f64";
};
template <>
struct Name<int32_t> {
  static constexpr std::string_view value = "i32";
};
template <>
struct Name<uint32_t> {
  static constexpr std::string_view value = "u32";
};
template <>
struct Name<int64_t> {
  static constexpr std::string_view value = "i64";
};
template <>
struct Name<uint64_t> {
  static constexpr std::string_view value = "u64";
};
template <>
struct Name<std::string> {
  static constexpr std::string_view value = "string";
};
template <>
struct Name<std::string_view> {
  static constexpr std::string_view value = "string";
};

template <typename T>
constexpr bool kIsInteger = std::integral<T> && !std::same_as<T, bool>;

/// Nothing when the type is another; a number that does not fit is reported through `too_large`.
template <typename T, typename Stored>
std::optional<T> convert(Stored value, bool& too_large) {
  if constexpr (kIsInteger<T> && kIsInteger<Stored>) {
    if (!std::in_range<T>(value)) {
      too_large = true;
      return std::nullopt;
    }
    return static_cast<T>(value);
  } else if constexpr (std::floating_point<T> && std::floating_point<Stored>) {
    return static_cast<T>(value);
  } else if constexpr (std::same_as<T, Stored>) {
    return value;
  } else if constexpr (std::same_as<T, std::string> && std::same_as<Stored, std::string_view>) {
    return std::string(value);
  } else {
    return std::nullopt;
  }
}

template <typename T, typename Stored>
bool append_numbers(const GgufArray& array, std::vector<T>& out, bool& too_large) {
  for (uint64_t i = 0; i < array.count; ++i) {
    const auto value = convert<T>(read_at<Stored>(array.bytes, i * sizeof(Stored)), too_large);
    if (!value.has_value()) return false;
    out.push_back(*value);
  }
  return true;
}

template <typename T>
bool append_elements(const GgufArray& array, std::vector<T>& out, bool& too_large) {
  if constexpr (std::same_as<T, std::string> || std::same_as<T, std::string_view>) {
    if (array.element != GgufType::kString) return false;
    for (const std::string_view text : array.strings()) out.emplace_back(text);
    return true;
  } else {
    switch (array.element) {
      case GgufType::kU8:
        return append_numbers<T, uint8_t>(array, out, too_large);
      case GgufType::kI8:
        return append_numbers<T, int8_t>(array, out, too_large);
      case GgufType::kU16:
        return append_numbers<T, uint16_t>(array, out, too_large);
      case GgufType::kI16:
        return append_numbers<T, int16_t>(array, out, too_large);
      case GgufType::kU32:
        return append_numbers<T, uint32_t>(array, out, too_large);
      case GgufType::kI32:
        return append_numbers<T, int32_t>(array, out, too_large);
      case GgufType::kU64:
        return append_numbers<T, uint64_t>(array, out, too_large);
      case GgufType::kI64:
        return append_numbers<T, int64_t>(array, out, too_large);
      case GgufType::kF32:
        return append_numbers<T, float>(array, out, too_large);
      case GgufType::kF64:
        return append_numbers<T, double>(array, out, too_large);
      case GgufType::kBool:
        return append_numbers<T, bool>(array, out, too_large);
      case GgufType::kString:
      case GgufType::kArray:
        break;
    }
    return false;
  }
}

template <typename T>
struct Getter {
  static std::string wanted() { return std::string(Name<T>::value); }
  static std::optional<T> from(const GgufValue& value, bool& too_large) {
    return std::visit([&](const auto& stored) { return convert<T>(stored, too_large); },
                      value.data);
  }
};

template <typename T>
struct Getter<std::vector<T>> {
  static std::string wanted() { return fmt::format("array of {}", Name<T>::value); }
  static std::optional<std::vector<T>> from(const GgufValue& value, bool& too_large) {
    const auto* array = std::get_if<GgufArray>(&value.data);
    if (array == nullptr) return std::nullopt;
    std::vector<T> out;
    // An empty array is an empty array of anything.
    if (array->count > 0) {
      out.reserve(array->count);
      if (!append_elements(*array, out, too_large)) return std::nullopt;
    }
    return out;
  }
};

}  // namespace

std::string_view gguf_type_name(GgufType type) { return kTypeNames[static_cast<uint32_t>(type)]; }

std::string GgufValue::type_name() const {
  if (const auto* array = std::get_if<GgufArray>(&data)) {
    return fmt::format("array of {}", gguf_type_name(array->element));
  }
  return std::string(gguf_type_name(type));
}

std::vector<std::string_view> GgufArray::strings() const {
  std::vector<std::string_view> out;
  out.reserve(count);
  uint64_t offset = 0;
  for (uint64_t i = 0; i < count; ++i) out.push_back(string_at(bytes, offset));
  return out;
}

std::vector<GgufArray> GgufArray::arrays() const {
  // The bytes were checked when the file was opened, so this cannot fail.
  const auto skip = [this](const auto& self, uint64_t& offset) -> GgufArray {
    GgufArray inner{static_cast<GgufType>(read_at<uint32_t>(bytes, offset)),
                    read_at<uint64_t>(bytes, offset + 4),
                    {}};
    const uint64_t begin = offset += 12;
    switch (inner.element) {
      case GgufType::kString:
        for (uint64_t i = 0; i < inner.count; ++i) string_at(bytes, offset);
        break;
      case GgufType::kArray:
        for (uint64_t i = 0; i < inner.count; ++i) self(self, offset);
        break;
      case GgufType::kU8:
      case GgufType::kI8:
      case GgufType::kBool:
        offset += inner.count;
        break;
      case GgufType::kU16:
      case GgufType::kI16:
        offset += 2 * inner.count;
        break;
      case GgufType::kU32:
      case GgufType::kI32:
      case GgufType::kF32:
        offset += 4 * inner.count;
        break;
      case GgufType::kU64:
      case GgufType::kI64:
      case GgufType::kF64:
        offset += 8 * inner.count;
        break;
    }
    inner.bytes = bytes.subspan(begin, offset - begin);
    return inner;
  };
  std::vector<GgufArray> out;
  out.reserve(count);
  uint64_t offset = 0;
  for (uint64_t i = 0; i < count; ++i) out.push_back(skip(skip, offset));
  return out;
}

const GgufValue* GgufFile::find(std::string_view key) const {
  const auto found = values_.find(key);
  return found == values_.end() ? nullptr : &found->second;
}

const GgufTensor* GgufFile::find_tensor(std::string_view name) const {
  const auto found = tensor_index_.find(name);
  return found == tensor_index_.end() ? nullptr : &tensors_[found->second];
}

template <typename T>
Result<T> GgufFile::get(std::string_view key) const {
  const GgufValue* value = find(key);
  if (value == nullptr) {
    const std::vector<std::string> known(keys_.begin(), keys_.end());
    return error(Code::kNotFound, did_you_mean(key, known, "is it a whole language model?"),
                 "gguf {} has no metadata key {}", name_, key);
  }
  bool too_large = false;
  std::optional<T> wanted = Getter<T>::from(*value, too_large);
  if (wanted.has_value()) return *std::move(wanted);
  if (too_large) {
    return error(Code::kCorruptFile, "convert the model again",
                 "{} holds a number that does not fit {} (gguf {})", key, Getter<T>::wanted(),
                 name_);
  }
  return error(Code::kCorruptFile, "convert the model again", "{} is {}, expected {} (gguf {})",
               key, value->type_name(), Getter<T>::wanted(), name_);
}

#define PELLUCID_GGUF_GET(T)                                   \
  template Result<T> GgufFile::get<T>(std::string_view) const; \
  template Result<std::vector<T>> GgufFile::get<std::vector<T>>(std::string_view) const;
PELLUCID_GGUF_GET(bool)
PELLUCID_GGUF_GET(float)
PELLUCID_GGUF_GET(double)
PELLUCID_GGUF_GET(int32_t)
PELLUCID_GGUF_GET(uint32_t)
PELLUCID_GGUF_GET(int64_t)
PELLUCID_GGUF_GET(uint64_t)
PELLUCID_GGUF_GET(std::string)
PELLUCID_GGUF_GET(std::string_view)

}  // namespace pellucid::files
