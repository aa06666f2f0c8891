#!/usr/bin/env python3
"""Builds hook/shared/: a program and a shared object, linked or opened, that share a ledger, hand it over, or know that
they do not. The shared objects are built by the compiler given and, where it is there, by the other of g++ and clang++.

Takes the compiler's command. TIDEMARK_INCLUDE names another include folder. Exits with 1 and says what failed.
"""
import concurrent.futures
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent / 'shared'
INCLUDE = os.environ.get('TIDEMARK_INCLUDE', HERE.parent.parent.parent / 'include')
FLAGS = ['-std=c++17', '-O1', '-pthread', f'-I{INCLUDE}'] + (
    '-Wall -Wextra -Wpedantic -Wconversion -Wsign-conversion -Wshadow -Wold-style-cast -Wundef -Wnon-virtual-dtor '
    '-Wextra-semi -Werror').split()
HIDDEN = ['-fvisibility=hidden', '-fvisibility-inlines-hidden']

# Name: flags of the compiler.
HOOKS = {
    'new': [],
    'new_hidden': HIDDEN,
    'malloc': ['-DHOOK_MALLOC', *HIDDEN],
    'asks_sizes': ['-DTIDEMARK_OPT_ASK_SIZES=1'],
}
PARTS = {
    'plain': [],
    'hidden': HIDDEN,
    # g++ marks what it shares so that the object is never unloaded; clang++ does not.
    'unloadable': [*HIDDEN, '-fno-gnu-unique'],
    'disabled': ['-DTIDEMARK_OPT_DISABLE=1'],
    'no_exceptions': ['-fno-exceptions'],
}
# Name: flags of main, its hook, flags of the linker.
PROGRAMS = {
    'new': ([], 'new', []),
    'new_exports': ([], 'new', ['-rdynamic']),
    'hidden_exports': (HIDDEN, 'new_hidden', ['-rdynamic']),
    'malloc': ([], 'malloc', []),
    'malloc_exports': ([], 'malloc', ['-rdynamic']),
    'asks_sizes': ([], 'asks_sizes', []),
    'bare': ([], None, []),
    'bare_exports': ([], None, ['-rdynamic']),
}
# Name: the part, its hook, flags of the linker.
PLUGINS = {
    'plain': ('plain', None, []),
    'hidden': ('hidden', None, []),
    'unloadable': ('unloadable', None, []),
    'now': ('plain', None, ['-Wl,-z,now']),
    'symbolic': ('unloadable', None, ['-Wl,-Bsymbolic']),
    'hook_new': ('plain', 'new', []),
    'hook_malloc': ('hidden', 'malloc', []),
    'disabled': ('disabled', None, []),
    'no_exceptions': ('no_exceptions', None, []),
}
# Program, mode and plugins.
OPENED = [
    ('new_exports', 'shared', ['plain', 'hidden', 'now', 'no_exceptions', 'hook_new']),
    ('new_exports', 'shared global', ['plain', 'hidden']),
    ('hidden_exports', 'shared', ['plain', 'hidden']),
    ('malloc_exports', 'shared', ['hidden']),
    ('new', 'split', ['plain', 'hidden', 'now', 'no_exceptions']),
    ('malloc', 'split', ['plain', 'hidden']),
    ('new_exports', 'split', ['symbolic']),
    ('new', 'split global', ['plain']),
    ('new', 'handed', ['plain', 'hidden', 'now', 'no_exceptions']),
    ('new_exports', 'handed', ['symbolic', 'plain']),
    ('malloc', 'handed', ['plain', 'hidden']),
    ('asks_sizes', 'handed', ['hidden']),
    ('new', 'late', ['plain', 'hidden']),
    ('new_exports', 'late', ['symbolic']),
    ('new_exports', 'fork_handler', ['hidden']),
    ('new', 'fork_handler', ['hidden']),
    ('new', 'part_hook', ['hook_new', 'hook_malloc']),
    ('malloc', 'part_hook', ['hook_new', 'hook_malloc']),
    ('bare', 'no_hook', ['plain', 'hidden']),
    ('bare_exports', 'no_hook', ['plain', 'hidden']),
    ('new', 'disabled', ['disabled']),
    ('new_exports', 'disabled', ['disabled']),
] + [(program + ('_exports' if how == 'shared' else ''), f'{what}.{how}', plugins)
     for program, whats, plugins in (('new', ['rounds', 'closed', 'sink', 'text'], ['plain', 'unloadable']),
                                     ('malloc', ['rounds', 'closed'], ['unloadable']))
     for what in whats for how in ('shared', 'handed', 'split')]
