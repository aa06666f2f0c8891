#!/usr/bin/env python3
"""What an include costs, in preprocessed lines: all of them, and those that are the library's own.

The limits hold for g++ 12 and C++17; elsewhere the standard library's own size differs and the check is skipped.
"""
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
LIMITS = {'core/account.hpp': (8_000, 2_000), 'scope/scope.hpp': (32_000, 4_000), 'tidemark.hpp': (85_000, 20_000)}
SKIP = 77


def preprocess(command, header, *flags):
    return subprocess.run([*command, '-std=c++17', f'-I{ROOT / "include"}', '-E', *flags, '-x', 'c++', '-'], text=True,
                          input=f'#include <tidemark/{header}>\n', stdout=subprocess.PIPE, check=True).stdout


def own_lines(text):
    """Lines that come from the library's own files, told by the line markers; blank ones do not count."""
    own, count = False, 0
    for line in text.splitlines():
        marker = re.match(r'# \d+ "([^"]*)"', line)
        if marker:
            own = '/include/tidemark/' in marker.group(1)
        elif own and line.strip():
            count += 1
    return count


def main():
    command = sys.argv[1:]
    if subprocess.run([*command, '-dumpversion'], text=True, stdout=subprocess.PIPE).stdout.split('.')[0].strip() != '12' \
            or 'clang' in command[-1]:
        print('skipped: the limits are for g++ 12')
        return SKIP
    failed = 0
    for header, (limit, own_limit) in LIMITS.items():
        lines = preprocess(command, header, '-P').count('\n')
        own = own_lines(preprocess(command, header))
        verdict = 'ok' if lines <= limit and own <= own_limit else 'TOO MUCH'
        failed += verdict != 'ok'
        print(f'{header:20} {lines:6} lines of {limit}, {own:5} own of {own_limit}  {verdict}')
    if '<chrono>' in preprocess(command, 'scope/scope.hpp', '-P') or '/chrono"' in preprocess(command, 'scope/scope.hpp'):
        print('scope/scope.hpp includes <chrono>')
        failed += 1
    return 1 if failed else 0


if __name__ == '__main__':
    sys.exit(main())
