#!/usr/bin/env python3
"""Runs hook/storm over jemalloc, tcmalloc and mimalloc, preloaded and linked, under both hook headers: what it counts must
be what it counts over glibc's allocator, and a storm of threads must end well over each of them preloaded.

usage: other_allocators_check.py STORM_PROGRAM COMPILER...; names what is not installed, and exits with 77 where none is.
"""
import concurrent.futures
import os
import pathlib
import re
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
FLAGS = ['-std=c++17', '-O2', '-pthread', f'-I{HERE.parent.parent / "include"}']
HEADERS = {'hook/malloc': [], 'hook/global_new': ['-DSTORM_HOOK=<tidemark/hook/global_new.hpp>']}
LIBRARIES = ['libjemalloc.so.2', 'libtcmalloc_minimal.so.4', 'libmimalloc.so.2']
SAME = ['200000', '1', '42']
THREADS = ['1000000', '8', '42']


def run(*command, **more):
    return subprocess.run(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, **more)


def installed():
    """The path of each of the libraries that is there."""
    known = subprocess.run(['/sbin/ldconfig', '-p'], text=True, stdout=subprocess.PIPE).stdout
    found = {name: re.search(rf'^\s*{re.escape(name)} .*=> (.*)$', known, re.M) for name in LIBRARIES}
    return {name: match.group(1) for name, match in found.items() if match}


def storm(program, how, library, preloaded=''):
    """What a run prints; with the library's name it also fails where another allocator lies below the hook."""
    env = dict(os.environ, LD_PRELOAD=preloaded) if preloaded else dict(os.environ)
    done = run(program, *how, library, env=env)
    return done.stdout if done.returncode == 0 else f'exit {done.returncode}\n{done.stdout[-2000:]}'


def main():
    program, compiler = sys.argv[1], sys.argv[2:]
    libraries = installed()
    for name in LIBRARIES:
        if name not in libraries:
            print(f'skipped: {name} is not installed')
    if not libraries:
        return 77

    problems = []

    def expect(what, said, expected):
        if said != expected:
            problems.append(f'--- {what}:\n{said}expected:\n{expected}')

    with tempfile.TemporaryDirectory() as folder, concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:

        def build(header, library=None):
            built = pathlib.Path(folder) / f'{header.replace("/", "_")}_{library}'
            linked = ['-Wl,--no-as-needed', libraries[library]] if library else []
            done = run(*compiler, *FLAGS, *HEADERS[header], HERE / 'storm.cpp', '-o', built, *linked, '-ldl')
            if done.returncode != 0:
                raise RuntimeError(done.stdout)
            return built

        own = pool.submit(build, 'hook/global_new')
        linked = {(h, l): pool.submit(build, h, l) for h in HEADERS for l in libraries}
        plain = {'hook/malloc': program, 'hook/global_new': own.result()}
        expected = {h: storm(plain[h], SAME, 'libc.so') for h in HEADERS}
        for header, line in expected.items():
            if not re.fullmatch(r'events \d+ allocations \d+ live \d+ foreign 0\n', line):
                problems.append(f'--- {header} over glibc:\n{line}')
        for (header, library), built in linked.items():
            expect(f'{header} with {library} linked', storm(built.result(), SAME, library), expected[header])
            expect(f'{header} with {library} preloaded', storm(plain[header], SAME, library, libraries[library]),
                   expected[header])
        # One after the other: each has threads enough.
        for library, path in libraries.items():
            said = storm(program, THREADS, library, path)
            if not said.startswith('events '):
                problems.append(f'--- threads over {library}:\n{said}')
    print('\n'.join(problems) if problems else f'the same counts over glibc and {", ".join(libraries)}')
    return 1 if problems else 0


if __name__ == '__main__':
    sys.exit(main())
