#!/usr/bin/env python3
"""Makes the single file by tools/amalgamate and uses it in place of include/, with the compiler given.

The code and the macros that the preprocessor leaves of it are those of include/tidemark/tidemark.hpp, whatever the target;
it and the headers beside it compile as headers_check.py compiles the others; and examples and tests run that include no
other header. Of those that include the same headers the smallest stands for all.
"""
import concurrent.futures
import os
import pathlib
import re
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
from headers_check import HOSTILE, ROOT, STRICT, SYSTEM_INCLUDE  # noqa: E402

INCLUDE = ROOT / 'include'
OWN_INCLUDE = re.compile(r'^\s*#\s*include\s*<(tidemark/[^>]+)>', re.M)
OTHER_LIBRARY = re.compile(r'^\s*#\s*include\s*<(?!tidemark/|sys/|doctest/)[^>]+/', re.M)
THERE = re.compile(r'tidemark/(tidemark\.hpp|hook/.*|testing/.*|bridge/.*)')
# Branches of the preprocessor that one target does not take.
TARGETS = ([], ['-DTIDEMARK_OPT_DISABLE=1'], ['-fno-exceptions', '-fPIC', '-std=c++20'], ['-fsanitize=thread'],
           ['-U__unix__', '-U__linux__'])
HOOK_TARGETS = ([], ['-DTIDEMARK_OPT_DISABLE=1'], ['-fsanitize=address'])
SECOND_UNIT = '''#include <tidemark/tidemark.hpp>
long second();
long second() { tidemark::scope s("second"); delete[] new volatile char[7]; return s.usage() ? s.usage()->peak_growth() : -1; }
'''
FIRST_UNIT = '''#include <tidemark/hook/global_new.hpp>
#include <tidemark/tidemark.hpp>
long second();
int main() { return second() == 7 ? 0 : 1; }
'''


def run(*command, **settings):
    return subprocess.run([str(c) for c in command], text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          **settings)


def complaint(*command, **settings):
    """Empty where the command succeeds."""
    done = run(*command, **settings)
    return '' if done.returncode == 0 else f'exit {done.returncode}\n{done.stdout[-2000:]}'


def preprocessed(command, folder, flags):
    """The library's own lines, in order, and all macros with their values."""
    def output(*more):
        return subprocess.run([*command, '-std=c++17', f'-I{folder}', *flags, *more, '-E', '-x', 'c++', '-'], text=True,
                              input='#include <tidemark/tidemark.hpp>\n', stdout=subprocess.PIPE, check=True).stdout
    lines, is_own = [], False
    for line in output().splitlines():
        marker = re.match(r'# \d+ "([^"]*)"', line)
        if marker:
            is_own = marker.group(1).startswith(str(folder))
        elif is_own and line.strip():
            lines.append(line.strip())
    return lines, set(output('-dM').splitlines())


class single:
    def __init__(self, command, work):
        self.command = command
        self.work = work
        self.folder = work / 'single'
        self.base = [*command, '-std=c++17', f'-I{self.folder}']
        made = complaint(ROOT / 'tools' / 'amalgamate', self.folder)
        if made:
            sys.exit(f'tools/amalgamate: {made}')
        self.headers = sorted(p.relative_to(self.folder).as_posix() for p in self.folder.rglob('*.hpp'))
        # What the tests' own helpers include. The single folder has no such files.
        self.forward = work / 'forward'
        for path in INCLUDE.rglob('*.hpp'):
            name = path.relative_to(INCLUDE)
            if not (self.folder / name).exists():
                (self.forward / name).parent.mkdir(parents=True, exist_ok=True)
                (self.forward / name).write_text('#pragma once\n#include <tidemark/tidemark.hpp>\n')

    def every_header_is_there(self):
        inside = re.findall(r'^// ---- (tidemark/.*)$', (self.folder / 'tidemark' / 'tidemark.hpp').read_text(), re.M)
        beside = [h for h in self.headers if h != 'tidemark/tidemark.hpp']
        wanted = sorted(p.relative_to(INCLUDE).as_posix() for p in INCLUDE.rglob('*.hpp'))
        if sorted(inside + beside) != wanted:
            return f'the headers of include/ and those of the single folder differ: {set(inside + beside) ^ set(wanted)}'
        for h in self.headers:
            text = (self.folder / h).read_text()
            for word in ('#pragma once', 'SPDX-License-Identifier'):
                if text.count(word) != 1:
                    return f'{h}: not one {word}'
            strange = [i for i in OWN_INCLUDE.findall(text) if i not in self.headers or h == 'tidemark/tidemark.hpp']
            if strange:
                return f'{h} includes {strange}'
        return ''

    def same_code(self, flags):
        lines, macros = preprocessed(self.command, self.folder, flags)
        wanted_lines, wanted_macros = preprocessed(self.command, INCLUDE, flags)
        if macros != wanted_macros:
            return f'other macros: {sorted(macros ^ wanted_macros)[:20]}'
        if lines != wanted_lines:
            at = next((i for i, (a, b) in enumerate(zip(lines, wanted_lines)) if a != b), min(len(lines), len(wanted_lines)))
            return f'other code: {lines[at:at + 3]} for {wanted_lines[at:at + 3]}'
        return '' if len(lines) > 100 else f'only {len(lines)} lines'

    def compiles(self, name, source, *flags):
        path = self.work / (re.sub(r'\W+', '_', name) + '.cpp')
        path.write_text(source)
        return complaint(*self.base, '-fsyntax-only', *flags, path)

    def two_units(self):
        first, second, program = self.work / 'first.cpp', self.work / 'second.cpp', self.work / 'two_units'
        first.write_text(FIRST_UNIT)
        second.write_text(SECOND_UNIT)
        return complaint(*self.base, *STRICT, first, second, '-o', program, '-pthread') or complaint(program)

    def program(self, path, doctest_main):
        """A second source belongs to a test where it has the test's name and ends in _other."""
        other = path.with_name(path.name.replace('_test.cpp', '_other.cpp'))
        program = self.work / path.stem
        return complaint(*self.base, f'-I{self.forward}', f'-I{ROOT / "tests" / "support"}', '-O1', path,
                         *([other] if other != path and other.exists() else []),
                         *([doctest_main] if path.name.endswith('_test.cpp') else []), '-o', program, '-pthread') \
            or complaint(program, cwd=ROOT, env={**os.environ, 'MALLOC_PERTURB_': '0'})


