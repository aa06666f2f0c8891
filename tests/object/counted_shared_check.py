#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Counts the objects of one type in a program and in two shared objects that it loads, with the compiler given.

usage: counted_shared_check.py COMPILER...
An exported type counts as one; with one that each part hides, each has a row; and without -rdynamic the program, which then has
a ledger of its own, lists its own objects alone. Each shared object is closed before the list is read. TIDEMARK_INCLUDE names another include folder.
"""
import os
import pathlib
import subprocess
import sys
import tempfile

INCLUDE = pathlib.Path(os.environ.get('TIDEMARK_INCLUDE', pathlib.Path(__file__).resolve().parent.parent.parent / 'include'))

LAYER = '''
#include <tidemark/object/counted.hpp>
struct LAYER_VISIBILITY layer : tidemark::counted<layer> { int width = 0; };
'''
PART = '''
#include "layer.hpp"
#include <cstddef>
#include <vector>
extern "C" __attribute__((visibility("default"))) void load(std::size_t count) {
  static auto* const layers = new std::vector<layer>;
  layers->resize(layers->size() + count);
}
'''
PROGRAM = '''
#include "layer.hpp"
#include <cstddef>
#include <cstdio>
#include <dlfcn.h>
int main() {
  const layer own;
  for (const std::size_t count : {10, 20}) {
    void* part = dlopen(count == 10 ? "./first.so" : "./second.so", RTLD_NOW | RTLD_LOCAL);
    if (part == nullptr) return std::puts(dlerror()), 1;
    reinterpret_cast<void (*)(std::size_t)>(dlsym(part, "load"))(count);
    dlclose(part);
    for (const auto& row : tidemark::live_types()) std::printf("%d ", static_cast<int>(row.live));
  }
  std::printf("own %d\\n", static_cast<int>(tidemark::live_type_of<layer>().live));
}
'''
EXPORTED, HIDDEN = '__attribute__((visibility("default")))', ''
# How the type is declared, further flags of all parts, flags of the program, and what it prints: the rows after each part.
CASES = [
    (EXPORTED, [], ['-rdynamic'], '11 31 own 31'),
    (EXPORTED, ['-fvisibility=hidden', '-fvisibility-inlines-hidden'], ['-rdynamic'], '11 31 own 31'),
    (HIDDEN, ['-fvisibility=hidden', '-fvisibility-inlines-hidden'], ['-rdynamic'], '10 1 20 10 1 own 1'),
    (HIDDEN, ['-fvisibility=hidden', '-fno-gnu-unique'], ['-rdynamic'], '10 1 20 10 1 own 1'),  # which can be unloaded
    (EXPORTED, [], [], '1 1 own 1'),
    (HIDDEN, ['-fvisibility=hidden'], [], '1 1 own 1'),
]


def printed(compiler, visibility, flags, program_flags):
    if 'clang' in compiler[-1]:  # which marks no symbol so that the object stays
        flags = [f for f in flags if f != '-fno-gnu-unique']
    with tempfile.TemporaryDirectory() as folder:
        for name, text in {'layer.hpp': LAYER, 'part.cpp': PART, 'program.cpp': PROGRAM}.items():
            (pathlib.Path(folder) / name).write_text(text)
        common = [*compiler, '-std=c++17', '-O1', f'-I{INCLUDE}', f'-DLAYER_VISIBILITY={visibility}', *flags]
        for name in ('first.so', 'second.so'):
            subprocess.run([*common, '-fPIC', '-shared', 'part.cpp', '-o', name], cwd=folder, check=True)
        subprocess.run([*common, 'program.cpp', *program_flags, '-o', 'program', '-pthread', '-ldl'], cwd=folder, check=True)
        run = subprocess.run(['./program'], cwd=folder, capture_output=True, text=True, timeout=60)
        return run.stdout.strip() if run.returncode == 0 else f'exit code {run.returncode}: {run.stdout} {run.stderr}'


def main():
    problems = []
    for visibility, flags, program_flags, expected in CASES:
        said = printed(sys.argv[1:], visibility, flags, program_flags)
        if said != expected:
            problems.append(f'{visibility or "hidden"} {flags} {program_flags}: {said!r} instead of {expected!r}')
    print('\n'.join(problems) or f'{len(CASES)} programs count as they should')
    return 1 if problems else 0


if __name__ == '__main__':
    sys.exit(main())
