#!/usr/bin/env python3
"""tools/preload: what it counts of a program whose every block is known, where the report goes, and that nothing else changes.

usage: preload_check.py COMPILER...; prints what does not hold, and exits with 1.
"""
import os
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
PRELOAD = ROOT / 'tools' / 'preload'
# Without stdio, which would allocate a buffer. 3 blocks stay: 1000 + 24 + 0 bytes; the peak is 41,024.
KNOWN = '''#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
static void* keep(void* p) { asm volatile("" : "+r"(p) : : "memory"); return p; }
int main(int argc, char** argv) {
  keep(malloc(1000));
  keep(calloc(3, 8));
  void* p = keep(malloc(10000));
  p = keep(realloc(p, 40000));
  free(p);
  keep(malloc(0));
  if (argc > 1 && strcmp(argv[1], "close") == 0) { close(1); close(2); }
  if (argc > 1 && strcmp(argv[1], "clear") == 0) clearenv();
  if (argc > 1 && strcmp(argv[1], "_exit") == 0) _exit(3);
  if (argc > 1 && strcmp(argv[1], "fork") == 0 && fork() == 0) { keep(malloc(5)); return 0; }
  return 7;
}
'''
# A program may bring an allocator of its own, which comes before a preloaded one.
OWN_MALLOC = '''#include <stdlib.h>
#include <string.h>
static char room[1 << 20];
static size_t used;
void* malloc(size_t n) {
  size_t* p = (size_t*)(room + used);
  used += (n + 31) / 16 * 16;
  *p = n;
  return p + 2;
}
void free(void* p) { (void)p; }
void* calloc(size_t n, size_t m) { return malloc(n * m); }
void* realloc(void* p, size_t n) {
  void* q = malloc(n);
  if (p) memcpy(q, p, ((size_t*)p)[-2] < n ? ((size_t*)p)[-2] : n);
  return q;
}
int main(void) {
  char* p = strcpy(malloc(10), "kept");
  p = reallocarray(p, 100, 100);
  return strcmp(p, "kept") == 0 && p > room && p < room + sizeof room ? 7 : 1;
}
'''
# One with a hook and scopes of its own: both count.
HOOKED = '''#include <tidemark/hook/malloc.hpp>
#include <tidemark/tidemark.hpp>
int main() {
  tidemark::scope s("own");
  char* p = new char[500];
  tidemark::escape(p);
  const bool counts = s.usage().has_value() && s.usage()->net_bytes() == 500;
  delete[] p;
  return counts ? 7 : 1;
}
'''
# One with scopes and without a hook: it counts in the library's ledger. The path of `kept` is escaped, and wide.
SCOPED = '''#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <thread>
#include <sys/wait.h>
#include <unistd.h>
#include <tidemark/tidemark.hpp>
static char* kept[4];
int main(int argc, char** argv) {
  const std::string how = argc > 1 ? argv[1] : "";
  {
    tidemark::process_scope train("train");
    for (int i = 0; i < 3; ++i) {
      tidemark::scope epoch("epoch");
      kept[i] = new char[1000];
      tidemark::escape(kept[i]);
      tidemark::scope inner("\\xe8\\xa8\\x93/\\xe7\\xb7\\xb4");
      char* p = new char[5000];
      tidemark::escape(p);
      delete[] p;
    }
    std::thread([] {
      tidemark::scope s("worker");
      kept[3] = new char[2000];
      tidemark::escape(kept[3]);
    }).join();
    if (how == "why") {
      tidemark::scope s("asked");
      std::puts(s.usage() ? "counted" : std::string(s.usage().why()).c_str());
    }
    if (how == "fork") {
      if (fork() == 0) {
        { tidemark::scope s("child"); }
        std::exit(0);
      }
      wait(nullptr);
    }
    if (how == "exit") std::exit(3);
    if (how == "throw") throw std::runtime_error("nobody catches it");
  }
  return 7;
}
'''
# One with scopes and without a hook, whose memory runs out while the library adds them up. Another thread's scope comes later.
STARVED = '''#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <sys/resource.h>
#include <tidemark/tidemark.hpp>
int main() {
  std::setvbuf(stdout, nullptr, _IONBF, 0);
  { tidemark::scope warm("warm"); }
  std::atomic<bool> is_over{false};
  std::thread later([&] {
    while (!is_over) std::this_thread::yield();
    tidemark::scope s("later");
  });
  rlimit room{};
  getrlimit(RLIMIT_AS, &room);
  room.rlim_cur = 400u << 20;
  setrlimit(RLIMIT_AS, &room);
  void* kept = nullptr;  // a list of all there is but a few small blocks
  for (std::size_t n = 64 << 20; n >= 8192; n /= 2) {
    while (void** p = static_cast<void**>(std::malloc(n))) {
      *p = kept;
      kept = p;
    }
  }
  for (int i = 0; i < 300; ++i) {
    char name[200];
    std::snprintf(name, sizeof name, "scope %d with a name that is long enough for a block of its own", i);
    tidemark::scope s(name);
  }
  while (kept != nullptr) {
    void* next = *static_cast<void**>(kept);
    std::free(kept);
    kept = next;
  }
  is_over = true;
  later.join();
  std::puts(tidemark::self().dropped_records > 0 ? "dropped" : "nothing was refused");
  return 7;
}
'''
problems = []