# What is linked: flags of main, its hook, the part, its hook.
LINKED = {
    'hook in the program': ([], 'new', 'plain', None),
    'hook in the program, all hidden': (HIDDEN, 'new_hidden', 'hidden', None),
    'malloc hook in the program': ([], 'malloc', 'hidden', None),
    'hook in the library': ([], None, 'plain', 'new'),
    'hook in the library, all hidden': (HIDDEN, None, 'hidden', 'new_hidden'),
    'malloc hook in the library': ([], None, 'hidden', 'malloc'),
}
# What the other compiler builds too.
OF_BOTH = ['plain', 'hidden', 'unloadable', 'symbolic', 'hook_new', 'hook in the program', 'hook in the program, all hidden',
           'hook in the library']
LIBRARIES = ['-pthread', '-ldl']


def run(*command, **more):
    return subprocess.run(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, **more)


def must(*command):
    done = run(*command)
    if done.returncode != 0:
        sys.exit(f'{" ".join(map(str, command))}\n{done.stdout}')


class builder:
    """Compiles a source with the same flags once, whoever asks, and starts doing so when it is first asked."""

    def __init__(self, out, pool):
        self.out, self.pool, self.made = out, pool, {}

    def object(self, compiler, source, flags):
        key = (*compiler, source, *flags)
        if key not in self.made:
            target = self.out / f'{len(self.made)}.o'
            self.made[key] = self.pool.submit(self._compile, target, *compiler, *FLAGS, *flags, '-c', HERE / source)
        return self.made[key]

    @staticmethod
    def _compile(target, *command):
        must(*command, '-o', target)
        return target

    def hook(self, compiler, name):
        return [] if name is None else [self.object(compiler, 'hook.cpp', ['-fPIC', *HOOKS[name]])]

    def program(self, compiler, flags, hook):
        return [self.object(compiler, 'program.cpp', flags), *self.hook(compiler, hook)]

    def part(self, compiler, name, hook):
        is_clang = 'clang' in compiler[-1]
        flags = [f for f in PARTS[name] if not (is_clang and f == '-fno-gnu-unique')]
        return [self.object(compiler, 'part.cpp', ['-fPIC', *flags]), *self.hook(compiler, hook)]


def link(compiler, flags, objects, target):
    must(*compiler, *flags, *[o.result() if hasattr(o, 'result') else o for o in objects], '-o', target, *LIBRARIES)


def main():
    compiler = sys.argv[1:]
    other = ['g++' if 'clang' in compiler[-1] else 'clang++']
    part_compilers = [compiler] + ([other] if shutil.which(other[0]) else [])
    problems = []
    with tempfile.TemporaryDirectory() as folder, concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        out = pathlib.Path(folder)
        build = builder(out, pool)
        links = []  # arguments of link()
        jobs = []  # title, program, mode, plugin
        for name, (flags, hook, linker) in PROGRAMS.items():
            links.append((compiler, linker, build.program(compiler, flags, hook), out / name))
        for n, by in enumerate(part_compilers):
            who = by[-1].split('/')[-1]
            built = [name for name in [*PLUGINS, *LINKED] if n == 0 or name in OF_BOTH]
            for name, (part, hook, linker) in PLUGINS.items():
                if name not in built:
                    continue
                links.append((by, ['-shared', *linker], build.part(by, part, hook), out / f'{n}_{name}.so'))
            for program, mode, plugins in OPENED:
                jobs += [(f'{program}, {mode}: {p} by {who}', out / program, mode, out / f'{n}_{p}.so')
                         for p in plugins if p in built]
            for name, (flags, hook, part, part_hook) in LINKED.items():
                if name not in built:
                    continue
                place = out / f'{n}_linked_{len(links)}'
                library = place.with_suffix('.so')
                links.append((by, ['-shared'], build.part(by, part, part_hook), library))
                links.append((compiler, ['-Wl,--no-as-needed'], [*build.program(compiler, flags, hook), library], place))
                jobs.append((f'{name}, library by {who}', place, 'shared', None))
        for arguments in links:
            link(*arguments)

        def checked(job):
            title, program, mode, plugin = job
            words = mode.split()
            try:
                done = run(program, words[0], *([plugin] if plugin else []), *words[1:], timeout=30)
            except subprocess.TimeoutExpired as e:
                return f'does not end\n{(e.stdout or b"").decode()}'
            return '' if done.returncode == 0 and not done.stdout else f'exit {done.returncode}\n{done.stdout}'

        for job, said in zip(jobs, pool.map(checked, jobs)):
            if said:
                problems.append(f'--- {job[0]}: {said}')
    for p in problems:
        print(p)
    print(f'{len(jobs) - len(problems)} of {len(jobs)} combinations keep their promise')
    return 1 if problems else 0


if __name__ == '__main__':
    sys.exit(main())
