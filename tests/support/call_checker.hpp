// Runs calls on one rank and compares every bit of what they left: results, guard zones, inputs.
#pragma once

#include <unistd.h>

#include <sched.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <peerless/core/types.hpp>

#include "payload.hpp"
#include "random.hpp"
#include "rank_communicator.hpp"
#include "reference.hpp"
#include "run_ranks.hpp"

namespace peerless::test {

// One all_reduce with its data and place in memory. Ranks must make the same calls; offsets and in_place may differ.
struct call_spec {
  dtype type = dtype::f32;
  reduce_op op = reduce_op::sum;
  std::size_t n_elements = 0;
  payload data = payload::uniform;
  std::optional<protocol_id> protocol{};  // none: the communicator chooses
  std::uint32_t blocks = 0;               // of the launch, at most what the transport can take; 0: its own choice
  std::uint32_t chunk_bytes = 0;          // of the ring; likewise
  std::size_t in_offset = 0;              // elements behind a 256-byte boundary
  std::size_t out_offset = 0;
  bool in_place = false;

  std::size_t bytes() const { return n_elements * size_bytes(type); }
};

inline std::string describe_call(const call_spec& call) {
  std::string text(peerless::name_of(call.type));
  text += " ";
  text += peerless::name_of(call.op);
  text += " of " + std::to_string(call.n_elements) + " elements (" + name_of(call.data) + "), ";
  text += call.protocol ? peerless::name_of(*call.protocol) : "protocol by plan";
  if (call.blocks != 0) text += ", " + std::to_string(call.blocks) + " blocks";
  if (call.chunk_bytes != 0) text += ", chunks of " + std::to_string(call.chunk_bytes) + " bytes";
  text += call.in_place ? ", in place + " + std::to_string(call.out_offset)
                        : ", offsets " + std::to_string(call.in_offset) + " " + std::to_string(call.out_offset);
  return text;
}

// How long a rank dawdles before its calls.
enum class delays : std::uint8_t { none, few, many };

class call_checker {
 public:
  // Bytes of arena that one call takes, guards included; at most.
  static std::size_t footprint(const call_spec& call) { return 2 * region(call.bytes() + 128); }

  call_checker(rank_context& context, rank_communicator& communicator, std::size_t arena_bytes, std::uint64_t seed)
      : context_(&context),
        communicator_(&communicator),
        arena_bytes_(arena_bytes),
        seed_(seed),
        dawdling_(seed ^ mix(static_cast<std::uint64_t>(context.rank()) + 77)) {}

  rank_communicator& communicator() { return *communicator_; }
  rank_context& context() { return *context_; }
  void set_delays(delays d) { delays_ = d; }
  void set_where(std::string_view where) { where_ = where; }
  // A hash over all results since the last call of this; equal on all ranks if their results were.
  std::uint64_t take_hash() {
    std::uint64_t const result = hash_;
    hash_ = 0;
    return result;
  }

  void run(const call_spec& call) { run(std::span(&call, 1)); }

  // Enqueues all calls back to back, then waits once and checks them. Their footprints must fit the arena together.
  void run(std::span<const call_spec> calls) {
    place(calls);
    fill_staging(calls);
    communicator_->upload(used_);
    enqueue(calls);
    check(calls);
  }

  // Captures the calls. Afterwards replay() may be called any number of times, mixed with run().
  int capture(std::span<const call_spec> calls) {
    place(calls);
    return communicator_->capture([&] { enqueue(calls); });
  }

  // Replays a captured sequence `times` times in a row on fresh data and checks it. More than once only without calls
  // in place, whose inputs the first time changes.
  void replay(int graph, std::span<const call_spec> calls, int times = 1) {
    place(calls);
    fill_staging(calls);
    communicator_->upload(used_);
    for (int i = 0; i < times; ++i) {
      dawdle();
      communicator_->replay(graph);
    }
    check(calls);
  }

 private:
  static constexpr std::size_t guard_bytes = 64;
  static constexpr std::size_t block_elements = 2048;  // compared at a time: fits the cache for any world

  struct placement {
    std::size_t in, out;  // offsets of the first element in the arena
    std::uint64_t seed;
  };

  static std::size_t region(std::size_t bytes) { return (guard_bytes + bytes + guard_bytes + 255) / 256 * 256; }

