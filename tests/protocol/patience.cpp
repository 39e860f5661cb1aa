// Each way out of a wait, the account that it leaves, and that the first failure of a rank is the one that counts.
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>

#include <peerless/protocol/memory_cpu.hpp>
#include <peerless/protocol/patience.hpp>
#include <peerless/protocol/sentinel_one_shot.hpp>

#include "check.hpp"

namespace peerless::test {
namespace {

// Memory of one thread whose clock is set by the test, and which a test may change between two polls.
struct scripted_memory : cpu_memory {
  struct script {
    std::uint64_t now = 1'000'000'000;
    std::uint64_t ns_per_poll = 0;
    std::uint64_t polls = 0;
    std::function<void(std::uint64_t)> on_poll;
  };
  explicit scripted_memory(script& s) : s_(&s) {}
  std::uint64_t now_ns() const { return s_->now; }
  void relax(unsigned) const {
    s_->now += s_->ns_per_poll;
    ++s_->polls;
    if (s_->on_poll) s_->on_poll(s_->polls);
  }

 private:
  script* s_;
};
static_assert(memory_policy<scripted_memory>);

constexpr std::uint64_t deadline_ns = 50'000'000;
constexpr std::uint64_t own_print = fingerprint_of({100, dtype::bf16, reduce_op::sum, protocol_id::flagged});
constexpr std::uint64_t other_print = fingerprint_of({101, dtype::bf16, reduce_op::sum, protocol_id::flagged});

// A world of three of which rank 1 waits for rank 2.
struct scene {
  static constexpr std::uint64_t call = 0x1'0000'0007;
  segment_layout layout = make_layout({.world_size = 3, .bulk_blocks = 1, .bulk_depth = 2, .bulk_chunk_bytes = 64,
                                       .sentinel_slot_bytes = 256, .flagged_slot_bytes = 256});
  std::unique_ptr<void, void (*)(void*)> segment{std::aligned_alloc(4096, layout.total_bytes), &std::free};
  control_block controls[3] = {};
  call_state calls = make_call_state(call);
  protocol_state protocols = make_protocol_state(9);
  rank_view view{controls, &calls, static_cast<std::byte*>(segment.get()), &protocols, layout, deadline_ns, 1};
  call_frame frame{call, 9, own_print, protocol_id::flagged};
  scripted_memory::script script;
  scripted_memory memory{script};

  scene() {
    std::memset(segment.get(), 0, layout.total_bytes);
    initialise_segment(view.segment, layout, 9);
  }

