#!/usr/bin/env python3
"""Compiles every C++ block of the README and the docs with the compiler given, and runs those that show their output.

usage: code_blocks_check.py [--compile-only] COMPILER...

A block with `int main` is a program; one that begins with a declaration is compiled as it stands, any other inside a
function, both after the includes that a reader is told of. A `text` block that directly follows a program, but for shell
blocks, is its output: it must be what the program prints, apart from durations, the resident set, the heap's sum, the
source file, and what names the process and the moment in JSON lines and CSV rows.
"""
import concurrent.futures
import os
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
FENCE = re.compile(r'^```(\w*)\n(.*?)^```$', re.M | re.S)
PRELUDE = '''#include <tidemark/tidemark.hpp>
#include <tidemark/testing/expect.hpp>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>
'''
DECLARATION = re.compile(r'^(#include|struct|class|template|void|int|using|namespace|inline)\b')
DURATION = re.compile(r'\b\d+(\.\d+)? (ns|us|ms|s)\b')


BYTES = re.compile(r'[+-]?\d+(\.\d+)? [KMG]?i?B\b')
OF_THE_RUN = re.compile(r'"(file|pid|thread|start_ns|duration_ns)":("[^"]*"|\d+)')
COLUMNS_OF_THE_RUN = ('file', 'pid', 'thread', 'start_ns', 'duration_ns')


def plain(output):
    """The lines of an output without what varies; how wide a column is depends on it."""
    lines, columns = [], []
    for line in output.strip().splitlines():
        if line.startswith('path,name,'):
            columns = line.split(',')
        elif columns and line.count(',') == len(columns) - 1:
            line = ','.join('_' if name in COLUMNS_OF_THE_RUN else field for name, field in zip(columns, line.split(',')))
        if re.search(r'\bresident\b', line) or line.startswith('heap: '):  # which has the sinks' own objects
            line = BYTES.sub('<bytes>', line)
        line = re.sub(r'^\S+\.cpp:(\d+): ', r'<file>:\1: ', line)
        lines.append(re.sub(' {2,}', '  ', DURATION.sub('<duration>', OF_THE_RUN.sub(r'\1', line.rstrip()))))
    return lines


def source_of(block):
    if 'int main(' in block:
        return block
    first = next(line for line in block.splitlines() if line.strip() and not line.startswith('//'))
    if DECLARATION.match(first):
        return PRELUDE + block
    return f'{PRELUDE}void shown();\nvoid shown() {{\n{block}}}\n'


FLAGS = ['-std=c++17', '-O2', '-Wall', '-Wextra', '-Wpedantic', '-Werror', '-Wno-unused-variable', f'-I{ROOT / "include"}']
EVERYTHING = '#include <tidemark/tidemark.hpp>\n'


def compiled_header(command, folder):
    """What most blocks begin with, compiled once: arguments for those."""
    header = pathlib.Path(folder) / 'everything.hpp'
    header.write_text(EVERYTHING)
    kind = 'pch' if 'clang' in command[-1] else 'gch'
    built = subprocess.run([*command, *FLAGS, '-x', 'c++-header', str(header), '-o', f'{header}.{kind}'], check=False)
    return ['-include', str(header)] if built.returncode == 0 else []


def verdict(command, name, block, output, is_run, common):
    """What is wrong with one block; empty where nothing is."""
    with tempfile.TemporaryDirectory() as folder:
        source = pathlib.Path(folder) / 'block.cpp'
        source.write_text(source_of(block))
        is_program = is_run and 'int main(' in block
        target = ['-o', os.path.join(folder, 'block'), '-pthread'] if is_program else ['-fsyntax-only']
        has_everything = EVERYTHING in source.read_text() and 'TIDEMARK_OPT' not in block
        built = subprocess.run([*command, *FLAGS, *(common if has_everything else []), str(source), *target],
                               text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        if built.returncode != 0:
            return f'{name}: does not compile\n{built.stdout[:1500]}'
        if not is_program or output is None:
            return ''
        ran = subprocess.run([os.path.join(folder, 'block')], cwd=folder, text=True, stdout=subprocess.PIPE,
                             stderr=subprocess.STDOUT)
        if ran.returncode != 0 or plain(ran.stdout) != plain(output):
            return f'{name}: exit {ran.returncode}; it prints\n{ran.stdout}\nand the text says\n{output}'
        return ''


def main():
    command = sys.argv[1:]
    is_run = command[0] != '--compile-only'
    if not is_run:
        del command[0]
    jobs, outputs = [], 0
    for page in [ROOT / 'README.md', *sorted((ROOT / 'docs').glob('*.md')), ROOT / 'bench' / 'README.md']:
        if not page.exists():
            continue
        text = page.read_text()
        blocks = [(m.group(1), m.group(2), text.count('\n', 0, m.start()) + 1) for m in FENCE.finditer(text)]
        shown = [b for b in blocks if b[0] != 'sh']
        for i, (kind, block, line) in enumerate(shown):
            if kind != 'cpp':
                continue
            output = shown[i + 1][1] if i + 1 < len(shown) and shown[i + 1][0] == 'text' and 'int main(' in block else None
            outputs += output is not None
            jobs.append((command, f'{page.relative_to(ROOT)}:{line}', block, output, is_run))
    quickstart = (ROOT / 'examples' / 'quickstart.cpp').read_text().split('\n', 1)[1]  # without its license line
    first = jobs[0][2]
    with tempfile.TemporaryDirectory() as folder, concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        common = compiled_header(command, folder)
        problems = [p for p in pool.map(lambda job: verdict(*job, common), jobs) if p]
    if first != quickstart:
        problems.append('README.md: its first program is not examples/quickstart.cpp')
    print('\n'.join(problems) if problems else f'{len(jobs)} blocks compile, {outputs if is_run else "none asked to"} print what the text says')
    return 1 if problems else 0


if __name__ == '__main__':
    sys.exit(main())
