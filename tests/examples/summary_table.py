# SPDX-License-Identifier: MIT
"""Reads the table of a summary_sink back."""
import math
import re


def size(count):
    """A number of bytes as the summary writes it."""
    for unit in ("B", "KiB", "MiB"):
        if abs(count) < 1024 or unit == "MiB":
            tenths = math.floor(abs(count) * 10 + 0.5)  # a half goes up
            return f"{count} B" if unit == "B" else f"{'-' * (count < 0)}{tenths // 10}.{tenths % 10} {unit}"
        count /= 1024


def change(count):
    return ("+" if count >= 0 else "") + size(count)


def summary(text):
    """The rows of the scopes by path: calls, time, meter, peak growth, net, allocations, still owned, without notes. A meter
    after a path's first has a row of its own, with the path and the meter as its name. And the rows of the domains by name."""
    lines = text[text.index("tidemark summary"):].splitlines()
    first = next(i for i, line in enumerate(lines) if line.startswith("scope "))
    meter_column = lines[first].index("meter")
    rows, names = {}, []
    end = lines.index("", first)
    for line in lines[first + 1:end]:
        cells = [cell for cell in re.split(r"  +", line.strip()) if not cell.startswith("each within")]
        if line[:meter_column].strip() == "":
            rows["/".join(names), cells[0]] = cells
            continue
        names[(len(line) - len(line.lstrip())) // 2:] = [cells[0]]
        rows["/".join(names)] = cells[1:]
    domains = {}
    first = next((i for i, line in enumerate(lines) if line.startswith("domain ")), None)
    if first is not None:
        for line in lines[first + 1:lines.index("", first)]:
            name, *cells = re.split(r"  +", line)
            domains[name] = cells
    return rows, domains
