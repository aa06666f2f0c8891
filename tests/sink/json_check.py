# SPDX-License-Identifier: MIT
"""Runs json_names and reads its lines with Python's own JSON parser and UTF-8 decoder.

A name comes back as its characters, with one U+FFFD for each byte that belongs to none. (Python's 'replace' gives one for
each maximal subpart, so names are decoded character by character here.)
"""
import functools
import json
import pathlib
import subprocess
import sys
import tempfile

NAME_LIMIT = 255
ELLIPSIS = "\u2026".encode()
NUMBERS = ["line", "pid", "thread", "depth", "start_ns", "duration_ns"]
USAGE = ["entry_bytes", "exit_bytes", "peak_bytes", "net_bytes", "peak_growth_bytes", "allocations", "deallocations",
         "allocated_bytes", "freed_bytes", "largest_bytes", "error_bound_bytes"]


@functools.lru_cache
def characters(raw):
    text, at = [], 0
    while at < len(raw):
        for length in range(1, 5):
            try:
                character = raw[at:at + length].decode("utf-8")
            except UnicodeDecodeError:
                continue
            if len(character) == 1:
                text.append(character)
                at += length
                break
        else:
            text.append("\ufffd")
            at += 1
    return "".join(text)


def unique(pairs):
    keys = [key for key, _ in pairs]
    assert len(keys) == len(set(keys)), f"a key twice in {keys}"
    return dict(pairs)


def refuse(constant):
    raise ValueError(constant)


def check(kind, raw, record):
    assert record["type"] == "scope"
    for key in NUMBERS:
        assert type(record[key]) is int, key
    assert record["exception"] is False
    if kind == "hand":
        assert record["name"] == record["path"] == characters(raw)
        assert record["file"] == characters(raw.split(b"\0")[0])
        assert record["owned_bytes"] == {"absent": "not asked"}
        assert record["meters"] == {characters(raw): {"absent": characters(raw)}}
        return
    kept = raw
    if len(raw) > NAME_LIMIT:
        assert record["name"].encode().endswith(ELLIPSIS)
        kept = raw[:NAME_LIMIT - len(ELLIPSIS)]
        cuts = [kept[:len(kept) - back] + ELLIPSIS for back in range(4)]
        (kept,) = [cut for cut in cuts if characters(cut) == record["name"]][:1]
    assert record["name"] == characters(kept)
    assert record["path"] == characters(kept.replace(b"%", b"%25").replace(b"/", b"%2F"))
    assert record["file"].endswith("json_names.cpp")
    assert type(record["owned_bytes"]) is int
    usage = record["meters"]["thread_heap"]
    if "absent" not in usage:  # a sanitizer's build may have no hook
        assert list(usage) == USAGE and all(type(n) is int for n in usage.values())


def main():
    with tempfile.TemporaryDirectory() as directory:
        lines_path = pathlib.Path(directory, "lines.jsonl")
        names_path = pathlib.Path(directory, "names")
        subprocess.run([sys.argv[1], lines_path, names_path], check=True)
        lines = lines_path.read_bytes().split(b"\n")
        names = names_path.read_text().splitlines()
    assert lines.pop() == b"", "the last line is cut short"
    assert len(lines) == len(names) > 4_000, (len(lines), len(names))
    for number, (line, name) in enumerate(zip(lines, names)):
        kind, _, digits = name.partition(" ")
        raw = bytes.fromhex(digits)
        try:
            # Strict: valid UTF-8, no raw control character, no key twice, no NaN.
            record = json.loads(line.decode("utf-8"), object_pairs_hook=unique, parse_constant=refuse)
            check(kind, raw, record)
        except Exception as error:
            sys.exit(f"line {number} ({kind}, {raw[:60]!r}): {error!r}\n{line[:600]!r}")
    print(f"{len(lines)} lines agree with Python's parser")


if __name__ == "__main__":
    main()
