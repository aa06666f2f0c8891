#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The summary of a program, however the program ends: what it tells, and that nothing else changes.

usage: summary_end_check.py COMPILER...; prints what does not hold, and exits with 1.
"""
import os
import pathlib
import random
import re
import signal
import subprocess
import sys
import tempfile
import unicodedata

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
# No hook, and an operator new that refuses one request: each in turn that a record or a table makes.
REFUSED = '''#include <cstdio>
#include <cstdlib>
#include <new>
#include <string>
#include <tidemark/sink/summary.hpp>
static long left = -1;
void* operator new(std::size_t n) {
  if (left >= 0 && left-- == 0) throw std::bad_alloc();
  return std::malloc(n);
}
void operator delete(void* p) noexcept { std::free(p); }
void operator delete(void* p, std::size_t) noexcept { std::free(p); }
static tidemark::scope_record made(const char* path) {
  tidemark::scope_record r;
  r.path = path;
  r.duration_ns = 1'000;
  tidemark::window_usage u;
  u.peak_bytes = 5;
  r.meters.push_back({"a heap with a name of its own", u, "bytes"});
  const char* const why = "a reason that is no short text";
  r.meters.push_back({"resident", tidemark::reading<tidemark::window_usage>::absent(std::string(why)), "bytes"});
  return r;
}
static const char* paths[] = {"a long enough name at the top/one in the middle that is long/leaf",
                              "second of all paths here/leaf",
                              "a long enough name at the top/another one that is in the middle"};
// With -1 nothing is refused. What was refused comes again.
static std::string table_of(long refused_record, long refused_table, int& refusals) {
  tidemark::summary_sink s(stdout);
  bool first = true;
  for (const char* path : paths) {
    const tidemark::scope_record r = made(path);
    left = first ? -1 : refused_record;
    first = false;
    try {
      s.on_scope(r);
    } catch (const std::bad_alloc&) {
      ++refusals;
      left = -1;
      s.on_scope(r);
    }
    left = -1;
  }
  left = refused_table;
  try {
    const std::string table = s.table();
    left = -1;
    return table;
  } catch (const std::bad_alloc&) {
    ++refusals;
    left = -1;
    return s.table();
  }
}
int main() {
  int refusals = 0;
  const std::string want = table_of(-1, -1, refusals);
  long different = 0;
  long shown = 0;
  for (long n = 0; n < 400; ++n) {
    for (const bool of_table : {false, true}) {
      const std::string table = of_table ? table_of(-1, n, refusals) : table_of(n, -1, refusals);
      if (table == want) continue;
      ++different;
      if (shown++ == 0) std::printf("refused request %ld of a %s:\\n%s", n, of_table ? "table" : "record", table.c_str());
    }
  }
  std::fflush(stdout);
  return different > 0 ? 1 : refusals < 50 ? 2 : 0;
}
'''
problems = []


def expect(holds, what, seen=''):
    if not holds:
        problems.append(f'it does not hold that {what}' + (f'; seen:\n{seen}' if seen != '' else ''))


def rows_of(text):
    """The rows of the last table: name to cells, which are apart by two blanks or more."""
    table = text.split('tidemark summary: ')[-1].split('\n\n')[0].splitlines()[2:]
    cells = [re.split(r'  +', line.strip()) for line in table]
    return {c[0]: c[1:] for c in cells}


def tables(text):
    return text.count('tidemark summary: ')


def cells(text, name, *which):
    row = rows_of(text).get(name)
    return None if row is None else [row[i] if i < len(row) else None for i in which]


class Program:
    def __init__(self, path):
        self.path = path

    def run(self, *arguments, **more):
        more.setdefault('stderr', subprocess.PIPE)
        return subprocess.run([self.path, *arguments], stdout=subprocess.PIPE, text=True, timeout=60, **more)


CALLS, METER, GROWTH, NET, ALLOCATIONS, OWNED, NOTE = 0, 2, 3, 4, 5, 6, 7


def is_work(text):
    """What work() in summary_end.cpp did, by hand: 3 x (1,000 kept + 4,000 passing)."""
    step = cells(text, 'step', CALLS, METER, GROWTH, NET, ALLOCATIONS, OWNED)
    train = cells(text, 'train', CALLS, METER, GROWTH, NET, ALLOCATIONS, OWNED)
    return (step == ['3', 'thread_heap', '+4.9 KiB', '+2.9 KiB', '6', '2.9 KiB']
            and train == ['1', 'thread_heap', '+6.8 KiB', '+2.9 KiB', '6', '2.9 KiB'])


def is_open(text, name, count, owned):
    """An open scope that never ended: no calls, what it owns, and for how long it is open."""
    row = rows_of(text).get(name)
    return row is not None and row[0] == '0' and owned in row and row[-1].startswith(f'{count} still open, for ')


def left_by_exception(text, name):
    """What clang makes of a scope inside noexcept: it unwinds to the edge before it gives up."""
    return cells(text, name, CALLS, -1) == ['1', '1 left by an exception']


def check_ends(program):
    for how, status in [('return', 7), ('late', 7), ("thread's end", 7), ('flush twice', 7)]:
        r = program.run(how)
        expect(r.returncode == status, f'{how}: the exit status is the program\'s', r.returncode)
        expect(tables(r.stderr) == 1 and is_work(r.stderr), f'{how}: one table tells the work', r.stderr)
        expect('still open' not in r.stderr, f'{how}: no scope is open', r.stderr)
    r = program.run('late')
    expect(cells(r.stderr, 'static destructor', CALLS, OWNED) == ['1', '300 B'],
           'a static destructor before the end of the attachment is told', r.stderr)
    r = program.run("thread's end")
    expect(cells(r.stderr, 'thread destructor', CALLS, OWNED) == ['1', '200 B'], 'a thread\'s last words are told', r.stderr)
    for how, status in [('return', 7), ('exit', 3), ('exit elsewhere', 4)]:
        r = program.run(how, 'kept')
        expect(r.returncode == status and tables(r.stderr) == 1 and is_work(r.stderr),
               f'{how}: an attachment that nothing ends is told at the end', r.stderr)
    r = program.run('nothing')
    expect(r.returncode == 7 and r.stderr == '', 'a program without scopes says nothing', r.stderr)
    r = program.run('flush, and more')
    expect(tables(r.stderr) == 2 and cells(r.stderr, 'step', CALLS, OWNED) == ['6', '5.9 KiB'],
           'new records after a table make another, with all of them', r.stderr)
    r = program.run('return', 'two')
    expect(tables(r.stderr) == 1 and tables(r.stdout) == 1 and is_work(r.stdout), 'two summaries each tell once', r.stdout)

    for how, status in [('exit', 3), ('throw', -signal.SIGABRT)]:
        r = program.run(how)
        expect(r.returncode == status, f'{how}: the status stays', r.returncode)
        expect(tables(r.stderr) == 1 and is_work(r.stderr), f'{how}: one table tells the work', r.stderr)
        expect(r.stderr.startswith('tidemark summary: 4 scopes ended, 5 still open\n'), f'{how}: the title counts', r.stderr)
        expect(is_open(r.stderr, 'serve', 2, '1000 B'), f'{how}: scopes of other threads are open, and counted', r.stderr)
        expect(is_open(r.stderr, 'request', 2, '1000 B'), f'{how}: the inner ones too', r.stderr)
        expect(is_open(r.stderr, 'main', 1, '70 B'), f'{how}: the scope that it died in is open', r.stderr)
    r = program.run('exit elsewhere')
    expect(r.returncode == 4 and tables(r.stderr) == 1 and is_work(r.stderr), 'another thread may call exit', r.stderr)
    expect(is_open(r.stderr, 'main', 1, '0 B') and is_open(r.stderr, 'leaver', 1, '0 B'), 'with scopes of both open', r.stderr)
    for how, status in [('only open', 3), ('only open, throw', -signal.SIGABRT)]:
        r = program.run(how)
        expect(r.returncode == status and tables(r.stderr) == 1 and is_open(r.stderr, 'main', 1, '70 B'),
               f'{how}: a program that dies in its first scope tells of it', r.stderr)
    r = program.run('open after the last table')
    expect(r.returncode == 3 and is_open(r.stderr, 'second part', 1, '70 B'),
           'a scope that began after the last table is told as open', r.stderr)

    r = program.run('throw')
    expect(r.stderr.count('nobody catches it') == 1, 'the uncaught exception is still said', r.stderr)
    r = program.run('throw elsewhere')
    expect(r.returncode == -signal.SIGABRT and tables(r.stderr) == 1 and is_work(r.stderr)
           and is_open(r.stderr, 'main', 1, '0 B') and is_open(r.stderr, 'thrower', 1, '70 B')
           and 'nobody catches it' in r.stderr, 'an exception that ends another thread is told', r.stderr)
    for how, name in [('noexcept', 'promise'), ('terminate', 'main')]:
        r = program.run(how)
        expect(r.returncode == -signal.SIGABRT and tables(r.stderr) == 1 and is_work(r.stderr)
               and (is_open(r.stderr, name, 1, '0 B') or how == 'noexcept' and left_by_exception(r.stderr, name)),
               f'{how}: one table, with the scope that it died in', r.stderr)
    for how, status in [('abort', -signal.SIGABRT), ('quick_exit', 5), ('_Exit', 6)]:
        r = program.run(how)
        expect(r.returncode == status and r.stderr == '', f'{how} ends at once, as it does without a summary', r.stderr)


def check_handlers(program):
    r = program.run('handler before')
    expect(r.returncode == -signal.SIGABRT and r.stdout == 'my handler\n' and tables(r.stderr) == 1 and is_work(r.stderr),
           'the handler that was there before still runs, after the table', r.stdout + r.stderr)
    r = program.run('handler before', 'two')
    expect(r.returncode == -signal.SIGABRT and r.stdout.count('my handler\n') == 1 and r.stdout.endswith('my handler\n')
           and tables(r.stdout) == 1 and tables(r.stderr) == 1, 'with two summaries it runs once, last', r.stdout + r.stderr)
    r = program.run('handler after')
    expect(r.returncode == -signal.SIGABRT and r.stdout == 'my handler\n' and r.stderr == '',
           'a handler set afterwards that does not chain is the only one', r.stdout + r.stderr)
    r = program.run('chaining handler after')
    expect(r.returncode == -signal.SIGABRT and r.stdout == 'my chaining handler\n' and tables(r.stderr) == 1
           and 'nobody catches it' in r.stderr, 'one that chains has the table', r.stdout + r.stderr)


def check_memory(program):
    r = program.run('over budget')
    expect(r.returncode == -signal.SIGABRT and tables(r.stderr) == 1 and is_work(r.stderr)
           and is_open(r.stderr, 'filling', 1, '0 B'), 'a domain over its limit that nobody catches is told', r.stderr)
    expect(re.search(r'^kv cache +900 B +900 B +1000 B +1$', r.stderr, re.M), 'with the domain', r.stderr)
    expect('over its limit' in r.stderr, 'and said', r.stderr)
    for how in ['one large block', 'no memory at all', 'no memory elsewhere', 'no memory for 600 paths']:
        r = program.run(how)
        expect(r.returncode == -signal.SIGABRT and 'bad_alloc' in r.stderr, f'{how}: ends as without a summary', r.stderr)
        expect(tables(r.stderr) == 1 and is_work(r.stderr), f'{how}: one table tells the work', r.stderr)
        greedy = rows_of(r.stderr).get('greedy')
        expect(greedy is not None and greedy[-1].startswith('1 still open'), f'{how}: and who took it all', r.stderr)
        if how.startswith('no memory') and greedy is not None:
            owned = float(next(c for c in greedy if c.endswith('MiB')).split()[0])
            expect(owned >= 8, f'{how}: with how much', owned)


def check_forks(program):
    r = program.run('fork, nothing in the child')
    expect(r.returncode == 7 and tables(r.stderr) == 1 and is_work(r.stderr), 'a child without scopes tells nothing', r.stderr)
    for how in ['fork, a scope in the child', 'fork in a scope', 'fork after a table']:
        r = program.run(how)
        expect(r.returncode == 7 and tables(r.stderr) == 2, f'{how}: the parent and the child each tell', r.stderr)
        texts = ['tidemark summary: ' + t for t in r.stderr.split('tidemark summary: ')[1:]]
        children = [t for t in texts if 'child' in rows_of(t) or 'main' in rows_of(t) and 'step' not in rows_of(t)]
        expect(len(children) == 1, f'{how}: one of the tables has the child\'s scope', r.stderr)
        if len(children) != 1:
            continue
        child = children[0]
        parent = next(t for t in texts if t is not child)
        expect(is_work(parent), f'{how}: the parent tells its work', r.stderr)
        expect('child' not in rows_of(parent), f'{how}: and not the child\'s', r.stderr)
        calls = sum(int(c[0]) for c in rows_of(child).values() if c[0].isdigit())
        expect(calls == 1 and cells(child, 'child', CALLS) == ['1'], f'{how}: the child repeats no call of its parent', r.stderr)
    r = program.run('fork in a scope')
    child = next(('tidemark summary: ' + t for t in r.stderr.split('tidemark summary: ')[1:] if 'child' in t), '')
    expect(is_open(child, 'main', 1, '0 B'), 'a scope that was open at the fork is open in the child', r.stderr)
    expect(cells(child, 'request', CALLS, -1) in (None, ['-', '1000 B']), 'scopes of threads that it has not are not', child)


def width(text):
    """Columns, by Python's Unicode tables: U+FE0F makes an emoji of what is one column before it."""
    columns = before = 0
    for c in text:
        if c == '\ufe0f' and before == 1:
            columns += 1
        kind = unicodedata.category(c)
        before = 0 if kind in ('Mn', 'Me', 'Cf') else 2 if unicodedata.east_asian_width(c) in 'WF' else 1
        columns += before
    return columns


