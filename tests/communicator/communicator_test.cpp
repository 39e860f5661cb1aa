// The communicator itself: what it says about plans and its state, what it refuses without harm, and how it ends.
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <limits>
#include <string>
#include <thread>
#include <vector>

#include <peerless/communicator.hpp>
#include <peerless/transport/host.hpp>

#include "support/catch.hpp"
#include "support/run_ranks.hpp"

using namespace peerless::test;
using namespace std::chrono_literals;
using peerless::communicator_options;
using peerless::dtype;
using peerless::errc;
using peerless::host;
using peerless::host_stream;
using peerless::protocol_id;
namespace op = peerless::op;

namespace {

// What does not compile: types and operations that no transport of the communicator has.
template <class T, class Op>
concept can_reduce = requires(peerless::communicator<host>& c, const T* in, T* out, Op operation) {
  c.all_reduce(in, out, 1, operation, host_stream{});
};
struct product {};
static_assert(can_reduce<peerless::f16, op::sum> && can_reduce<peerless::bf16, op::min> && can_reduce<float, op::max>);
static_assert(can_reduce<double, op::sum> && can_reduce<std::int32_t, op::sum> && can_reduce<std::uint32_t, op::max>);
static_assert(!can_reduce<bool, op::sum> && !can_reduce<char, op::sum> && !can_reduce<long double, op::sum>);
static_assert(!can_reduce<float, product> && !can_reduce<float, int>);

// Transport archetypes: the host transport under another name, and two that do not come up.
class second_host : public host {
 public:
  static constexpr std::string_view name = "second";
  using host::host;
  peerless::selection_table seed_table() const {
    auto table = host::seed_table();
    for (auto& row : table) row.transport = name;
    return table;
  }
};
static_assert(peerless::transport<second_host>);

class absent : public host {
 public:
  static constexpr std::string_view name = "absent";
  absent(peerless::bootstrap_ref boot, peerless::session<peerless::host_space>& group,
         const communicator_options& options, peerless::deadline limit)
      : host(without_bus(boot, limit), group, options, limit) {}

 private:
  // On the last rank only, agreed by all.
  static peerless::bootstrap_ref without_bus(peerless::bootstrap_ref boot, peerless::deadline limit) {
    peerless::agree_on(boot, limit, [&] {
      if (boot.rank() == boot.size() - 1) throw peerless::error(errc::unsupported, "there is no bus for it");
    });
    return boot;
  }
};
static_assert(peerless::transport<absent>);

communicator_options small() {
  communicator_options options;
  options.deadline = 20s;
  options.sizes.sentinel_slot_bytes = 4096;
  options.sizes.flagged_slot_bytes = 8192;
  options.sizes.bulk_blocks = 2;
  options.sizes.bulk_depth = 2;
  options.sizes.bulk_chunk_bytes = 512;
  return options;
}

// A sum whose result is known; `salt` changes with every call.
template <class Communicator>
bool sum_is_right(Communicator& c, int salt, std::size_t n = 100) {
  std::vector<float> in(n), out(n, -1.0f);
  for (std::size_t i = 0; i < n; ++i) in[i] = static_cast<float>(c.rank() + salt + static_cast<int>(i % 50));
  c.all_reduce(std::span<const float>(in), std::span<float>(out), op::sum{}, host_stream{});
  int const ranks = c.world_size();
  for (std::size_t i = 0; i < n; ++i) {
    if (out[i] != static_cast<float>(ranks * (ranks - 1) / 2 + ranks * (salt + static_cast<int>(i % 50)))) return false;
  }
  return true;
}

// Runs `step` and complains unless it throws `code`.
template <class Step>
void must_throw(rank_context& context, errc code, const std::string& what, Step&& step, const std::string& part = "") {
  try {
    step();
    context.fail(what, "threw nothing");
  } catch (const peerless::error& e) {
    context.require(e.code() == code, what, e.what());
    context.require(std::string(e.what()).find(part) != std::string::npos, what,
                    "does not say \"" + part + "\": " + e.what());
  }
}

void run_both_ways(int world, const rank_body_with_bootstrap& body) {
  for (ranks_as how : both_ways()) {
    INFO("world " << world << " among " << name_of(how));
    CHECK(run_ranks(world, how, body).problems() == "");
  }
}

}  // namespace

