#!/usr/bin/env python3
"""Verifies the Promela models of the protocols with spin, and that spin finds every mutant wrong.

usage: run_models.py [--model NAME]... [--variant NAME]... [--jobs N] [--list]

Prints one line a variant: model / variant / expected / got / states / seconds. Exit code: 0 = everything as expected,
1 = something else, 2 = wrong command line, 77 = skipped, with the reason, for want of spin or a C compiler.
Needs Python 3.8, spin and a C compiler. Works in temporary folders, which it removes; every step has a time and a memory limit.
"""

import argparse
import concurrent.futures
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
SKIPPED = 77
MEMORY_LIMIT_MB = 2000
SEARCH_DEPTH = 500_000
BUILD_TIMEOUT_S = 60

# What a mutant may die of. Anything else (memory, depth or time used up, a channel of the model too short) proves nothing.
FINDINGS = {
    "no_stale_read",
    "no_overwrite_of_unread",
    "slot_cleared_before_reuse",
    "fingerprint_of_this_call",
    "ranks_one_call_apart",
    "every_call_ends",
    "deadlock",
    "livelock",
}

CLEAN, WRONG = "clean", "wrong"
THREE = "RANKS=3"
VALUES = "VALUES_ONLY"

# model: [(variant, expected, macros)]. PROGRESS looks for cycles in which no call ends.
MODELS = {
    "sentinel_slots": [
        ("two_ranks", CLEAN, []),
        ("three_ranks", CLEAN, [THREE, "DATA_WORDS=0"]),
        ("progress", CLEAN, ["PROGRESS", "DATA_WORDS=1"]),
        ("lag_none_four_slots", CLEAN, ["LAG=0", "SLOTS=4", "CLEAR_AHEAD=2", "DATA_WORDS=1"]),
        ("lag_two_eight_slots", CLEAN, ["LAG=2", "SLOTS=8", "CLEAR_AHEAD=4", "DATA_WORDS=0"]),
        ("five_slots", WRONG, ["SLOTS=5"]),
        ("five_slots_clear_ahead_two", WRONG, ["SLOTS=5", "CLEAR_AHEAD=2"]),
        ("four_slots", WRONG, ["SLOTS=4"]),
        ("lag_two", WRONG, ["LAG=2"]),
        ("lag_three", WRONG, ["LAG=3"]),
        ("clear_ahead_two", WRONG, ["CLEAR_AHEAD=2"]),
        ("clear_ahead_four", WRONG, ["CLEAR_AHEAD=4"]),
        ("no_acquire", WRONG, ["NO_ACQUIRE"]),
        ("relaxed_control", WRONG, ["RELAXED_CONTROL"]),
        ("no_clear", WRONG, ["NO_CLEAR"]),
        ("clear_short", WRONG, ["CLEAR_SHORT"]),
        ("clear_skips_header", WRONG, ["CLEAR_SKIPS_HEADER"]),
        ("header_vouches", WRONG, ["HEADER_VOUCHES"]),
        ("no_header", WRONG, ["NO_HEADER"]),
        # Judged by what is read alone. Headers hide what five slots and distance four lack; without headers it shows.
        ("four_slots_by_values", WRONG, [VALUES, "SLOTS=4"]),
        ("lag_two_by_values", WRONG, [VALUES, "LAG=2"]),
        ("no_acquire_by_values", WRONG, [VALUES, "NO_ACQUIRE"]),
        ("relaxed_control_by_values", WRONG, [VALUES, "RELAXED_CONTROL"]),
        ("no_clear_by_values", WRONG, [VALUES, "NO_CLEAR"]),
        ("five_slots_by_values", CLEAN, [VALUES, "SLOTS=5", "DATA_WORDS=1"]),
        ("five_slots_no_header_by_values", WRONG, [VALUES, "SLOTS=5", "NO_HEADER"]),
        ("clear_ahead_four_by_values", CLEAN, [VALUES, "CLEAR_AHEAD=4", "DATA_WORDS=1"]),
        ("clear_ahead_four_no_header_by_values", WRONG, [VALUES, "CLEAR_AHEAD=4", "NO_HEADER"]),
        ("no_header_by_values", CLEAN, [VALUES, "NO_HEADER", "DATA_WORDS=1"]),
    ],
    "flagged_one_shot": [
        ("two_ranks", CLEAN, []),
        ("three_ranks", CLEAN, [THREE, "BLOCKS=1"]),
        ("progress", CLEAN, ["PROGRESS"]),
        ("one_slot", WRONG, ["SLOTS=1"]),
        ("one_slot_by_values", WRONG, [VALUES, "SLOTS=1"]),
        ("relaxed_flag", WRONG, ["RELAXED_FLAG"]),
        ("no_acquire", WRONG, ["NO_ACQUIRE"]),
        ("no_wait", WRONG, ["NO_WAIT"]),
        ("flag_before_data", WRONG, ["FLAG_BEFORE_DATA"]),
        ("fence_before_barrier", WRONG, ["FENCE_BEFORE_BARRIER"]),
        ("one_fingerprint", WRONG, ["ONE_FINGERPRINT"]),
        ("skip_empty_calls", WRONG, ["SKIP_EMPTY_CALLS"]),
    ],
    "bulk_ring": [
        ("two_ranks", CLEAN, ["CALLS=8"]),
        ("two_ranks_depth_three", CLEAN, ["CALLS=5", "DEPTH=3"]),
        ("two_blocks", CLEAN, ["BLOCKS=2", "CALLS=3", "DEPTH=1", "COARSE"]),
        ("three_ranks", CLEAN, [THREE, "CALLS=3", "COARSE"]),
        ("three_ranks_independent", CLEAN, [THREE, "CALLS=2", "COARSE", "INDEPENDENT_PEERS"]),
        ("no_reuse_wait", WRONG, ["NO_REUSE_WAIT"]),
        ("off_by_one", WRONG, ["OFF_BY_ONE"]),
        ("relaxed_ready", WRONG, ["RELAXED_READY"]),
        ("relaxed_consumed", WRONG, ["RELAXED_CONSUMED"]),
        ("consumed_before_read", WRONG, ["CONSUMED_BEFORE_READ"]),
        ("one_reader", WRONG, [THREE, "ONE_READER"]),
        ("restart_counters", WRONG, ["RESTART_COUNTERS"]),
        ("one_fingerprint", WRONG, ["ONE_FINGERPRINT"]),
        ("empty_calls", WRONG, ["EMPTY_CALLS"]),
        ("serial", WRONG, ["SERIAL"]),
        ("known_too_early", WRONG, ["KNOWN_TOO_EARLY"]),
        ("not_on_entry", WRONG, ["NOT_ON_ENTRY"]),
        ("acknowledge_short", WRONG, ["ACKNOWLEDGE_SHORT"]),
        ("known_too_early_by_values", WRONG, [VALUES, "KNOWN_TOO_EARLY"]),
        ("no_reuse_wait_by_values", WRONG, [VALUES, "NO_REUSE_WAIT"]),
        ("off_by_one_by_values", WRONG, [VALUES, "OFF_BY_ONE"]),
        ("relaxed_consumed_by_values", WRONG, [VALUES, "RELAXED_CONSUMED"]),
        ("one_reader_by_values", WRONG, [VALUES, THREE, "ONE_READER"]),
    ],
}


