# SPDX-License-Identifier: MIT
"""Has mprof read a .dat file, by its own reader and by `mprof peak`, and compares each value with the records.

usage: mprof_check.py PROGRAM, which is sink_files; run by the interpreter that the system's packages belong to. Exits with 77
where memory_profiler is not installed.
"""
import collections
import pathlib
import re
import shutil
import subprocess
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from sink_files import is_known, records, skip, written_by  # noqa: E402

try:
    from mprof import read_mprofile_file
except ImportError:
    skip("memory_profiler is not installed (python3-memory-profiler)")

MEBIBYTE = 1 << 20
CUT = 1.5e-6  # MiB: six digits, cut and not rounded


def word(path):
    return re.sub(r"[\x00-\x20\x7f]", "_", path) or "(unnamed)"


def main():
    command = shutil.which("mprof") or shutil.which("python3-mprof")
    with written_by(sys.argv[1]) as directory:
        path = directory / "run.dat"
        read = read_mprofile_file(path)
        samples = [s for s in records(directory, "sample") if is_known(s["resident_bytes"])]
        assert 20 < len(samples) == len(read["mem_usage"]) == len(read["timestamp"])
        offset = read["timestamp"][0] - samples[0]["time_ns"] / 1e9
        for sample, mebibytes, time in zip(samples, read["mem_usage"], read["timestamp"]):
            assert abs(sample["resident_bytes"] / MEBIBYTE - mebibytes) < CUT
            assert abs(sample["time_ns"] / 1e9 + offset - time) < 2e-4
        scopes = [s for s in records(directory, "scope") if is_known(s["meters"].get("resident", {"absent": ""}))]
        assert len(scopes) > 10, len(scopes)
        found = collections.defaultdict(list)
        for name, calls in read["func_timestamp"].items():
            for start, end, entry, exit_, level in calls:
                found[name].append((start, end, entry, exit_, level))
        for scope in scopes:
            usage = scope["meters"]["resident"]
            start = scope["start_ns"] / 1e9 + offset
            assert any(abs(call[0] - start) < 2e-4 and abs(call[1] - start - scope["duration_ns"] / 1e9) < 4e-4 and
                       abs(call[2] - usage["entry_bytes"] / MEBIBYTE) < CUT and
                       abs(call[3] - usage["exit_bytes"] / MEBIBYTE) < CUT and call[4] == scope["depth"]
                       for call in found[word(scope["path"])]), (scope, found[word(scope["path"])])
        # The other scopes after the first sample have the figure of the sample before them.
        known = {round(m, 6) for m in read["mem_usage"]}
        nested = [call for name, calls in found.items() if name.startswith("nested_main/nested_3") for call in calls]
        assert nested and all(round(call[2], 6) in known and call[2] == call[3] for call in nested)
        assert sys.argv[1] in read["cmd_line"], read["cmd_line"]
        print(f"{len(samples)} samples and {sum(map(len, found.values()))} brackets agree")
        if command is None:
            print("skipped: there is no mprof command")
            return
        told = subprocess.run([command, "peak", path], capture_output=True, text=True, check=True).stdout
        peak = max(s["resident_bytes"] for s in samples) / MEBIBYTE
        assert told.split("\t")[1] == f"{int(peak * 1e6) / 1e6:.3f} MiB\n", (told, peak)
        print("mprof peak says", told.split("\t")[1].strip())


if __name__ == "__main__":
    main()
