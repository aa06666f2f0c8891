#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Starts the inference server on free ports, asks it for digits, and reads what it tells of its memory: with
prometheus_client's parser, with a real Prometheus that scrapes it, from its log, and from its verdict on growth.

usage: inference_server_check.py PROGRAM DIGITS_CSV; run by the interpreter that the system's packages belong to.
Exits with 77 where the build has no heap hook, or one of the readers is not installed, after the checks that need none.
"""
import concurrent.futures
import http.client
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest
import urllib.parse

try:
    from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
except ImportError:
    parse_openmetrics = None

PROGRAM, DATA = (pathlib.Path(argument).resolve() for argument in sys.argv[1:3])
LINES = DATA.read_text().splitlines()
IMAGES = [line.rpartition(",")[0] for line in LINES]
LABELS = [int(line.rpartition(",")[2]) for line in LINES]
HELD_OUT = range(4, len(LINES), 5)
LEARNT = [i for i in range(len(LINES)) if i % 5 != 4]

NUMBER = 4  # bytes of a float
DISTANCES = len(LEARNT) * NUMBER
VECTOR = 24  # bytes of a std::vector, which a std::deque keeps
SAMPLES, REQUESTS_PER_SAMPLE = 60, 10
DEADLINE_S = 100
OPENMETRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"


def wait_for(what, question, process=None):
    """The first answer that is not None. A process that is asked must not end meanwhile."""
    deadline = time.monotonic() + DEADLINE_S
    while time.monotonic() < deadline:
        answer = question()
        if answer is not None:
            return answer
        if process is not None and process.poll() is not None:
            raise AssertionError(f"{what}: it ended with {process.returncode}")
        time.sleep(0.02)  # between two questions
    raise AssertionError(f"{what}: not within {DEADLINE_S} s")


def ask(port, method, path, body=None):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=DEADLINE_S)
    try:
        connection.request(method, path, body)
        response = connection.getresponse()
        return response.status, response.headers.get("Content-Type"), response.read().decode("utf-8")
    finally:
        connection.close()


class Server:
    """A server that runs, and ends well, within a `with`."""

    def __init__(self, *options, end_by=signal.SIGTERM):
        self.options, self.end_by = options, end_by

    def __enter__(self):
        self.errors = tempfile.TemporaryFile("w+")
        self.process = subprocess.Popen([PROGRAM, "--port", "0", "--data", DATA, *self.options],
                                        stdout=subprocess.PIPE, stderr=self.errors, text=True)
        self.first_line = self.process.stdout.readline()
        found = re.fullmatch(r"listening on http://127\.0\.0\.1:(\d+) with (\d+) digits\n", self.first_line)
        assert found, (self.first_line, self.log())
        self.port = int(found.group(1))
        self.learnt = int(found.group(2))
        return self

    def __exit__(self, kind, *_):
        if self.process.poll() is None:
            self.process.send_signal(self.end_by)
        try:
            self.process.wait(DEADLINE_S)
        finally:
            self.process.kill()
            self.process.stdout.close()
        if kind is None:
            assert self.process.returncode == 0, (self.process.returncode, self.log())
        self.errors.close()

    def log(self):
        return os.pread(self.errors.fileno(), 1 << 20, 0).decode("utf-8")

    def predict(self, images):
        status, _, text = ask(self.port, "POST", "/predict", "\n".join(images))
        assert status == 200, (status, text)
        return [int(line) for line in text.splitlines()]

    def metrics(self):
        status, content_type, text = ask(self.port, "GET", "/metrics")
        assert (status, content_type) == (200, OPENMETRICS), (status, content_type)
        return text

    def memory(self):
        status, _, text = ask(self.port, "GET", "/memory")
        assert status == 200, (status, text)
        return text


def values(metrics):
    """Each series as it is written, and its value."""
    pairs = (line.rpartition(" ") for line in metrics.splitlines() if not line.startswith("#"))
    return {series: float(value) for series, _, value in pairs}


def nearest(image):
    """What the model must answer: the label of the image that differs least, the first of equal ones."""
    numbers = [[int(pixel) for pixel in IMAGES[i].split(",")] for i in LEARNT]
    asked = [int(pixel) for pixel in image.split(",")]
    found = min(range(len(LEARNT)), key=lambda row: sum((a - b) ** 2 for a, b in zip(asked, numbers[row])))
    return LABELS[LEARNT[found]]


class Answers(unittest.TestCase):
    def test_digits_that_were_learnt_and_digits_that_were_not_are_told(self):
        with Server("--workers", "3") as server:
            self.assertEqual(server.learnt, len(LEARNT))
            self.assertEqual(server.predict([IMAGES[i] for i in LEARNT]), [LABELS[i] for i in LEARNT])
            with concurrent.futures.ThreadPoolExecutor(8) as pool:  # more at once than there are workers
                answers = [answer[0] for answer in pool.map(lambda i: server.predict([IMAGES[i]]), HELD_OUT)]
            right = sum(answer == LABELS[i] for answer, i in zip(answers, HELD_OUT))
            self.assertGreater(right / len(HELD_OUT), 0.97)
            self.assertEqual(answers[:20], [nearest(IMAGES[i]) for i in HELD_OUT[:20]])

    def test_what_is_no_image_is_refused_and_the_next_request_answered(self):
        with Server() as server:
            for body in ("1,2,3", IMAGES[0] + ",1", IMAGES[0].replace("13", "17"), "\n" + IMAGES[0],
                         IMAGES[0].replace(",", ";")):
                status, _, text = ask(server.port, "POST", "/predict", body)
                self.assertEqual((status, text), (400, "a line is 64 numbers from 0 to 16, with commas between them\n"))
            self.assertEqual(ask(server.port, "POST", "/predict", ",".join(["0"] * 1_000_000))[0], 413)
            self.assertEqual(ask(server.port, "GET", "/nothing")[0], 404)
            self.assertEqual(server.predict([]), [])
            self.assertEqual(server.predict(IMAGES[:3]), LABELS[:3])

    def test_it_ends_well_by_a_signal_while_a_client_stays_connected(self):
        for end_by in (signal.SIGTERM, signal.SIGINT):
            with Server(end_by=end_by) as server:
                connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=DEADLINE_S)
                connection.request("GET", "/memory")
                self.assertEqual(connection.getresponse().status, 200)
            connection.close()

    def test_what_it_cannot_do_it_says(self):
        def told(*options):
            done = subprocess.run([PROGRAM, *options], capture_output=True, text=True, timeout=DEADLINE_S)
            self.assertEqual(done.stdout, "")
            return done.returncode, done.stderr.splitlines()[0]

        self.assertEqual(told("--workers", "0"), (2, "inference_server: wrong argument: --workers"))
        self.assertEqual(told("--port"), (2, "inference_server: wrong argument: --port"))
        self.assertEqual(told("--alert", "much"), (2, "inference_server: wrong argument: --alert"))
        self.assertEqual(told("--loud"), (2, "inference_server: wrong argument: --loud"))
        self.assertEqual(told("--data", "none.csv"), (1, "inference_server: none.csv cannot be opened"))
        self.assertEqual(told("--data", PROGRAM)[0], 1)
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            port = str(taken.getsockname()[1])
            self.assertEqual(told("--data", DATA, "--port", port), (1, f"inference_server: port {port} is not free"))


class Figures(unittest.TestCase):
    """What is told of a server without a leak; /memory alone takes samples."""

    @classmethod
    def setUpClass(cls):
        cls.server = Server("--interval", "0").__enter__()
        cls.addClassCleanup(cls.server.__exit__, None)
        for i in HELD_OUT[:25]:
            cls.server.predict([IMAGES[i]] * 2)
        cls.table = cls.server.memory()
        cls.text = cls.server.metrics()
        cls.values = values(cls.text)

    def need_heap(self):
        if "tidemark_heap_live_bytes" not in self.values:
            self.skipTest("this build has no heap hook")

    def test_the_metrics_tell_the_requests_the_model_and_the_limit(self):
        told = self.values
        self.assertEqual(told['tidemark_scope_calls_total{path="predict"}'], 25)
        self.assertEqual(told['tidemark_scope_calls_total{path="predict/distances"}'], 50)
        self.assertEqual(told['tidemark_domain_live_bytes{domain="model"}'], len(LEARNT) * 64 * NUMBER)
        self.assertGreater(told["tidemark_process_resident_bytes"], len(LEARNT) * 64 * NUMBER)
        self.assertTrue([series for series in told if series.startswith("tidemark_memory_limit_bytes{source=")])

    def test_a_request_needs_its_distances(self):
        self.need_heap()
        needed = 'tidemark_scope_peak_growth_bytes{path="predict/distances",meter="thread_heap"}'
        self.assertEqual(self.values[needed], DISTANCES)
        self.assertGreater(self.values["tidemark_heap_live_bytes"], len(LEARNT) * 64 * NUMBER)

    def test_the_page_on_memory_tells_verdict_and_owners(self):
        self.assertIn("growth: cannot tell (fewer than 30 samples; 1 samples of the ", self.table)
        self.assertRegex(self.table, r"\n  = in all +[\d.]+ MiB\n")
        self.assertRegex(self.table, r"\n  model +359.5 KiB\n")
        self.need_heap()
        self.assertRegex(self.table, r"\n  learn +36\d.\d KiB\n")

    def test_the_openmetrics_parser_of_prometheus_client_accepts_the_metrics(self):
        if parse_openmetrics is None:
            self.skipTest("prometheus_client is not installed (python3-prometheus-client)")
        parsed = [sample for family in parse_openmetrics(self.text) for sample in family.samples]
        self.assertEqual(sorted(sample.value for sample in parsed), sorted(self.values.values()))
        calls = [s.value for s in parsed if (s.name, s.labels) == ("tidemark_scope_calls_total", {"path": "predict"})]
        self.assertEqual(calls, [25])

    def test_a_prometheus_scrapes_it_and_a_query_returns_the_value(self):
        self.need_heap()
        program = shutil.which("prometheus")
        if program is None:
            self.skipTest("Prometheus is not installed (prometheus)")
        with tempfile.TemporaryDirectory() as folder:
            process, port = self.started_prometheus(program, pathlib.Path(folder))
            try:
                # Nobody takes a sample meanwhile: what the server told must come back, to the byte.
                for series in ("tidemark_heap_live_bytes", 'tidemark_scope_calls_total{path="predict"}',
                               'tidemark_domain_live_bytes{domain="model"}'):
                    value = wait_for(f"Prometheus knows {series}", lambda: self.queried(port, series), process)
                    self.assertEqual(value, self.values[series])
                wait_for("Prometheus finds it up", lambda: self.queried(port, 'up{job="digits"}') == 1 or None, process)
            finally:
                process.terminate()
                process.wait(DEADLINE_S)

    def started_prometheus(self, program, folder):
        """One that listens. The port is free when it is chosen; where another takes it, there is another try."""
        (folder / "prometheus.yml").write_text(f"""
