#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Runs an example and compares what it prints with a file, in which every duration reads <duration>.

usage: output_check.py EXPECTED PROGRAM [ARGUMENT...]
Exits with 77 where the build has no heap hook, and so no figures to compare.
"""
import difflib
import pathlib
import re
import subprocess
import sys

DURATION = re.compile(r"\b\d+(\.\d+)? (ns|us|ms|s)\b")


def main(expected_path, *command):
    run = subprocess.run(command, capture_output=True, text=True, timeout=120)
    if run.returncode != 0 or run.stderr:
        sys.exit(f"exit code {run.returncode}, standard error: {run.stderr!r}")
    printed = DURATION.sub("<duration>", run.stdout)
    if "thread_heap: absent (" in printed:
        print("skipped, no figures:", printed)
        sys.exit(77)
    expected = pathlib.Path(expected_path).read_text(encoding="utf-8")
    difference = difflib.unified_diff(expected.splitlines(), printed.splitlines(), "expected", "printed", lineterm="")
    sys.exit("\n".join(difference) or 0)


if __name__ == "__main__":
    main(*sys.argv[1:])
