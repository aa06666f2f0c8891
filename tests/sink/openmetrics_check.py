# SPDX-License-Identifier: MIT
"""Has prometheus_client's OpenMetrics parser and promtool read metrics, and compares each value with the records.

usage: openmetrics_check.py PROGRAM, which is sink_files; run by the interpreter that the system's packages belong to. Exits
with 77 where neither reader is installed.
"""
import collections
import pathlib
import re
import shutil
import subprocess
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from sink_files import controls_shown, is_known, records, skip, written_by  # noqa: E402

try:
    from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
    from prometheus_client.parser import text_string_to_metric_families as parse_prometheus
except ImportError:
    parse_openmetrics = None

PROCESS = {"heap_live_bytes": ("heap", "live_bytes"), "heap_peak_bytes": ("heap", "peak_bytes"),
           "heap_error_bound_bytes": ("heap", "error_bound_bytes"), "heap_live_blocks": ("heap", "live_blocks"),
           "heap_allocated_bytes_total": ("heap", "allocated_bytes"), "heap_freed_bytes_total": ("heap", "freed_bytes"),
           "heap_allocations_total": ("heap", "allocations"), "heap_deallocations_total": ("heap", "deallocations"),
           "process_resident_bytes": ("resident_bytes",), "memory_limit_bytes": ("limit_bytes",),
           "memory_limit_used_bytes": ("limit_used_bytes",)}
OWN = re.compile(r"tidemark_(build_info|own_bytes|stamp_bytes|dropped_records|foreign_frees|label_values_dropped)")


def label(name):
    return controls_shown(name, keep_newline=True)


def unique(name, taken):
    found, n = name, 2
    while found in taken:
        found, n = f"{name} ({n})", n + 1
    return found


def expected(directory):
    """Every series and its value, computed from the records."""
    values = {}

    def put(series, value, **labels):
        if is_known(value):
            values[f"tidemark_{series}", frozenset(labels.items())] = value

    sample = records(directory, "sample")[-1]
    for name, keys in PROCESS.items():
        value = sample
        for key in keys:
            value = value[key] if is_known(value) else value
        put(name, value, **({"source": "cgroup_v2"} if "limit" in name else {}))
    domains = collections.defaultdict(list)
    for domain in sample["domains"]:
        domains[label(domain["name"])].append(domain)
    for name, those in domains.items():
        put("domain_live_bytes", sum(d["live_bytes"] for d in those), domain=name)
        if len(those) == 1:
            put("domain_peak_bytes", those[0]["peak_bytes"], domain=name)
        if all(is_known(d["limit_bytes"]) for d in those):
            put("domain_limit_bytes", sum(d["limit_bytes"] for d in those), domain=name)
    devices = {}
    for device in sample["devices"]:
        devices[unique(label(device["uuid"] or device["name"]), devices)] = device
    for name, device in devices.items():
        for what in ("total", "used", "process"):
            put(f"device_{what}_bytes", device[f"{what}_bytes"], device=name, name=label(device["name"]))
    scopes = collections.defaultdict(list)
    for scope in records(directory, "scope"):
        scopes[label(scope["path"])].append(scope)
    for path, those in scopes.items():
        put("scope_calls_total", len(those), path=path)
        put("scope_duration_seconds_total", sum(s["duration_ns"] for s in those) / 1e9, path=path)
        peaks = collections.defaultdict(list)
        for scope in those:
            for meter, usage in scope["meters"].items():
                if is_known(usage):
                    peaks[meter].append(usage["peak_growth_bytes"])
        for meter, grown in peaks.items():
            put("scope_peak_growth_bytes", max(grown), path=path, meter=meter)
    for alert in records(directory, "alert"):
        put("alert_active", 0 if alert["cleared"] else 1, alert=label(alert["name"]))
    return values


def compare(families, want, what):
    seen = {}
    for family in families:
        for sample in family.samples:
            series = sample.name, frozenset(sample.labels.items())
            assert series not in seen, f"{what}: {series} twice"
            assert sample.timestamp is None
            seen[series] = sample.value
    own = {series for series in seen if OWN.match(series[0])}
    assert len(own) == 10, own
    assert seen.keys() - own == want.keys(), (what, (seen.keys() - own) ^ want.keys())
    for series, value in want.items():
        assert abs(seen[series] - value) <= 1e-12 * abs(value), (what, series, seen[series], value)
    return len(want)


def main():
    if parse_openmetrics is None and shutil.which("promtool") is None:
        skip("neither prometheus_client nor promtool is installed (python3-prometheus-client, prometheus)")
    with written_by(sys.argv[1]) as directory:
        # Another line end than "\n" is a part of a label, and must come through.
        openmetrics = (directory / "metrics.om").read_bytes().decode("utf-8")
        prometheus = (directory / "metrics_now.prom").read_bytes().decode("utf-8")
        if parse_openmetrics is None:
            print("skipped: prometheus_client is not installed (python3-prometheus-client)")
        else:
            want = expected(directory)
            print(compare(parse_openmetrics(openmetrics), want, "OpenMetrics"), "series of OpenMetrics agree")
            print(compare(parse_prometheus(prometheus), want, "Prometheus"), "series of the Prometheus format agree")
            try:
                list(parse_openmetrics(openmetrics.replace("# EOF\n", "")))
            except ValueError:
                pass
            else:
                sys.exit("the parser accepts a page that is cut short: it proves nothing")
        if shutil.which("promtool") is None:
            print("skipped: promtool is not installed (prometheus)")
        else:
            told = subprocess.run(["promtool", "check", "metrics"], input=prometheus.encode(), capture_output=True)
            assert told.returncode == 0 and not told.stdout + told.stderr, told
            print("promtool has nothing to say")


if __name__ == "__main__":
    main()