global: {{scrape_interval: 200ms, scrape_timeout: 200ms}}
scrape_configs:
  - job_name: digits
    static_configs: [{{targets: ['127.0.0.1:{self.server.port}']}}]
""")
        for _ in range(5):
            with socket.socket() as free:
                free.bind(("127.0.0.1", 0))
                port = free.getsockname()[1]
            log = (folder / "log").open("w+")
            process = subprocess.Popen(
                [program, f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/data",
                 f"--web.listen-address=127.0.0.1:{port}"], stdout=log, stderr=subprocess.STDOUT)
            self.addCleanup(log.close)
            self.addCleanup(process.kill)
            ended_or_ready = wait_for("Prometheus is ready", lambda: self.ready(process, port))
            if ended_or_ready == "ready":
                return process, port
        self.fail("Prometheus does not start:\n" + (folder / "log").read_text())

    @staticmethod
    def ready(process, port):
        if process.poll() is not None:
            return "ended"
        try:
            return "ready" if ask(port, "GET", "/-/ready")[0] == 200 else None
        except OSError:
            return None

    @staticmethod
    def queried(port, series):
        path = "/api/v1/query?" + urllib.parse.urlencode({"query": series})
        status, _, text = ask(port, "GET", path)
        found = json.loads(text)["data"]["result"] if status == 200 else []
        return float(found[0]["value"][1]) if found else None


class Thread(unittest.TestCase):
    def test_the_monitor_samples_by_itself_and_answers_a_signal(self):
        with Server("--interval", "5") as server:
            told = wait_for("a sample", lambda: values(server.metrics()).get("tidemark_process_resident_bytes"))
            self.assertGreater(told, len(LEARNT) * 64 * NUMBER)
            samples = re.compile(r"(\d+) samples of the ")
            wait_for("50 samples", lambda: int(samples.search(server.memory()).group(1)) >= 50 or None)
            server.process.send_signal(signal.SIGUSR1)
            title = f"tidemark: where the memory of process {server.process.pid} is, "
            wait_for("a dump", lambda: title in server.log() or None, server.process)
            self.assertEqual(server.predict(IMAGES[:3]), LABELS[:3])


class Growth(unittest.TestCase):
    """The same requests to a server that leaks and to one that does not. Their time is the number of requests."""

    @classmethod
    def setUpClass(cls):
        with Server("--interval", "0", "--time-by-requests") as server:
            first = cls.heap_after(server, 1)
            if first is None:
                raise unittest.SkipTest("this build has no heap hook")
            # In the last quarter of the leak, when there are samples enough for a verdict.
            cls.alert_bytes = int(first + 0.8 * SAMPLES * REQUESTS_PER_SAMPLE * DISTANCES)
        cls.steady = cls.run_of()
        cls.leaking = cls.run_of("--leak")

    @classmethod
    def heap_after(cls, server, requests):
        for i in range(requests):
            server.predict([IMAGES[i]])
        cls.page = server.memory()
        return values(server.metrics()).get("tidemark_heap_live_bytes")

    @classmethod
    def run_of(cls, *options):
        alert = ("--alert", f"{cls.alert_bytes}B")
        with Server("--interval", "0", "--time-by-requests", *alert, *options) as server:
            heap = [cls.heap_after(server, REQUESTS_PER_SAMPLE) for _ in range(SAMPLES)]
            return {"heap": heap, "page": cls.page, "log": server.log(), "metrics": values(server.metrics())}

    def test_a_server_that_keeps_something_of_each_answer_is_leaking(self):
        verdict = self.leaking["page"].splitlines()[0]
        self.assertTrue(verdict.startswith("growth: leaking (it grows along a straight line"), verdict)
        self.assertIn(f"; {SAMPLES} samples of the heap)", verdict)
        # 6,000 requests a minute, of 10 ms each.
        slope, unit = re.search(r"; ([\d.]+) (\w+) a minute", verdict).groups()
        self.assertEqual(unit, "MiB")
        self.assertAlmostEqual(float(slope), 6_000 * (DISTANCES + VECTOR) / 2 ** 20, delta=1)

    def test_one_that_does_not_is_not(self):
        verdict = self.steady["page"].splitlines()[0]
        self.assertRegex(verdict, r"^growth: (steady|cannot tell) \(.*; 60 samples of the heap\)$")

    def test_the_heap_grows_by_what_is_kept(self):
        requests = (SAMPLES - 6) * REQUESTS_PER_SAMPLE  # not while the workers begin
        grown = self.leaking["heap"][-1] - self.leaking["heap"][5]
        self.assertAlmostEqual(grown / requests, DISTANCES + VECTOR, delta=0.01 * DISTANCES)
        self.assertLess(abs(self.steady["heap"][-1] - self.steady["heap"][5]) / requests, 0.01 * DISTANCES)

    def test_the_scope_that_allocates_owns_what_is_kept(self):
        kept = SAMPLES * REQUESTS_PER_SAMPLE * DISTANCES
        self.assertRegex(self.leaking["page"], rf"\n  predict/distances +{kept / 2 ** 20:.1f} MiB\n")
        self.assertNotIn("predict/distances", self.steady["page"])

    def test_the_alert_fires_once_and_says_that_it_is_a_leak(self):
        lines = self.leaking["log"].splitlines()
        self.assertEqual(len(lines), 1, lines)
        self.assertRegex(lines[0], r"^alert heap_above\([\d.]+ MiB\): [\d.]+ MiB; growth: leaking \(")
        self.assertEqual(self.steady["log"], "")
        active = [value for series, value in self.leaking["metrics"].items()
                  if series.startswith('tidemark_alert_active{alert="heap_above(')]
        self.assertEqual(active, [1])


if __name__ == "__main__":
    result = unittest.main(argv=sys.argv[:1], exit=False, verbosity=2).result
    if not result.wasSuccessful():
        sys.exit(1)
    for _, why in result.skipped:
        print(f"skipped: {why}")
    sys.exit(77 if result.skipped else 0)
