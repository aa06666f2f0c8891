#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Runs the digits training example and checks its records against figures worked out here from the sizes of the layers.

usage: digits_training_check.py PROGRAM DIGITS_CSV
Exits with 77 where the build has no heap hook, after the checks that need none.
"""
import collections
import json
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
from summary_table import change, size, summary  # noqa: E402

PIXELS, HIDDEN, CLASSES, BATCH, EPOCHS = 64, 48, 10, 32, 20
# What differs from run to run: times and the resident set.
TIMES = re.compile(r" +[\d.]+ (ns|us|ms|s)\b|^ +resident .*$", re.M)
NUMBER = 4  # bytes of a float, an int and a row number alike

FIELDS = ["type", "name", "path", "file", "line", "pid", "thread", "depth", "start_ns", "duration_ns", "exception",
          "owned_bytes", "meters"]
USAGE_FIELDS = ["entry_bytes", "exit_bytes", "peak_bytes", "net_bytes", "peak_growth_bytes", "allocations",
                "deallocations", "allocated_bytes", "freed_bytes", "largest_bytes", "error_bound_bytes"]
TRAIN, EPOCH, EVALUATE = "train digits", "train digits/epoch", "train digits/evaluate"

DOCUMENT = pathlib.Path(__file__).resolve().parents[2] / "docs" / "getting_started.md"
PROGRAM, DATA = (pathlib.Path(argument).resolve() for argument in sys.argv[1:3])
ROWS = DATA.read_bytes().count(b"\n")
HELD_OUT = ROWS // 5
TRAINING = ROWS - HELD_OUT
BATCHES = [min(BATCH, TRAINING - first) for first in range(0, TRAINING, BATCH)]

TABLE = (PIXELS + 1) * NUMBER  # bytes of a row: an image and its label
PARAMETERS = (PIXELS * HIDDEN + HIDDEN + HIDDEN * CLASSES + CLASSES) * NUMBER


def activations(rows):
    return rows * (HIDDEN + CLASSES) * NUMBER


def run(*arguments, folder=None):
    return subprocess.run([PROGRAM, *arguments], capture_output=True, text=True, cwd=folder, timeout=240)


def heap(record):
    """The usage of the scope's heap meter: the process's for the outermost, this thread's for the others."""
    return record["meters"]["thread_heap" if record["depth"] else "process_heap"]


def train(folder, name):
    path = pathlib.Path(folder) / name
    finished = run("--data", DATA, "--json", path)
    records = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return finished, records


def without_times(text):
    """The lines of a summary, whatever the widths of the columns."""
    return [re.sub(" +", " ", TIMES.sub("", line).replace(" time ", " ")).strip() for line in text.splitlines()]