class Failed(Exception):
    """A step that did not come to a verdict; the text says why."""


class Children:
    """The processes under way, so that none outlives this one."""

    def __init__(self):
        self.lock = threading.Lock()
        self.running = set()
        self.closed = False

    def run(self, command, folder, timeout_s):
        with self.lock:
            if self.closed:
                raise Failed("interrupted")
            child = subprocess.Popen(command, cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                     stderr=subprocess.STDOUT, text=True, errors="replace", start_new_session=True)
            self.running.add(child)
        try:
            output, _ = child.communicate(timeout=timeout_s)
            return child.returncode, output
        except subprocess.TimeoutExpired:
            raise Failed(f"{Path(command[0]).name} took more than {timeout_s:.0f} s") from None
        finally:
            self.kill(child)
            with self.lock:
                self.running.discard(child)

    @staticmethod
    def kill(child):
        if child.poll() is None:
            try:
                os.killpg(child.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            child.wait()

    def close(self):
        with self.lock:
            self.closed = True
            for child in self.running:
                self.kill(child)


def verdict(output):
    """What pan's report says: clean, one of FINDINGS, or why it says nothing."""
    if "max search depth too small" in output:
        return "search depth used up"
    if re.search(r"reached -DMEMLIM|out of memory|memory exhausted", output):
        return "memory used up"
    if "pan:1: non-progress cycle" in output:
        return "livelock"
    if "pan:1: invalid end state" in output:
        return "deadlock"
    found = re.search(r"pan:1: assertion violated (.*?) \(at depth", output)
    if found:
        return found.group(1).strip("() ")
    errors = re.search(r"errors: (\d+)", output)
    if errors and errors.group(1) == "0" and "Search not completed" not in output:
        return CLEAN
    return "no verdict: " + " ".join(output.split())[-160:]


def verify(model, macros, expected, tools, children, timeout_s):
    """Runs one variant. Returns (what it got, states)."""
    progress = "PROGRESS" in macros
    with tempfile.TemporaryDirectory(prefix="peerless_model_") as folder:
        source = HERE / f"{model}.pml"
        code, output = children.run([tools.spin, "-a", *(f"-D{m}" for m in macros), str(source)], folder, BUILD_TIMEOUT_S)
        if code != 0 or not (Path(folder) / "pan.c").exists():
            raise Failed("spin: " + output.strip())
        # No partial-order reduction: every step touches shared state, so it would only cost time. A mutant ends at its first error, soon.
        code, output = children.run(
            [tools.cc, "-O2" if expected == CLEAN else "-O0", "-w", "-DNOREDUCE", "-DNP" if progress else "-DSAFETY",
             f"-DMEMLIM={MEMORY_LIMIT_MB}", "-o", "pan", "pan.c"], folder, BUILD_TIMEOUT_S)
        if code != 0:
            raise Failed("compiler: " + output.strip())
        _, output = children.run(["./pan", f"-m{SEARCH_DEPTH}", "-w23", *(["-l"] if progress else [])], folder, timeout_s)
    states = re.search(r"(\d+) states, stored", output)
    return verdict(output), int(states.group(1)) if states else 0


def as_expected(expected, got):
    return got == CLEAN if expected == CLEAN else got in FINDINGS


def parse():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", action="append", choices=sorted(MODELS), help="only this model (repeatable)")
    parser.add_argument("--variant", action="append", metavar="NAME", help="only this variant (repeatable)")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="variants at a time (default 1)")
    parser.add_argument("--timeout", type=float, default=240, metavar="SECONDS", help="limit of one verification (default 240)")
    parser.add_argument("--spin", default="spin", help="spin's executable")
    parser.add_argument("--cc", help="C compiler (default: the first of gcc, cc, clang)")
    parser.add_argument("--list", action="store_true", help="print models, variants and macros, run nothing")
    arguments = parser.parse_args()
    if arguments.jobs < 1:
        parser.error("--jobs takes a number from 1 up")
    known = {name for variants in MODELS.values() for name, _, _ in variants}
    unknown = sorted(set(arguments.variant or []) - known)
    if unknown:
        parser.error(f"no such variant: {', '.join(unknown)} (--list prints them)")
    return arguments


