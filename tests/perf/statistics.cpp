// Sizes and statistics of peerless_all_reduce_perf.
#include "support/catch.hpp"

#include "size_text.hpp"
#include "statistics.hpp"

using namespace peerless::bench;

namespace {
bool close(double a, double b) { return a - b < 1e-9 && b - a < 1e-9; }
}  // namespace

TEST_CASE("sizes are read as people write them") {
  CHECK(parse_size("0") == 0);
  CHECK(parse_size("65536") == 65536);
  CHECK(parse_size("64K") == 65536);
  CHECK(parse_size("64k") == 65536);
  CHECK(parse_size("64KB") == 65536);
  CHECK(parse_size("64KiB") == 65536);
  CHECK(parse_size("3M") == 3u << 20);
  CHECK(parse_size("2G") == std::size_t{2} << 30);
  CHECK(parse_size("12B") == 12);
  CHECK(parse_size("18446744073709551615") == 18446744073709551615ull);
}

TEST_CASE("what is no size is refused by name") {
  for (const char* text : {"", "K", "-1", "1.5M", "64X", "64KBB", "64Ki", " 64", "64 K", "0x10", "64KK"}) {
    INFO(text);
    CHECK_THROWS_MATCHES(parse_size(text), std::invalid_argument,
                         Catch::Matchers::Predicate<const std::invalid_argument&>([&](const std::invalid_argument& e) {
                           return std::string(e.what()).find("'" + std::string(text) + "'") != std::string::npos;
                         }));
  }
  CHECK_THROWS_AS(parse_size("18446744073709551616"), std::invalid_argument);
  CHECK_THROWS_AS(parse_size("99999999999999999999999"), std::invalid_argument);
  CHECK_THROWS_AS(parse_size("17179869184G"), std::invalid_argument);  // 2^64
}

TEST_CASE("sizes are written as people read them") {
  CHECK(size_text(0) == "0 B");
  CHECK(size_text(1000) == "1000 B");
  CHECK(size_text(1024) == "1 KB");
  CHECK(size_text(1536) == "1536 B");
  CHECK(size_text(64 << 20) == "64 MB");
  CHECK(size_text(std::size_t{3} << 30) == "3 GB");
}

TEST_CASE("a range of sizes ends at or below its end") {
  using sizes = std::vector<std::size_t>;
  CHECK(size_range(1024, 65536, 0, 4) == sizes{1024, 4096, 16384, 65536});
  CHECK(size_range(1024, 65535, 0, 4) == sizes{1024, 4096, 16384});
  CHECK(size_range(10, 40, 15, 2) == sizes{10, 25, 40});
  CHECK(size_range(10, 39, 15, 2) == sizes{10, 25});
  CHECK(size_range(7, 7, 0, 2) == sizes{7});
  CHECK(size_range(7, 100, 0, 1) == sizes{7});
  const std::size_t top = std::size_t{1} << 63;
  CHECK(size_range(top, ~std::size_t{0}, 0, 2) == sizes{top});
  CHECK(size_range(top, ~std::size_t{0}, top, 2) == sizes{top});
  CHECK_THROWS_AS(size_range(0, 10, 0, 2), std::invalid_argument);
  CHECK_THROWS_AS(size_range(11, 10, 0, 2), std::invalid_argument);
  CHECK_THROWS_AS(size_range(1, 2'000'000, 1, 2), std::invalid_argument);
}

TEST_CASE("a summary has the median, the least and the 99th percentile") {
  const time_summary one = summarize({3.0});
  CHECK(one.median_us == 3.0);
  CHECK(one.min_us == 3.0);
  CHECK(one.p99_us == 3.0);
  const time_summary odd = summarize({5.0, 1.0, 9.0});
  CHECK(odd.median_us == 5.0);
  CHECK(odd.min_us == 1.0);
  CHECK(odd.p99_us == 9.0);
  CHECK(summarize({4.0, 1.0, 2.0, 100.0}).median_us == 3.0);
  std::vector<double> many(200);
  for (std::size_t i = 0; i < many.size(); ++i) many[i] = static_cast<double>(200 - i);  // 200 ... 1
  CHECK(summarize(many).p99_us == 198.0);
  CHECK(summarize(many).median_us == 100.5);
  many.resize(100);  // 200 ... 101
  CHECK(summarize(many).p99_us == 199.0);
  CHECK_THROWS_AS(summarize({}), std::invalid_argument);
}

TEST_CASE("a sample of a group is the one of its slowest rank") {
  const std::vector<double> all{1, 2, 3, /* rank 1 */ 3, 1, 3, /* rank 2 */ 2, 2, 4};
  CHECK(max_over_ranks(all, 3) == std::vector<double>{3, 2, 4});
  CHECK(max_over_ranks(all, 1) == all);
  CHECK_THROWS_AS(max_over_ranks(all, 2), std::invalid_argument);
  CHECK_THROWS_AS(max_over_ranks(all, 0), std::invalid_argument);
}

TEST_CASE("bandwidths count bytes of 10^9") {
  CHECK(close(algorithm_bandwidth(1'000'000, 100.0), 10.0));  // 1 MB in 100 us
  CHECK(algorithm_bandwidth(1, 0.0) == 0.0);
  CHECK(close(bus_bandwidth(10.0, 2), 10.0));
  CHECK(close(bus_bandwidth(10.0, 4), 15.0));
  CHECK(bus_bandwidth(10.0, 1) == 0.0);
}
