#include "files/mapped_file.h"

#include <doctest/doctest.h>
#include <sys/stat.h>

#include "files/json.h"
#include "files/tests/temporary_folder.h"

namespace pellucid::files {

TEST_CASE("mapped file: holds exactly the file's bytes") {
  const TemporaryFolder folder;
  const auto path = folder.write("a", std::string("x\0y", 3));
  const auto file = MappedFile::open(path);
  REQUIRE(file.ok());
  REQUIRE((*file)->bytes().size() == 3);
  CHECK((*file)->bytes()[1] == std::byte{0});
  CHECK((*file)->bytes()[2] == std::byte{'y'});
}

TEST_CASE("mapped file: what is no file to map is told apart") {
  const TemporaryFolder folder;
  CHECK(MappedFile::open(folder.path() / "none").status().code == Code::kNotFound);
  CHECK(MappedFile::open(folder.write("f", "x") / "below").status().code == Code::kNotFound);
  CHECK(MappedFile::open(folder.path()).status().code == Code::kInvalidArgument);
  CHECK(MappedFile::open(folder.write("empty", "")).status().code == Code::kCorruptFile);
  CHECK(MappedFile::open("/dev/zero").status().code == Code::kInvalidArgument);
  const auto pipe = folder.path() / "pipe";
  REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);
  CHECK(MappedFile::open(pipe).status().code == Code::kInvalidArgument);  // and does not wait
  const auto loop = folder.path() / "loop";
  std::filesystem::create_symlink(loop, loop);
  CHECK(MappedFile::open(loop).status().code == Code::kIo);
}

TEST_CASE("text file: is read whole, and refused when it is larger than it may be") {
  const TemporaryFolder folder;
  const auto path = folder.write("t", "12345");
  CHECK(*read_text_file(path, 5) == "12345");
  CHECK(read_text_file(path, 4).status().code == Code::kCorruptFile);
}

TEST_CASE("printable: control characters are escaped, long text is cut") {
  CHECK(printable("a\"b\x1b\n") == "\"a\\\"b\\x1b\\x0a\"");
  CHECK(printable(std::string(100, 'x')) == "\"" + std::string(80, 'x') + "...\"");
}

TEST_CASE("json depth: brackets count outside strings only") {
  CHECK(check_json_depth(R"({"a": [[]], "[[[[[": "\"[[[["})", 3, "x").ok());
  const Status status = check_json_depth("[[[[", 3, "config.json");
  CHECK(status.code == Code::kCorruptFile);
  CHECK(status.what == "config.json, byte 3: nested more than 3 deep");
}

}  // namespace pellucid::files
