#!/usr/bin/env python3
"""Runs real programs plain and under tools/preload: exit status, outputs and files must be the same, no free foreign, and
the highest resident set within 25 % (and 3 MiB, which is what small programs differ by from run to run).

usage: real_programs_check.py [--megabytes N] [--only NAME] [--table]; N is what sort and xz are given.
What is not installed is named and left out; exits with 77 where nothing is left.
"""
import argparse
import hashlib
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
PRELOAD = HERE.parent.parent / 'tools' / 'preload'
CXX_SOURCE = '''#include <map>
#include <string>
#include <vector>
std::map<std::string, std::vector<double>> table(int n) {
  std::map<std::string, std::vector<double>> t;
  for (int i = 0; i < n; ++i) t[std::to_string(i)].assign(static_cast<unsigned>(i), 1.0);
  return t;
}
'''
PYTHON = '''import subprocess, sys, threading
done = []
def work(k):
    rows = [{"n": i, "square": str(i * i)} for i in range(2000)]
    done.append(sum(r["n"] for r in rows) + k)
threads = [threading.Thread(target=work, args=(k,)) for k in range(8)]
[t.start() for t in threads]
[t.join() for t in threads]
print(sorted(done))
for k in range(5):
    print(subprocess.run([sys.executable, "-c", f"print({k} ** 50)"], capture_output=True, text=True).stdout.strip())
import multiprocessing
with multiprocessing.get_context("fork").Pool(2) as pool:
    print(pool.map(str, range(50)))
'''
NODE = '''const rows = []; for (let i = 0; i < 2e5; i++) rows.push({ i, s: String(i * 7) });
console.log(JSON.parse(JSON.stringify(rows)).length, rows.map(r => r.s.length).reduce((a, b) => a + b));
const z = require('zlib'); console.log(z.gunzipSync(z.gzipSync(Buffer.alloc(5e6, 'tidemark'))).length);'''
PERL = '''my %h; $h{$_ % 5003} .= "x$_" for 1..200000; my $n = 0; $n += length for values %h; print "$n\\n";
print join(",", (sort { $h{$a} cmp $h{$b} } keys %h)[0..9]), "\\n";'''
SQL = '''create table t(a integer primary key, b text);
with recursive n(i) as (select 1 union all select i + 1 from n where i < 50000) insert into t select i, hex(i * 7919) from n;
create index by_b on t(b); select count(*), max(b), sum(a) from t where b like '%7%';
select b, count(*) from t group by substr(b, 1, 2) order by 2 desc limit 5;'''
CMAKE = 'cmake_minimum_required(VERSION 3.13)\nproject(p CXX)\nadd_library(a a.cpp)\ninstall(TARGETS a)\n'
GIT = ('git init -q -b main . && git config user.name n && git config user.email e@example.org && git add in.cpp in.py && '
       'git commit -q -m one && echo more >>in.py && git commit -qam two && git gc -q && git log -p --stat && git fsck')

# A process begins with the resident set of the one that it was forked from, so a small one starts the programs.
RUNNER = '''import os, sys
result = int(sys.argv[1])
os.set_inheritable(result, False)
_, status, used = os.wait4(os.spawnvp(os.P_NOWAIT, sys.argv[2], sys.argv[2:]), 0)
os.write(result, b"%d %d" % (os.waitstatus_to_exitcode(status), used.ru_maxrss))'''


class program:
    """A command for a shell in an empty folder with some files, and the files that it must write the same."""

    def __init__(self, name, command, needs, outputs=(), ignore=None):
        self.name, self.command, self.needs, self.outputs, self.ignore = name, command, needs, outputs, ignore


def programs(megabytes):
    return [
        program('g++', 'g++ -std=c++17 -O1 -c in.cpp -o out.o', ['g++'], ['out.o']),
        program('clang++', 'clang++ -std=c++17 -O1 -c in.cpp -o out.o', ['clang++'], ['out.o']),
        program('python3, threads and processes', 'python3 in.py', ['python3']),
        program('git', GIT, ['git']),
        program('node', 'node in.js', ['node']),
        program('cmake', 'cmake -S project -B made >log 2>&1; cp made/cmake_install.cmake out', ['cmake', 'c++'], ['out']),
        program('perl', 'perl in.pl', ['perl']),
        program('bash pipelines', 'seq 300000 | grep 7 | sed s/1/one/ | awk \'{ n += length } END { print n, NR }\'; '
                'x=$(for i in $(seq 3000); do echo $i; done | sort -rn | sed -n 1,3p); echo "$x"; '
                'cat <(seq 10) <(seq 20) | wc -l; [[ abc =~ b(.) ]] && echo ${BASH_REMATCH[1]}', ['bash']),
        program('sort', f'sort -S 300M --parallel=2 in.txt >out', ['sort'], ['out']),
        program('xz', 'xz -1 -T2 -k in.txt && xz -t in.txt.xz', ['xz'], ['in.txt.xz']),
        program('sqlite3', 'sqlite3 :memory: <in.sql', ['sqlite3']),
        program('gdb', 'gdb --version && gdb -batch -ex "print 6 * 7"', ['gdb']),
        program('java', 'java -version', ['java']),
        program('libtorch', './torch_step', ['torch_step']),
    ]


def build_torch_step(folder):
    """Where libtorch is installed; returns whether it is."""
    if not pathlib.Path('/usr/include/torch').exists() or not shutil.which('g++'):
        return False
    source = HERE / 'real' / 'torch_step.cpp'
    built = subprocess.run(['g++', '-std=c++17', '-O1', '-I/usr/include/torch/csrc/api/include', source, '-o',
                            folder / 'torch_step', '-ltorch', '-ltorch_cpu', '-lc10'], capture_output=True, text=True)
    if built.returncode != 0:
        sys.exit(f'libtorch is installed, but a program for it does not build:\n{built.stderr[-2000:]}')
    return True