TEST_CASE("a plan tells transport, protocol and reason, alike on every rank") {
  run_both_ways(3, [](rank_context& context, peerless::bootstrap_ref group) {
    peerless::communicator<host> c(group, small());
    struct expected {
      std::size_t bytes;
      dtype type;
      protocol_id protocol;
    };
    for (auto const& want : {expected{0, dtype::bf16, protocol_id::sentinel},
                             {4096, dtype::f32, protocol_id::sentinel},
                             {4100, dtype::f32, protocol_id::flagged},
                             {64, dtype::f64, protocol_id::flagged},
                             {4, dtype::i32, protocol_id::flagged},
                             {8192, dtype::u32, protocol_id::flagged},
                             {8196, dtype::f32, protocol_id::bulk},
                             {std::size_t{1} << 33, dtype::f16, protocol_id::bulk}}) {
      auto const plan = c.plan(want.bytes, want.type);
      std::string const what =
          "plan for " + std::to_string(want.bytes) + " bytes of " + std::string(peerless::name_of(want.type));
      context.require(plan.transport == "host", what, plan.transport);
      context.require(plan.protocol == want.protocol, what, peerless::name_of(plan.protocol));
      context.require(plan.shape.blocks >= 1 && plan.shape.threads >= 1, what, "has no shape");
      context.require(plan.reason.find("first transport that came up") != std::string::npos, what, plan.reason);
      std::uint64_t const hash = seed_of(plan.reason) ^ mix(plan.shape.blocks * 1000 + plan.shape.chunk_bytes);
      for (auto other : peerless::all_gather_value(group, hash, peerless::deadline::after(10s))) {
        context.require(other == hash, what, "differs between ranks");
      }
    }
    std::string const line = c.describe();
    context.require(line.find("rank " + std::to_string(context.rank()) + " of 3") != std::string::npos &&
                        line.find("host") != std::string::npos,
                    "describe()", line);
    context.require(line.find('\n') == std::string::npos, "describe()", "is more than a line");
    context.require(c.rank() == context.rank() && c.world_size() == 3, "rank() and world_size()", "are wrong");
  });
}

TEST_CASE("transports are tried in order, and what did not come up is told") {
  run_both_ways(3, [](rank_context& context, peerless::bootstrap_ref group) {
    using two = peerless::communicator<host, second_host>;
    auto options = small();
    {
      two c(group, options);
      context.require(c.plan(4, dtype::f32).transport == "host" && sum_is_right(c, 1),
                      "the first of the template's order", c.describe());
    }
    options.order = {"second", "host"};
    {
      two c(group, options);
      context.require(c.plan(4, dtype::f32).transport == "second" && sum_is_right(c, 2),
                      "the first of the caller's order", c.describe());
    }
    options.order = {"second"};
    {
      two c(group, options);
      context.require(c.plan(4, dtype::f32).transport == "second" && sum_is_right(c, 2),
                      "the only one of the caller's order", c.describe());
    }
    options.order = {};
    {
      peerless::communicator<absent, host> c(group, options);
      context.require(c.plan(4, dtype::f32).transport == "host" && sum_is_right(c, 3),
                      "the second, when the first is absent", c.describe());
      for (auto const& text : {c.describe(), c.plan(4, dtype::f32).reason}) {
        context.require(text.find("absent did not come up") != std::string::npos &&
                            text.find("there is no bus for it") != std::string::npos,
                        "the reason", text);
      }
    }
    must_throw(
        context, errc::unsupported, "no transport at all", [&] { peerless::communicator<absent> c(group, options); },
        "there is no bus for it");
    options.order = {"absent"};
    must_throw(context, errc::unsupported, "an order of absent transports",
               [&] { peerless::communicator<absent, host> c(group, options); });
    options.order = context.rank() == 1 ? std::vector<std::string>{"second", "host"} : std::vector<std::string>{};
    must_throw(context, errc::rendezvous_mismatch, "orders that differ", [&] { two c(group, options); }, "rank 1");
    peerless::communicator<host> c(group, small());
    context.require(sum_is_right(c, 4), "after refusals", "wrong sum");
  });
}

