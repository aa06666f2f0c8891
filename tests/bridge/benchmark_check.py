#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Runs benchmarks whose memory figures are known to the byte and reads what each reporter says of them.

usage: benchmark_check.py PROGRAM PROGRAM_WITHOUT_HOOK
Counts, bytes and net growth are exact, whatever the number of threads. A peak is exact where one thread ran; otherwise
the true one is within what the program says it is off by, which may be no more than docs/semantics.md allows.
"""
import csv
import json
import math
import pathlib
import re
import subprocess
import sys
import tempfile

NAMES = ["allocs/iter", "bytes/iter", "net_bytes", "peak_bytes", "peak_error_bound"]
MANAGED = ["allocs_per_iter", "max_bytes_used", "total_allocated_bytes", "net_heap_growth"]
SETTLE_BYTES = 65_536
MIB = 1 << 20
ITERATIONS = 50
MANAGER_ITERATIONS = 16
UNSET = (1 << 63) - 1
SHORT = "--benchmark_min_time=0.01"
# Not under a memory manager: all its threads wait for each other. No counters: another check's.
SPECIAL = "together", "only_in_thread_0", "without_counters"


class figures:
    """What is true of a benchmark. `peak` is the lowest and the highest that it may be."""

    def __init__(self, allocs, bytes_, net, peak, users=None):
        self.allocs, self.bytes, self.net, self.peak, self.users = allocs, bytes_, net, peak, users


def known():
    """Name and number of threads -> figures."""
    all_ = {}
    for n in (1, 2, 4):
        kept = n * ITERATIONS * 100
        all_["three_blocks", n] = figures(3, 300, kept, (kept + 200, kept + 200) if n == 1 else (kept, kept + 200 * n))
        all_["three_blocks_freed", n] = figures(3, 300, 0, (300, 300 * n))
        all_["no_allocation", n] = figures(0, 0, 0, (0, 0))
        all_["frees_what_was_there", n] = figures(0, 0, -kept, (0, 0))
        all_["set_up_untimed", n] = figures(1, 24, 0, (24, 24 * n))
        all_["set_up_outside", n] = figures(0, 0, 0, (0, 0))
        all_["taking_turns", n] = figures(1, MIB, 0, (MIB, MIB))
        if n > 1:
            all_["together", n] = figures(1, MIB, 0, (n * MIB, n * MIB))
    all_["three_blocks_with_argument", 1] = all_["three_blocks", 1]
    all_["three_blocks_by_keep_running", 1] = figures(3, 300, 6_000, (6_200, 6_200))
    all_["aligned", 1] = figures(1, 1_000, 0, (1_000, 1_000))
    all_["set_up_paused", 1] = figures(2, 1_024, 0, (1_024, 1_024))
    # std::thread allocates for itself: that much is taken from the other of the two.
    all_["worker/0", 1] = figures(None, None, 0, (0, math.inf), users=2)
    all_["worker/2", 1] = figures(None, None, 0, (50, math.inf), users=2)
    return all_


def run(program, *arguments):
    done = subprocess.run([program, *arguments], capture_output=True, text=True, timeout=200)
    if done.returncode != 0:
        sys.exit(f"{arguments}: exit code {done.returncode}\n{done.stderr}")
    said = [line for line in done.stderr.splitlines() if line.startswith("tidemark:")]
    return done.stdout, said


def key_of(name):
    threads = re.search(r"/threads:(\d+)", name)
    base = re.sub(r"/(iterations|threads|min_time):[\d.]+|/real_time|(?<=argument)(/\d)+", "", name)
    return base, int(threads[1]) if threads else 1


def number(text):
    """The library's short form: 4.88281k, 2M, 2Mi."""
    value, suffix = re.fullmatch(r"(-?[\d.]+(?:e[+-]\d+)?)([kKMG]?)i?", text).groups()
    return float(value) * 1024 ** " kMG".index(suffix.replace("K", "k") or " ")


def rows_of(text, form):
    """[(name, {counter: value}, whether it failed)]"""
    if form == "json":
        return [(b["name"], {k: b[k] for k in NAMES + MANAGED if k in b}, b.get("error_occurred", False), b)
                for b in json.loads(text)["benchmarks"]]
    rows = []
    if form == "csv":
        for r in csv.DictReader(text[text.index("name,iterations"):].splitlines()):
            rows.append((r["name"], {k: float(r[k]) for k in NAMES if r.get(k)}, r["error_occurred"] == "true", r))
        return rows
    for line in text.splitlines():
        found = re.match(r"(\w+/\S+|\w+)\s+(ERROR|[\d.]+ ns)", line)
        if found:
            counters = {k: number(v) for k, v in re.findall(r"(\S+)=(\S+)", line)}
            rows.append((found[1], counters, found[2] == "ERROR", line))
    return rows


