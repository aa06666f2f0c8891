# SPDX-License-Identifier: MIT
"""Has speedscope's importer read traces, and compares each frame that it finds with a slice.

usage: speedscope_check.py PROGRAM FOLDER: sink_files, and where npm may put the package. Exits with 77 where node, npm or the
package cannot be had.
"""
import collections
import json
import pathlib
import shutil
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.dont_write_bytecode = True
sys.path.insert(0, str(HERE))
from sink_files import skip, written_by  # noqa: E402

PACKAGE = "speedscope@1.25.0"  # its importer is taken out of its script, which the next version may name otherwise


def installed(folder):
    package = folder / "node_modules" / "speedscope"
    if not (package / "package.json").exists():
        folder.mkdir(parents=True, exist_ok=True)
        try:
            told = subprocess.run(["npm", "install", "--no-audit", "--no-fund", "--no-package-lock", "--ignore-scripts",
                                   "--prefix", folder, PACKAGE], capture_output=True, text=True, timeout=120)
        except subprocess.TimeoutExpired:
            skip("npm does not answer")
        if told.returncode != 0:
            skip(f"npm cannot install {PACKAGE}: {(told.stderr.strip().splitlines() or ['no reason'])[-1]}")
    version = json.loads((package / "package.json").read_text())["version"]
    if not PACKAGE.endswith("@" + version):
        skip(f"{package} is version {version}, and not {PACKAGE}")
    return package


def slices_of(trace):
    """Of each thread in order of their beginning, from its first one on: name, start, end, depth."""
    threads = collections.defaultdict(list)
    for e in trace["traceEvents"]:
        if e["ph"] == "X":
            threads[e["tid"]].append(e)
    found = {}
    for thread, events in threads.items():
        first = min(e["ts"] for e in events)
        calls, ends = [], []
        for e in sorted(events, key=lambda e: (e["ts"], -e["dur"])):
            start, end = e["ts"] - first, e["ts"] - first + e["dur"]
            while ends and ends[-1] <= start + 1e-4:
                ends.pop()
            calls.append((e, start, end, len(ends)))
            ends.append(end)
        found[thread] = calls
    return found


def check(package, path, has_figures):
    told = subprocess.run(["node", HERE / "speedscope_import.js", package, path], capture_output=True, text=True)
    assert told.returncode == 0 and not told.stderr, told.stderr[-2000:]
    profiles = json.loads(told.stdout)
    want = slices_of(json.loads(path.read_text()))
    assert len(profiles) == len(want), (len(profiles), len(want))
    frames = 0
    for thread, calls in want.items():
        (profile,) = [p for p in profiles if p["name"].endswith(f"(tid {thread})")]
        assert profile["unit"] == "microseconds" and len(profile["calls"]) == len(calls)
        for call, (event, start, end, depth) in zip(profile["calls"], calls):
            name = event["name"] or "(unnamed)"
            assert call["name"].startswith(name + " {") if has_figures else call["name"] == name, (call, event)
            # Its times are sums of differences of numbers as large as the clock's.
            assert abs(call["start"] - start) < 0.01 and abs(call["end"] - end) < 0.01 and call["depth"] == depth, (call, event)
            frames += 1
    print(f"{path.name}: speedscope finds the {frames} slices of {len(want)} threads")


def main():
    for tool in ("node", "npm"):
        if shutil.which(tool) is None:
            skip(f"{tool} is not installed")
    package = installed(pathlib.Path(sys.argv[2]).resolve())
    with written_by(sys.argv[1]) as directory:
        check(package, directory / "plain.json", False)
        check(package, directory / "trace.json", True)


if __name__ == "__main__":
    main()
