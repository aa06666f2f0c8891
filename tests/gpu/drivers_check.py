#!/usr/bin/env python3
"""Runs tests/gpu/drivers.cpp against fake drivers that are loaded as the real ones are, with the compiler given.

Builds three libraries that are called as NVML is (of today, of the first ABI, of the early 535 branch) and one that is
called as the CUDA driver is. Each case runs in a process of its own: a program loads a driver once. All of it once more under
AddressSanitizer and UBSan, which see what a count that lies makes anyone read.
"""
import os
import pathlib
import re
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
STRICT = ('-Wall -Wextra -Wpedantic -Wconversion -Wsign-conversion -Wshadow -Wold-style-cast -Wundef '
          '-Wnon-virtual-dtor -Wextra-semi -Werror').split()
# The libraries without UBSan: clang's would compare types of functions, which the real ones do not name.
PLAIN = ([], [])
SANITIZED = ('-fsanitize=address,undefined -fno-sanitize-recover=undefined -DTIDEMARK_OPT_SANITIZER_HOOKS=0'.split(),
             ['-fsanitize=address'])
# Which library, and which cases of it: a doctest filter.
DRIVERS = {
    'today': ([], ['-tse=first ABI']),
    'first_abi': (['-DFAKE_FIRST_ABI'], ['-ts=any age,first ABI']),
    'early_535': (['-DFAKE_EARLY_V3'], ['-ts=any age']),
}


def build(command, folder, program_flags, library_flags):
    """Where the program is; the libraries lie in folders beside it."""
    def run(*arguments):
        subprocess.run([*command, '-std=c++17', '-g', *STRICT, *arguments], check=True)

    for name, (macros, _) in DRIVERS.items():
        (folder / name).mkdir()
        run('-shared', '-fPIC', *library_flags, *macros, HERE / 'fake_nvml.cpp', '-o',
            folder / name / 'libnvidia-ml.so.1', '-pthread')
    run('-shared', '-fPIC', *library_flags, HERE / 'fake_cuda.cpp', '-o', folder / 'libcuda.so.1',
        '-Wl,-soname,libcuda.so.1', '-pthread')
    support = ROOT / 'tests' / 'support'
    run(*program_flags, f'-I{ROOT / "include"}', f'-I{support}', HERE / 'drivers.cpp', support / 'main.cpp', '-o',
        folder / 'drivers', '-pthread', '-ldl')
    return folder / 'drivers'


def run_cases(program, name, filters):
    """How many cases passed, and what the others said."""
    folder = program.parent
    environment = dict(os.environ, LD_LIBRARY_PATH=f'{folder / name}:{folder}',
                       FAKE_FIRST_ABI_LIBRARY=str(folder / 'first_abi' / 'libnvidia-ml.so.1'))
    for variable in ('LIB_NVML_PATH', 'TIDEMARK_GPU', 'CUDA_VISIBLE_DEVICES', 'CUDA_DEVICE_ORDER'):
        environment.pop(variable, None)

    def say(*arguments):
        return subprocess.run([program, *filters, *arguments], env=environment, text=True, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, timeout=120)

    count = int(re.search(r'unskipped test cases passing the current filters: (\d+)', say('--count').stdout).group(1))
    failures = []
    for i in range(1, count + 1):
        case = say(f'--first={i}', f'--last={i}')
        if case.returncode != 0 or not re.search(r'assertions:\s+[1-9]', case.stdout):
            failures.append(f'{name}, case {i}, exit status {case.returncode}:\n{case.stdout}')
    return count - len(failures), failures


def main():
    command = sys.argv[1:]
    passed, failures = 0, []
    for flags in (PLAIN, SANITIZED):
        with tempfile.TemporaryDirectory() as folder:
            program = build(command, pathlib.Path(folder), *flags)
            for name, (_, filters) in DRIVERS.items():
                good, bad = run_cases(program, name, filters)
                passed += good
                failures += bad
    print(*failures, f'{passed} cases passed, {len(failures)} failed', sep='\n')
    return 1 if failures or passed == 0 else 0


if __name__ == '__main__':
    sys.exit(main())