def expect(holds, what, seen=''):
    if not holds:
        problems.append(f'it does not hold that {what}' + (f'; seen:\n{seen}' if seen else ''))


def run(*command, **more):
    return subprocess.run([str(c) for c in command], text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **more)


def build(compiler, folder, name, source):
    path = folder / name
    path.with_suffix('.cpp').write_text(source)
    built = run(*compiler, '-std=c++17', '-O1', f'-I{ROOT / "include"}', path.with_suffix('.cpp'), '-o', path, '-pthread')
    if built.returncode != 0:
        sys.exit(built.stderr)
    return path


def row(text, name):
    """The cells of a scope's row in the summary: columns are apart by two blanks or more."""
    found = [re.split(r'  +', line.strip()) for line in text.splitlines() if line.strip().startswith(name + '  ')]
    return found[0] if len(found) == 1 else [f'{len(found)} rows']


def check_scopes(compiler, folder):
    scoped = build(compiler, folder, 'scoped', SCOPED)
    plain = run(scoped)
    expect(plain.returncode == 7 and plain.stderr == '', 'a program with scopes alone says nothing', plain.stderr)
    ended = run(PRELOAD, scoped)
    expect(ended.returncode == 7, 'a program with scopes runs as before', ended.stderr)
    expect(ended.stderr.count('summary') == 1, 'the report has one summary', ended.stderr)
    epoch = row(ended.stderr, 'epoch')
    expect([epoch[1], *epoch[3:]] == ['3', 'thread_heap', '+5.9 KiB', '+2.9 KiB', '6', '2.9 KiB'],
           'a row of it has the calls, and what the path owns', epoch)
    wide = row(ended.stderr, '訓/練')
    expect([wide[1], *wide[3:]] == ['3', 'thread_heap', '+4.9 KiB', '+0 B', '3', '0 B'], 'names are as they were given', wide)
    expect(row(ended.stderr, 'train')[-1].startswith('each within'), 'the process was measured', ended.stderr)
    left = run(PRELOAD, scoped, 'exit')
    expect(left.returncode == 3 and '1 still open' in row(left.stderr, 'train')[-1], 'exit leaves scopes open', left.stderr)
    thrown = run(PRELOAD, scoped, 'throw')
    expect(thrown.returncode == -6 and 'nobody catches it' in thrown.stderr, 'an uncaught exception is said and aborts',
           thrown.stderr)
    expect(thrown.stderr.count('summary') == 1 and row(thrown.stderr, 'epoch')[-1] == '2.9 KiB',
           'and the report comes before', thrown.stderr)
    run(PRELOAD, f'--output={folder}/fork.%p', scoped, 'fork')
    texts = sorted((p.read_text() for p in folder.glob('fork.*')), key=lambda t: 'child' in t.split('summary')[-1])
    expect(len(texts) == 2 and row(texts[0], 'epoch')[1] == '3', 'a parent tells its own scopes', texts)
    expect(len(texts) == 2 and row(texts[1], 'child')[1] == '1' and row(texts[1], 'epoch')[1] == '-',
           'and a fork child its own', texts)
    told = run(PRELOAD, scoped, 'why')
    expect(told.stdout == 'counted\n', 'the scopes of a program without a hook have readings', told.stdout)

    try:
        starved = run(PRELOAD, build(compiler, folder, 'starved', STARVED), timeout=60)
        expect(starved.returncode == 7 and starved.stdout == 'dropped\n', 'a program whose memory runs out goes on',
               starved.stdout + starved.stderr)
        expect(row(starved.stderr, 'later')[1] == '1' and row(starved.stderr, 'warm')[1] == '1',
               'and the scopes before and after are in the summary', starved.stderr)
    except subprocess.TimeoutExpired:
        expect(False, 'the scopes of a program whose memory runs out do not wait for ever')

    # The headers of another version: the first to be searched has another ledger.
    other = folder / 'other' / 'tidemark' / 'core'
    other.mkdir(parents=True)
    ledger = (ROOT / 'include' / 'tidemark' / 'core' / 'ledger.hpp').read_text()
    changed = ledger.replace('  spin_lock registry_lock;\n', '  char another_layout[64] = {};\n  spin_lock registry_lock;\n')
    expect(changed != ledger, 'the ledger has the member that the test looks for')
    (other / 'ledger.hpp').write_text(changed)
    stranger = run(PRELOAD, build([*compiler, f'-I{folder}/other'], folder, 'stranger', SCOPED), 'why')
    expect(stranger.returncode == 7 and 'another layout' in stranger.stdout, 'one of another version is told why not',
           stranger.stdout + stranger.stderr)
    expect('  live  ' in stranger.stderr and 'summary' not in stranger.stderr, 'and is counted without its scopes',
           stranger.stderr)


