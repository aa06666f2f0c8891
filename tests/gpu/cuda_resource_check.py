#!/usr/bin/env python3
"""Compiles gpu/cuda_resource.hpp against the CUDA Toolkit's headers with the compiler given, and its test with nvcc.

Alone and twice, under the project's warnings, for a system that is no Linux, after hostile macros; and a program of two
units, with exceptions and without, which runs out of memory in each. Exits with 77 where CUDA's headers are missing.
"""
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.dont_write_bytecode = True
sys.path.insert(0, str(HERE.parent / 'build'))
from headers_check import HOSTILE, INCLUDE, STRICT, compiler_says  # noqa: E402

HEADER = '#include <tidemark/gpu/cuda_resource.hpp>\n'
MAIN = 'int main() { return 0; }\n'
NO_EXCEPTIONS = ['-fno-exceptions', '-fno-rtti']

# Both units count in the same domain, whatever their options.
THROWING_UNIT = HEADER + '''#include <cstdio>
#include "fake_cudart.hpp"
void* take(const tidemark::detail::domain_node&, std::size_t);
int main() {
  tidemark::domain d("shared", {-1, nullptr, true});
  tidemark::gpu::cuda_resource r(d);
  void* p = r.allocate(100);
  void* q = take(d.node(), 200);
  std::printf("%lld live\\n", static_cast<long long>(d.current().live_bytes));
  r.deallocate(p, 100);
  r.deallocate(q, 200);
  fake_cudart::behave().allocation_answer = cudaErrorMemoryAllocation;
  try {
    static_cast<void>(r.allocate(2'048));
  } catch (const tidemark::gpu::cuda_bad_alloc& e) {
    std::puts(e.what());
  }
  std::fflush(stdout);
  take(d.node(), 1'024);
  std::puts("not reached");
}
'''
ABORTING_UNIT = HEADER + '''
void* take(const tidemark::detail::domain_node&, std::size_t);
void* take(const tidemark::detail::domain_node& node, std::size_t bytes) {
  for (const tidemark::domain& d : tidemark::domains()) {
    if (&d.node() == &node) return tidemark::gpu::cuda_resource(d).allocate(bytes);
  }
  return nullptr;
}
'''
# What every unit of nvcc's calls as it is loaded.
REGISTRATION = '''extern "C" {
void** __cudaRegisterFatBinary(void*) { static void* handle = nullptr; return &handle; }
void __cudaRegisterFatBinaryEnd(void**) {}
void __cudaUnregisterFatBinary(void**) {}
char __cudaInitModule(void**) { return 0; }
}
'''
SAID = '''300 live
cudaMalloc: out of memory (cudaErrorMemoryAllocation); 2.0 KiB requested, 0 B in use in the same domain
'''
SAID_AT_THE_END = 'tidemark: ' + SAID.splitlines(True)[1].replace('2.0 KiB', '1.0 KiB')


def find_nvcc():
    places = [pathlib.Path(os.environ[v]) / 'bin' / 'nvcc' for v in ('CUDA_HOME', 'CUDA_PATH') if v in os.environ]
    found = [shutil.which('nvcc')] + [str(p) for p in [*places, pathlib.Path('/usr/local/cuda/bin/nvcc')] if p.exists()]
    return next((f for f in found if f), None)


def find_headers(command, nvcc):
    """The flags with which <cuda_runtime_api.h> is found. None: it is not."""
    folders = [pathlib.Path(nvcc).resolve().parent.parent / 'include'] if nvcc else []
    for flags in [[], *(['-isystem', str(f)] for f in folders + [pathlib.Path('/usr/local/cuda/include')])]:
        if not compiler_says(command, '#include <cuda_runtime_api.h>\n' + MAIN, ['-fsyntax-only', *flags]):
            return flags
    return None


def run(*command, **more):
    return subprocess.run([str(c) for c in command], text=True, stdout=subprocess.PIPE, **more)


