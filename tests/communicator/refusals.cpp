// What a communicator refuses, with nothing broken afterwards: shapes that cannot run, tables that do not fit, segments
// that another version laid out.
#include <cstdint>
#include <functional>
#include <vector>

#include <peerless/bootstrap/thread_group.hpp>
#include <peerless/communicator.hpp>
#include <peerless/transport/host.hpp>

#include "support/catch.hpp"

using namespace peerless;

namespace {

errc code_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const error& e) {
    return e.code();
  }
  return errc::ok;
}

// A communicator of one rank, on which every call is a fold of one.
struct lone_rank {
  thread_group group{1};
  thread_bootstrap boot = group.rank(0);
  communicator<host> comm{boot, communicator_options{}};

  template <class T>
  bool works(std::size_t n_elements) {
    std::vector<T> in(n_elements, T(3)), out(n_elements, T(9));
    comm.all_reduce(in.data(), out.data(), n_elements, op::sum{}, host_stream{});
    return in == out;
  }
};

}  // namespace

TEST_CASE("shapes that cannot run are refused, and the next call works") {
  lone_rank one;
  std::vector<float> data(100, 1.5f), out(100);
  const auto with = [&](protocol_id protocol, launch_shape shape) {
    return code_of([&] {
      one.comm.all_reduce_as(plan{"host", protocol, shape, ""}, data.data(), out.data(), 100, op::sum{}, host_stream{});
    });
  };
  CHECK(with(protocol_id::flagged, {1, 0, 0}) == errc::unsupported);
  CHECK(with(protocol_id::sentinel, {1, 0, 0}) == errc::unsupported);
  CHECK(with(protocol_id::sentinel, {1, 1, 0, false, most_poll_delay_cycles + 1}) == errc::unsupported);
  CHECK(with(protocol_id::sentinel, {1, 1, 0, false, most_poll_delay_cycles}) == errc::ok);
  CHECK(with(protocol_id::flagged, {0, 1, 0}) == errc::unsupported);
  CHECK(with(protocol_id::flagged, {65, 1, 0}) == errc::unsupported);
  CHECK(with(protocol_id::bulk, {1, 1, 0}) == errc::unsupported);
  CHECK(with(protocol_id::bulk, {1, 1, 24}) == errc::unsupported);
  CHECK(with(protocol_id::bulk, {1, 1, 1u << 30}) == errc::unsupported);
  CHECK(with(static_cast<protocol_id>(9), {1, 1, 16}) == errc::unsupported);
  CHECK(with(protocol_id::flagged, {1, 1, 0}) == errc::ok);
  CHECK(out == data);
}

TEST_CASE("a loaded table cannot send a call where it does not fit") {
  lone_rank one;
  selection_table rows = one.comm.table();
  rows.insert(rows.begin(),
              {0, ~std::size_t{0}, type_class::any, "host", protocol_id::sentinel, {1, 1, 0}, 1.0, "a test"});
  one.comm.load_table(rows);
  CHECK(one.comm.plan(16, dtype::f32).protocol == protocol_id::sentinel);
  CHECK(one.comm.plan(16, dtype::f64).protocol != protocol_id::sentinel);    // no sentinel in the type
  CHECK(one.comm.plan(64 << 20, dtype::f32).protocol == protocol_id::bulk);  // larger than a slot
  CHECK(one.works<float>(4));
  CHECK(one.works<double>(1000));
  CHECK(one.works<float>(1 << 20));

  CHECK(code_of([&] {
          one.comm.load_table({{0, 10, type_class::any, "nccl", protocol_id::flagged, {1, 1, 0}, 1.0, "a test"}});
        }) == errc::unsupported);
  CHECK(one.works<float>(4));  // the old table is kept

  one.comm.load_table({{0, 8, type_class::any, "host", protocol_id::flagged, {1, 1, 0}, 1.0, "a test"}});
  CHECK(one.works<float>(2));
  CHECK(code_of([&] { one.works<float>(3); }) == errc::unsupported);
  CHECK(one.works<float>(1));
}

TEST_CASE("what is no element type is refused") {
  lone_rank one;
  for (const dtype type : {static_cast<dtype>(12), static_cast<dtype>(77), static_cast<dtype>(255)}) {
    CHECK(code_of([&] { one.comm.plan(16, type); }) == errc::unsupported);
  }
  STATIC_REQUIRE(communicator<host>::reduces<bf16, op::sum>);
  STATIC_REQUIRE(communicator<host>::reduces<std::int8_t, op::avg> && communicator<host>::reduces<f8_e4m3, op::prod>);
  STATIC_REQUIRE_FALSE(communicator<host>::reduces<std::int16_t, op::sum>);
  STATIC_REQUIRE_FALSE(communicator<host>::reduces<bool, op::max>);
  STATIC_REQUIRE_FALSE(communicator<host>::reduces<float, int>);
}

TEST_CASE("a segment of another layout hash is refused") {
  using memory = joint_memory<host_space>;
  constexpr std::size_t bytes = 8192;
  const segment_header good{segment_magic, 1234, bytes};
  CHECK(code_of([&] { memory::require_header(good, bytes, 1234); }) == errc::ok);
  CHECK(code_of([&] { memory::require_header(good, bytes, 1235); }) == errc::rendezvous_mismatch);
  CHECK(code_of([&] { memory::require_header({segment_magic + 1, 1234, bytes}, bytes, 1234); }) ==
        errc::rendezvous_mismatch);
  CHECK(code_of([&] { memory::require_header({segment_magic, 1234, bytes / 2}, bytes, 1234); }) ==
        errc::rendezvous_mismatch);
  CHECK(code_of([&] { memory::require_header({}, bytes, 1234); }) == errc::rendezvous_mismatch);
}