def main():
    compiler = sys.argv[1:]
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        source = folder / 'known.c'
        source.write_text(KNOWN)
        known = folder / 'known'
        built = run(*compiler, '-x', 'c', '-O1', source, '-o', known)
        if built.returncode != 0:
            sys.exit(built.stderr)

        plain = run(PRELOAD, known)
        expect(plain.returncode == 7, 'the exit status is the program\'s', plain.stderr)
        expect(plain.stdout == '', 'nothing is written to the standard output', plain.stdout)
        # g++ as a driver of C may still link the C++ library, whose one block is made before main.
        pool = 72_704 if b'libstdc++' in known.read_bytes() else 0
        expect(f'  {1_024 + pool} bytes in {3 + (pool > 0)} blocks\n' in plain.stderr, 'live is exact', plain.stderr)
        expect(f'  {41_024 + pool} bytes, exact\n' in plain.stderr, 'the peak is exact', plain.stderr)
        expect(f'in {5 + (pool > 0)} allocations; 2 freed\n' in plain.stderr, 'the events are exact', plain.stderr)
        expect(re.search(r'foreign frees +0 ', plain.stderr), 'no free is foreign', plain.stderr)
        expect(re.search(r'own memory +[1-9]', plain.stderr), 'the library says what it takes', plain.stderr)

        closed = run(PRELOAD, known, 'close')
        expect(closed.stderr.count('tidemark: known') == 1, 'a program that closed its outputs is reported', closed.stderr)
        cleared = run(PRELOAD, known, 'clear')
        expect(cleared.stderr.count('tidemark: known') == 1, 'one that cleared its environment too', cleared.stderr)
        nobody, writable = os.pipe()
        os.close(nobody)
        unread = subprocess.run([PRELOAD, known], stderr=writable)
        os.close(writable)
        expect(unread.returncode == 7, 'a report that nobody reads does not end the program', unread.returncode)
        own_source = folder / 'own.c'
        own_source.write_text(OWN_MALLOC)
        built = run(*compiler, '-x', 'c', '-D_GNU_SOURCE', '-O1', '-fno-builtin', own_source, '-o', folder / 'own')
        own = run(PRELOAD, folder / 'own')
        expect(built.returncode == 0 and own.returncode == 7, 'a program with a malloc of its own runs as before',
               built.stderr + own.stderr)
        expect('nothing counted: ' in own.stderr and 'malloc' in own.stderr, 'and is said not to be counted', own.stderr)
        forked = run(PRELOAD, known, 'fork')
        expect(forked.stderr.count('tidemark: known') == 1, 'a fork child is not reported beside it', forked.stderr)
        silent = run(PRELOAD, known, '_exit')
        expect(silent.returncode == 3 and silent.stderr == '', '_exit leaves no report', silent.stderr)
        # bash, since dash ends by _exit.
        piped = run(PRELOAD, 'bash', '-c', f'{known}; {known} | cat; exit 4')
        expect(piped.returncode == 4 and piped.stdout == '', 'a shell\'s commands run unchanged', piped.stdout)
        expect(piped.stderr.count('tidemark: ') == 1 and '(process' in piped.stderr,
               'the report on the standard error is the started process\'s alone', piped.stderr)

        one = folder / 'all'
        run(PRELOAD, '--output', one, 'bash', '-c', f'{known}; {known} fork; exit 4')
        text = one.read_text() if one.exists() else ''
        expect(text.count('tidemark: known') == 3 and text.count('tidemark: ') == 4,
               'a file gets a report of each process, a fork child included', text)
        each = run(PRELOAD, f'--output={folder}/each.%p', 'bash', '-c', f'{known}; {known}; exit 4')
        names = sorted(p.name for p in folder.glob('each.*'))
        expect(each.returncode == 4 and len(names) == 3 and all(re.fullmatch(r'each\.\d+', n) for n in names),
               '%p gives each process a file of its own', names)
        relative = run(PRELOAD, '--output', 'here', 'sh', '-c', f'cd / && {known}', cwd=folder)
        expect((folder / 'here').exists() and relative.stderr == '', 'a relative name is of the folder of the start')
        nowhere = run(PRELOAD, '--output', '/nowhere/at/all', known)
        expect(nowhere.returncode == 7 and 'could not be written to /nowhere/at/all: No such file' in nowhere.stderr,
               'a report that cannot be written is said, and changes no exit status', nowhere.stderr)
        full = run(PRELOAD, '--output', '/dev/full', known)
        expect(full.returncode == 7 and 'No space left' in full.stderr, 'a full disk is said', full.stderr)

        hooked = run(PRELOAD, build(compiler, folder, 'hooked', HOOKED))
        expect(hooked.returncode == 7, 'a program with a hook of its own counts as before', hooked.stderr)
        expect(re.search(r'foreign frees +0 ', hooked.stderr), 'and is counted', hooked.stderr)

        check_scopes(compiler, folder)

        usage = run(PRELOAD)
        expect(usage.returncode == 2 and 'tools/preload PROGRAM' in usage.stderr, 'without a program it says how', usage.stderr)
        missing = run(PRELOAD, 'no-such-program')
        expect(missing.returncode == 127 and 'not found' in missing.stderr, 'a missing program is the shell\'s error', missing.stderr)
        library = run(PRELOAD, '--library').stdout.strip()
        direct = run(known, env=dict(os.environ, LD_PRELOAD=library))
        expect(direct.returncode == 7 and direct.stderr == '', 'the library alone is silent unless told where to report')
        needed = run('ldd', library).stdout
        expect('libstdc++' not in needed, 'the library brings no C++ library into a program in C', needed)
        exported = run('nm', '-D', '--defined-only', library).stdout.split('\n')
        expect(len([line for line in exported if line]) == 33, 'it shows 13 functions and 20 operators alone', exported)
    print('\n'.join(problems) if problems else 'tools/preload counts every block of a known program, and disturbs none')
    return 1 if problems else 0


if __name__ == '__main__':
    sys.exit(main())