TEST_CASE("a refused call has no effect: the next one works") {
  run_both_ways(2, [](rank_context& context, peerless::bootstrap_ref group) {
    peerless::communicator<host> c(group, small());
    alignas(16) std::array<float, 64> data{};
    std::array<double, 8> doubles{};
    int salt = 0;
    // Refused on one rank alone, while the other calls nothing: no rank may notice later.
    auto const refused = [&](errc code, const std::string& what, auto&& call, const std::string& part = "") {
      if (context.rank() == salt % 2) must_throw(context, code, what, call, part);
      context.require(c.status().code == errc::ok, what, "status() tells of a failure");
      context.require(sum_is_right(c, ++salt), what, "the next sum is wrong");
    };
    float* const p = data.data();
    refused(
        errc::invalid_argument, "partial overlap, out behind in",
        [&] { c.all_reduce(p, p + 1, 8, op::sum{}, host_stream{}); }, "overlap");
    refused(
        errc::invalid_argument, "partial overlap, out before in",
        [&] { c.all_reduce(p + 7, p, 8, op::sum{}, host_stream{}); }, "overlap");
    refused(
        errc::invalid_argument, "null in",
        [&] { c.all_reduce(static_cast<const float*>(nullptr), p, 1, op::sum{}, host_stream{}); }, "null");
    refused(
        errc::invalid_argument, "null out",
        [&] { c.all_reduce(p, static_cast<float*>(nullptr), 1, op::sum{}, host_stream{}); }, "null");
    refused(
        errc::invalid_argument, "both null",
        [&] {
          c.all_reduce(static_cast<const float*>(nullptr), static_cast<float*>(nullptr), 9, op::sum{}, host_stream{});
        },
        "null");
    refused(errc::invalid_argument, "too many elements",
            [&] { c.all_reduce(p, p, std::numeric_limits<std::uint64_t>::max(), op::sum{}, host_stream{}); });
    refused(
        errc::invalid_argument, "a misaligned pointer",
        [&] {
          auto* odd = reinterpret_cast<float*>(reinterpret_cast<char*>(p) + 2);
          c.all_reduce(odd, odd, 1, op::sum{}, host_stream{});
        },
        "aligned");
    refused(
        errc::invalid_argument, "spans of different lengths",
        [&] { c.all_reduce(std::span<const float>(p, 4), std::span<float>(p + 32, 5), op::sum{}, host_stream{}); },
        "4");

    auto plan = c.plan(64, dtype::f32);
    auto const refuse_plan = [&](const std::string& what, auto&& change, auto* values, std::uint64_t n) {
      auto changed = plan;
      change(changed);
      refused(errc::unsupported, what, [&] { c.all_reduce_as(changed, values, values, n, op::sum{}, host_stream{}); });
    };
    refuse_plan("the sentinel for f64", [](auto& x) { x.protocol = protocol_id::sentinel; }, doubles.data(), 2);
    refuse_plan("an unknown transport", [](auto& x) { x.transport = "pigeon"; }, p, 2);
    refuse_plan("no blocks", [](auto& x) { x.shape.blocks = 0; }, p, 2);
    refuse_plan("too many blocks", [](auto& x) { x.shape.blocks = 65; }, p, 2);
    refuse_plan("more blocks than rings", [](auto& x) { x.protocol = protocol_id::bulk, x.shape = {3, 1, 512}; }, p, 2);
    refuse_plan("no chunk", [](auto& x) { x.protocol = protocol_id::bulk, x.shape.chunk_bytes = 0; }, p, 2);
    refuse_plan(
        "a chunk that is no multiple of 16", [](auto& x) { x.protocol = protocol_id::bulk, x.shape.chunk_bytes = 24; },
        p, 2);
    refuse_plan(
        "a chunk larger than the ring's", [](auto& x) { x.protocol = protocol_id::bulk, x.shape.chunk_bytes = 1024; },
        p, 2);
    std::vector<float> large(2049);
    refuse_plan(
        "a message larger than a sentinel slot", [](auto& x) { x.protocol = protocol_id::sentinel; }, large.data(),
        1025);
    refuse_plan(
        "a message larger than a flagged slot", [](auto& x) { x.protocol = protocol_id::flagged; }, large.data(), 2049);

    // What is no error: no elements, whatever the pointers; buffers that touch.
    c.all_reduce(static_cast<const float*>(nullptr), static_cast<float*>(nullptr), 0, op::sum{}, host_stream{});
    for (std::size_t i = 0; i < data.size(); ++i) data[i] = static_cast<float>(i);
    c.all_reduce(p, p + 8, 8, op::max{}, host_stream{});
    context.require(data[8] == 0 && data[15] == 7 && data[16] == 16 && data[7] == 7, "buffers that touch",
                    "wrong result");
    c.all_reduce(std::span<float>(p, 4), op::sum{}, host_stream{});
    context.require(data[3] == 6 && data[4] == 4, "the in-place form", "wrong result");
    c.check();
  });
}

