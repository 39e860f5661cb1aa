"""bench/compare.py: finds a planted regression, and none in noise; says what it cannot compare."""
import contextlib
import copy
import io
import json
import pathlib
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench"))
import compare  # noqa: E402

RESULTS = sorted((ROOT / "bench" / "results").glob("*.jsonl"))


def line(transport="shm", median=10.0, size=1024, low=0.99, high=1.02, runs=None, **more):
    made = {"transport": transport, "dtype": "bfloat16", "op": "sum", "size_bytes": size, "in_place": False,
            "mode": "captured", "world": 2, "ranks_as": "processes", "wrong": 0, "env": {},
            "time_us": {"median": median, "min": median * low, "p99": median * high}}
    if runs:
        made["runs"] = {"n": len(runs), "min": min(runs), "max": max(runs), "medians": runs}
    return made | more


class Compare(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def file(self, name, lines):
        path = self.folder / name
        path.write_text("".join((text if isinstance(text, str) else json.dumps(text)) + "\n" for text in lines))
        return str(path)

    def run_on(self, old, new, *flags):
        """(exit code, standard output, standard error) of the program; lists become files."""
        paths = [self.file(name, x) if isinstance(x, list) else str(x) for name, x in (("old", old), ("new", new))]
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = compare.main([*paths, *flags])
        return code, out.getvalue(), err.getvalue()

    def expect(self, code, old, new, *flags):
        found, out, err = self.run_on(old, new, *flags)
        self.assertEqual(found, code, out + err)
        return out if code < 2 else err

    def test_slower_beyond_noise_is_a_regression(self):
        out = self.expect(1, [line(), line(size=4096)], [line(median=11.5), line(size=4096)])
        self.assertIn("REGRESSION shm bfloat16 sum 1024 out captured 2 processes: slower", out)
        self.assertIn("2 row(s) compared, 1 regression(s)", out)

    def test_equal_faster_and_slightly_slower_are_none(self):
        for median in (10.0, 8.0, 10.4):
            self.assertNotIn("REGRESSION", self.expect(0, [line()], [line(median=median)]))

    def test_ranges_that_overlap_are_noise(self):
        self.expect(0, [line()], [line(median=11.5, low=0.87, high=1.3)])
        self.expect(0, [line(low=0.8, high=1.3)], [line(median=11.5)])

    def test_an_outlier_in_p99_hides_nothing(self):
        self.expect(1, [line(high=17.0)], [line(median=11.5)])

    def test_a_slower_machine_is_no_regression_where_nccl_is_slower_as_well(self):
        old = [line(), line("nccl", 30.0)]
        self.expect(0, old, [line(median=13.0), line("nccl", 39.0)])
        out = self.expect(1, old, [line(median=10.0), line("nccl", 26.0)])
        self.assertIn("1.154 x", out)
        self.expect(0, old, [line(median=10.0), line("nccl", 26.0, in_place=True)])  # another problem's yardstick
        self.assertIn("1.300 us", self.expect(1, old, [line(median=13.0)]))

    def test_nccl_under_a_setting_is_no_yardstick(self):
        tuned = line("nccl", 20.0, setting="NCCL_PROTO=LL")
        self.assertIn(" us", self.expect(0, [line(), tuned], [line(), tuned]))
        best = [line("nccl-best", 20.0, setting=text) for text in ("NCCL_PROTO=LL", None)]
        self.expect(0, [line(), best[0]], [line(), best[1]])

    def test_runs_have_a_spread_of_their_own(self):
        calm = [10.0, 10.1, 9.9, 10.0, 10.05]
        self.expect(1, [line(runs=calm)], [line(median=10.5, runs=[x * 1.05 for x in calm])])
        self.expect(0, [line(runs=calm)], [line(median=10.5, runs=[10.05, 10.4, 10.5, 10.6, 10.7])])
        self.expect(0, [line(runs=calm)], [line(median=10.2, runs=[x * 1.02 for x in calm])])
        self.expect(1, [line(runs=calm)], [line(median=10.25, runs=[x * 1.025 for x in calm])], "--least", "1")

    def test_runs_are_compared_with_nccl_of_the_same_run(self):
        drift = [1.0, 1.2, 1.4, 1.1, 1.3]  # of the machine
        both = lambda shm: [line(median=shm * 1.2, runs=[shm * d for d in drift]),
                            line("nccl", 36.0, runs=[30 * d for d in drift])]
        self.expect(0, both(10.0), both(10.2))
        self.expect(1, both(10.0), both(10.5))

    def test_lines_of_several_runs_in_one_file_are_runs(self):
        self.expect(0, [line(median=m) for m in (10, 12, 11)], [line(median=m) for m in (11.9, 12.3, 12.5)])
        self.expect(1, [line(median=m) for m in (10, 12, 11)], [line(median=m) for m in (12.1, 12.3, 12.5)])

    def test_wrong_elements_are_a_regression(self):
        self.assertIn("3 elements wrong", self.expect(1, [line()], [line(wrong=3)]))
        self.expect(0, [line(wrong=None)], [line(wrong=None)])

    def test_rows_in_one_file_alone_are_told(self):
        out = self.expect(0, [line(), line(size=4096)], [line(), line(size=64), line(size=65)])
        self.assertIn("note: 1 row(s) only in the old file, the first: shm bfloat16 sum 4096", out)
        self.assertIn("note: 2 row(s) only in the new file", out)

    def test_different_environments_are_told(self):
        out = self.expect(0, [line(env={"NCCL_P2P_DISABLE": "1"})], [line(env={"PEERLESS_LOG": "1"})])
        self.assertIn("note: NCCL_P2P_DISABLE was 1, is not set", out)
        self.assertIn("note: PEERLESS_LOG was not set, is 1", out)

    def test_what_differs_in_kind_is_never_compared(self):
        for other in ({"dtype": "float"}, {"op": "max"}, {"size_bytes": 2048}, {"in_place": True}, {"mode": "eager"},
                      {"world": 4}, {"ranks_as": "threads"}, {"transport": "host"}):
            self.assertIn("no row in common", self.expect(2, [line()], [line() | other]))

    def test_bad_input_is_one_clear_message(self):
        missing = line()
        del missing["time_us"]["p99"]
        negative, text, disorder = line(median=-1.0), copy.deepcopy(line()), line(low=1.5)
        text["time_us"]["median"] = "10"
        for bad, part in (("{", "new:2: not a line"), ("[1]", "new:2: "), (missing, "no 'p99'"),
                          (negative, "is no time"), (text, "is no time"), (disorder, "out of order"),
                          (line(size_bytes="1K"), "size_bytes is '1K'"),
                          ('{"transport": NaN}', "new:2: "), (line(runs=[]) | {"runs": {"medians": []}}, "no runs")):
            err = self.expect(2, [line()], [line(), bad])
            self.assertIn(part, err)
            self.assertEqual(err.count("\n"), 1)
        self.assertIn("no measurements", self.expect(2, [line()], []))
        self.assertIn("/no/such/file: No such file", self.expect(2, [line()], "/no/such/file"))

    def test_published_results(self):
        self.assertGreater(len(RESULTS), 0)
        for path in RESULTS:
            with self.subTest(path.name):
                self.assertIn(", 0 regression(s)", self.expect(0, path, path))
                rows = compare.read_rows(path)[0]

                def spread(key):
                    _, low, high, _ = compare.figures(rows[key], compare.yardstick_of(rows, key))
                    return high / low

                planted = min((key for key in rows if key[0].startswith("shm")), key=spread)  # a noisy row hides 40 %
                lines = [json.loads(text) for text in path.read_text().splitlines()]
                for entry in lines:
                    if tuple(entry.get(name) for name in compare.KEYS) == planted:
                        entry["time_us"] = {name: us * 1.4 for name, us in entry["time_us"].items()}
                        if "runs" in entry:
                            entry["runs"]["medians"] = [us * 1.4 for us in entry["runs"]["medians"]]
                self.assertIn(", 1 regression(s)", self.expect(1, path, lines))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
