#!/usr/bin/env python3
"""compare.py OLD.jsonl NEW.jsonl: is anything slower than it was, by more than measured noise?

Reads the JSON lines of peerless_all_reduce_perf. Rows are the same when transport, setting, type, operation, size, in
or out of place, captured or eager, world, and processes or threads are. Where both files have NCCL's row of a problem
(as it comes, without a setting), what is compared is the time as a share of NCCL's in the same run, since absolute
times move between machines of one kind; else the time itself, and the table says `us`.

The noise of a row: with several runs (--repeat, or lines of several runs in one file) the least and the largest run,
each against NCCL's row of the same run; with one run the samples' minimum below, and above as far again from the
median or the p99, whichever is nearer (a p99 is often one outlier). A row is slower when its whole range lies above
the old one, and the medians differ by more than --least percent. NCCL's own rows are compared only where there are no
others. Elements that are wrong count as a regression whatever the time.

Exit code: 0 no regression, 1 a regression, 2 input that cannot be compared.
"""
import argparse
import json
import math
import statistics
import sys

# Two single runs of the same code on the machine of bench/results differed by up to 4.4 % in a row's share of NCCL.
LEAST_PERCENT_SINGLE = 5.0
LEAST_PERCENT_REPEATED = 3.0
RUNS_THAT_SHOW_SPREAD = 3

KEYS = ("transport", "setting", "dtype", "op", "size_bytes", "in_place", "mode", "world", "ranks_as")
YARDSTICK = "nccl"


class BadInput(Exception):
    pass


class Row:
    """One row of a file: a time for each run, and for a single run the bounds of its samples. Times in us."""

    def __init__(self):
        self.medians, self.low, self.high, self.wrong = [], 0.0, 0.0, 0

    def add(self, medians, low, high, wrong):
        self.medians += medians
        self.low, self.high, self.wrong = low, high, max(self.wrong, wrong)

    def range(self):
        return (self.low, self.high) if len(self.medians) == 1 else (min(self.medians), max(self.medians))


def positive(value):
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value) or value <= 0:
        raise ValueError(f"{value!r} is no time")
    return float(value)


def add_line(rows, line):
    """Adds a parsed line. Raises KeyError, TypeError or ValueError for what is no measurement."""
    key = tuple(line.get("setting") if name == "setting" else line[name] for name in KEYS)
    if line["transport"] == "nccl-best":  # of whichever setting
        key = (key[0], None) + key[2:]
    for name, value in zip(KEYS, key):
        kind = {"size_bytes": int, "world": int, "in_place": bool}.get(name, str)
        if type(value) is not kind and not (name == "setting" and value is None):
            raise ValueError(f"{name} is {value!r}")
    time = line["time_us"]
    median, least, p99 = (positive(time[name]) for name in ("median", "min", "p99"))
    runs = line.get("runs")
    medians = [positive(value) for value in runs["medians"]] if runs else [median]
    if not medians or not least <= median <= p99:
        raise ValueError("min, median and p99 are out of order, or there are no runs")
    wrong = line["wrong"] or 0
    rows.setdefault(key, Row()).add(medians, least, min(p99, 2 * median - least), wrong)


def read_rows(path):
    rows, environment = {}, {}
    try:
        with open(path, encoding="utf-8") as file:
            for number, text in enumerate(file, 1):
                if not text.strip():
                    continue
                try:
                    line = json.loads(text)
                    add_line(rows, line)
                    settings = dict(pair.split("=", 1) for pair in (line.get("setting") or "").split(",") if pair)
                    environment |= {k: v for k, v in line.get("env", {}).items() if k not in settings}
                except (KeyError, TypeError, ValueError, AttributeError) as e:
                    what = f"no {e}" if isinstance(e, KeyError) else str(e)
                    raise BadInput(f"{path}:{number}: not a line of peerless_all_reduce_perf: {what}") from None
    except (OSError, UnicodeDecodeError) as e:
        raise BadInput(f"{path}: {e.strerror if isinstance(e, OSError) else e}") from None
    if not rows:
        raise BadInput(f"{path}: no measurements")
    return rows, environment


def yardstick_of(rows, key):
    """NCCL's row of the same problem, as NCCL comes; None where there is none, and for NCCL itself."""
    return None if key[0].startswith(YARDSTICK) else rows.get((YARDSTICK, None) + key[2:])