TEST_CASE("a table can be loaded in place of the seed") {
  run_both_ways(2, [](rank_context& context, peerless::bootstrap_ref group) {
    peerless::communicator<host, second_host> c(group, small());
    auto rows = c.table();
    context.require(!rows.empty() && rows[0].source.size() > 0, "the seed table", "has no source");
    auto foreign = rows;
    foreign[0].transport = "second";
    must_throw(
        context, errc::unsupported, "a table that names a transport that is not up", [&] { c.load_table(foreign); },
        "second");
    context.require(c.plan(4, dtype::f32).protocol == protocol_id::sentinel && sum_is_right(c, 1),
                    "after a refused table", c.plan(4, dtype::f32).reason);
    std::erase_if(rows, [](auto const& row) { return row.protocol == protocol_id::sentinel; });
    c.load_table(rows);
    auto const plan = c.plan(4, dtype::f32);
    context.require(plan.protocol == protocol_id::flagged && plan.reason.find("measured") != std::string::npos,
                    "after a loaded table", plan.reason);
    context.require(sum_is_right(c, 2), "after a loaded table", "wrong sum");
    c.load_table({});
    must_throw(context, errc::unsupported, "plan() of an empty table", [&] { c.plan(4, dtype::f32); });
    must_throw(context, errc::unsupported, "a call with an empty table", [&] { sum_is_right(c, 3); });
    c.load_table(rows);
    context.require(sum_is_right(c, 4), "after an empty table", "wrong sum");
  });
}

TEST_CASE("a world of one reduces to itself") {
  run_both_ways(1, [](rank_context& context, peerless::bootstrap_ref group) {
    peerless::communicator<host> c(group, small());
    for (std::size_t n : {1, 1000, 1500, 50000})
      context.require(sum_is_right(c, 3, n), "a sum of one rank", std::to_string(n));
    c.synchronize(host_stream{});
    c.check();
  });
}

TEST_CASE("communicators of one group live side by side and end apart") {
  run_both_ways(3, [](rank_context& context, peerless::bootstrap_ref group) {
    peerless::communicator<host> first(group, small());
    auto second = std::make_unique<peerless::communicator<host>>(group, small());
    for (int i = 0; i < 200; ++i) {
      context.require(sum_is_right(i % 3 == 0 ? first : *second, i, static_cast<std::size_t>(1 + i * 13)),
                      "two communicators", "wrong sum");
    }
    if (context.rank() == 1) second->abort();
    must_throw(context, errc::aborted, "the aborted one", [&] {
      for (int i = 0; i < 100000; ++i) sum_is_right(*second, i);
    });
    context.require(second->status().code == errc::aborted && second->status().rank == 1, "the aborted one",
                    "status() tells something else");
    context.require(sum_is_right(first, 7), "the other one", "wrong sum");
    second.reset();
    for (int i = 0; i < 50; ++i) context.require(sum_is_right(first, i), "the one that is left", "wrong sum");
    first.check();
  });
}

