# SPDX-License-Identifier: MIT
"""Runs baseline_names and reads its file with Python's own JSON parser; then has it read what Python's writer makes.

Every name comes back as its characters, with its figures, one entry a line, sorted by the bytes of the names.
"""
import json
import pathlib
import subprocess
import sys
import tempfile

FIGURES = ["peak_growth_bytes", "allocations", "allocated_bytes"]


def unique(pairs):
    keys = [key for key, _ in pairs]
    assert len(keys) == len(set(keys)), f"a key twice in {keys}"
    return dict(pairs)


def refuse(constant):
    raise ValueError(constant)


def parse(text):
    # Strict: no raw control character, no key twice, no NaN.
    return json.loads(text, object_pairs_hook=unique, parse_constant=refuse)


def read_names(path):
    """What the program says it wrote, in its order."""
    names = {}
    for line in path.read_text().splitlines():
        digits, *figures = line.split(" ")
        names[bytes.fromhex(digits).decode("utf-8")] = dict(zip(FIGURES, map(int, figures)))
    return names


def main():
    program = sys.argv[1]
    with tempfile.TemporaryDirectory() as directory:
        path, names_path = pathlib.Path(directory, "baselines.json"), pathlib.Path(directory, "names")
        subprocess.run([program, path, names_path], check=True)
        raw = path.read_bytes()
        expected = read_names(names_path)
        text = raw.decode("utf-8")  # strict: valid UTF-8
        found = parse(text)
        assert len(expected) > 250, len(expected)
        assert found == expected, sorted(set(found) ^ set(expected))[:3]
        assert all(list(entry) == FIGURES for entry in found.values()), "the order of the figures"
        assert list(found) == sorted(found, key=lambda name: name.encode("utf-8")), "the order of the names"

        lines = raw.split(b"\n")
        assert lines[0] == b"{" and lines[-2:] == [b"}", b""], (lines[0], lines[-2:])
        entries = lines[1:-2]
        assert len(entries) == len(expected), "an entry is more or less than a line"
        for number, line in enumerate(entries):
            assert line.startswith(b'  "') and line.endswith(b"}," if number < len(entries) - 1 else b"}"), line[:200]
            assert len(parse("{" + line.decode("utf-8").rstrip(",") + "}")) == 1

        # The other way round: what Python writes, indented or not, escaped or not, in any order, is read as it was meant.
        backwards = dict(reversed(list(expected.items())))
        for options in ({}, {"indent": 4}, {"ensure_ascii": False}, {"separators": (",", ":")}, {"indent": "\t"}):
            path.write_text(json.dumps(backwards, **options), encoding="utf-8")
            subprocess.run([program, "--compare", path, names_path], check=True)
            # An update makes the same file of it, byte by byte.
            subprocess.run([program, path, names_path], check=True)
            assert path.read_bytes() == raw, options
    print(f"{len(expected)} names agree with Python's parser and writer")


if __name__ == "__main__":
    main()