def figures(row, yardstick):
    """(median, low, high, number of runs) of a row, as a share of the yardstick if there is one."""
    low, high = row.range()
    n = len(row.medians)
    if yardstick is None:
        return statistics.median(row.medians), low, high, n
    if n > 1 and n == len(yardstick.medians):
        shares = [mine / its for mine, its in zip(row.medians, yardstick.medians)]
        return statistics.median(shares), min(shares), max(shares), n
    its_low, its_high = yardstick.range()
    n = min(n, len(yardstick.medians))
    return statistics.median(row.medians) / statistics.median(yardstick.medians), low / its_high, high / its_low, n


def verdict(old, new, least_percent):
    """'slower', 'faster' or '' from figures(); `least_percent` None: by the number of runs."""
    if least_percent is None:
        repeated = min(old[3], new[3]) >= RUNS_THAT_SHOW_SPREAD
        least_percent = LEAST_PERCENT_REPEATED if repeated else LEAST_PERCENT_SINGLE
    change = (new[0] / old[0] - 1) * 100
    if change > least_percent and new[1] > old[2]:
        return "slower"
    if (old[0] / new[0] - 1) * 100 > least_percent and new[2] < old[1]:
        return "faster"
    return ""


def describe(key):
    transport, setting, dtype, op, size, in_place, mode, world, ranks = key
    name = f"{transport}:{setting}" if setting else transport
    return f"{name:<10} {dtype:<9} {op:<4} {size:>11} {'in' if in_place else 'out':<5} {mode:<8} {world:>2} {ranks:<9}"


def compare(old_rows, new_rows, least_percent=None):
    """(lines of the table, regressions as text). Raises BadInput when the two have no row in common."""
    common = [key for key in new_rows if key in old_rows and not key[0].startswith(YARDSTICK)]
    only_nccl = not common
    if only_nccl:
        common = [key for key in new_rows if key in old_rows]
    if not common:
        raise BadInput("the two files have no row in common (transport, setting, type, operation, size, in place, "
                       "mode, world, processes or threads)")
    title = "transport  type      op          size place mode      n ranks    "
    table = [f"{title} | {'old':>9} {'least..most':>17} | {'new':>9} {'least..most':>17} | {'new/old':>7}"]
    regressions = []
    for key in common:
        old_stick, new_stick = yardstick_of(old_rows, key), yardstick_of(new_rows, key)
        if old_stick is None or new_stick is None:
            old_stick = new_stick = None
        old, new = figures(old_rows[key], old_stick), figures(new_rows[key], new_stick)
        said = verdict(old, new, least_percent)
        if new_rows[key].wrong:
            said = f"{new_rows[key].wrong} elements wrong"
        unit = "us" if old_stick is None else "x "
        ranges = [f"{f[0]:>9.3f} {f'{f[1]:.3f}..{f[2]:.3f}':>17}" for f in (old, new)]
        table.append(f"{describe(key)} | {ranges[0]} | {ranges[1]} | {new[0] / old[0]:>7.3f} {unit} {said}".rstrip())
        if said not in ("", "faster"):
            regressions.append(" ".join(describe(key).split()) + f": {said}")
    return table, regressions


def main(arguments):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old")
    parser.add_argument("new")
    parser.add_argument("--least", type=float, metavar="PERCENT",
                        help=f"least change that counts (default {LEAST_PERCENT_SINGLE:g}, with "
                             f"{RUNS_THAT_SHOW_SPREAD} runs or more in both files {LEAST_PERCENT_REPEATED:g})")
    chosen = parser.parse_args(arguments)
    try:
        (old, old_environment), (new, new_environment) = read_rows(chosen.old), read_rows(chosen.new)
        table, regressions = compare(old, new, chosen.least)
    except BadInput as e:
        print(f"compare.py: {e}", file=sys.stderr)
        return 2
    print("\n".join(table))
    for name in sorted(old_environment.keys() | new_environment.keys()):
        if old_environment.get(name) != new_environment.get(name):
            print(f"note: {name} was {old_environment.get(name, 'not set')}, is {new_environment.get(name, 'not set')}")
    for only, where in ((old.keys() - new.keys(), "old"), (new.keys() - old.keys(), "new")):
        if only:
            first = " ".join(describe(min(only, key=str)).split())
            print(f"note: {len(only)} row(s) only in the {where} file, the first: {first}")
    for text in regressions:
        print(f"REGRESSION {text}")
    print(f"{len(table) - 1} row(s) compared, {len(regressions)} regression(s)")
    return 1 if regressions else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
