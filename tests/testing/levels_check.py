#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Builds and runs the checks of memory in the ways that no build of the project has: without optimization, with the whole
program in view, and where a sanitizer allocates and the hook listens to it.

usage: levels_check.py COMPILER...
"""
import concurrent.futures
import os
import pathlib
import subprocess
import sys
import tempfile

TESTS = pathlib.Path(__file__).resolve().parent
FLAGS = ['-std=c++17', f'-I{TESTS.parent.parent / "include"}', f'-I{TESTS.parent / "support"}', '-pthread']
# What to build, its sources and its flags.
JOBS = [(f'{name} {" ".join(level)}', [f'{name}_test.cpp', '../support/main.cpp'], level)
        for name in ('expect', 'faults') for level in (['-O0'], ['-O3', '-flto'])]
for sanitizer in ('address', 'thread'):
    sanitized = ['-O1', f'-fsanitize={sanitizer}']
    JOBS.append((f'expect under {sanitizer}', ['expect_test.cpp', '../support/main.cpp'], sanitized))
    for hook in ([], ['-DSANITIZED_MALLOC']):
        JOBS.append((f'guards under {sanitizer} {" ".join(hook)}', ['sanitized_guards.cpp'], sanitized + hook))


def verdict(command, name, sources, flags):
    """What is wrong with one; empty where nothing is."""
    with tempfile.TemporaryDirectory() as folder:
        program = os.path.join(folder, 'program')
        built = subprocess.run([*command, *FLAGS, *flags, *(str(TESTS / s) for s in sources), '-o', program], text=True,
                               stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        if built.returncode != 0:
            return f'{name}: does not build\n{built.stdout[:1500]}'
        ran = subprocess.run([program], text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=240,
                             env=os.environ | {'ASAN_OPTIONS': 'allocator_may_return_null=1',
                                               'TSAN_OPTIONS': 'allocator_may_return_null=1:halt_on_error=1',
                                               'MALLOC_PERTURB_': '0'})
        return '' if ran.returncode == 0 else f'{name}: exit {ran.returncode}\n{ran.stdout[-3000:]}'


def main():
    command = sys.argv[1:]
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        problems = [p for p in pool.map(lambda job: verdict(command, *job), JOBS) if p]
    print('\n'.join(problems) if problems else f'{len(JOBS)} programs build, and find what they should')
    return 1 if problems else 0


if __name__ == '__main__':
    sys.exit(main())
