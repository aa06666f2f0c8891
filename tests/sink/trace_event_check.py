# SPDX-License-Identifier: MIT
"""Reads traces with Python's JSON parser, strictly, and compares each event with the records.

usage: trace_event_check.py PROGRAM, which is sink_files.
"""
import collections
import decimal
import json
import math
import pathlib
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from sink_files import controls_shown, is_known, records, written_by  # noqa: E402


def refuse(constant):
    raise ValueError(f"{constant} is no JSON")


def unique(pairs):
    assert len({key for key, _ in pairs}) == len(pairs), pairs
    return dict(pairs)


def finite(text):
    assert math.isfinite(float(text)), text
    return decimal.Decimal(text)


def load(path):
    return json.loads(path.read_bytes().decode("utf-8"), parse_constant=refuse, parse_float=finite,
                      object_pairs_hook=unique)


def ns(microseconds):
    value = decimal.Decimal(microseconds) * 1000
    assert value == int(value), microseconds
    return int(value)


def check_nesting(slices):
    """Each slice of a thread ends before the one it lies in."""
    by_thread = collections.defaultdict(list)
    for event in slices:
        start = ns(event["ts"])
        by_thread[event["pid"], event["tid"]].append((start, start + ns(event["dur"])))
    for thread, spans in by_thread.items():
        spans.sort(key=lambda span: (span[0], -span[1]))
        open_ends = []
        for start, end in spans:
            while open_ends and open_ends[-1] <= start:
                open_ends.pop()
            assert not open_ends or end <= open_ends[-1], (thread, start, end, open_ends)
            open_ends.append(end)
    return len(by_thread)


def key_of(name, thread, start_ns, duration_ns):
    return name, thread, start_ns, duration_ns


def check_scopes(events, scopes, has_figures):
    by_phase = collections.defaultdict(list)
    for event in events:
        by_phase[event["ph"]].append(event)
    slices = by_phase["X"]
    threads = check_nesting(slices)
    begins = {(e["cat"], e["id"]): e for e in by_phase["b"]}
    ends = {(e["cat"], e["id"]): e for e in by_phase["e"]}
    assert len(begins) == len(by_phase["b"]) and len(ends) == len(by_phase["e"]) and begins.keys() == ends.keys()
    found = {}
    for e in slices:
        found[key_of(e["name"], e["tid"], ns(e["ts"]), ns(e["dur"]))] = ("slice", e)
    for pair, b in begins.items():
        e = ends[pair]
        assert (b["name"], b["tid"], b["pid"]) == (e["name"], e["tid"], e["pid"])
        found[key_of(b["name"], b["tid"], ns(b["ts"]), ns(e["ts"]) - ns(b["ts"]))] = ("pair", b)
    assert len(found) == len(slices) + len(begins) == len(scopes), (len(found), len(slices), len(begins), len(scopes))
    kinds = collections.Counter()
    for scope in scopes:
        kind, event = found[key_of(scope["name"], scope["thread"], scope["start_ns"], scope["duration_ns"])]
        kinds[scope["name"].split(" ")[0] if scope["name"].startswith("nested") else scope["name"], kind] += 1
        assert event["pid"] == scope["pid"]
        if has_figures:
            args = dict(event["args"])
            assert args.pop("path") == scope["path"] and args.pop("owned_bytes") == scope["owned_bytes"]
            assert args == scope["meters"], (args, scope["meters"])
        else:
            assert "args" not in event
    assert ("nested", "pair") not in kinds and kinds["nested", "slice"] > 300, kinds
    assert kinds["elsewhere", "pair"] == 1 and ("elsewhere", "slice") not in kinds
    assert kinds["crossing", "pair"] > 50 and kinds["crossing", "slice"] > 50, kinds
    return f"{len(slices)} slices of {threads} threads nest, {len(begins)} pairs"


def check_counters(events, samples):
    found = collections.defaultdict(list)
    for e in events:
        if e["ph"] == "C":
            assert len(e["args"]) == 1
            found[e["name"]].append((ns(e["ts"]), *e["args"].values()))
    want = collections.defaultdict(list)

    def put(name, time_ns, value):
        if is_known(value):
            want[name].append((time_ns, value))

    for s in samples:
        if is_known(s["heap"]):
            put("heap", s["time_ns"], s["heap"]["live_bytes"])
        put("resident", s["time_ns"], s["resident_bytes"])
        put("limit", s["time_ns"], s["limit_bytes"])
        put("limit used", s["time_ns"], s["limit_used_bytes"])
        domains = collections.Counter()
        for d in s["domains"]:
            domains[controls_shown(d["name"])] += d["live_bytes"]
        for name, live in domains.items():
            put(f"domain {name}", s["time_ns"], live)
        for d in s["devices"]:
            name = controls_shown(d["uuid"] or d["name"])
            put(f"device {name} used", s["time_ns"], d["used_bytes"])
            put(f"device {name} of this process", s["time_ns"], d["process_bytes"])
        want["dropped records"].append((s["time_ns"], 0))
    assert found == want, {name: (found.get(name), want.get(name)) for name in found.keys() | want.keys()
                           if found.get(name) != want.get(name)}
    return f"{sum(map(len, found.values()))} values of {len(found)} counters agree"


def check_alerts(events, alerts):
    found = [(e["name"], ns(e["ts"]), e["args"]) for e in events if e["ph"] == "i" and e["s"] == "p"]
    assert found == [(a["name"], a["time_ns"], {k: a[k] for k in ("value_bytes", "threshold_bytes", "cleared")})
                     for a in alerts]
    return f"{len(found)} alerts agree"


def main():
    with written_by(sys.argv[1]) as directory:
        scopes = records(directory, "scope")
        for name, has_figures in (("trace.json", True), ("plain.json", False)):
            trace = load(directory / name)
            events = trace["traceEvents"]
            for e in events:
                assert e["ph"] in "MXbeCi" and type(e["pid"]) is int and ("ts" in e) == (e["ph"] != "M"), e
            print(name, check_scopes(events, scopes, has_figures), sep=": ")
            print(name, check_counters(events, records(directory, "sample")), sep=": ")
            print(name, check_alerts(events, records(directory, "alert")), sep=": ")
            names = {e["tid"] for e in events if e["ph"] == "M" and e["name"] == "thread_name"}
            assert names == {e["tid"] for e in events if e["ph"] == "X"}, names


if __name__ == "__main__":
    main()
