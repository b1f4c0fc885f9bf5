#include "files/safetensors_header.h"

#include <nlohmann/json.hpp>
#include <set>
#include <unordered_set>

#include "files/mapped_file.h"

namespace pellucid::files {
namespace {

constexpr size_t kDimensionsMax = 64;  // what torch itself allows

/// Receives the parser's events. The header has one shape only, {name: {field: value}}, so the
/// state is the depth, the name and the field. Returning false stops the parser.
class HeaderEvents final : public nlohmann::json::json_sax_t {
 public:
  SafetensorsHeader header;
  std::string problem;

  bool start_object(size_t) override {
    if (in_array_ || depth_ == 2 || (depth_ == 1 && name_.empty())) return wrong("an object");
    ++depth_;
    if (depth_ == 2 && !in_metadata())
      header.entries.push_back({.name = name_, .dtype = {}, .shape = {}, .data_offsets = {}});
    fields_.clear();
    return true;
  }

  bool end_object() override {
    if (--depth_ == 1 && !in_metadata()) {
      const HeaderEntry& entry = header.entries.back();
      for (const char* field : {"dtype", "shape", "data_offsets"}) {
        if (!fields_.contains(field)) return fail("tensor {} has no {}", printable(name_), field);
      }
      if (entry.data_offsets.size() != 2) {
        return fail("tensor {} has {} data_offsets, expected 2", printable(name_),
                    entry.data_offsets.size());
      }
    }
    return true;
  }

  bool key(std::string& text) override {
    if (depth_ == 1) {
      if (text.empty()) return fail("a tensor without a name");
      if (!names_.insert(text).second) return fail("{} is there twice", printable(text));
      name_ = text;
      return true;
    }
    if (!fields_.insert(text).second)
      return fail("{} of {} is there twice", printable(text), printable(name_));
    field_ = text;
    if (!in_metadata() && text != "dtype" && text != "shape" && text != "data_offsets") {
      return fail("tensor {} has a field {}, expected dtype, shape and data_offsets",
                  printable(name_), printable(text));
    }
    return true;
  }

  bool string(std::string& text) override {
    if (depth_ == 2 && !in_array_) {
      if (in_metadata()) {
        header.metadata[field_] = text;
        return true;
      }
      if (field_ == "dtype") {
        header.entries.back().dtype = text;
        return true;
      }
    }
    return wrong("a string");
  }

  bool start_array(size_t) override {
    if (depth_ != 2 || in_array_ || in_metadata() || field_ == "dtype") return wrong("a list");
    in_array_ = true;
    return true;
  }

  bool end_array() override {
    in_array_ = false;
    return true;
  }

  bool number_unsigned(uint64_t value) override {
    if (!in_array_) return wrong("a number");
    HeaderEntry& entry = header.entries.back();
    std::vector<uint64_t>& list = field_ == "shape" ? entry.shape : entry.data_offsets;
    if (list.size() == kDimensionsMax) {
      return fail("tensor {} has more than {} numbers in {}", printable(name_), kDimensionsMax,
                  field_);
    }
    list.push_back(value);
    return true;
  }

  bool null() override { return wrong("null"); }
  bool boolean(bool) override { return wrong("a bool"); }
  bool number_integer(int64_t) override { return wrong("a negative number"); }
  bool number_float(double, const std::string&) override { return wrong("a fraction"); }
  bool binary(nlohmann::json::binary_t&) override { return wrong("binary data"); }

  bool parse_error(size_t position, const std::string&,
                   const nlohmann::detail::exception&) override {
    return fail("not valid JSON at byte {} of the header", position);
  }

 private:
  bool in_metadata() const { return name_ == "__metadata__"; }

  template <typename... Args>
  bool fail(fmt::format_string<Args...> what, Args&&... args) {
    problem = fmt::format(what, std::forward<Args>(args)...);
    return false;
  }

  bool wrong(const char* found) {
    if (depth_ == 0) return fail("the header is {}, expected an object of tensors", found);
    if (depth_ == 1) return fail("{} is {}, expected an object", printable(name_), found);
    return fail("{} of {} is {} or holds one, expected {}", printable(field_), printable(name_),
                found, in_metadata() || field_ == "dtype" ? "a string" : "a list of whole numbers");
  }

  int depth_ = 0;
  bool in_array_ = false;
  std::string name_;
  std::string field_;
  std::unordered_set<std::string> names_;
  std::set<std::string> fields_;
};

}  // namespace

Result<SafetensorsHeader> parse_safetensors_header(std::string_view json,
                                                   const std::string& label) {
  HeaderEvents events;
  if (!nlohmann::json::sax_parse(json.begin(), json.end(), &events)) {
    return error(Code::kCorruptFile, "the file is damaged or was not fetched whole; fetch it again",
                 "{}: {}", label, events.problem);
  }
  return std::move(events.header);
}

}  // namespace pellucid::files