def find_tools(arguments):
    arguments.spin = shutil.which(arguments.spin)
    arguments.cc = next(filter(None, (shutil.which(c) for c in ([arguments.cc] if arguments.cc else ["gcc", "cc", "clang"]))), None)
    for tool, name in ((arguments.spin, "spin"), (arguments.cc, "C compiler")):
        if not tool:
            print(f"peerless: skipped: no {name} found")
            return False
    return True


def main():
    arguments = parse()
    chosen = [(model, *variant) for model, variants in MODELS.items() if model in (arguments.model or MODELS)
              for variant in variants if not arguments.variant or variant[0] in arguments.variant]
    if not chosen:
        print("the models chosen have no variant of that name", file=sys.stderr)
        return 2
    if arguments.list:
        for model, name, expected, macros in chosen:
            print(f"{model:17} {name:38} {expected:6} {' '.join(macros)}")
        return 0
    if not find_tools(arguments):
        return SKIPPED

    children = Children()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda signum, _: sys.exit(128 + signum))

    def run(case):
        model, _, expected, macros = case
        start = time.monotonic()
        try:
            got, states = verify(model, macros, expected, arguments, children, arguments.timeout)
        except Failed as failure:
            got, states = str(failure), 0
        return got, states, time.monotonic() - start

    print(f"{'model':17} {'variant':38} {'expected':9} {'got':26} {'states':>9} {'seconds':>8}", flush=True)
    unexpected = 0
    pool = concurrent.futures.ThreadPoolExecutor(arguments.jobs)
    try:
        for case, (got, states, seconds) in zip(chosen, pool.map(run, chosen)):
            model, name, expected, _ = case
            good = as_expected(expected, got)
            unexpected += not good
            print(f"{model:17} {name:38} {expected:9} {got:26} {states:9} {seconds:8.1f}{'' if good else '  UNEXPECTED'}", flush=True)
    finally:
        children.close()
        pool.shutdown(wait=True)
    print(f"{len(chosen)} variants, {unexpected} unexpected")
    return 1 if unexpected else 0


if __name__ == "__main__":
    sys.exit(main())
