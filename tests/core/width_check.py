# SPDX-License-Identifier: MIT
"""Compares the columns that width_list prints with Python's Unicode tables, for every code point assigned there."""
import subprocess
import sys
import unicodedata

# Cf, and shown: the soft hyphen, and signs that stand around a number or a word (Prepended_Concatenation_Mark).
SHOWN = {0xAD, *range(0x600, 0x606), 0x6DD, 0x70F, 0x890, 0x891, 0x8E2, 0x110BD, 0x110CD}
# Vowels and finals of Hangul, Lo, which are drawn inside the syllable that an initial began.
JOINED = {*range(0x1160, 0x1200), *range(0xD7B0, 0xD800)}
# Became wide in Unicode 16 or marks of another kind since 14: either width will do.
CHANGED = {*range(0x2630, 0x2638), *range(0x268A, 0x2690), *range(0x4DC0, 0x4E00), *range(0x1D300, 0x1D380), 0x1171E}
KNOWN = (16, 0)


def expected(c):
    kind = unicodedata.category(chr(c))
    if c in JOINED or kind in ("Mn", "Me", "Cf") and c not in SHOWN:
        return 0
    return 2 if unicodedata.east_asian_width(chr(c)) in "WF" else 1


def main():
    printed = subprocess.run([sys.argv[1]], check=True, text=True, stdout=subprocess.PIPE).stdout.splitlines()
    columns = {int(c, 16): int(n) for c, n in map(str.split, printed)}
    assert len(columns) == 0x110000 - 0x800, len(columns)
    assigned = [c for c in columns if unicodedata.category(chr(c)) not in ("Cn", "Cc")]
    wrong = [c for c in assigned if columns[c] != expected(c) and c not in CHANGED]
    version = tuple(map(int, unicodedata.unidata_version.split(".")[:2]))
    if version > KNOWN:
        wrong = [c for c in wrong if expected(c) == 1]  # it may know more marks and more wide characters
    for c in wrong[:20]:
        print(f"U+{c:04X} {unicodedata.name(chr(c), '?')}: {columns[c]}, and {expected(c)} expected")
    print(f"{len(assigned)} code points of Unicode {unicodedata.unidata_version}, {len(wrong)} of another width")
    return 1 if wrong or len(assigned) < 200_000 else 0


if __name__ == "__main__":
    sys.exit(main())