  // Polls until the wait ends; returns how often, 0 when it does not end within `most`.
  std::uint64_t wait(std::uint64_t most = 1'000'000, std::uint64_t awaited = 9, std::uint64_t seen = 8,
                     std::uint32_t peer = 2) {
    patience waiting;
    for (std::uint64_t polls = 1; polls <= most; ++polls) {
      if (!waiting.poll_again(memory, view, frame, peer, awaited, seen)) return polls;
    }
    return 0;
  }
  bool failed(errc code, std::uint32_t about) const {
    const failure_record& f = controls[1].failure;
    return f.ready == 1 && f.code == static_cast<std::uint32_t>(code) && f.about == about && f.call == call &&
           f.protocol == static_cast<std::uint32_t>(protocol_id::flagged) && calls.poison == static_cast<std::uint32_t>(code) &&
           controls[1].kernel_verdict == encode_verdict(code, about);
  }
};

void check_deadline() {
  scene s;
  s.script.ns_per_poll = 10'000;
  const std::uint64_t polls = s.wait(20'000, 77, 66);
  PEERLESS_CHECK(polls * 10'000 > deadline_ns && polls * 10'000 < deadline_ns + 200 * 10'000, polls);
  PEERLESS_CHECK(s.failed(errc::timeout, 2));
  PEERLESS_CHECK(s.controls[1].failure.awaited == 77 && s.controls[1].failure.seen == 66);

  scene own;  // a thread of this rank has the deadline for its peers first
  own.script.ns_per_poll = 10'000;
  const std::uint64_t own_polls = own.wait(20'000, 77, 66, 1);
  PEERLESS_CHECK(own_polls * 10'000 > 2 * deadline_ns && own_polls * 10'000 < 2 * deadline_ns + 200 * 10'000, own_polls);

  scene patient;  // time stands still: no end
  PEERLESS_CHECK(patient.wait(100'000) == 0);
  PEERLESS_CHECK(patient.calls.poison == 0 && patient.controls[1].failure.ready == 0);
}

void check_poison() {
  scene s;
  s.calls.poison = static_cast<std::uint32_t>(errc::timeout);
  const std::uint64_t polls = s.wait();
  PEERLESS_CHECK(polls > 0 && polls <= 64, polls);
  PEERLESS_CHECK(s.controls[1].failure.ready == 0);  // the thread that failed has left the account
}

void check_verdicts() {
  scene own;
  own.controls[1].host_verdict = encode_verdict(errc::peer_died, 0);
  PEERLESS_CHECK(own.wait() <= 64);
  PEERLESS_CHECK(own.failed(errc::peer_died, 0));

  scene kernel;
  kernel.controls[2].kernel_verdict = encode_verdict(errc::timeout, 0);
  PEERLESS_CHECK(kernel.wait() <= 64);
  PEERLESS_CHECK(kernel.failed(errc::timeout, 0));

  scene about_me;  // what the peer says about this rank is, here, about the peer
  about_me.controls[2].kernel_verdict = encode_verdict(errc::overlapped, 1);
  PEERLESS_CHECK(about_me.wait() <= 64);
  PEERLESS_CHECK(about_me.failed(errc::overlapped, 2));

  scene differs;  // a peer that says that calls differ is believed after a while, in which this rank may see it for itself
  differs.controls[2].kernel_verdict = encode_verdict(errc::call_mismatch, 0);
  differs.script.ns_per_poll = 1000;
  const std::uint64_t until_believed = differs.wait(20'000);
  PEERLESS_CHECK(until_believed > 1000 && until_believed < 1300, until_believed);
  PEERLESS_CHECK(differs.failed(errc::call_mismatch, 0));

  scene host;
  host.controls[2].host_verdict = encode_verdict(errc::aborted, 2);
  PEERLESS_CHECK(host.wait() <= 64);
  PEERLESS_CHECK(host.failed(errc::aborted, 2));

  scene dead_link;  // what a failed read returns is no verdict
  dead_link.controls[1].host_verdict = dead_link.controls[2].host_verdict = dead_link.controls[2].kernel_verdict = ~std::uint64_t{0};
  PEERLESS_CHECK(dead_link.wait(10'000) == 0);

  scene bystander;  // the verdicts of a rank that is not awaited say nothing yet
  bystander.controls[0].kernel_verdict = encode_verdict(errc::timeout, 2);
  PEERLESS_CHECK(bystander.wait(10'000) == 0);

  scene later;
  later.script.on_poll = [&](std::uint64_t polls) {
    if (polls == 1000) later.controls[1].host_verdict = encode_verdict(errc::aborted, 1);
  };
  const std::uint64_t polls = later.wait();
  PEERLESS_CHECK(polls >= 1000 && polls <= 1064, polls);
}

void check_closed() {
  scene s;
  s.controls[2].host_verdict = encode_verdict(errc::peer_closed, 2);
  const std::uint64_t polls = s.wait();
  PEERLESS_CHECK(polls > 64 && polls <= 128, polls);  // at least one poll after the first look that saw it
  PEERLESS_CHECK(s.failed(errc::peer_closed, 2));
}

void check_call_line() {
  const auto announce = [](scene& s, std::uint64_t call, std::uint64_t fingerprint) {
    scene peer;
    peer.view.rank = 2;
    peer.view.controls = s.controls;
    announce_call(s.memory, peer.view, {call, 1, fingerprint, protocol_id::flagged});
  };
  scene s;
  announce(s, scene::call, other_print);
  s.script.ns_per_poll = 1000;
  const std::uint64_t polls = s.wait(20'000);
  PEERLESS_CHECK(polls > 1000 && polls < 1300, polls);  // a millisecond
  PEERLESS_CHECK(s.failed(errc::call_mismatch, 2));
  PEERLESS_CHECK(s.controls[1].failure.awaited == own_print && s.controls[1].failure.seen == other_print);

  scene told;  // with the peer's word for it there is no need to wait
  announce(told, scene::call, other_print);
  told.controls[2].kernel_verdict = encode_verdict(errc::call_mismatch, 1);
  PEERLESS_CHECK(told.wait() <= 64);
  PEERLESS_CHECK(told.failed(errc::call_mismatch, 2) && told.controls[1].failure.seen == other_print);

  scene same, earlier, torn;
  announce(same, scene::call, own_print);
  announce(earlier, scene::call - 1, other_print);
  announce(torn, scene::call, other_print);
  torn.controls[2].call_line[1] = (scene::call - 1) << 32 | (own_print & 0xffffffffu);
  for (scene* quiet : {&same, &earlier, &torn}) {
    quiet->script.ns_per_poll = 1000;
    PEERLESS_CHECK(quiet->wait(40'000) == 0);
    PEERLESS_CHECK(quiet->calls.poison == 0);
  }
  scene torn_above;
  announce(torn_above, scene::call, other_print);
  torn_above.controls[2].call_line[0] = (scene::call - 1) << 32 | other_print >> 32;
  torn_above.script.ns_per_poll = 1000;
  PEERLESS_CHECK(torn_above.wait(40'000) == 0);
}

// Only the first failure counts, and it is complete.
void check_first_failure() {
  scene s;
  fail_call(s.memory, s.view, s.frame, errc::call_mismatch, 2, 11, 12);
  fail_call(s.memory, s.view, s.frame, errc::timeout, 0, 13, 14);
  PEERLESS_CHECK(s.failed(errc::call_mismatch, 2));
  PEERLESS_CHECK(s.controls[1].failure.awaited == 11 && s.controls[1].failure.seen == 12);
}

// A header of another epoch with the same fingerprint: two calls of one communicator ran at once.
void check_header() {
  scene s;
  const std::uint64_t print = fingerprint_of({0, dtype::f32, reduce_op::sum, protocol_id::sentinel});
  const call_frame f{scene::call, 9, print, protocol_id::sentinel};
  const message<float> nothing{nullptr, nullptr, 0};
  const sentinel_one_shot<float, op::sum, scripted_memory> call(s.memory, s.view, f, nothing);
  s.memory.store16(s.view.sentinel_slot(9 % sentinel_slots, 0), encode({9, print}));
  s.memory.store16(s.view.sentinel_slot(9 % sentinel_slots, 2), encode({9 + sentinel_slots, print}));
  PEERLESS_CHECK(!call.await_headers(single_thread()));
  const failure_record& record = s.controls[1].failure;
  PEERLESS_CHECK(record.ready == 1 && record.code == static_cast<std::uint32_t>(errc::overlapped) && record.about == 2, record.code);
  PEERLESS_CHECK(record.awaited == 9 && record.seen == 9 + sentinel_slots, record.seen);
}

}  // namespace
}  // namespace peerless::test

int main() {
  namespace t = peerless::test;
  t::check_deadline();
  t::check_poison();
  t::check_verdicts();
  t::check_closed();
  t::check_call_line();
  t::check_first_failure();
  t::check_header();
  return t::report("patience");
}