  void place(std::span<const call_spec> calls) {
    placed_.clear();
    used_ = 0;
    for (call_spec const& call : calls) {
      placement p{};
      std::size_t const width = size_bytes(call.type);
      auto const reserve = [&](std::size_t offset) {
        std::size_t const begin = used_ + guard_bytes;
        used_ += region(call.bytes() + offset * width);
        return begin + offset * width;
      };
      p.out = reserve(call.out_offset);
      p.in = call.in_place ? p.out : reserve(call.in_offset);
      placed_.push_back(p);
    }
    if (used_ > arena_bytes_)
      throw error(errc::invalid_argument, "a test asks for more than its arena: " + std::to_string(used_));
  }

  // Poison everywhere, another one each time so that no earlier result passes for this one, then the inputs.
  void fill_staging(std::span<const call_spec> calls) {
    std::byte* staging = communicator_->staging();
    std::memset(staging, static_cast<int>(0xa1 + 2 * (batch_++ % 31)), used_);
    for (std::size_t i = 0; i < calls.size(); ++i) {
      placed_[i].seed = mix(seed_ + ++calls_made_);
      fill(calls[i].type, calls[i].data, placed_[i].seed, context_->rank(), 0,
           {staging + placed_[i].in, calls[i].bytes()});
    }
  }

  void enqueue(std::span<const call_spec> calls) {
    std::byte* arena = communicator_->arena();
    for (std::size_t i = 0; i < calls.size(); ++i) {
      call_arguments arguments{calls[i].type,          calls[i].op,         arena + placed_[i].in,
                               arena + placed_[i].out, calls[i].n_elements, {}};
      if (calls[i].protocol) {
        arguments.forced = communicator_->plan_with(*calls[i].protocol);
        if (calls[i].blocks != 0) arguments.forced->shape.blocks = calls[i].blocks;
        if (calls[i].chunk_bytes != 0 && arguments.forced->shape.chunk_bytes != 0) {
          arguments.forced->shape.chunk_bytes = std::min(calls[i].chunk_bytes, arguments.forced->shape.chunk_bytes);
        }
      }
      dawdle();
      communicator_->all_reduce(arguments);
    }
  }

  void dawdle() {
    if (delays_ == delays::none) return;
    std::uint64_t const period = delays_ == delays::few ? 64 : 4;
    if (dawdling_.once_in(period)) ::sched_yield();
    if (dawdling_.once_in(period * 16)) ::usleep(static_cast<useconds_t>(dawdling_.below(200)));
  }

  void check(std::span<const call_spec> calls) {
    std::byte const* result = communicator_->fetch(used_);
    for (std::size_t i = 0; i < calls.size(); ++i) {
      if (check_result(calls[i], i, result)) context_->record().verified.fetch_add(1, std::memory_order_relaxed);
    }
    check_rest(calls, result);
  }

  // Everything that is no output must be as it was uploaded: guards, padding, inputs.
  void check_rest(std::span<const call_spec> calls, const std::byte* result) {
    std::byte const* staging = communicator_->staging();
    std::size_t begin = 0;
    for (std::size_t i = 0; i <= calls.size(); ++i) {
      std::size_t const end = i < calls.size() ? placed_[i].out : used_;
      if (std::memcmp(staging + begin, result + begin, end - begin) != 0) {
        auto const first =
            static_cast<std::size_t>(std::mismatch(staging + begin, staging + end, result + begin).first - staging);
        auto const call = i == calls.size() ? i - 1 : i;
        report(calls[call], call,
               "byte " + std::to_string(first) + " outside the outputs was changed (this call's output begins at " +
                   std::to_string(placed_[call].out) + ")");
        return;
      }
      if (i < calls.size()) begin = placed_[i].out + calls[i].bytes();
    }
  }

  bool check_result(const call_spec& call, std::size_t position, const std::byte* result) {
    placement const& p = placed_[position];
    std::size_t const width = size_bytes(call.type);
    int const world = communicator_->world_size();
    blocks_.resize(static_cast<std::size_t>(world + 1) * block_elements * sizeof(double));
    pointers_.resize(static_cast<std::size_t>(world));
    std::byte* const expected = blocks_.data() + static_cast<std::size_t>(world) * block_elements * sizeof(double);
    for (std::size_t first = 0; first < call.n_elements; first += block_elements) {
      std::size_t const n = std::min(block_elements, call.n_elements - first);
      for (int rank = 0; rank < world; ++rank) {
        std::byte* block = blocks_.data() + static_cast<std::size_t>(rank) * block_elements * sizeof(double);
        fill(call.type, call.data, p.seed, rank, first, {block, n * width});
        pointers_[static_cast<std::size_t>(rank)] = block;
      }
      reference_reduce(call.type, call.op, pointers_.data(), world, n, expected);
      std::byte const* got = result + p.out + first * width;
      add_to_hash(got, n * width);
      if (std::memcmp(expected, got, n * width) != 0) {
        report_difference(call, position, first, n, expected, got);
        return false;
      }
      if (call.op == reduce_op::sum && !check_closed_form(call, position, first, n, got)) return false;
    }
    return true;
  }