class Training(unittest.TestCase):
    maxDiff = None

    @classmethod
    def setUpClass(cls):
        with tempfile.TemporaryDirectory() as folder:
            cls.finished, cls.records = train(folder, "first.jsonl")
            cls.again, cls.records_again = train(folder, "second.jsonl")
        cls.has_figures = "absent" not in heap(cls.records[0])
        cls.by_path = collections.defaultdict(list)
        for record in cls.records:
            cls.by_path[record["path"]].append(record)

    def figures(self, path, field):
        return [heap(record)[field] for record in self.by_path[path]]

    def need_figures(self):
        if not self.has_figures:
            self.skipTest("no figures: " + heap(self.records[0])["absent"])

    def test_the_run_succeeds_and_reaches_95_percent(self):
        self.assertEqual((self.finished.returncode, self.finished.stderr), (0, ""))
        progress = [line.split() for line in self.finished.stdout.splitlines() if line.startswith("epoch ")]
        self.assertEqual([int(words[1]) for words in progress], list(range(1, EPOCHS + 1)))
        self.assertGreaterEqual(float(progress[-1][progress[-1].index("held-out") + 1]), 95)

    def test_every_scope_leaves_one_record_per_call(self):
        steps = EPOCHS * len(BATCHES)
        self.assertEqual({path: len(records) for path, records in self.by_path.items()},
                         {TRAIN: 1, TRAIN + "/load": 1, TRAIN + "/initialize": 1,
                          EPOCH: EPOCHS, EPOCH + "/forward": steps, EPOCH + "/backward": steps,
                          EPOCH + "/update": steps, EVALUATE: EPOCHS, EVALUATE + "/forward": EPOCHS})

    def test_a_record_has_exactly_the_documented_fields(self):
        for record in self.records:
            self.assertEqual(list(record), FIELDS)
            self.assertEqual(record["type"], "scope")
            self.assertEqual(record["name"], record["path"].rsplit("/", 1)[-1])
            self.assertEqual(record["depth"], record["path"].count("/"))
            self.assertTrue(record["file"].endswith("digits_training.cpp"))
            self.assertGreater(record["line"], 0)
            self.assertIs(record["exception"], False)
            self.assertEqual(list(heap(record)), USAGE_FIELDS if self.has_figures else ["absent"])
            if record["depth"]:  # the outermost may have more meters than the heap's
                self.assertEqual(list(record["meters"]), ["thread_heap"])

    def test_a_scope_lies_within_its_parent_and_its_peak_within_the_parents(self):
        self.need_figures()
        open_children = collections.defaultdict(list)  # parent path -> the calls that its next record must cover
        for record in self.records:
            children = open_children.pop(record["path"], [])
            usage = heap(record)
            for child in children:
                self.assertLessEqual(record["start_ns"], child["start_ns"])
                self.assertGreaterEqual(record["start_ns"] + record["duration_ns"],
                                        child["start_ns"] + child["duration_ns"])
                self.assertGreaterEqual(usage["peak_bytes"], heap(child)["peak_bytes"])
                self.assertGreaterEqual(usage["largest_bytes"], heap(child)["largest_bytes"])
            for total in ("allocations", "deallocations", "allocated_bytes", "freed_bytes"):
                self.assertGreaterEqual(usage[total], sum(heap(child)[total] for child in children))
            if record["depth"]:
                open_children[record["path"].rsplit("/", 1)[0]].append(record)
        self.assertFalse(open_children)

    def test_the_figures_of_a_record_agree_with_each_other(self):
        self.need_figures()
        for usage in map(heap, self.records):
            self.assertEqual(usage["net_bytes"], usage["exit_bytes"] - usage["entry_bytes"])
            self.assertEqual(usage["net_bytes"], usage["allocated_bytes"] - usage["freed_bytes"])
            self.assertEqual(usage["peak_growth_bytes"], usage["peak_bytes"] - usage["entry_bytes"])
            self.assertEqual(usage["error_bound_bytes"], 0)

    def test_two_runs_differ_in_times_and_process_only(self):
        def timeless(record):
            kept = {field: value for field, value in record.items()
                    if field not in ("pid", "thread", "start_ns", "duration_ns")}
            return {**kept, "meters": heap(record)}  # not what the system lends, such as resident pages
        self.assertEqual(list(map(timeless, self.records)), list(map(timeless, self.records_again)))
        self.assertEqual(*(TIMES.sub("", run.stdout) for run in (self.finished, self.again)))

    def test_load_keeps_the_rows_and_peaks_when_they_are_there_twice(self):
        self.need_figures()
        self.assertEqual(self.figures(TRAIN + "/load", "net_bytes"), [ROWS * TABLE])
        self.assertEqual(self.figures(TRAIN + "/load", "peak_growth_bytes"), [2 * ROWS * TABLE + ROWS * NUMBER])
        # The text; images and labels of the table and of its two parts; the order.
        self.assertEqual(self.figures(TRAIN + "/load", "allocations"), [1 + 3 * 2 + 1])
        self.assertEqual(self.figures(TRAIN + "/load", "allocated_bytes"),
                         [DATA.stat().st_size + 2 * ROWS * TABLE + ROWS * NUMBER])

    def test_initialize_keeps_parameters_and_velocities(self):
        self.need_figures()
        self.assertEqual(self.figures(TRAIN + "/initialize", "net_bytes"), [2 * PARAMETERS])
        self.assertEqual(self.figures(TRAIN + "/initialize", "largest_bytes"), [PIXELS * HIDDEN * NUMBER])

    def test_forward_keeps_its_activations(self):
        self.need_figures()
        expected = [activations(rows) for rows in BATCHES] * EPOCHS
        for field in ("net_bytes", "peak_growth_bytes", "allocated_bytes"):
            self.assertEqual(self.figures(EPOCH + "/forward", field), expected)
        self.assertEqual([record["owned_bytes"] for record in self.by_path[EPOCH + "/forward"]], expected)
        self.assertEqual(set(self.figures(EPOCH + "/forward", "allocations")), {2})

    def test_backward_keeps_the_gradients_and_needs_a_slope_per_activation(self):
        self.need_figures()
        self.assertEqual(set(self.figures(EPOCH + "/backward", "net_bytes")), {PARAMETERS})
        self.assertEqual(self.figures(EPOCH + "/backward", "peak_growth_bytes"),
                         [PARAMETERS + activations(rows) for rows in BATCHES] * EPOCHS)
        self.assertEqual(set(self.figures(EPOCH + "/backward", "allocations")), {4 + 2})

    def test_update_allocates_nothing(self):
        self.need_figures()
        for field in ("allocations", "deallocations", "peak_growth_bytes"):
            self.assertEqual(set(self.figures(EPOCH + "/update", field)), {0})

    def test_an_epoch_peaks_in_the_backward_pass_of_a_full_batch_and_keeps_nothing(self):
        self.need_figures()
        order = TRAINING * NUMBER
        self.assertEqual(set(self.figures(EPOCH, "peak_growth_bytes")),
                         {order + BATCH * TABLE + 2 * activations(BATCH) + PARAMETERS})
        self.assertEqual(set(self.figures(EPOCH, "allocations")), {1 + len(BATCHES) * (2 + 2 + 6)})
        self.assertEqual(set(self.figures(EPOCH, "net_bytes")), {0})

    def test_evaluate_runs_all_held_out_rows_at_once(self):
        self.need_figures()
        self.assertEqual(set(self.figures(EVALUATE, "peak_growth_bytes")), {activations(HELD_OUT)})
        self.assertEqual(set(self.figures(EVALUATE, "net_bytes")), {0})

    def test_the_whole_peaks_in_load_and_leaves_nothing_behind(self):
        self.need_figures()
        self.assertEqual(self.figures(TRAIN, "peak_growth_bytes"), self.figures(TRAIN + "/load", "peak_growth_bytes"))
        self.assertEqual(self.figures(TRAIN, "net_bytes"), [0])
        self.assertEqual([record["owned_bytes"] for record in self.by_path[TRAIN]], [0])

    def test_the_summary_sums_up_the_records(self):
        self.need_figures()
        rows, _ = summary(self.finished.stdout)
        self.assertEqual({path: row[:1] + row[3:] for path, row in rows.items() if path in self.by_path}, {
            path: [f"{len(records):,}", change(max(self.figures(path, "peak_growth_bytes"))),
                   change(sum(self.figures(path, "net_bytes"))), f"{sum(self.figures(path, 'allocations')):,}", "0 B"]
            for path, records in self.by_path.items()})

    def test_the_domains_say_what_the_bytes_are_for(self):
        self.need_figures()
        _, domains = summary(self.finished.stdout)
        batches = EPOCHS * len(BATCHES)
        # The table, and both its parts; a batch at a time after that. Images alone: labels are no floats.
        self.assertEqual(domains["data"], ["0 B", size(2 * ROWS * PIXELS * NUMBER), "-", f"{3 + batches:,}"])
        self.assertEqual(domains["weights"], ["0 B", size(PARAMETERS), "16.0 KiB", "4"])
        self.assertEqual(domains["velocity"], ["0 B", size(PARAMETERS), "-", "4"])
        self.assertEqual(domains["gradients"], ["0 B", size(PARAMETERS), "-", f"{4 * batches:,}"])
        # Two of the forward pass and two slopes for each batch, two for each evaluation.
        self.assertEqual(domains["activations"],
                         ["0 B", size(activations(HELD_OUT)), "-", f"{4 * batches + 2 * EPOCHS:,}"])


    def test_the_documentation_shows_this_run(self):
        self.need_figures()
        for block in re.findall(r"^```text\n(epoch  1.*?)^```", DOCUMENT.read_text(), re.M | re.S):
            shown = [line for line in without_times(block) if line != "..."]
            printed = without_times(self.finished.stdout)
            self.assertEqual([line for line in shown if line not in printed], [])
            self.assertIn("scope calls meter peak growth net allocations still owned", shown)
            return
        self.fail(f"{DOCUMENT} shows no run")


