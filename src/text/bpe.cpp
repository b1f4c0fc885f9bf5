#include "text/bpe.h"

#include <fmt/format.h>

#include <algorithm>

#include "text/byte_level.h"

namespace pellucid::text {

// A symbol in the doubly linked list that merging shortens; a merged-away node has id -1.
struct Bpe::Node {
  int32_t id;
  int32_t previous;
  int32_t next;  // -1: last
  size_t begin;
  size_t end;
};

Result<Bpe> Bpe::make(const std::unordered_map<std::string, int32_t>& vocabulary,
                      const std::vector<std::pair<std::string, std::string>>& merges,
                      BpeOptions options) {
  Bpe bpe;
  bpe.options_ = options;
  const auto id_of = [&](const std::string& token) {
    const auto found = vocabulary.find(token);
    return found == vocabulary.end() ? -1 : found->second;
  };
  for (size_t byte = 0; byte < 256; ++byte) {
    const std::string character(byte_level_character(static_cast<uint8_t>(byte)));
    bpe.bytes_[byte] = id_of(character);
    if (bpe.bytes_[byte] >= 0 || !options.byte_fallback) continue;
    std::vector<int32_t> spelt;
    for (const char part : character) {
      const int32_t id = id_of(fmt::format("<0x{:02X}>", static_cast<unsigned char>(part)));
      if (id >= 0) spelt.push_back(id);
    }
    if (spelt.size() == character.size()) bpe.fallback_[byte] = std::move(spelt);
  }
  bpe.merges_.reserve(merges.size());
  for (size_t rank = 0; rank < merges.size(); ++rank) {
    const auto& [left, right] = merges[rank];
    const int32_t ids[] = {id_of(left), id_of(right), id_of(left + right)};
    if (std::find(std::begin(ids), std::end(ids), -1) != std::end(ids)) {
      return error(Code::kCorruptFile, "the vocabulary and the merges do not belong together",
                   "merge {} (`{}` `{}`) needs a token that is not in the vocabulary", rank, left,
                   right);
    }
    bpe.merges_.insert_or_assign(key(ids[0], ids[1]), Merge{static_cast<int32_t>(rank), ids[2]});
  }
  if (options.ignore_merges) {
    for (const auto& [token, id] : vocabulary) {
      if (auto bytes = byte_level_decode(token)) bpe.whole_words_.emplace(*std::move(bytes), id);
    }
  }
  return bpe;
}

const Bpe::Merge* Bpe::find(int32_t left, int32_t right) const {
  const auto found = merges_.find(key(left, right));
  return found == merges_.end() ? nullptr : &found->second;
}

size_t Bpe::first_symbols(std::string_view word, std::vector<Node>& nodes) const {
  size_t dropped = 0;
  std::optional<Node> unknown;  // held back: with fuse_unk it may grow
  for (size_t i = 0; i < word.size(); ++i) {
    const auto byte = static_cast<unsigned char>(word[i]);
    if (bytes_[byte] >= 0) {
      if (unknown) nodes.push_back(*unknown);
      unknown.reset();
      nodes.push_back({bytes_[byte], 0, 0, i, i + 1});
    } else if (!fallback_[byte].empty()) {
      for (const int32_t id : fallback_[byte]) nodes.push_back({id, 0, 0, i, i + 1});
    } else if (options_.unk) {
      if (unknown && options_.fuse_unk) {
        unknown->end = i + 1;
        continue;
      }
      if (unknown) nodes.push_back(*unknown);
      unknown = Node{*options_.unk, 0, 0, i, i + 1};
    } else {
      ++dropped;
    }
  }
  if (unknown) nodes.push_back(*unknown);
  const auto count = static_cast<int32_t>(nodes.size());
  for (int32_t i = 0; i < count; ++i) {
    nodes[static_cast<size_t>(i)].previous = i - 1;
    nodes[static_cast<size_t>(i)].next = i + 1 < count ? i + 1 : -1;
  }
  return dropped;
}

void Bpe::merge(std::vector<Node>& nodes) const {
  struct Candidate {
    int32_t rank;
    int32_t at;
    int32_t id;
  };
  const auto later = [](const Candidate& a,
                        const Candidate& b) {  // lowest rank first, then leftmost
    return a.rank != b.rank ? a.rank > b.rank : a.at > b.at;
  };
  std::vector<Candidate> heap;
  const auto consider = [&](int32_t at) {
    if (at < 0 || nodes[static_cast<size_t>(at)].next < 0) return false;
    const Node& left = nodes[static_cast<size_t>(at)];
    const Merge* merge = find(left.id, nodes[static_cast<size_t>(left.next)].id);
    if (merge != nullptr) heap.push_back({merge->rank, at, merge->id});
    return merge != nullptr;
  };
  for (size_t i = 0; i < nodes.size(); ++i) consider(static_cast<int32_t>(i));
  std::make_heap(heap.begin(), heap.end(), later);
  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end(), later);
    const Candidate best = heap.back();
    heap.pop_back();
    Node& left = nodes[static_cast<size_t>(best.at)];
    if (left.id < 0 || left.next < 0) continue;
    Node& right = nodes[static_cast<size_t>(left.next)];
    // A stale candidate counts when today's pair makes the same token, as in the reference library.
    const Merge* today = find(left.id, right.id);
    if (today == nullptr || today->id != best.id) continue;
    left.id = best.id;
    left.end = right.end;
    left.next = right.next;
    right.id = -1;
    if (left.next >= 0) nodes[static_cast<size_t>(left.next)].previous = best.at;
    if (consider(left.previous)) std::push_heap(heap.begin(), heap.end(), later);
    if (consider(best.at)) std::push_heap(heap.begin(), heap.end(), later);
  }
}

size_t Bpe::encode(std::string_view word, std::vector<BpeSymbol>& out) const {
  if (options_.ignore_merges) {
    if (const auto whole = whole_words_.find(std::string(word)); whole != whole_words_.end()) {
      out.push_back({whole->second, 0, word.size()});
      return 0;
    }
  }
  thread_local std::vector<Node> nodes;
  nodes.clear();
  const size_t dropped = first_symbols(word, nodes);
  if (nodes.size() > 1) merge(nodes);
  for (const Node& node : nodes) {
    if (node.id >= 0) out.push_back({node.id, node.begin, node.end});
  }
  if (nodes.capacity() > 1 << 16) std::vector<Node>().swap(nodes);
  return dropped;
}

}  // namespace pellucid::text