def same(form, got, expected):
    # JSON has every digit, the others have six.
    return got == expected if form == "json" else math.isclose(got, expected, rel_tol=1e-5, abs_tol=1e-9)


def complaints(form, name, counters, truth, iterations):
    threads = truth.users or key_of(name)[1]
    for counter, expected in zip(NAMES, (truth.allocs, truth.bytes, truth.net)):
        if expected is not None and not same(form, counters[counter], expected):
            yield f"{counter} is {counters[counter]:.9g}, expected {expected}"
    peak, off_by = counters["peak_bytes"], counters["peak_error_bound"]
    # Entry and peak may each be off by 2 x threads x settle_bytes; the sums of events narrow that.
    widest = 0 if threads == 1 else 4 * threads * SETTLE_BYTES
    allocated = counters["bytes/iter"] * iterations
    widest = min(widest, allocated - max(truth.net, 0))
    slack = 0 if form == "json" else 1e-5 * (peak + off_by)
    if not 0 <= off_by <= widest + slack:
        yield f"peak_error_bound is {off_by:.9g}, expected no more than {widest}"
    lowest, highest = truth.peak
    if not lowest - off_by - slack <= peak <= highest + off_by + slack:
        yield f"peak_bytes is {peak:.9g} within {off_by:.9g}, expected {lowest} to {highest}"
    if not max(truth.net, 0) - slack <= peak <= allocated + slack:
        yield f"peak_bytes is {peak:.9g}, with a net growth of {truth.net} and {allocated} bytes allocated"


def check_rows(form, rows, where, wanted):
    expected = {k: v for k, v in known().items() if wanted(k[0])}
    wrong, seen, workers = [], set(), {}
    for name, counters, failed, row in rows:
        key = key_of(name)
        if key[0] == "skipped":
            if not failed or counters:
                wrong.append(f"{name}: expected an error and no counters, got {row}")
            continue
        if key not in expected:
            wrong.append(f"{name}: is not expected here")
            continue
        if sorted(k for k in counters if k in NAMES) != sorted(NAMES):
            wrong.append(f"{name}: has the counters {sorted(counters)}, expected {NAMES}")
            continue
        seen.add(key)
        workers[key[0]] = counters
        iterations = float(re.search(r"ns .* ns\s+(\d+)", row)[1]) if form == "console" else float(row["iterations"])
        wrong += [f"{name}: {c}" for c in complaints(form, name, counters, expected[key], iterations)]
    if "worker/2" in workers:
        for counter, more in (("allocs/iter", 2), ("bytes/iter", 100)):
            got = workers["worker/2"][counter] - workers["worker/0"][counter]
            if not math.isclose(got, more, rel_tol=1e-5):
                wrong.append(f"worker: 2 blocks of 50 bytes in its thread add {got} to {counter}, expected {more}")
    wrong += [f"{k}: was not run" for k in expected if k not in seen]
    if wrong:
        sys.exit(f"{where}, as {form}:\n  " + "\n  ".join(wrong))


def check_reporters(program, folder):
    """Each reporter on the standard output, and into a file beside another."""
    for shown, filed in (("console", "json"), ("csv", "console"), ("json", "csv")):
        path = folder / f"as_{filed}"
        out, said = run(program, SHORT, "--benchmark_filter=-only_in_thread_0|without_counters",
                        "--benchmark_color=false", f"--benchmark_format={shown}", f"--benchmark_out={path}",
                        f"--benchmark_out_format={filed}")
        check_rows(shown, rows_of(out, shown), "standard output", lambda name: True)
        check_rows(filed, rows_of(path.read_text(), filed), "file", lambda name: True)
        if said:
            sys.exit(f"nothing is wrong, but it says {said}")


def check_tabular(program):
    out, _ = run(program, "--benchmark_filter=^aligned", "--benchmark_counters_tabular=true", "--benchmark_color=false")
    head, row = ([line.split() for line in out.splitlines() if line.startswith(w)][0] for w in ("Benchmark", "aligned"))
    if head[-5:] != NAMES or [number(v) for v in row[-5:]] != [1, 1_000, 0, 1_000, 0]:
        sys.exit(f"as a table: {head} {row}")


