#!/usr/bin/env python3
"""Runs sys/allocator_program over jemalloc, tcmalloc and mimalloc, preloaded and linked, with and without hook/malloc
in front: each must be named, count the blocks that the program allocates and frees, and give them back on demand.
A malloc that nobody knows must be said to be none of them.

usage: allocator_check.py COMPILER...; names what is not installed.
"""
import os
import pathlib
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / 'hook'))
from other_allocators_check import LIBRARIES, installed  # noqa: E402

FLAGS = ['-std=c++17', '-O1', '-pthread', f'-I{HERE.parent.parent / "include"}']
ALLOCATED = 4000 * 40000
MiB = 1 << 20
# As large as its books, and what it rounds a block of 40,000 bytes up to.
MORE = {'glibc': 1.01, 'jemalloc': 1.05, 'tcmalloc': 1.05}
FREED = ALLOCATED - 2 * 40000
OWN_MALLOC = '''
#include <stddef.h>
#include <string.h>
static _Alignas(16) char heap[256 << 20];
static size_t used;
void *malloc(size_t n) {
  size_t *p = (size_t *)(heap + used);
  if (n > 32 << 20) return NULL;
  used += (n + 31) / 16 * 16;
  if (used > sizeof heap) return NULL;
  *p = n;
  return p + 2;
}
void free(void *p) { (void)p; }
void *calloc(size_t n, size_t m) { return malloc(n * m); }
void *realloc(void *p, size_t n) {
  void *q = malloc(n);
  if (p && q) memcpy(q, p, ((size_t *)p)[-2] < n ? ((size_t *)p)[-2] : n);
  return q;
}
'''


def run(*command, **more):
    return subprocess.run(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, **more)


def problems_of(kind, said):
    """What is wrong with the lines that the program printed."""
    lines = dict(line.split(' ', 1) for line in said.splitlines() if ' ' in line)
    found = []

    def expect(what, holds):
        if not holds:
            found.append(what)

    def number(name):
        text = lines.get(name, '?')
        return None if text.startswith('?') else int(text)

    expect(f'the kind is {kind}', lines.get('kind') == kind)
    given, fell = number('given'), number('fell')
    expect('what was given back is what the resident set fell by',
           None not in (given, fell) and abs(given - fell) < 2 * MiB)
    expect('nothing of the library is counted', lines.get('counted', '0') == '0')
    # jemalloc gives back a part by itself, and mimalloc what fills whole segments only.
    least = FREED * {'jemalloc': 0.3, 'mimalloc': 0.3}.get(kind, 0.9)
    expect('freed blocks are given back', given is not None and given > least)
    if kind not in MORE:
        for name in ('in_use_full', 'retained_full'):
            expect(f'{name} has a reason', lines.get(name, '').startswith(f'? {kind}'))
        return found
    grown = (number('in_use_full') or 0) - (number('in_use_first') or 0)
    expect('the blocks are in use', ALLOCATED <= grown <= ALLOCATED * MORE[kind])
    expect('freed blocks are not', abs((number('in_use_freed') or 0) - (number('in_use_first') or 0)) < MiB)
    expect('freed blocks are retained', (number('retained_freed') or 0) > least)
    expect('what is retained is given back', given is not None and given > 0.8 * (number('retained_freed') or 0))
    return found


def main():
    compiler = sys.argv[1:]
    libraries = installed()
    for name in LIBRARIES:
        if name not in libraries:
            print(f'skipped: {name} is not installed')
    kinds = {'libjemalloc.so.2': 'jemalloc', 'libtcmalloc_minimal.so.4': 'tcmalloc', 'libmimalloc.so.2': 'mimalloc'}
    problems = []

    def expect(what, kind, program, preloaded=''):
        env = dict(os.environ, LD_PRELOAD=preloaded) if preloaded else dict(os.environ)
        done = run(program, env=env)
        failed = [f'it ends well, not with {done.returncode}']
        wrong = problems_of(kind, done.stdout) if done.returncode == 0 else failed
        if wrong:
            problems.append(f'--- {what}:\n{done.stdout}does not hold: ' + '; '.join(wrong))

    with tempfile.TemporaryDirectory() as folder:

        def build(name, *more):
            built = pathlib.Path(folder) / name
            done = run(*compiler, *FLAGS, HERE / 'allocator_program.cpp', '-o', built, *more, '-ldl')
            if done.returncode != 0:
                raise RuntimeError(done.stdout)
            return built

        plain, hooked = build('plain'), build('hooked', '-DWITH_HOOK')
        expect('glibc', 'glibc', plain)
        expect('glibc below the hook', 'glibc', hooked)
        static = pathlib.Path(folder) / 'static'
        if run(*compiler, *FLAGS, HERE / 'allocator_program.cpp', '-o', static, '-static').returncode == 0:
            expect('glibc, linked statically', 'glibc', static)
        else:
            print('skipped: this system has no static C library')
        for library, path in libraries.items():
            kind = kinds[library]
            expect(f'{kind} preloaded', kind, plain, path)
            expect(f'{kind} preloaded below the hook', kind, hooked, path)
            linked = build(f'linked_{kind}', '-Wl,--no-as-needed', path)
            expect(f'{kind} linked', kind, linked)
            if kind != 'jemalloc':  # whose own operators then meet glibc's free
                said = run(linked, env=dict(os.environ, LD_PRELOAD='libc.so.6')).stdout
                if not said.startswith('kind glibc\n'):
                    problems.append(f"--- {kind} linked behind glibc, whose malloc comes first:\n{said}")
        if 'libjemalloc.so.2' in libraries and 'libtcmalloc_minimal.so.4' in libraries:
            expect('tcmalloc preloaded in front of jemalloc', 'tcmalloc', pathlib.Path(folder) / 'linked_jemalloc',
                   libraries['libtcmalloc_minimal.so.4'])
        own = pathlib.Path(folder) / 'own.so'
        (pathlib.Path(folder) / 'own.c').write_text(OWN_MALLOC)
        done = run(*compiler, '-x', 'c', '-O1', '-shared', '-fPIC', '-fno-builtin', pathlib.Path(folder) / 'own.c',
                   '-o', own)
        if done.returncode != 0:
            raise RuntimeError(done.stdout)
        for program in (plain, hooked):
            said = run(program, env=dict(os.environ, LD_PRELOAD=str(own))).stdout
            for name in ('kind', 'in_use_first', 'retained_freed', 'given'):
                if f'{name} ? malloc is none of those' not in said:
                    problems.append(f'--- a malloc that nobody knows has no {name} ({program.name}):\n{said}')
    names = ', '.join(['glibc'] + [kinds[library] for library in libraries])
    print('\n'.join(problems) if problems else f'each is named and counts: {names}')
    return 1 if problems else 0


if __name__ == '__main__':
    sys.exit(main())
