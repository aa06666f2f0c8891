# SPDX-License-Identifier: MIT
"""What the checks of files share: the program that writes them, its records, and how a name looks in a file."""
import contextlib
import json
import pathlib
import subprocess
import sys
import tempfile

SKIP = 77


def skip(why):
    print(f"skipped: {why}")
    sys.exit(SKIP)


@contextlib.contextmanager
def written_by(program):
    """The folder that the program wrote its files to."""
    with tempfile.TemporaryDirectory() as directory:
        subprocess.run([program, directory], check=True)
        yield pathlib.Path(directory)


def records(directory, kind):
    """Those of a type, in the order of their writing, with strict UTF-8 and JSON."""
    text = (directory / "records.jsonl").read_bytes().decode("utf-8")
    found = [json.loads(line) for line in text.split("\n")[:-1]]
    return [record for record in found if record["type"] == kind]


def is_known(value):
    return not (isinstance(value, dict) and "absent" in value)


def controls_shown(name, keep_newline=False):
    """As a person reads it: control characters as \\x1b, also a newline as \\n unless it is kept."""
    out = []
    for c in name:
        if c == "\n":
            out.append("\n" if keep_newline else "\\n")
        elif ord(c) < 0x20 or ord(c) == 0x7F or (0x80 <= ord(c) < 0xA0 and not keep_newline):
            out.append(f"\\x{ord(c):02x}")
        else:
            out.append(c)
    return "".join(out)
