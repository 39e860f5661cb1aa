// Fingerprints, headers, the layout of a segment and its start state, and the order of duties: pure values.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include <peerless/transport/host_executor.hpp>

#include "check.hpp"
#include "support/random.hpp"

namespace peerless::test {
namespace {

// The README's 2 KiB of each GPU.
static_assert(sizeof(call_state) + sizeof(protocol_state) <= 2048);

void check_round_trip(std::uint64_t epoch, std::uint64_t fingerprint) {
  const slot_header header{epoch, fingerprint};
  const vec16 v = encode(header);
  PEERLESS_CHECK(decode(v) == header, epoch);
  for (const std::uint32_t word : v.word) PEERLESS_CHECK(word != sentinel_word, epoch);
  PEERLESS_CHECK(has_arrived(v), epoch);
}

// Every field at every edge of its words: 31 bits a word of epoch and of fingerprint.
void check_headers() {
  std::vector<std::uint64_t> edges;
  for (int bit = 0; bit <= 64; ++bit) {
    const std::uint64_t power = bit == 64 ? 0 : std::uint64_t{1} << bit;
    for (const std::uint64_t step : {-2, -1, 0, 1, 2}) edges.push_back(power + step);
  }
  for (const std::uint64_t epoch : edges) {
    for (const std::uint64_t fingerprint : edges) check_round_trip(epoch, fingerprint & ((std::uint64_t{1} << 60) - 1));
  }
  random_choices random(1);
  for (int i = 0; i < 100'000; ++i) check_round_trip(random.next(), random.next() >> 4);

  vec16 v{{0, 0, 0, 0}};
  for (auto& word : v.word) {
    word = sentinel_word;
    PEERLESS_CHECK(!has_arrived(v));
    word = 0xfffffffe;
    PEERLESS_CHECK(has_arrived(v));
  }
}

// Equal signatures and no others have equal fingerprints, and the signature comes back.
void check_fingerprints() {
  std::map<std::uint64_t, int> seen;
  int count = 0;
  for (const std::uint64_t n : {std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{2}, std::uint64_t{1} << 32, max_elements - 1, max_elements}) {
    for (int type = 0; type <= 11; ++type) {
      for (int operation = 0; operation <= 4; ++operation) {
        for (int protocol = 1; protocol <= protocol_count; ++protocol) {
          const call_signature call{n, static_cast<dtype>(type), static_cast<reduce_op>(operation), static_cast<protocol_id>(protocol)};
          const std::uint64_t fingerprint = fingerprint_of(call);
          PEERLESS_CHECK(fingerprint < std::uint64_t{1} << 60, fingerprint);
          PEERLESS_CHECK(seen.emplace(fingerprint, ++count).second, fingerprint);
          const call_signature back = signature_of(fingerprint);
          PEERLESS_CHECK(back.n_elements == n && back.type == call.type && back.operation == call.operation && back.protocol == call.protocol,
                         fingerprint);
        }
      }
    }
  }
}

void check_verdicts() {
  for (std::uint32_t code = 1; code <= static_cast<std::uint32_t>(errc::forked); ++code) {
    for (const std::uint32_t about : {0u, 1u, 15u}) {
      const std::uint64_t verdict = encode_verdict(static_cast<errc>(code), about);
      PEERLESS_CHECK(verdict != 0 && verdict != ~std::uint64_t{0}, code);
      PEERLESS_CHECK(verdict_code(verdict) == static_cast<errc>(code) && verdict_about(verdict) == about, code);
    }
  }
}

struct region {
  const void* begin;
  std::size_t bytes;
  std::size_t alignment;
};

// Everything that a view can point to: disjoint, aligned, within the segment.
void check_layout(const layout_sizes& sizes, std::size_t alignment = page_bytes) {
  const segment_layout layout = make_layout(sizes, alignment);
  auto* base = reinterpret_cast<std::byte*>(std::uintptr_t{1} << 40);  // addresses only, never accessed
  rank_view v{};
  v.segment = base;
  v.layout = layout;
  std::vector<region> regions{{base, page_bytes, page_bytes}};
  const std::uint32_t world = sizes.world_size;
  for (std::uint32_t r = 0; r < world; ++r) {
    regions.push_back({reinterpret_cast<std::byte*>(v.entered(r)), line_bytes, line_bytes});
    for (std::uint64_t slot = 0; slot < sentinel_slots; ++slot) {
      regions.push_back({v.shadow(slot, r), 4, 4});
      regions.push_back({v.sentinel_slot(slot, r), line_bytes + sizes.sentinel_slot_bytes, line_bytes});
    }
    for (std::uint64_t slot = 0; slot < flagged_slots; ++slot) regions.push_back({v.flagged_slot(slot, r), sizes.flagged_slot_bytes, line_bytes});
    for (std::uint32_t b = 0; b < max_blocks; ++b) regions.push_back({v.flag(r, b), sizeof(flag_line), line_bytes});
    for (std::uint32_t b = 0; b < sizes.bulk_blocks; ++b) {
      regions.push_back({v.ready(r, b), sizeof(flag_line), line_bytes});
      for (std::uint32_t reader = 0; reader < world; ++reader) regions.push_back({v.consumed(r, reader, b), sizeof(counter_line), line_bytes});
      for (std::uint32_t c = 0; c < sizes.bulk_depth; ++c) regions.push_back({v.bulk_chunk(r, b, c), sizes.bulk_chunk_bytes, 16});
      PEERLESS_CHECK(v.bulk_chunk(r, b, sizes.bulk_depth) == v.bulk_chunk(r, b, 0), b);
    }
  }
  std::sort(regions.begin(), regions.end(), [](const region& a, const region& b) { return a.begin < b.begin; });
  for (std::size_t i = 0; i < regions.size(); ++i) {
    const auto* begin = static_cast<const std::byte*>(regions[i].begin);
    PEERLESS_CHECK(reinterpret_cast<std::uintptr_t>(begin) % regions[i].alignment == 0, i);
    const std::byte* limit = i + 1 < regions.size() ? static_cast<const std::byte*>(regions[i + 1].begin) : base + layout.total_bytes;
    PEERLESS_CHECK(begin + regions[i].bytes <= limit, i);
  }
  PEERLESS_CHECK(layout.total_bytes % alignment == 0 && layout.regions % alignment == 0 && layout.region_bytes % alignment == 0);
  // What a rank writes lies in its own region, so that no page has two writers.
  for (std::uint32_t r = 0; r < world; ++r) {
    const auto inside = [&](const void* at, std::size_t bytes) {
      const auto* first = static_cast<const std::byte*>(at);
      return first >= v.region(r) && first + bytes <= v.region(r) + layout.region_bytes;
    };
    PEERLESS_CHECK(inside(v.entered(r), line_bytes) && inside(v.shadow(0, r), 4 * sentinel_slots), r);
    PEERLESS_CHECK(inside(v.flag(r, 0), max_blocks * sizeof(flag_line)), r);
    PEERLESS_CHECK(inside(v.ready(r, 0), sizes.bulk_blocks * sizeof(flag_line)), r);
    for (std::uint32_t writer = 0; writer < world; ++writer)
      PEERLESS_CHECK(inside(v.consumed(writer, r, 0), sizes.bulk_blocks * sizeof(counter_line)), r);
    PEERLESS_CHECK(inside(v.sentinel_slot(0, r), sentinel_slots * layout.sentinel_stride), r);
    PEERLESS_CHECK(inside(v.flagged_slot(0, r), flagged_slots * sizes.flagged_slot_bytes), r);
    PEERLESS_CHECK(inside(v.bulk_chunk(r, 0, 0), std::size_t{sizes.bulk_blocks} * sizes.bulk_depth * sizes.bulk_chunk_bytes), r);
  }
}

void check_layouts() {
  for (const std::uint32_t world : {1u, 2u, 3u, 8u, 16u}) {
    check_layout({.world_size = world});
    check_layout({.world_size = world}, huge_page_bytes);
    check_layout({.world_size = world, .bulk_blocks = 3, .bulk_depth = 2, .bulk_chunk_bytes = 48, .sentinel_slot_bytes = 128,
                  .flagged_slot_bytes = 384});
  }
  // The hash tells every size from every other.
  const layout_sizes base{.world_size = 4};
  std::vector<layout_sizes> all(8, base);
  all[1].world_size = 5;
  all[2].bulk_blocks = 32;
  all[3].bulk_depth = 16;
  all[4].bulk_chunk_bytes = 4096;
  all[5].sentinel_slot_bytes = 1 << 10;
  all[6].flagged_slot_bytes = 1 << 10;
  all[7].bulk_depth = 4, all[7].bulk_chunk_bytes = 16 << 10;  // as many bytes in all
  std::set<std::uint64_t> hashes;
  for (const auto& sizes : all) PEERLESS_CHECK(hashes.insert(layout_hash(make_layout(sizes))).second);
  // It depends on each value by itself, not only on the offsets that follow from them.
  const segment_layout layout = make_layout(base);
  for (const auto change : {+[](segment_layout& l) { ++l.sizes.world_size; }, +[](segment_layout& l) { ++l.sizes.bulk_blocks; },
                            +[](segment_layout& l) { ++l.sizes.bulk_depth; }, +[](segment_layout& l) { ++l.sizes.bulk_chunk_bytes; },
                            +[](segment_layout& l) { ++l.sizes.sentinel_slot_bytes; }, +[](segment_layout& l) { ++l.sizes.flagged_slot_bytes; },
                            +[](segment_layout& l) { ++l.sentinel_stride; }, +[](segment_layout& l) { ++l.entered_line; }, +[](segment_layout& l) { ++l.regions; }, +[](segment_layout& l) { ++l.region_bytes; },
                            +[](segment_layout& l) { ++l.shadows; }, +[](segment_layout& l) { ++l.flag_lines; },
                            +[](segment_layout& l) { ++l.ready_lines; }, +[](segment_layout& l) { ++l.consumed_lines; },
                            +[](segment_layout& l) { ++l.sentinel_data; }, +[](segment_layout& l) { ++l.flagged_data; },
                            +[](segment_layout& l) { ++l.bulk_data; }, +[](segment_layout& l) { ++l.total_bytes; }}) {
    segment_layout changed = layout;
    change(changed);
    PEERLESS_CHECK(hashes.insert(layout_hash(changed)).second);
  }
  PEERLESS_CHECK(hash_values({1, 2}) != hash_values({2, 1}) && hash_values({1}) != hash_values({1, 0}));
}

// A fresh segment: nothing arrived, nothing to wait for that came before the first call.
void check_start_state(std::uint64_t first_epoch) {
  const layout_sizes sizes{.world_size = 2, .bulk_blocks = 2, .bulk_depth = 2, .bulk_chunk_bytes = 64, .sentinel_slot_bytes = 256,
                           .flagged_slot_bytes = 256};
  rank_view v{};
  v.layout = make_layout(sizes);
  std::unique_ptr<void, void (*)(void*)> memory(std::aligned_alloc(4096, v.layout.total_bytes), &std::free);
  v.segment = static_cast<std::byte*>(memory.get());
  std::memset(v.segment, 0, v.layout.total_bytes);
  initialise_segment(v.segment, v.layout, first_epoch);
  for (std::uint32_t r = 0; r < 2; ++r) {
    PEERLESS_CHECK(*v.entered(r) == first_epoch - 1, first_epoch);
    for (std::uint64_t slot = 0; slot < sentinel_slots; ++slot) {
      for (std::size_t i = 0; i < (line_bytes + 256) / 16; ++i) {
        for (const std::uint32_t word : v.sentinel_slot(slot, r)[i].word) PEERLESS_CHECK(word == sentinel_word, i);
      }
    }
    for (std::uint32_t b = 0; b < max_blocks; ++b) {
      for (const auto& half : v.flag(r, b)->parity) PEERLESS_CHECK(half.value == first_epoch - 1, b);
    }
    for (std::uint32_t b = 0; b < 2; ++b) {
      PEERLESS_CHECK(v.ready(r, b)->parity[0].value == first_epoch - 1, b);
      for (std::uint32_t reader = 0; reader < 2; ++reader) PEERLESS_CHECK(v.consumed(r, reader, b)->value == first_epoch - 1, b);
    }
  }
  const protocol_state state = make_protocol_state(first_epoch);
  for (const auto epoch : state.next_epoch) PEERLESS_CHECK(epoch == first_epoch);
  for (const auto extent : state.sentinel_extent) PEERLESS_CHECK(extent == 0);
  for (const auto chunks : state.chunks_sent) PEERLESS_CHECK(chunks == first_epoch - 1);
  for (const auto chunks : state.chunks_consumed) PEERLESS_CHECK(chunks == first_epoch - 1);
  const call_state calls = make_call_state(first_epoch);
  PEERLESS_CHECK(calls.next_call == first_epoch && calls.poison == 0);
}

// Orders of duties: each duty once, both posts before both waits, and every such order is drawn in time.
void check_duty_orders() {
  using order = detail::duty_order;
  const auto legal = [](const std::vector<int>& duties) {
    const auto place = [&](int duty) { return std::find(duties.begin(), duties.end(), duty) - duties.begin(); };
    for (int duty = 0; duty < order::n_duties; ++duty) {
      if (std::count(duties.begin(), duties.end(), duty) != 1) return false;
    }
    return std::max(place(order::post_header), place(order::post_data)) < std::min(place(order::await_headers), place(order::fold_data));
  };
  std::set<std::vector<int>> all, drawn;
  std::vector<int> duties{0, 1, 2, 3, 4, 5, 6};
  do {
    if (legal(duties)) all.insert(duties);
  } while (std::next_permutation(duties.begin(), duties.end()));
  const auto draw = [&](std::uint64_t seed, std::uint32_t rank, std::uint64_t call) {
    std::vector<int> drawn_order;
    for (const auto duty : order(seed, rank, call)) drawn_order.push_back(duty);
    PEERLESS_CHECK(legal(drawn_order), call);
    return drawn_order;
  };
  for (std::uint64_t call = 1; call <= 60'000; ++call) drawn.insert(draw(7, static_cast<std::uint32_t>(call % 5), call));
  PEERLESS_CHECK(all.size() == 840 && drawn == all, drawn.size());
  bool acquire_first_release_last = false;
  for (const auto& one : drawn) acquire_first_release_last |= one.front() == order::acquire_entries && one.back() == order::release_entry;
  PEERLESS_CHECK(acquire_first_release_last);
  for (std::uint64_t call = 1; call < 100; ++call) PEERLESS_CHECK(draw(0, 3, call) == draw(0, 1, 1));
  PEERLESS_CHECK(draw(1, 0, 9) == draw(1, 0, 9) && (draw(1, 0, 9) != draw(1, 0, 10) || draw(1, 0, 10) != draw(1, 0, 11)));
}

}  // namespace
}  // namespace peerless::test

int main() {
  namespace t = peerless::test;
  t::check_headers();
  t::check_fingerprints();
  t::check_verdicts();
  t::check_layouts();
  for (const std::uint64_t first : {std::uint64_t{1}, (std::uint64_t{1} << 32) - 1, std::uint64_t{1} << 63}) t::check_start_state(first);
  t::check_duty_orders();
  return t::report("values");
}
