#pragma once
// SHA-256 (FIPS 180-4), for content ids: constants of programs, models, test values.
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace pellucid {

/// Feed bytes in any pieces, then ask once for the digest. Not thread-safe; copy to fork.
class Sha256 {
 public:
  void update(std::span<const std::byte> bytes);
  void update(std::string_view text);
  /// 64 lower-case hex digits of all that was fed. Ends this object: no update afterwards.
  std::string hex();

 private:
  void compress(const std::byte* block);

  std::array<uint32_t, 8> state_{0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  std::array<std::byte, 64> pending_{};
  size_t pending_bytes_ = 0;
  uint64_t total_bytes_ = 0;
};

std::string sha256_hex(std::span<const std::byte> bytes);
std::string sha256_hex(std::string_view text);

}  // namespace pellucid
