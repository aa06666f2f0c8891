#!/usr/bin/env python3
"""Compiles every public header in the ways that users do, with the compiler given.

Each header alone and twice, under the project's warnings; all of them after hostile macros; and compares the macros that
exist before and after: each new one begins with TIDEMARK_.
"""
import concurrent.futures
import os
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
INCLUDE = ROOT / 'include'
STRICT = ('-Wall -Wextra -Wpedantic -Wconversion -Wsign-conversion -Wshadow -Wold-style-cast -Wundef -Wnon-virtual-dtor '
          '-Wextra-semi -Werror').split()
HOSTILE = ('min max check verify assert I slots signals emit foreach linux unix major minor small near far '
           'interface').split()
SYSTEM_INCLUDE = re.compile(r'^\s*#\s*include\s*<((?!tidemark/)[^>]+)>', re.M)

# A binding needs what it binds to, and one file has one test framework.
BINDINGS = {'tidemark/testing/doctest.hpp': 'doctest/doctest.h', 'tidemark/testing/gtest.hpp': 'gtest/gtest.h',
            'tidemark/testing/catch2.hpp': 'catch2/catch.hpp', 'tidemark/bridge/benchmark.hpp': 'benchmark/benchmark.h',
            'tidemark/gpu/cuda_resource.hpp': 'cuda_runtime_api.h'}
# What macros of the library expand to.
HELPERS = re.compile(r'TIDEMARK_DETAIL_(JOIN|JOIN_AGAIN|CHECK\w*|LEAVE_TEST|MAKE_TEST_LEAKS|MAKE_TRACKED|WARM_UP_GMOCK|CATCH2_LISTENER_NAME)$')

# Headers that declare what a hook defines.
AFTER = ''.join(f'#if __has_include(<{i}>)\n#include <{i}>\n#endif\n'
                for i in ('mm_malloc.h', 'immintrin.h', 'malloc.h', 'stdlib.h', 'cstdlib', 'new', 'pthread.h'))


def compiler_says(command, source, flags):
    """Empty where `source` compiles; the compiler's complaint otherwise."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, 'unit.cpp')
        pathlib.Path(path).write_text(source)
        run = subprocess.run([*command, '-std=c++17', f'-I{INCLUDE}', *flags, path], cwd=folder, text=True,
                             stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        return '' if run.returncode == 0 else run.stdout


def macros_of(command, source):
    run = subprocess.run([*command, '-std=c++17', f'-I{INCLUDE}', '-dM', '-E', '-x', 'c++', '-'], input=source, text=True,
                         stdout=subprocess.PIPE, check=True)
    return {line.split()[1].split('(')[0] for line in run.stdout.splitlines()}


def main():
    command = sys.argv[1:]
    headers = sorted(p.relative_to(INCLUDE).as_posix() for p in INCLUDE.rglob('*.hpp'))
    missing = [h for h, needed in BINDINGS.items() if h in headers and compiler_says(command, f'#include <{needed}>\n', ['-fsyntax-only'])]
    for h in missing:
        print(f'{h}: left out, <{BINDINGS[h]}> is not installed')
    # Without a framework there is nothing that the macros could tell.
    headers = [h for h in headers if h not in missing and h != 'tidemark/testing/detail/macros.hpp']
    public = [h for h in headers if '/detail/' not in h]
    jobs = {}
    # What is not public compiles alone with one compiler, and within the public ones with every other.
    for h in headers if 'clang' not in command[-1] else public:
        once = f'#include <{h}>\n'
        jobs[f'{h} alone and twice'] = (once * 2 + 'int main() { return 0; }\n', ['-fsyntax-only', *STRICT])
    # The two hooks define the same operators, and the bindings the same macros: each unit has one of either.
    hooks = [h for h in public if h.startswith('tidemark/hook/')]
    frameworks = [h for h in public if h in BINDINGS and h.startswith('tidemark/testing/')]
    others = ''.join(f'#include <{h}>\n' for h in public if h not in hooks + frameworks)
    units = {}
    for i in range(max(len(hooks), len(frameworks))):
        both = [hooks[i % len(hooks)], *(frameworks[i % len(frameworks):][:1])] if frameworks else [hooks[i % len(hooks)]]
        units[' and '.join(both)] = ''.join(f'#include <{h}>\n' for h in both) + others
    # The standard's own headers use these words as names, and the user has included them before.
    system = sorted({i for h in headers for i in SYSTEM_INCLUDE.findall((INCLUDE / h).read_text())
                     if '/file_stdio' not in h})
    before = ''.join(f'#if __has_include(<{i}>)\n#include <{i}>\n#endif\n' for i in system)
    hostile = ''.join(f'#undef {m}\n#define {m} @\n' for m in HOSTILE)
    for hook, includes in units.items():
        jobs[f'{hook} and all others before what the compiler and the system declare'] = (
            includes + AFTER, ['-std=c++17', '-fsyntax-only'])
        for std in ('c++17', 'gnu++17', 'c++20'):
            jobs[f'{hook} and all others after hostile macros, {std}'] = (
                before + hostile + includes, [f'-std={std}', '-fsyntax-only'])

    # Where there is no /proc each query answers with a reason; that much can be compiled here.
    jobs['tidemark.hpp for a system that is no Linux'] = (
        '#include <tidemark/tidemark.hpp>\n', ['-U__linux__', '-fsyntax-only', *STRICT])

    problems = []
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for name, said in zip(jobs, pool.map(lambda job: compiler_says(command, *job), jobs.values())):
            if said:
                problems.append(f'{name}:\n{said[:1500]}')
    left = set().union(*(macros_of(command, before + includes) for includes in units.values()))
    strangers = [m for m in left - macros_of(command, before) if not m.startswith('TIDEMARK_')]
    if strangers:
        problems.append(f'macros that do not begin with TIDEMARK_: {" ".join(sorted(strangers))}')
    helpers = [m for m in left if m.startswith('TIDEMARK_DETAIL_')
               and not HELPERS.match(m)]
    if helpers:
        problems.append(f'helper macros left defined: {" ".join(sorted(helpers))}')
    print('\n'.join(problems) if problems else f'{len(headers)} headers, {len(jobs)} compilations, no complaint')
    return 1 if problems else 0


if __name__ == '__main__':
    sys.exit(main())
