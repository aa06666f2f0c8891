#!/usr/bin/env python3
"""Links translation units with different options into one program: they share one state and agree on every layout.

Also: a hook header included twice is a link error that names its cause, and the operators, the ledger and the hook's
symbols stay in the dynamic symbol table under hidden visibility. Takes the compiler's command.
"""
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
HERE = pathlib.Path(__file__).resolve().parent / 'mixed'
BASE = ['-std=c++17', f'-I{ROOT / "include"}', f'-I{HERE}', '-pthread']
UNITS = {
    'plain_o0': ['-O0'],
    'optimized': ['-O3', '-DNDEBUG'],
    'no_exceptions': ['-O2', '-fno-exceptions', '-fno-rtti'],
    'disabled': ['-O2', '-DTIDEMARK_OPT_DISABLE=1'],
    'disabled_no_exceptions': ['-O1', '-DTIDEMARK_OPT_DISABLE=1', '-fno-exceptions'],
    'hidden': ['-O2', '-fvisibility=hidden', '-fvisibility-inlines-hidden'],
    'cpp20': ['-O2', '-std=c++20'],
    'gnu17': ['-O2', '-std=gnu++17'],
}
MAIN = '''
#include "unit.hpp"
#include <cstdio>
%(declare)s
int main() {
  const unit_report reports[] = {%(call)s};
  const char* names[] = {%(name)s};
  int wrong = 0;
  for (int i = 0; i < %(count)d; ++i) {
    const unit_report& r = reports[i];
    const auto expect = [&](bool holds, const char* what) {
      if (holds) return;
      ++wrong;
      std::printf("%%s: %%s\\n", names[i], what);
    };
    expect(r.ledger == reports[0].ledger, "sees another ledger");
    expect(r.thread == reports[0].thread, "sees another thread state");
    expect(r.scope_bytes == reports[0].scope_bytes, "has another layout of a scope");
    expect(r.slot_bytes == reports[0].slot_bytes, "has another layout of a slot");
    expect(r.growth_bytes == (r.is_disabled ? -1 : 1'000 + static_cast<long>(sizeof(void*)) * 3), "measures wrong");
    expect(r.measured == 7, "did not run what it measured");
  }
  return wrong;
}
'''
EXPORTED = ['_Znwm', '_Znam', '_ZnwmSt11align_val_tRKSt9nothrow_t', '_ZdlPv', '_ZdaPvmSt11align_val_t', 'tidemark_hook',
            'tidemark_only_one_cpp_may_include_a_hook_header', 'own_ledger', 'own_thread']


def run(*command):
    return subprocess.run(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


def must(*command):
    done = run(*command)
    if done.returncode != 0:
        sys.exit(f'{" ".join(map(str, command))}\n{done.stdout}')
    return done.stdout


def main():
    compiler = sys.argv[1:]
    problems = []
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder)
        objects = []
        for name, flags in UNITS.items():
            objects.append(out / f'{name}.o')
            must(*compiler, *BASE, *flags, f'-DUNIT={name}', '-c', HERE / 'unit.cpp', '-o', objects[-1])
        hook = out / 'hook.cpp'
        hook.write_text('#include <tidemark/hook/global_new.hpp>\n')
        main_cpp = out / 'main.cpp'
        main_cpp.write_text(MAIN % {
            'declare': '\n'.join(f'unit_report {n}();' for n in UNITS),
            'call': ', '.join(f'{n}()' for n in UNITS),
            'name': ', '.join(f'"{n}"' for n in UNITS),
            'count': len(UNITS)})
        for extra in ([], ['-fvisibility=hidden', '-rdynamic'], ['-flto', '-Wodr', '-Werror=odr']):
            if '-flto' in extra and 'clang' in compiler[0]:
                continue  # needs a linker plugin that a bare clang does not bring
            must(*compiler, *BASE, '-O2', *extra, '-c', hook, '-o', out / 'hook.o')
            must(*compiler, *BASE, *extra, main_cpp, *objects, out / 'hook.o', '-o', out / 'program')
            done = run(out / 'program')
            if done.returncode != 0:
                problems.append(f'mixed options with {extra}: exit {done.returncode}\n{done.stdout}')
            if '-rdynamic' in extra:
                table = must('nm', '-D', '--defined-only', out / 'program')
                problems += [f'{symbol} is not in the dynamic symbol table' for symbol in EXPORTED if symbol not in table]

        must(*compiler, *BASE, '-c', hook, '-o', out / 'again.o')
        must(*compiler, *BASE, '-O2', '-c', hook, '-o', out / 'hook.o')
        twice = run(*compiler, *BASE, main_cpp, *objects, out / 'hook.o', out / 'again.o', '-o', out / 'twice')
        if twice.returncode == 0 or 'tidemark_only_one_cpp_may_include_a_hook_header' not in twice.stdout:
            problems.append('a hook header included twice links, or does not name its cause')
    print('\n'.join(problems) if problems else f'{len(UNITS)} units share one state')
    return 1 if problems else 0


if __name__ == '__main__':
    sys.exit(main())
