#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Runs an example that threads or another library make vary, and checks what must be.

usage: seen_check.py PROGRAM; exits with 77 where the build has no heap hook, and so no figures.
"""
import pathlib
import re
import subprocess
import sys

sys.dont_write_bytecode = True
from summary_table import change, size, summary  # noqa: E402

KIB = 1024


def parsed(text):
    """The bytes that the summary wrote."""
    number, unit = text.lstrip("+").split(" ")
    return float(number) * {"B": 1, "KiB": KIB, "MiB": KIB ** 2}[unit]


def openmp_workers(printed, rows, domains):
    # 64 documents: a text of 4,096 numbers that goes, and 256 counts that stay.
    assert printed.startswith("128 allocations, 64.0 KiB kept, peak "), printed
    task, workers = rows["tokenize all"], rows["tokenize all/tokenize"]
    assert [task[0], task[2], *task[4:6]] == ["1", "task_heap", change(64 * KIB), "128"], task
    # No less than every count and the last text, no more than four texts at once.
    assert 80 * KIB <= parsed(task[3]) <= (64 + 4 * 16) * KIB, task
    assert [workers[0], *workers[2:6]] == ["64", "thread_heap", change(17 * KIB), change(64 * KIB), "128"], workers


def custom_pool(printed, rows, domains):
    # A slab of 65,536 bytes has 65 pieces of 1,008; 512 KiB are 8 slabs.
    slabs = [1, 4, 8, 8]
    pieces = [60, 200, 480, 8 * 65]
    assert "600 messages refused: domain \"arena slabs\" is over its limit: 64.0 KiB requested, " \
        "512.0 KiB of 512.0 KiB in use" in printed
    assert printed.count("near its limit: arena slabs, 384.0 KiB of 512.0 KiB") == 2
    assert f"at the peak {size(520 * 1000)} of pieces in 512.0 KiB of slabs; now 0 B in 0 B" in printed
    of_slabs, of_pieces = (rows["request", "domain:arena " + name] for name in ("slabs", "pieces"))
    assert of_slabs[1] == change(512 * KIB) and of_slabs[3] == f"{sum(slabs):,}", of_slabs
    assert of_pieces[1] == change(520 * 1000) and of_pieces[3] == f"{sum(pieces):,}", of_pieces
    assert domains["arena slabs"] == ["0 B", "512.0 KiB", "512.0 KiB", str(sum(slabs))], domains
    assert domains["arena pieces"] == ["0 B", size(520 * 1000), "-", f"{sum(pieces):,}"], domains


def eigen_seen(printed, rows, domains):
    matrix = 256 * 256 * 8
    assert rows["all/product"][4] == change(matrix), rows
    assert rows["all/solve"][4] == change(256 * 8), rows
    # What Eigen blocks its products by depends on the processor, but the same in both.
    with_temporary, without = (parsed(rows["all/" + name][3]) for name in ("sum += a * b", "sum.noalias() += a * b"))
    assert abs(with_temporary - without - matrix) <= 0.1 * KIB ** 2, rows
    assert "the sum of x is 128.0, that of the matrix 393216" in printed


def main(program):
    name = pathlib.Path(program).name
    run = subprocess.run([program], capture_output=True, text=True, timeout=120)
    if run.returncode != 0 or run.stderr:
        sys.exit(f"exit code {run.returncode}, standard error: {run.stderr!r}")
    if re.search(r"^\[1\] ", run.stdout, re.M):
        print("skipped, no figures:", run.stdout)
        sys.exit(77)
    try:
        globals()[name](run.stdout, *summary(run.stdout))
    except AssertionError:
        print(run.stdout)
        raise


if __name__ == "__main__":
    main(*sys.argv[1:])