def check_columns(program):
    """Each number ends below the end of its title, behind names of any script."""
    some = [range(0x20, 0x7F), range(0xA1, 0xAC), range(0xC0, 0x250), range(0x300, 0x340), range(0x391, 0x3A0),
            range(0x905, 0x94E), range(0xE01, 0xE3B), range(0x3041, 0x3097), range(0x4E00, 0x5000), range(0xAC00, 0xAD00),
            range(0xFF01, 0xFF60), range(0xFF66, 0xFF9E), range(0x1F600, 0x1F64F), range(0x1F680, 0x1F6C5), [0x200D, 0xFE0F]]
    for seed in range(8):
        dice = random.Random(seed)
        names = [''.join(chr(dice.choice(dice.choice(some))) for _ in range(dice.randrange(1, 90))).strip() or 'x'
                 for _ in range(60)]
        names = [re.sub(r'  +', ' ', n) for n in dict.fromkeys(names)]
        r = program.run('names', *names)
        lines = r.stderr.split('\n\n')[0].split('\n')[1:]
        titles = lines[0]
        expect(r.returncode == 7 and len(lines) == len(set(names)) + 1, f'seed {seed}: each name is one row', len(lines))
        for line, name in zip(lines[1:], names):
            found = re.fullmatch(r'(?s)(.*?)( +1)  ( *[0-9.]+ [num]?s)  thread_heap( +\+0 B)( +\+0 B)( +0)( +0 B)', line)
            expect(found is not None, f'seed {seed}: a row has its cells', line)
            if found is None:
                continue
            shown = found[1]
            whole = width(name) <= 60
            # A row of a name that was too long has as many columns as are left whole characters for.
            expect(shown == name if whole else name.startswith(shown[:-1]) and shown.endswith('…') and 59 <= width(shown) <= 60,
                   f'seed {seed}: a name is whole, or as much of it as 60 columns hold', line)
            for title, end in [('calls', 2), ('time', 3), ('peak growth', 4), ('net', 5), ('allocations', 6), ('still owned', 7)]:
                column = width(line[:found.end(end)])
                expect(column == titles.index(title) + len(title), f'seed {seed}: {title} is below its title', line)