def check_repetitions(program):
    """Threads' set-up is outside whoever is first, and the mean of equal figures is that figure."""
    out, _ = run(program, "--benchmark_filter=^(set_up_outside|three_blocks/|frees)", "--benchmark_repetitions=30",
                 "--benchmark_format=json")
    rows = [r for r in rows_of(out, "json") if r[3]["run_type"] == "iteration" or r[3]["aggregate_name"] == "mean"]
    mean = [r for r in rows if r[3]["run_type"] == "aggregate"]
    wanted = ("set_up_outside", "three_blocks", "frees_what_was_there")
    check_rows("json", [r for r in rows if r not in mean], "30 repetitions", lambda name: name in wanted)
    for name, counters, _, _ in mean:
        truth = known()[key_of(name.removesuffix("_mean"))]
        if [counters[k] for k in NAMES[:3]] != [truth.allocs, truth.bytes, truth.net]:
            sys.exit(f"{name}: {counters}")


def check_manager(program, how):
    """The library's own fields are of one thread and 16 iterations, and do not disturb the counters."""
    out, said = run(program, how, SHORT, "--benchmark_filter=-together|only_in_thread_0", "--benchmark_format=json")
    rows = rows_of(out, "json")
    counted = [r for r in rows if key_of(r[0])[0] != "without_counters"]
    check_rows("json", counted, how, lambda name: name not in SPECIAL)
    if said:
        sys.exit(f"{how}: nothing is wrong, but it says {said}")
    n = MANAGER_ITERATIONS
    expected = {"three_blocks": [3, n * 100 + 200, n * 300, n * 100], "no_allocation": [0, 0, 0, 0],
                "three_blocks_with_argument": [3, n * 100 + 200, n * 300, n * 100],
                "three_blocks_freed": [3, 300, n * 300, 0], "aligned": [1, 1_000, n * 1_000, 0],
                "set_up_untimed": [1, 24, n * 24, 0], "set_up_outside": [0, 0, 0, 0],
                "frees_what_was_there": [0, 0, 0, -n * 100], "taking_turns": [1, MIB, n * MIB, 0]}
    seen = set()
    for name, counters, _, _ in rows:
        base = key_of(name)[0]
        got = [counters.get(k) for k in MANAGED]
        if base == "without_counters":
            # The manager's own window: a few allocations of the library are in it.
            allocs, peak, allocated, net = got
            if not (3 < allocs < 4 and n * 300 < allocated < n * 300 + 4_096 and n * 100 <= net < n * 100 + 2_048
                    and n * 100 + 200 <= peak < n * 100 + 4_096):
                sys.exit(f"{how}, {name}: {MANAGED} are {got}")
        elif base in expected and got != expected[base]:
            sys.exit(f"{how}, {name}: {MANAGED} are {got}, expected {expected[base]}")
        seen.add(base)
    if not seen >= set(expected):
        sys.exit(f"{how}: not run: {set(expected) - seen}")


def check_missing_thread(program):
    out, said = run(program, "--benchmark_filter=only_in_thread_0", "--benchmark_repetitions=2",
                    "--benchmark_format=json")
    if len(said) != 1 or "2 of the 3 threads" not in said[0]:
        sys.exit(f"a memory_counters in one of three threads: says {said}")
    if any(counters for _, counters, _, _ in rows_of(out, "json")):
        sys.exit(f"a memory_counters in one of three threads has figures: {out}")


def check_without_hook(program):
    for how, fields in (("none", []), ("registered", []), ("by_hand", MANAGED[:2])):
        out, said = run(program, how, "--benchmark_filter=^(three_blocks|no_allocation|set_up_untimed|without)", SHORT,
                        "--benchmark_format=json")
        rows = rows_of(out, "json")
        if len(said) != 1 or "tidemark/hook/global_new.hpp" not in said[0]:
            sys.exit(f"no hook, {how}: expected the reason once, got {said}")
        for name, counters, failed, row in rows:
            if failed or not row["real_time"] > 0:
                sys.exit(f"no hook, {how}: the timing of {name} is gone: {row}")
            # The library prints these two always: they may be anything that nobody takes for a figure.
            if sorted(counters) != sorted(fields) or any(v * MANAGER_ITERATIONS < UNSET for v in counters.values()):
                sys.exit(f"no hook, {how}: {name} has the figures {counters}")
        if len(rows) < 10:
            sys.exit(f"no hook, {how}: only {len(rows)} benchmarks were run")


def main(program, without_hook):
    with tempfile.TemporaryDirectory() as folder:
        check_reporters(program, pathlib.Path(folder))
    check_tabular(program)
    check_repetitions(program)
    for how in ("registered", "by_hand"):
        check_manager(program, how)
    check_missing_thread(program)
    check_without_hook(without_hook)
    print("the console, CSV and JSON reporters, two memory managers, and a program without a hook: no complaint")


if __name__ == "__main__":
    main(*sys.argv[1:])
