#!/usr/bin/env python3
"""Gets tidemark into a project in every way that docs/packaging.md names, with the compiler given.

Installs into a folder, builds and runs consumers/ against it, moves the folder, and builds and runs them again. Also: all
headers arrive and nothing else, every place states the same version, find_package answers the requests that it should, and
the documentation shows what the consumers do. Exits with 77 where CMake or pkg-config is missing and all else is right.
"""
import concurrent.futures
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
CONSUMERS = ROOT / 'tests' / 'build' / 'consumers'
DOCUMENT = ROOT / 'docs' / 'packaging.md'
PREFIX = '/opt/tidemark'  # never written: the installation is staged, which is a move already
SKIP = 77

# The version installed, what find_package asks for, and whether it is given.
REQUESTS = [
    ('0.1.0', '', True), ('0.1.0', '0.1', True), ('0.1.0', '0.1.0', True), ('0.1.0', '0.1.0 EXACT', True),
    ('0.1.7', '0.1.2', True), ('0.1.7', '0.1.2 EXACT', False), ('0.1.0', '0.1.1', False), ('0.1.0', '99', False),
    ('0.1.0', '0.2', False), ('0.2.0', '0.1', False), ('0.12.0', '0.1', False), ('0.2.0', '0', False),
    ('0.2.0', '0.1...0.3', True), ('0.3.0', '0.1...0.3', True), ('0.3.0', '0.1...<0.3', False),
    ('0.4.0', '0.1...0.3', False), ('1.0.0', '0.9', False), ('1.4.2', '1', True), ('1.4.2', '1.3', True),
    ('1.4.2', '1.5', False), ('1.4.2', '2', False), ('2.0.0', '1.4', False), ('12.0.0', '1.2', False),
]


class failure(Exception):
    pass


def run(*command, **settings):
    return subprocess.run([str(c) for c in command], text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          **settings)


def must(*command, **settings):
    done = run(*command, **settings)
    if done.returncode != 0:
        raise failure(f'{" ".join(map(str, command))}\n{done.stdout[-3000:]}')
    return done.stdout


def expect(holds, what):
    if not holds:
        raise failure(what)


def files_under(folder):
    return {p.relative_to(folder).as_posix() for p in folder.rglob('*') if p.is_file()}


def meson_setup(build, source, *flags, **settings):
    return must('meson', 'setup', build, source, *flags, **settings)


def write_project(folder):
    """What a copy of the repository holds that a subproject needs."""
    for name in ('meson.build', 'meson_options.txt'):
        shutil.copy(ROOT / name, folder / name)
    for name in ('include', 'tools'):
        shutil.copytree(ROOT / name, folder / name)