def check_refusals(compiler, folder):
    path = folder / 'refused'
    path.with_suffix('.cpp').write_text(REFUSED)
    subprocess.run([*compiler, '-std=c++17', '-O1', f'-I{ROOT / "include"}', path.with_suffix('.cpp'), '-o', path, '-pthread'],
                   check=True)
    r = subprocess.run([path], stdout=subprocess.PIPE, text=True, timeout=60)
    expect(r.returncode == 0, 'a record or a table that memory was refused to leaves the summary as it was', r.stdout)


def check_streams(program, folder):
    """No table is written, the program is the same, and what came back tells everything."""
    def with_closed(how, keep=()):
        return subprocess.run([program.path, how], stdout=subprocess.PIPE, timeout=60, pass_fds=keep,
                              preexec_fn=lambda: os.close(2))
    unread, writable = os.pipe()
    os.close(unread)
    with open('/dev/full', 'w') as full:
        # Where the standard handler said the exception, the pipe would end the program without a summary too.
        for how, status in [('return', 7), ('exit', 3), ('handler before', -signal.SIGABRT)]:
            expect(with_closed(how).returncode == status, f'{how}: a closed standard error changes no status')
            expect(program.run(how, stderr=writable).returncode == status, f'{how}: a pipe that nobody reads neither')
            expect(program.run(how, stderr=full).returncode == status, f'{how}: a full disk neither')
        for what in ['closed', 'unread', 'full']:
            healthy = folder / what
            with open(healthy, 'w') as file:
                def at_the_start():
                    os.dup2(file.fileno(), 3)  # which nothing else has: close_fds closes it otherwise
                    if what == 'closed':
                        os.close(2)
                r = subprocess.run([program.path, 'heal'], stdout=subprocess.PIPE, timeout=60, close_fds=False,
                                   stderr={'unread': writable, 'full': full}.get(what), preexec_fn=at_the_start)
            text = healthy.read_text()
            expect(r.returncode == 7, f'{what}: the status stays', r.returncode)
            expect(tables(text) == 1 and is_work(text), f'{what}: the first stream that works gets the whole table', text)
            expect(text.lstrip('\n').startswith('tidemark summary: ') and text.endswith('freed yet.\n'),
                   f'{what}: from its first line to its last', text)
    os.close(writable)


def main():
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        path = folder / 'summary_end'
        built = subprocess.run([*sys.argv[1:], '-std=c++17', '-O1', f'-I{ROOT / "include"}', f'-I{HERE.parent / "support"}',
                                HERE / 'summary_end.cpp', '-o', path, '-pthread'], stderr=subprocess.PIPE, text=True)
        if built.returncode != 0:
            sys.exit(built.stderr)
        program = Program(path)
        for check in (check_ends, check_handlers, check_memory, check_forks, check_columns):
            check(program)
        check_streams(program, folder)
        check_refusals(sys.argv[1:], folder)
    print('\n'.join(problems) if problems else 'the summary tells of every end that a program can have, and changes none')
    return 1 if problems else 0


if __name__ == '__main__':
    sys.exit(main())
