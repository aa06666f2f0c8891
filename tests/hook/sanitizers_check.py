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


LEAK = '''#include <tidemark/hook/malloc.hpp>
#include <stdlib.h>
void* volatile last;
__attribute__((noinline)) static void leak() { for (int i = 0; i < 50; ++i) last = malloc(1234); last = nullptr; }
__attribute__((noinline)) static void overwrite() { volatile char stack[20'000]; for (auto& c : stack) c = 0; }
int main() { leak(); overwrite(); }
'''


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
        # What the library knows of a block must not look like a pointer to it.
        leaking = pathlib.Path(folder) / 'leak.cpp'
        leaking.write_text(LEAK)
        built = run(*compiler, *FLAGS, '-fsanitize=address', leaking, '-o', leaking.with_suffix(''))
        done = run(leaking.with_suffix(''), env=dict(os.environ, ASAN_OPTIONS='detect_leaks=1'))
        if built.returncode != 0 or '61700 byte(s) leaked in 50 allocation(s)' not in done.stdout:
            failed += 1
            print(f'--- leaks are hidden: exit {done.returncode}\n{built.stdout}{done.stdout}')
    print(f'{len(jobs) - failed} of {len(jobs)} builds count as they say')
    return 1 if failed else 0


if __name__ == '__main__':
    sys.exit(main())