class packaging:
    def __init__(self, compiler, work):
        self.work = work
        self.consumers = work / 'consumers'
        shutil.copytree(CONSUMERS, self.consumers)
        unwanted = ('PKG_CONFIG_PATH', 'PKG_CONFIG_LIBDIR', 'CMAKE_PREFIX_PATH', 'DESTDIR', 'CXXFLAGS', 'LDFLAGS')
        self.env = {k: v for k, v in os.environ.items() if k not in unwanted}
        self.env['CXX'] = shlex.join(compiler)
        self.version = must(ROOT / 'tools' / 'version').strip()

    def check_program(self, program):
        printed = must(program).strip()
        expect(printed == self.version, f'{program} prints the version {printed}, tools/version {self.version}')

    # The ways that need no installation.

    def meson_subproject(self):
        source = self.consumers / 'meson_subproject'
        wrap = source / 'subprojects' / 'tidemark.wrap'
        copy = self.work / 'copy' if shutil.which('git') else source / 'subprojects' / 'tidemark'
        copy.mkdir()
        write_project(copy)
        if shutil.which('git'):
            git = ('git', '-C', copy, '-c', 'user.name=test', '-c', 'user.email=test@localhost', '-c', 'commit.gpgsign=false')
            must(*git, 'init', '-q')
            must(*git, 'add', '.')
            must(*git, 'commit', '-q', '-m', 'copy')
            commit = must(*git, 'rev-parse', 'HEAD').strip()
            text = wrap.read_text().replace('<address of your copy>', copy.as_uri())
            wrap.write_text(text.replace('<a tag or a commit>', commit))
        build = self.work / 'meson_subproject'
        said = meson_setup(build, source, env=self.env)
        expect(re.search(rf'Dependency tidemark .*found: YES {re.escape(self.version)}\b', said),
               f'the subproject gives no dependency of version {self.version}\n{said}')
        must('ninja', '-C', build)
        self.check_program(build / 'program')

    def cmake_build(self, name, *flags):
        build = self.work / 'cmake_build'
        said = must('cmake', '-G', 'Ninja', '-S', self.consumers / name, '-B', build, *flags, env=self.env)
        found = re.search(r'tidemark_VERSION=(.*)', said)
        expect(found and found.group(1) == self.version, f'{name}: tidemark_VERSION is not {self.version}\n{said}')
        must('ninja', '-C', build)
        self.check_program(build / 'program')
        nothing = self.work / 'cmake_install'
        must('cmake', '--install', build, '--prefix', nothing)
        expect(not nothing.exists(), f'{name}: the user\'s installation has files of tidemark')
        shutil.rmtree(build)

    def cmake_requests(self):
        """All in one run of CMake: each version's files in a folder, each request a line."""
        template = (ROOT / 'cmake' / 'tidemarkConfigVersion.cmake.in').read_text()
        script = []
        for i, (version, request, is_given) in enumerate(REQUESTS):
            folder = self.work / 'requests' / str(i)
            folder.mkdir(parents=True)
            (folder / 'tidemarkConfigVersion.cmake').write_text(template.replace('@version@', version))
            (folder / 'tidemarkConfig.cmake').touch()
            script.append(f'''
                unset(tidemark_DIR CACHE)
                find_package(tidemark {request} CONFIG QUIET PATHS "{folder}" NO_DEFAULT_PATH)
                if(NOT tidemark_FOUND STREQUAL "{int(is_given)}")
                  message(SEND_ERROR "{version}, asked for '{request}': found is ${{tidemark_FOUND}}")
                endif()''')
        path = self.work / 'requests.cmake'
        path.write_text('cmake_minimum_required(VERSION 3.19)\n' + '\n'.join(script))
        must('cmake', '-P', path)

    # The installation and the ways that use it.

    def install(self):
        expect(all(f.endswith('.hpp') for f in files_under(ROOT / 'include')),
               f'not a header: {[f for f in files_under(ROOT / "include") if not f.endswith(".hpp")]}')
        build = self.work / 'build'
        meson_setup(build, ROOT, f'--prefix={PREFIX}', '-Dtests=false', '-Dexamples=false', '-Dbench=false', env=self.env)
        stated = must('meson', 'introspect', '--projectinfo', build)
        expect(f'"version": "{self.version}"' in stated, f'Meson states another version than {self.version}: {stated}')
        must('meson', 'install', '-C', build, '--no-rebuild', '--destdir', self.work / 'stage', env=self.env)
        prefix = self.work / 'stage' / PREFIX.lstrip('/')
        wanted = {f'include/{f}' for f in files_under(ROOT / 'include')} | {
            'share/pkgconfig/tidemark.pc', 'share/cmake/tidemark/tidemarkConfig.cmake',
            'share/cmake/tidemark/tidemarkConfigVersion.cmake'}
        got = files_under(prefix)
        expect(got == wanted, f'not installed: {sorted(wanted - got)}; installed and not ours: {sorted(got - wanted)}')
        for f in files_under(self.work / 'stage'):
            text = (self.work / 'stage' / f).read_text()
            expect(PREFIX not in text and str(ROOT) not in text, f'{f} names a folder of this machine')
        return prefix

    def pkg_config(self, prefix):
        env = {**self.env, 'PKG_CONFIG_PATH': str(prefix / 'share' / 'pkgconfig')}
        stated = must('pkg-config', '--modversion', 'tidemark', env=env).strip()
        expect(stated == self.version, f'pkg-config states version {stated}, tools/version {self.version}')
        must(self.consumers / 'pkg_config' / 'compile', self.work / 'pkg_config_program', env=env)
        self.check_program(self.work / 'pkg_config_program')

    def cmake_package(self, prefix):
        self.cmake_build('cmake_package', f'-DCMAKE_PREFIX_PATH={prefix}')

    def cmake_refusals(self, prefix):
        """Another major version and, while that is 0, another minor one."""
        major, minor, _ = map(int, self.version.split('.'))
        for request in ['99'] + [f'{major}.{minor + 1}'] + ([f'{major}.{minor - 1}'] if major == 0 and minor > 0 else []):
            path = self.work / 'refused.cmake'
            path.write_text(f'cmake_minimum_required(VERSION 3.14)\nfind_package(tidemark {request} REQUIRED)\n')
            done = run('cmake', f'-DCMAKE_PREFIX_PATH={prefix}', '-P', path, env=self.env)
            said = ' '.join(done.stdout.split())
            expect(done.returncode != 0 and f'compatible with requested version "{request}"' in said
                   and f'tidemarkConfig.cmake, version: {self.version}' in said,
                   f'find_package(tidemark {request}): exit {done.returncode}, or no clear message\n{done.stdout}')

    def other_folders(self):
        """Folders of another depth, and a headers' folder outside the prefix: there the package is not relocatable."""
        for flags, headers in (
                (['-Ddatadir=lib/a/share', '-Dincludedir=include/deep/er'], None),
                ([f'-Dincludedir={self.work}/far/include'], f'{self.work}/far/include')):
            build = self.work / 'other_build'
            stage = self.work / 'other_stage'
            meson_setup(build, ROOT, f'--prefix={PREFIX}', '-Dtests=false', '-Dexamples=false', '-Dbench=false', *flags,
                        env=self.env)
            must('meson', 'install', '-C', build, '--no-rebuild', '--destdir', stage, env=self.env)
            here = next(stage.rglob('tidemarkConfig.cmake')).parent
            wanted = headers or next(stage.rglob('tidemark.hpp')).parent.parent
            source = self.work / 'other'
            source.mkdir(exist_ok=True)
            (source / 'FindThreads.cmake').write_text('set(Threads_FOUND TRUE)\n')  # the real one wants a compiler
            (source / 'CMakeLists.txt').write_text(f'''
                cmake_minimum_required(VERSION 3.14)
                project(other LANGUAGES NONE)
                list(APPEND CMAKE_MODULE_PATH "${{CMAKE_CURRENT_SOURCE_DIR}}")
                find_package(tidemark REQUIRED PATHS "{here}" NO_DEFAULT_PATH)
                get_target_property(headers tidemark::tidemark INTERFACE_INCLUDE_DIRECTORIES)
                if(NOT headers STREQUAL "{wanted}")
                  message(SEND_ERROR "the headers are in {wanted}, and the package says ${{headers}}")
                endif()''')
            must('cmake', '-G', 'Ninja', '-S', source, '-B', source / 'build', env=self.env)
            shutil.rmtree(source / 'build')
            pc = must('pkg-config', '--cflags-only-I', next(stage.rglob('tidemark.pc'))).strip().removeprefix('-I')
            expect(os.path.normpath(pc) == str(wanted), f'the headers are in {wanted}, and pkg-config says {pc}')
            shutil.rmtree(build)
            shutil.rmtree(stage)