class KeptActivations(unittest.TestCase):
    def test_the_summary_shows_what_forward_still_owns(self):
        with tempfile.TemporaryDirectory() as folder:
            finished = run("--data", DATA, "--epochs", "4", "--keep-activations", folder=folder)
        self.assertEqual((finished.returncode, finished.stderr), (0, ""))
        rows, domains = summary(finished.stdout)
        if rows[TRAIN][3].startswith("absent"):
            self.skipTest("no figures")
        kept = 4 * activations(TRAINING)
        self.assertEqual(rows[EPOCH + "/forward"][-1], size(kept))
        self.assertEqual(domains["activations"][0], size(kept))
        self.assertEqual([rows[path][-1] for path in (TRAIN + "/load", EPOCH + "/backward", EVALUATE + "/forward")],
                         ["0 B"] * 3)


class Data(unittest.TestCase):
    """One epoch on files that are good or bad."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.lines = DATA.read_bytes().splitlines()[:200]

    def train_on(self, text):
        (self.folder / "some.csv").write_bytes(text)
        return run("--data", "some.csv", "--epochs", "1", folder=self.folder)

    def refuse(self, text, why):
        finished = self.train_on(text)
        self.assertEqual((finished.returncode, finished.stderr), (1, f"digits_training: some.csv: {why}\n"))
        self.assertNotIn("epoch", finished.stdout)

    def refuse_line(self, line, why, number=7):
        lines = self.lines[:number - 1] + [line] + self.lines[number:]
        self.refuse(b"\n".join(lines) + b"\n", f"line {number}: {why}")

    def with_field(self, index, field):
        fields = self.lines[6].split(b",")
        fields[index - 1] = field
        return b",".join(fields)

    def test_line_ends_of_other_systems_and_a_missing_last_one_are_accepted(self):
        usual = self.train_on(b"\n".join(self.lines) + b"\n")
        self.assertEqual((usual.returncode, usual.stderr), (0, ""))
        for text in (b"\n".join(self.lines), b"\r\n".join(self.lines) + b"\r\n", b"\r\n".join(self.lines)):
            other = self.train_on(text)
            self.assertEqual((other.returncode, other.stderr), (0, ""))
            self.assertEqual(other.stdout.split("\n\n")[0], usual.stdout.split("\n\n")[0])

    def test_a_wrong_number_of_fields_is_refused(self):
        self.refuse_line(b"1,2,3", "3 fields, expected 65: 64 pixels and a label")
        self.refuse_line(self.lines[0] + b",1", "66 fields, expected 65: 64 pixels and a label")
        self.refuse_line(b"", "1 field, expected 65: 64 pixels and a label")

    def test_a_blank_last_line_is_refused(self):
        self.refuse(b"\n".join(self.lines) + b"\n\n", "line 201: 1 field, expected 65: 64 pixels and a label")

    def test_a_field_that_is_no_integer_is_refused(self):
        for field in ("four", "", " 4", "+4", "4.0", "0x4", "4 "):
            self.refuse_line(self.with_field(3, field.encode()), f'field 3: "{field}" is not an integer')
        self.refuse_line(self.with_field(65, b"x"), 'field 65: "x" is not an integer')

    def test_bytes_that_are_no_text_are_refused_and_not_echoed(self):
        self.refuse_line(self.with_field(3, b"1\x00\x1b[31m\xff"), 'field 3: "1??[31m?" is not an integer')
        self.refuse_line(self.with_field(3, b"y" * 100_000), f'field 3: "{"y" * 20}..." is not an integer')

    def test_a_value_out_of_range_is_refused(self):
        for field, shown in (("17", "17"), ("-1", "-1"), ("4294967297", "4294967297"), ("9" * 100, "9" * 20 + "...")):
            self.refuse_line(self.with_field(3, field.encode()),
                             f'field 3: "{shown}" is out of range: a pixel is 0 to 16')
        self.refuse_line(self.with_field(65, b"10"), 'field 65: "10" is out of range: a label is 0 to 9')

    def test_the_first_and_the_last_line_are_checked_too(self):
        for number in (1, len(self.lines)):
            self.refuse_line(b"x" + self.lines[number - 1], 'field 1: "x0" is not an integer', number)

    def test_too_little_data_is_refused(self):
        self.refuse(b"", "the file is empty")
        self.refuse(b"\n", "line 1: 1 field, expected 65: 64 pixels and a label")
        self.refuse(b"\n".join(self.lines[:4]), "too few lines to hold out a fifth")

    def test_a_file_that_cannot_be_read_is_refused_with_the_systems_reason(self):
        for path, why in (("missing.csv", "No such file or directory"), (".", "Is a directory")):
            finished = run("--data", path, folder=self.folder)
            self.assertEqual((finished.returncode, finished.stderr), (1, f"digits_training: {path}: {why}\n"))


class CommandLine(unittest.TestCase):
    def test_help_is_printed(self):
        finished = run("--help")
        self.assertEqual((finished.returncode, finished.stderr), (0, ""))
        for option in ("--data FILE", "--json FILE", "--epochs N", "--keep-activations"):
            self.assertIn(option, finished.stdout)

    def test_what_is_not_understood_is_refused(self):
        for arguments, why in ((["--fast"], "unknown argument --fast"),
                               (["digits.csv"], "unknown argument digits.csv"),
                               (["--json"], "no value after --json"),
                               (["--epochs", "0"], "--epochs is 1 to 1000, not 0"),
                               (["--epochs", "two"], "--epochs is 1 to 1000, not two"),
                               (["--epochs", "1001"], "--epochs is 1 to 1000, not 1001")):
            finished = run(*arguments)
            self.assertEqual((finished.returncode, finished.stdout), (2, ""))
            self.assertTrue(finished.stderr.startswith(f"digits_training: {why}\nusage: "), finished.stderr)

    def test_a_json_file_that_cannot_be_written_is_refused(self):
        finished = run("--data", DATA, "--json", "/nowhere/at/all.jsonl")
        self.assertEqual((finished.returncode, finished.stderr),
                         (1, "digits_training: /nowhere/at/all.jsonl: No such file or directory\n"))

    def test_records_that_cannot_be_written_are_a_failure(self):
        finished = run("--data", DATA, "--json", "/dev/full", "--epochs", "1")
        self.assertEqual(finished.returncode, 1)
        self.assertIn("No space left on device", finished.stderr)


if __name__ == "__main__":
    result = unittest.main(argv=sys.argv[:1], exit=False, verbosity=2).result
    if not result.wasSuccessful():
        sys.exit(1)
    sys.exit(77 if result.skipped else 0)
