#!/usr/bin/env python3
"""Builds hook/sanitized.cpp with the compiler given, both hook headers and each sanitizer that has an allocator of its own,
and runs it: it must count what it promises, without a report of the sanitizer. Exits with 1 and says what failed."""
import concurrent.futures
import os
import pathlib
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
FLAGS = ['-std=c++17', '-O1', '-g1', '-pthread', f'-I{HERE.parent.parent / "include"}'] + (
    '-Wall -Wextra -Wpedantic -Wconversion -Wsign-conversion -Wshadow -Wold-style-cast -Wundef -Werror').split()
HEADERS = {'hook/global_new': [], 'hook/malloc': ['-DSANITIZED_MALLOC']}


def run(*command, **more):
    return subprocess.run(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, **more)


def main():
    compiler = sys.argv[1:]
    # g++ has no MemorySanitizer.
    sanitizers = ['address', 'thread'] + (['memory'] if 'clang' in compiler[-1] else [])
    jobs = [(s, h) for s in sanitizers for h in HEADERS]
    with tempfile.TemporaryDirectory() as folder:

        def build_and_run(job):
            sanitizer, header = job
            program = pathlib.Path(folder) / f'{sanitizer}_{header.replace("/", "_")}'
            built = run(*compiler, *FLAGS, f'-fsanitize={sanitizer}', *HEADERS[header], HERE / 'sanitized.cpp', '-o', program)
            if built.returncode != 0:
                return built.stdout
            done = run(program, env=dict(os.environ, TSAN_OPTIONS='halt_on_error=1'))
            return '' if done.returncode == 0 and not done.stdout else f'exit {done.returncode}\n{done.stdout}'

        failed = 0
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            for (sanitizer, header), said in zip(jobs, pool.map(build_and_run, jobs)):
                if said:
                    failed += 1
                    print(f'--- {header} with -fsanitize={sanitizer}:\n{said}')
    print(f'{len(jobs) - failed} of {len(jobs)} builds count as they say')
    return 1 if failed else 0


if __name__ == '__main__':
    sys.exit(main())
