#!/usr/bin/env python3
"""Runs test programs under valgrind's memcheck, which must have no complaint, and a small one of each hook header with and
without the option that lets the hook see the heap: without it the readings are absent and name the option.

usage: memcheck_check.py COMPILER... -- TEST_PROGRAM...; exits with 77 where valgrind is not installed.
"""
import concurrent.futures
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

INCLUDE = pathlib.Path(__file__).resolve().parent.parent.parent / 'include'
OPTION = '--soname-synonyms=somalloc=nouserintercepts'
MEMCHECK = ['valgrind', '-q', '--error-exitcode=9', '--leak-check=full', '--errors-for-leak-kinds=definite',
            '--num-callers=20']
# What valgrind does otherwise than a machine: it takes no notice of RLIMIT_AS, calls an absurd size an error, and sees that
# looking for the stamp of a foreign block reads what nobody wrote.
LEFT_OUT = ['--test-case-exclude=*new-handler*,*throwing forms*,*cannot be*,*must fail*,*impossible*,*foreign*']
PROGRAM = '''#include <tidemark/hook/%s.hpp>
#include <tidemark/tidemark.hpp>
#include <cstdio>
#include <string>
int main() {
  const auto before = tidemark::thread_usage();
  char* p = new char[1'000];
  tidemark::escape(p);
  const auto after = tidemark::thread_usage();
  if (after) {
    std::printf("counted %%d\\n", static_cast<int>(after->live_bytes - before->live_bytes));
  } else {
    std::printf("absent: %%s\\n", std::string(after.why()).c_str());
  }
  delete[] p;
}
'''


def run(*command):
    return subprocess.run(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


def main():
    if not shutil.which('valgrind'):
        print('skipped: valgrind is not installed')
        return 77
    split = sys.argv.index('--')
    compiler, programs = sys.argv[1:split], sys.argv[split + 1:]
    problems = []
    with tempfile.TemporaryDirectory() as folder:
        for header in ('global_new', 'malloc'):
            program = pathlib.Path(folder) / header
            program.with_suffix('.cpp').write_text(PROGRAM % header)
            built = run(*compiler, '-std=c++17', '-O1', f'-I{INCLUDE}', program.with_suffix('.cpp'), '-o', program, '-pthread')
            if built.returncode != 0:
                sys.exit(built.stdout)
            seen = run(*MEMCHECK, OPTION, program)
            if seen.returncode != 0 or seen.stdout != 'counted 1000\n':
                problems.append(f'hook/{header} with the option: exit {seen.returncode}\n{seen.stdout}')
            unseen = run(*MEMCHECK, program)
            if unseen.returncode != 0 or not unseen.stdout.startswith('absent: ') or OPTION not in unseen.stdout:
                problems.append(f'hook/{header} without the option: exit {unseen.returncode}\n{unseen.stdout}')
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for program, done in zip(programs, pool.map(lambda p: run(*MEMCHECK, OPTION, p, *LEFT_OUT), programs)):
            if done.returncode != 0:
                problems.append(f'{program}: exit {done.returncode}\n{done.stdout[-3000:]}')
    print('\n'.join(problems) if problems else f'{len(programs)} test programs without a complaint')
    return 1 if problems else 0


if __name__ == '__main__':
    sys.exit(main())