def two_units(command, cuda, folder):
    throwing, aborting, program = folder / 'throwing.cpp', folder / 'aborting.cpp', folder / 'two_units'
    throwing.write_text(THROWING_UNIT)
    aborting.write_text(ABORTING_UNIT)
    flags = ['-std=c++17', f'-I{INCLUDE}', f'-I{HERE}', *cuda]
    for made in (
            run(*command, *flags, *NO_EXCEPTIONS, '-c', aborting, '-o', folder / 'aborting.o',
                stderr=subprocess.STDOUT),
            run(*command, *flags, throwing, folder / 'aborting.o', HERE / 'fake_cudart.cpp', '-o', program, '-pthread',
                stderr=subprocess.STDOUT)):
        if made.returncode != 0:
            return made.stdout
    done = run(program, stderr=subprocess.PIPE, preexec_fn=no_core)
    # What the C++ library says of its own when it ends the program stands behind.
    if done.returncode >= 0 or done.stdout != SAID or not done.stderr.startswith(SAID_AT_THE_END):
        return f'exit {done.returncode}\n{done.stdout}{done.stderr}'
    return ''


def no_core():
    import resource
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def nvcc_test(nvcc, command, cuda, folder):
    """The test, as nvcc compiles it with that compiler, runs as any other does.

    The fake is no unit of nvcc's, whose own headers define some of its functions for devices."""
    program, registration = folder / 'by_nvcc', folder / 'registration.cpp'
    registration.write_text(REGISTRATION)
    flags = ['-std=c++17', f'-I{INCLUDE}', f'-I{HERE.parent / "support"}']
    for made in (
            run(nvcc, f'-ccbin={command[-1]}', *flags, '-Werror', 'all-warnings', '-x', 'cu', '-c',
                HERE / 'cuda_resource_test.cpp', '-o', folder / 'test.o', stderr=subprocess.STDOUT),
            run(*command, *flags, *cuda, folder / 'test.o', registration, HERE / 'fake_cudart.cpp',
                HERE.parent / 'support' / 'main.cpp', '-o', program, '-pthread', stderr=subprocess.STDOUT)):
        if made.returncode != 0:
            return made.stdout
    done = run(program, stderr=subprocess.STDOUT)
    return '' if done.returncode == 0 else done.stdout


def main():
    command = sys.argv[1:]
    nvcc = find_nvcc()
    cuda = find_headers(command, nvcc)
    if cuda is None:
        print('left out: the headers of the CUDA Toolkit are not installed (no <cuda_runtime_api.h>)')
        return 77
    hostile = ''.join(f'#undef {m}\n#define {m} @\n' for m in HOSTILE)
    before = ('cuda_runtime_api.h', 'cstdio', 'memory_resource', 'tidemark/gpu/device.hpp')
    standard = ''.join(f'#include <{h}>\n' for h in before)
    jobs = {
        'alone and twice': (HEADER * 2 + MAIN, STRICT),
        'without exceptions, C++20': (HEADER + MAIN, [*STRICT, *NO_EXCEPTIONS, '-std=c++20']),
        'for a system that is no Linux': (HEADER + MAIN, [*STRICT, '-U__linux__']),
        'after hostile macros': (standard + hostile + HEADER + MAIN, []),
        'with everything else': ('#include <tidemark/tidemark.hpp>\n' + HEADER + MAIN, STRICT),
    }
    problems = {}
    for name, (source, flags) in jobs.items():
        problems[name] = compiler_says(command, source, ['-fsyntax-only', *cuda, *flags])
    with tempfile.TemporaryDirectory() as folder:
        problems['two units'] = two_units(command, cuda, pathlib.Path(folder))
        if nvcc:
            problems[f'its test with {nvcc}'] = nvcc_test(nvcc, command, cuda, pathlib.Path(folder))
        else:
            print('nvcc is not installed: not compiled with it')
    wrong = {name: said for name, said in problems.items() if said}
    for name, said in wrong.items():
        print(f'--- {name}:\n{said[:3000]}')
    print(f'{len(problems) - len(wrong)} of {len(problems)} checks hold')
    return 1 if wrong else 0


if __name__ == '__main__':
    sys.exit(main())