def documented():
    """Every line of a build file that the documentation shows stands in a consumer's."""
    used = {line.strip() for f in CONSUMERS.rglob('*') if f.is_file() for line in f.read_text().splitlines()}
    blocks = re.findall(r'^```(?:meson|ini|cmake)\n(.*?)^```$', DOCUMENT.read_text(), re.M | re.S)
    expect(len(blocks) >= 4, f'{DOCUMENT.name} shows {len(blocks)} build files')
    strange = [line for block in blocks for line in block.splitlines() if line.strip() and line.strip() not in used]
    expect(not strange, f'{DOCUMENT.name} shows what no consumer does: {strange}')


def main():
    has_cmake, has_pkg_config = bool(shutil.which('cmake')), bool(shutil.which('pkg-config'))
    done, problems = [], []

    def attempt(job, *args):
        name = job.__name__
        try:
            result = job(*args)
            done.append(name)
            return result
        except failure as what:
            problems.append(f'{name}: {what}')
            return None

    with tempfile.TemporaryDirectory() as folder, concurrent.futures.ThreadPoolExecutor(2) as pool:
        p = packaging(sys.argv[1:], pathlib.Path(folder).resolve())
        subproject = pool.submit(attempt, p.meson_subproject)
        attempt(documented)
        prefix = attempt(p.install)
        if prefix:
            for place in ('staged', 'moved'):
                if place == 'moved':
                    prefix = prefix.rename(p.work / 'moved')
                compiled = pool.submit(attempt, p.pkg_config, prefix) if has_pkg_config else None
                if has_cmake:
                    attempt(p.cmake_package, prefix)
                if compiled:
                    compiled.result()
        if has_cmake:
            if prefix:
                attempt(p.cmake_refusals, prefix)
            attempt(p.cmake_build, 'cmake_fetch', f'-DFETCHCONTENT_SOURCE_DIR_TIDEMARK={ROOT}')
            attempt(p.cmake_requests)
            if has_pkg_config:
                attempt(p.other_folders)
        subproject.result()
    missing = [n for n, has in (('CMake', has_cmake), ('pkg-config', has_pkg_config)) if not has]
    print('\n'.join(problems) if problems else f'{len(done)} steps: {", ".join(done)}')
    if missing and not problems:
        print(f'skipped in part: {" and ".join(missing)} not installed')
    return 1 if problems else SKIP if missing else 0


if __name__ == '__main__':
    sys.exit(main())