def write_inputs(folder, megabytes):
    (folder / 'in.cpp').write_text(CXX_SOURCE)
    (folder / 'in.py').write_text(PYTHON)
    (folder / 'in.js').write_text(NODE)
    (folder / 'in.pl').write_text(PERL)
    (folder / 'in.sql').write_text(SQL)
    (folder / 'project').mkdir()
    (folder / 'project' / 'CMakeLists.txt').write_text(CMAKE)
    (folder / 'project' / 'a.cpp').write_text(CXX_SOURCE)
    # Lines in no order: a multiplicative generator modulo a prime, so that every run has the same.
    with open(folder / 'in.txt', 'w') as out:
        n, lines, wanted = 12345, [], megabytes * 1_000_000 // 50
        for _ in range(wanted):
            n = n * 48271 % 2147483647
            lines.append(f'{n:010d} {n * 7919 % 1000003:08d} the same words on each line\n'[:50])
            if len(lines) == 10000:
                out.write(''.join(lines))
                lines = []
        out.write(''.join(lines))


def run_in(folder, command, output, preload):
    """Exit status, outputs and the highest resident set of the command and all that it started. Units: KiB."""
    environment = dict(os.environ, LC_ALL='C', HOME=str(folder), GIT_AUTHOR_DATE='1700000000 +0000',
                       GIT_COMMITTER_DATE='1700000000 +0000', GIT_CONFIG_NOSYSTEM='1', OMP_NUM_THREADS='2')
    words = ['bash', '-c', command]
    if preload:
        words = [PRELOAD, '--output', preload, *words]
    readable, writable = os.pipe()
    with open(output, 'wb') as out:
        subprocess.run([sys.executable, '-S', '-E', '-c', RUNNER, str(writable), *words], cwd=folder, env=environment,
                       stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT, pass_fds=[writable], check=True)
    status, resident = os.read(readable, 100).split()
    os.close(readable)
    os.close(writable)
    return int(status), int(resident)


def digest(path):
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.exists() else 'not written'


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('--megabytes', type=int, default=100)
    parser.add_argument('--only')
    parser.add_argument('--table', action='store_true', help='what each was seen to do')
    options = parser.parse_args()
    subprocess.run([PRELOAD, '--library'], check=True, stdout=subprocess.DEVNULL)
    problems, left_out, done = [], [], 0
    with tempfile.TemporaryDirectory() as scratch:
        scratch = pathlib.Path(scratch)
        folder, results = scratch / 'inputs', scratch / 'results'
        folder.mkdir()
        results.mkdir()
        write_inputs(folder, options.megabytes)
        chosen = [p for p in programs(options.megabytes) if options.only in (None, p.name.split(',')[0])]
        for p in chosen:
            missing = [n for n in p.needs if n != 'torch_step' and not shutil.which(n)]
            if 'torch_step' in p.needs and not build_torch_step(folder):
                missing = ['libtorch-dev']
            if missing:
                left_out.append(f'{p.name} ({", ".join(missing)} not installed)')
                continue
            outcome = []
            # The same place for both: paths appear in outputs.
            work, report = scratch / 'work', results / 'report'
            for preload in (None, report):
                shutil.rmtree(work, ignore_errors=True)
                shutil.copytree(folder, work, copy_function=os.link)
                for name in ('in.py',):  # git's step writes to it
                    (work / name).unlink()
                    shutil.copy(folder / name, work / name)
                status, resident = run_in(work, p.command, results / 'out', preload)
                outcome.append((status, (results / 'out').read_bytes(), [digest(work / o) for o in p.outputs], resident))
            text = report.read_text() if report.exists() else ''
            report.unlink(missing_ok=True)
            (status, out, files, resident), (hooked_status, hooked_out, hooked_files, hooked_resident) = outcome
            foreign = [int(n) for n in re.findall(r'foreign frees +(\d+)', text)]
            allocations = sum(int(n) for n in re.findall(r'in (\d+) allocations', text))
            done += 1
            if status != 0:
                problems.append(f'{p.name} fails by itself, with status {status}: {out[-500:]}')
            if hooked_status != status:
                problems.append(f'{p.name}: exit status {hooked_status} instead of {status}: {hooked_out[-500:]}')
            if hooked_out != out:
                problems.append(f'{p.name}: other output:\n{hooked_out[-500:]}\ninstead of\n{out[-500:]}')
            if hooked_files != files:
                problems.append(f'{p.name}: writes other files')
            if not foreign or allocations < 20:
                problems.append(f'{p.name}: {len(foreign)} reports with {allocations} allocations')
            if sum(foreign) != 0:
                problems.append(f'{p.name}: {sum(foreign)} foreign frees')
            if hooked_resident > resident * 1.25 + 3 * 1024:
                problems.append(f'{p.name}: {hooked_resident} KiB resident, plain {resident}')
            if options.table:
                print(f'{p.name:32} {len(foreign):3} processes {allocations:10} allocations  resident '
                      f'{resident:8} KiB -> {hooked_resident:8} KiB ({hooked_resident / resident:.2f})', flush=True)
    for p in problems:
        print(p)
    for p in left_out:
        print(f'left out: {p}')
    print(f'{done} programs run under the hook, {len(problems)} problems')
    if done == 0:
        print('none of the programs is installed')
        return 77
    return 1 if problems else 0


if __name__ == '__main__':
    sys.exit(main())
