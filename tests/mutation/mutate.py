#!/usr/bin/env python3
"""Weakens or removes each ordering, slot, clearing step, rewrite, deadline and check in turn, and names what notices.

A mutant is one replacement in a copy of include/. Its killers are small programs, tried in order: each is built against
the copy and must fail (or not end in time) for the mutant to be killed. First every killer must pass on the headers as
they are. Exit code 0: all mutants were killed, by the killers that their entries promise.

  mutate.py [--list] [--only PATTERN] [--jobs N] [--compiler CXX] [--include DIRECTORY]
"""
import argparse
import concurrent.futures
import fnmatch
import os
import pathlib
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import time

from mutants import KILLERS, MUTANTS

ROOT = pathlib.Path(__file__).resolve().parents[2]
TESTS = ROOT / "tests"


# A killer may use so many times its processor seconds by the clock: other work may share the machine.
WALL_FACTOR = 6


class Failure(Exception):
    pass


def pattern_of(text):
    """The text as an expression that does not care how lines are broken."""
    return r"\s*".join(re.escape(token) for token in re.findall(r"\w+|[^\w\s]", text))


def mutate(mutant, include):
    path = include / "peerless" / mutant.file
    text = path.read_text()
    changed, count = re.subn(pattern_of(mutant.old), lambda _: mutant.new, text)
    if count != mutant.count:
        raise Failure(f"{mutant.name}: the text occurs {count} times in {mutant.file}, not {mutant.count}: {mutant.old}")
    path.write_text(changed)


def randomises_too_much():
    """Thread sanitizers of this age abort at random where the kernel randomises more than 28 address bits."""
    try:
        return int(pathlib.Path("/proc/sys/vm/mmap_rnd_bits").read_text()) > 28 and shutil.which("setarch")
    except (OSError, ValueError):
        return False


def precompile(names, folder, compiler):
    """Compiles the standard headers once for each set of options: a third of the time that a killer takes to build."""
    headers = sorted({f"#include <{header}>\n" for path in (TESTS / "protocol").iterdir() if path.suffix in (".hpp", ".cpp")
                      for header in re.findall(r"#include <([^/>]+)>", path.read_text())})
    for options in {KILLERS[name].options for name in names}:
        prefix = prefix_of(options, folder)
        prefix.write_text("".join(headers))
        subprocess.run([compiler, "-std=c++20", *options, "-w", "-x", "c++-header", str(prefix), "-o", f"{prefix}.gch"], check=True)


def prefix_of(options, folder):
    return folder / ("standard" + "".join(options) + ".hpp")


def run_killer(name, include, folder, prefixes, compiler):
    """None when the killer passes, else why it failed."""
    killer = KILLERS[name]
    program = folder / name
    command = [compiler, "-std=c++20", *killer.options, "-w", "-include", str(prefix_of(killer.options, prefixes)),
               "-I", str(include), "-I", str(TESTS), str(TESTS / killer.source), "-o", str(program)]
    built = subprocess.run(command, capture_output=True, text=True)
    if built.returncode != 0:
        raise Failure(f"{name} does not build: {built.stderr[:1500]}")
    start = ["setarch", "-R"] if "-fsanitize=thread" in killer.options and randomises_too_much() else []
    environment = dict(os.environ, TSAN_OPTIONS="halt_on_error=1:exitcode=66:history_size=4")
    try:
        done = subprocess.run([*start, str(program), *killer.arguments], capture_output=True, text=True, errors="replace",
                              timeout=WALL_FACTOR * killer.cpu_s, env=environment,
                              preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CPU, (killer.cpu_s, killer.cpu_s)))
    except subprocess.TimeoutExpired:
        return f"did not end within {WALL_FACTOR * killer.cpu_s} s"
    if done.returncode == 0:
        return None
    lines = [line for line in (done.stdout + done.stderr).splitlines() if line.strip() and "====" not in line]
    return lines[0].replace("FAILED: ", "") if lines else f"exit code {done.returncode}"


def judge(mutant, headers, prefixes, compiler):
    """(name of the killer or None, why, seconds)."""
    begin = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="peerless_mutant_") as temporary:
        folder = pathlib.Path(temporary)
        include = folder / "include"
        shutil.copytree(headers, include)
        mutate(mutant, include)
        for name in mutant.killers:
            why = run_killer(name, include, folder, prefixes, compiler)
            if why is not None:
                return name, why, time.monotonic() - begin
    return None, "", time.monotonic() - begin


def check_unmutated(names, headers, prefixes, jobs, compiler):
    def one(name):
        with tempfile.TemporaryDirectory(prefix="peerless_mutant_") as temporary:
            return name, run_killer(name, headers, pathlib.Path(temporary), prefixes, compiler)

    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        for name, why in pool.map(one, names):
            if why is not None:
                raise Failure(f"{name} fails on the headers as they are: {why}")
            print(f"as it is: {name} passes", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--list", action="store_true", help="print the mutants and end")
    parser.add_argument("--only", default="*", help="a pattern of names, as a shell has it")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--compiler", default=os.environ.get("CXX", "c++"))
    parser.add_argument("--include", type=pathlib.Path, default=ROOT / "include", help="the headers to mutate")
    options = parser.parse_args()

    chosen = [mutant for mutant in MUTANTS if fnmatch.fnmatch(mutant.name, options.only)]
    if len({mutant.name for mutant in MUTANTS}) != len(MUTANTS):
        raise Failure("two mutants have the same name")
    if not chosen:
        raise Failure(f"no mutant is called {options.only}")
    if options.list:
        for mutant in chosen:
            print(f"{mutant.name} | {mutant.removes} | {', '.join(mutant.killers)}")
        return 0

    with tempfile.TemporaryDirectory(prefix="peerless_mutants_") as prefixes:
        return run(chosen, options, pathlib.Path(prefixes))


def run(chosen, options, prefixes):
    begin = time.monotonic()
    names = sorted({name for mutant in chosen for name in mutant.killers})
    precompile(names, prefixes, options.compiler)
    check_unmutated(names, options.include, prefixes, options.jobs, options.compiler)
    survivors, broken = [], []
    print("mutant | removes | killed by | seconds | as", flush=True)
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        futures = {pool.submit(judge, mutant, options.include, prefixes, options.compiler): mutant for mutant in chosen}
        for future in concurrent.futures.as_completed(futures):
            mutant = futures[future]
            try:
                killer, why, seconds = future.result()
            except Failure as failure:
                broken.append(mutant.name)
                print(f"{mutant.name} | {mutant.removes} | BROKEN | | {failure}", flush=True)
                continue
            if killer is None:
                survivors.append(mutant.name)
            print(f"{mutant.name} | {mutant.removes} | {killer or 'SURVIVES'} | {seconds:.1f} | {why[:150]}", flush=True)
    print(f"{len(chosen)} mutants, {len(chosen) - len(survivors) - len(broken)} killed in {time.monotonic() - begin:.0f} s")
    if survivors:
        print("survivors: " + ", ".join(survivors))
    if broken:
        print("not applicable any more: " + ", ".join(broken))
    return 1 if survivors or broken else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Failure as failure:
        print(f"mutate.py: {failure}", file=sys.stderr)
        sys.exit(2)