TEST_CASE("a second thread in a call is told, and the first goes on") {
  run_both_ways(2, [](rank_context& context, peerless::bootstrap_ref group) {
    peerless::communicator<host> c(group, small());
    context.require(sum_is_right(c, 1), "before", "wrong sum");
    if (context.rank() == 0) {
      std::atomic<bool> right{false};
      std::thread waiting([&] { right = sum_is_right(c, 2); });
      std::this_thread::sleep_for(100ms);  // rank 1 comes only when this rank says so
      must_throw(context, errc::invalid_usage, "a second thread", [&] { sum_is_right(c, 3); }, "thread");
      context.enter_phase(1);
      waiting.join();
      context.require(right, "the first thread", "wrong sum");
    } else {
      context.require(context.wait_for_phase(0, 1), "rank 0", "did not come");
      context.require(sum_is_right(c, 2), "the other rank", "wrong sum");
    }
    context.require(sum_is_right(c, 4), "after", "wrong sum");
  });
}

TEST_CASE("a late rank is named on stderr and nothing else happens", "[processes]") {
  auto const run = run_ranks(2, ranks_as::processes, [](rank_context& context, peerless::bootstrap_ref group) {
    int const file = ::memfd_create("stderr", 0);
    int const terminal = ::dup(2);
    auto options = small();
    options.late_warning = 1000ms;
    {
      peerless::communicator<host> c(group, options);
      context.require(sum_is_right(c, 1), "before", "wrong sum");
      ::dup2(file, 2);
      if (context.rank() == 1) std::this_thread::sleep_for(4s);
      context.require(sum_is_right(c, 2), "after", "wrong sum");
      ::dup2(terminal, 2);
    }
    char text[512] = {};
    auto const length = ::pread(file, text, sizeof text - 1, 0);
    std::string const printed(text, length > 0 ? static_cast<std::size_t>(length) : 0);
    if (context.rank() == 0) {
      context.require(printed.find("rank 1") != std::string::npos, "the warning", "was \"" + printed + "\"");
      context.require(printed.find('\n') == printed.size() - 1, "the warning", "is more than one line: " + printed);
    } else {
      context.require(printed.empty(), "the late rank", "printed " + printed);
    }
  });
  CHECK(run.problems() == "");
}

// In every rank: descriptors, threads and shared mappings are as before, whatever state the communicator was in.
TEST_CASE("nothing is left in the process when a communicator ends", "[processes]") {
  auto const run = run_ranks(2, ranks_as::processes, [](rank_context& context, peerless::bootstrap_ref group) {
    auto const measure = [] {
      return std::array<std::size_t, 3>{open_descriptors(), thread_count(), shared_mappings()};
    };
    auto const before = measure();
    auto const require_same = [&](const std::string& what) {
      // A thread that was joined may be in the list for a moment longer.
      bool const same = rank_context::wait_until([&] { return measure() == before; }, 2s);
      auto const after = measure();
      context.require(same, what,
                      std::to_string(after[0]) + " descriptors, " + std::to_string(after[1]) + " threads, " +
                          std::to_string(after[2]) + " mappings; before " + std::to_string(before[0]) + ", " +
                          std::to_string(before[1]) + ", " + std::to_string(before[2]));
    };
    for (int i = 0; i < 10; ++i) {
      {
        peerless::communicator<host> unused(group, small());
      }
      require_same("never used");
      {
        peerless::communicator<host> c(group, small());
        context.require(sum_is_right(c, i, 3000), "used", "wrong sum");
      }
      require_same("used");
      {
        peerless::communicator<host> c(group, small());
        c.abort();
      }
      require_same("aborted");
      {
        peerless::communicator<host> c(group, small());
        if (context.rank() == 0)
          must_throw(context, errc::peer_closed, "the other left", [&] { sum_is_right(c, 1); }, "rank 1");
      }
      require_same("left alone");
      auto options = small();
      options.order = {"nothing"};
      must_throw(
          context, errc::invalid_argument, "a bad option", [&] { peerless::communicator<host> c(group, options); },
          "nothing");
      require_same("never constructed");
    }
  });
  CHECK(run.problems() == "");
}