def qualifying():
    """The programs that include only what the single folder has: for each set of such headers, the smallest."""
    found = {}
    for path in sorted([*ROOT.glob('examples/*.cpp'), *ROOT.glob('tests/*/*_test.cpp')], key=lambda p: p.stat().st_size):
        text = path.read_text()
        own = frozenset(OWN_INCLUDE.findall(text))
        if OTHER_LIBRARY.search(text):
            continue
        if own and all(THERE.fullmatch(i) for i in own):
            found.setdefault(own, path)
    return list(found.values())


def main():
    command = sys.argv[1:]
    problems, count = [], 0
    with tempfile.TemporaryDirectory() as folder, concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        s = single(command, pathlib.Path(folder).resolve())
        doctest_main = s.work / 'doctest_main.o'
        main_compiled = pool.submit(complaint, *s.base, f'-I{s.forward}', '-c', ROOT / 'tests' / 'support' / 'main.cpp',
                                    '-o', doctest_main)
        jobs = {'every header': pool.submit(s.every_header_is_there)}
        for flags in TARGETS:
            jobs[f'same code and macros with {" ".join(flags) or "no options"}'] = pool.submit(s.same_code, flags)
        public = [h for h in s.headers if '/detail/' not in h]
        # It is tried with the toolkit's headers in gpu/cuda_resource_check.py.
        public.remove('tidemark/gpu/cuda_resource.hpp')
        hooks = [h for h in public if h.startswith('tidemark/hook/')]
        for h in public:
            for flags in HOOK_TARGETS if h in hooks else ([],):
                name = f'{h} alone and twice {" ".join(flags)}'
                jobs[name] = pool.submit(s.compiles, name, f'#include <{h}>\n' * 2 + 'int main() { return 0; }\n', *STRICT, *flags)
        system = sorted({i for p in INCLUDE.rglob('*.hpp') for i in SYSTEM_INCLUDE.findall(p.read_text())})
        hostile = ''.join(f'#if __has_include(<{i}>)\n#include <{i}>\n#endif\n' for i in system) \
            + ''.join(f'#undef {m}\n#define {m} @\n' for m in HOSTILE)
        for h in hooks:
            name = f'tidemark.hpp and {h} after hostile macros'
            jobs[name] = pool.submit(s.compiles, name, f'{hostile}#include <tidemark/tidemark.hpp>\n#include <{h}>\n')
        jobs['two units'] = pool.submit(s.two_units)
        said = main_compiled.result()
        if said:
            sys.exit(f'tests/support/main.cpp: {said}')
        programs = qualifying()
        if not programs:
            problems.append('no example and no test includes only what the single folder has')
        for path in programs:
            jobs[path.relative_to(ROOT).as_posix()] = pool.submit(s.program, path, doctest_main)
        problems += [f'{name}: {job.result()}' for name, job in jobs.items() if job.result()]
        count = len(jobs)
    print('\n'.join(problems) if problems else f'{count} checks, {len(programs)} of them programs: '
          + ', '.join(p.stem for p in programs))
    return 1 if problems else 0


if __name__ == '__main__':
    sys.exit(main())
