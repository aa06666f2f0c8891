# SPDX-License-Identifier: MIT
"""Makes up names that would break a row, lets csv_names write them, and reads the rows with Python's own csv module.

Each line of the file must be a whole row on its own, and no field may begin as a formula does.
"""
import csv
import pathlib
import random
import subprocess
import sys
import tempfile
import unicodedata

from json_check import ELLIPSIS, NAME_LIMIT, characters

COLUMNS = ["path", "name", "file", "line", "pid", "thread", "depth", "start_ns", "duration_ns", "exception", "owned_bytes",
           "owned_absent", "meter", "unit", "entry_bytes", "exit_bytes", "peak_bytes", "net_bytes", "peak_growth_bytes",
           "allocations", "deallocations", "allocated_bytes", "freed_bytes", "largest_bytes", "error_bound_bytes", "absent"]
TEXTS = ["path", "name", "file", "owned_absent", "meter", "unit", "absent"]
SIGNS = "=+-@\uff1d\uff0b\uff0d\uff20"


def hostile_names():
    names = [b"", b" ", b"plain", b",", b'"', b'""', b'","', b"',", b'a"b', b'"a', b'a"', b"a,b,c", b"\r\n", b"a\rb", b"\n",
             b"\t=1", b"\r=1", b" =1", b"'=1", b"=1+1", b"=1,2", b'=HYPERLINK("http://x","y")', b"-2", b"+3", b"@SUM(A1)",
             b"=cmd|' /C calc'!A0", b"-", b"1e5", b"NaN", b"true", b";=1", b"\\", b"\\,", b'\\"', b"#", b"\xef\xbb\xbf",
             b"\x1a", b"\0", b"a\0b", bytes(range(256)), b'"' * 10_000, b"," * 10_000, b"\n" * 10_000,
             "\u2028\u2029\u0085\x0b\x0c".encode(), "\uff1d1\u200b".encode()]
    names += [bytes([c]) for c in range(256)]
    names += [sign.encode() + tail for sign in SIGNS for tail in (b"", b"1", b",", b'"', b"\n", b"\xff")]
    dice = random.Random(1)
    likely = b'a",\r\n\t\';=+-@\\ \x1b\xc3\xa9\xe2\x80\xa8\xef\xbc\x9d\xc2\x85\xff'
    for _ in range(4_000):
        names.append(bytes(dice.choice(likely) if dice.random() < 0.8 else dice.randrange(256)
                           for _ in range(dice.randrange(20))))
    return names


def shown(raw):
    text = "".join("\\n" if c == "\n" else f"\\x{ord(c):02x}" if unicodedata.category(c) == "Cc" else c
                   for c in characters(raw))
    return "'" + text if text.startswith(tuple(SIGNS)) else text


def check_by_hand(raw, row):
    assert row["file"] == shown(raw.split(b"\0")[0])
    for key in ["path", "name", "owned_absent", "meter", "unit", "absent"]:
        assert row[key] == shown(raw), key
    assert not any(row[key] for key in ["owned_bytes"] + COLUMNS[14:-1])


def check_scope(raw, row):
    whole = raw
    if len(raw) > NAME_LIMIT:
        kept = raw[:NAME_LIMIT - len(ELLIPSIS)]
        (whole,) = [cut for cut in (kept[:len(kept) - back] + ELLIPSIS for back in range(4)) if shown(cut) == row["name"]][:1]
    assert row["name"] == shown(whole)
    assert row["path"] == shown(whole.replace(b"%", b"%25").replace(b"/", b"%2F"))
    assert row["file"].endswith("csv_names.cpp")
    assert row["meter"] == "thread_heap" and row["unit"] == "bytes"
    for key in ["owned_bytes"] + COLUMNS[14:-1]:
        assert row["absent"] or int(row[key]) >= 0  # a sanitizer's build may have no hook


def main():
    names = hostile_names()
    with tempfile.TemporaryDirectory() as directory:
        names_path, rows_path = pathlib.Path(directory, "names"), pathlib.Path(directory, "rows.csv")
        names_path.write_text("".join(f"{name.hex()}\n" for name in names))
        subprocess.run([sys.argv[1], names_path, rows_path], check=True)
        raw_lines = rows_path.read_bytes().split(b"\n")
        with rows_path.open(newline="", encoding="utf-8", errors="strict") as f:
            rows = list(csv.reader(f, strict=True))
    assert raw_lines.pop() == b"", "the last row is cut short"
    assert rows.pop(0) == COLUMNS, "the header is another"
    lines = [line.decode("utf-8") for line in raw_lines[1:]]
    assert len(rows) == len(lines) == 2 * len(names) > 8_000, (len(rows), len(lines), len(names))
    for number, (fields, line) in enumerate(zip(rows, lines)):
        raw, is_scope = names[number // 2], number % 2 == 1
        try:
            assert len(fields) == len(COLUMNS)
            assert not any(unicodedata.category(c) == "Cc" for c in line), "a control character"
            assert list(csv.reader([line], strict=True)) == [fields], "the line alone is another row"
            row = dict(zip(COLUMNS, fields))
            assert not any(row[key].startswith(tuple(SIGNS)) for key in TEXTS), "a formula"
            for key in COLUMNS[3:9]:
                assert str(int(row[key])) == row[key], key
            assert row["exception"] == "false"
            (check_scope if is_scope else check_by_hand)(raw, row)
        except Exception as error:
            sys.exit(f"row {number} ({raw[:60]!r}): {error!r}\n{line[:600]!r}")
    print(f"{len(rows)} rows agree with Python's parser")


if __name__ == "__main__":
    main()