  void add_to_hash(const std::byte* data, std::size_t bytes) {
    std::uint64_t word = 0;
    std::size_t i = 0;
    for (; i + 8 <= bytes; i += 8) {
      std::memcpy(&word, data + i, 8);
      hash_ = mix(hash_ ^ word);
    }
    word = bytes;
    std::memcpy(&word, data + i, bytes - i);
    hash_ = mix(hash_ ^ word);
  }

  static std::string bits(dtype type, const std::byte* data, std::size_t i) {
    std::uint64_t word = 0;
    std::memcpy(&word, data + i * size_bytes(type), size_bytes(type));  // little-endian
    char text[24];
    std::snprintf(text, sizeof text, "0x%0*llx", static_cast<int>(2 * size_bytes(type)),
                  static_cast<unsigned long long>(word));
    return text;
  }

  // Where the sum has a closed form, the result is compared with that too, and no reference comes between.
  bool check_closed_form(const call_spec& call, std::size_t position, std::size_t first, std::size_t n,
                         const std::byte* got) {
    if (call.data != payload::counted && call.data != payload::partial_sums) return true;
    // Inputs that are cut have no closed form.
    bool const narrow = !detail::is_integer(call.type) && size_bytes(call.type) == 1;
    if (call.data == payload::partial_sums && (narrow || call.type == dtype::bf16)) return true;
    std::int64_t const most_exact = narrow ? std::int64_t{2} << detail::format_of(call.type).mantissa_bits : 0;
    for (std::size_t i = 0; i < n; ++i) {
      std::int64_t sum = 0;
      for (int rank = 0; rank < communicator_->world_size(); ++rank) {
        sum +=
            call.data == payload::counted ? detail::counted_value(rank, first + i) : detail::partial_sums_value(rank);
      }
      long double want = static_cast<long double>(sum);
      if (call.type == dtype::f16 && sum > 65504) want = std::numeric_limits<long double>::infinity();
      switch (call.type) {
        case dtype::i8: want = static_cast<std::int8_t>(sum); break;
        case dtype::u8: want = static_cast<std::uint8_t>(sum); break;
        case dtype::u32: want = static_cast<std::uint32_t>(sum); break;
        case dtype::u64: want = static_cast<long double>(static_cast<std::uint64_t>(sum)); break;
        default:
          if (narrow && sum > most_exact) continue;  // rounded
      }
      long double const value = value_at(call.type, got, i);
      if (value == want) continue;
      report(call, position,
             "element " + std::to_string(first + i) + " is " + std::to_string(value) + " and the sum is " +
                 std::to_string(want));
      return false;
    }
    return true;
  }

  void report_difference(const call_spec& call, std::size_t position, std::size_t first, std::size_t n,
                         const std::byte* expected, const std::byte* got) {
    std::size_t const width = size_bytes(call.type);
    std::size_t wrong = 0, index = n;
    for (std::size_t i = 0; i < n; ++i) {
      if (std::memcmp(expected + i * width, got + i * width, width) == 0) continue;
      ++wrong;
      index = std::min(index, i);
    }
    std::string text = "element " + std::to_string(first + index) + " is " + bits(call.type, got, index) +
                       " and must be " + bits(call.type, expected, index) + "; inputs";
    for (auto const* input : pointers_) text += " " + bits(call.type, input, index);
    text +=
        "; " + std::to_string(wrong) + " of " + std::to_string(n) + " elements differ from " + std::to_string(first);
    report(call, position, text);
  }

  void report(const call_spec& call, std::size_t position, const std::string& text) {
    context_->fail(where_, "call " + std::to_string(calls_made_) + " (" + std::to_string(position) +
                               " in its batch), " + describe_call(call) + ": " + text);
  }

  rank_context* context_;
  rank_communicator* communicator_;
  std::size_t arena_bytes_;
  std::uint64_t seed_;
  std::uint64_t calls_made_ = 0;
  std::uint64_t batch_ = 0;
  std::uint64_t hash_ = 0;
  random_choices dawdling_;
  delays delays_ = delays::none;
  std::string where_;
  std::vector<placement> placed_;
  std::size_t used_ = 0;
  std::vector<std::byte> blocks_;
  std::vector<const std::byte*> pointers_;
};

}  // namespace peerless::test
