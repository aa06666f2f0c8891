#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Runs tests that fail on purpose, one by one, and reads what the framework says of them.

usage: bindings_check.py FRAMEWORK CASES CASES_WITHOUT_HOOK LEAKS

FRAMEWORK is doctest, gtest or catch2; the others are programs: tests/testing/bindings/cases.hpp under that framework, the same
without a heap hook, and one that looks for leaks in every test case.
"""
import os
import re
import subprocess
import sys

FILTER = {'doctest': lambda n: [f'-tc={n}'], 'gtest': lambda n: [f'--gtest_filter=*.{n}'], 'catch2': lambda n: [n]}
# Of each failing test: how often a check is told, and what is in the report.
FAILS = {
    'peak_fails_and_goes_on': (1, ['the peak is too high', 'a peak of at most 1,000 bytes above the entry', '500 bytes too much',
                                   '1.5 KiB (1,500 bytes) in one allocation', 'entry ', 'peak ', 'exit ', 'reached the end']),
    'require_ends_the_test': (1, ['the peak is too high', '!reached the end']),
    'allocates': (1, ['allocates, and must not', '2 allocations, 90 bytes together', '50 bytes in one allocation']),
    'allocates_otherwise': (1, ['too few allocations', 'exactly 3 allocations', '1 allocation, 40 bytes together']),
    'leaks': (1, ['leaves memory behind', '1 block and 24 bytes more than before']),
    'grows': (1, ['grows round after round', '8 bytes a round']),
    'does_not_survive': (1, ['does not survive an allocation that fails', '1 block, 4 bytes', 'allocation 2 of the run, 4 bytes']),
    'verdict_fails': (1, ['allocates, and must not', '1 allocation, 7 bytes together']),
    'returns_out_of_the_body': (1, ['the peak is too high', '500 bytes too much', '!reached the end']),
    'breaks_out_of_the_body': (1, ['the peak is too high', '500 bytes too much']),
    'throws_out_of_the_body': (1, ['left before its end', 'it was left by an exception', '600 bytes above the entry', 'thrown']),
    'lets_something_else_out': (1, ['something else than std::bad_alloc came out', 'translated']),
    'inner_failure_is_not_the_outers': (1, ['too few allocations', '!allocates, and must not']),
    'baseline_is_missing': (1, ["not as the baseline 'no such entry'", '"no such entry": {"peak_growth_bytes": 9, "allocations": 1,']),
}
PASSES = ['passes', 'body_is_a_block', 'nested_checks_count_nothing']
problems = []


def expect(holds, what, output):
    if not holds:
        problems.append(f'{what}\n{output}')


def run(program, *arguments):
    environment = {k: v for k, v in os.environ.items() if not k.startswith('TIDEMARK_')}
    done = subprocess.run([program, *arguments], text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=environment)
    return done.returncode, done.stdout


def flat(text):
    """Without the line breaks that a framework puts in."""
    return re.sub(r'\s+', ' ', text)


def main():
    framework, cases, without_hook, leaks = sys.argv[1:]
    for name in PASSES:
        status, said = run(cases, *FILTER[framework](name))
        expect(status == 0 and 'expected' not in said, f'{name}: exit {status}, where nothing fails', said)
    for name, (times, texts) in FAILS.items():
        status, said = run(cases, *FILTER[framework](name))
        expect(0 < status < 128, f'{name}: exit {status}', said)
        expect(len(re.findall(r'^\s*measured ', said, re.M)) == times, f'{name}: not told {times} times', said)
        expect(re.search(r'cases\.hpp:\d+', said), f'{name}: names no line', said)
        for text in texts:
            is_there = flat(text.lstrip('!')) in flat(said)
            expect(is_there != text.startswith('!'), f'{name}: {"has" if is_there else "lacks"} {text!r}', said)
    if framework == 'gtest':
        status, said = run(cases, *FILTER[framework]('fatal_assertion_leaves_the_test'))
        expect(status == 1 and 'reached the end' not in said and 'the peak is too high' in said, 'a fatal assertion', said)
    else:
        status, said = run(cases, *FILTER[framework]('in_a_function'))
        expect(status == 0, 'a check in a function that returns something', said)

    # Where a framework ends the run at the first failure, it does so in order.
    abort = {'doctest': ['--abort-after=1'], 'gtest': ['--gtest_throw_on_failure'], 'catch2': ['--abort']}[framework]
    for name in ('returns_out_of_the_body', 'throws_out_of_the_body', 'breaks_out_of_the_body', 'peak_fails_and_goes_on'):
        status, said = run(cases, *FILTER[framework](name), *abort)
        # GoogleTest lets the exception it throws out of main: that is its way to end the run.
        is_orderly = 0 < status < 128 or (framework == 'gtest' and status == -6)
        expect(is_orderly and 'measured' in said, f'{name} with {abort[0]}: exit {status}', said)

    for name in [*PASSES[:1], 'allocates', 'leaks', 'grows', 'does_not_survive', 'baseline_is_missing']:
        status, said = run(without_hook, *FILTER[framework](name))
        expect(0 < status < 128 and 'tidemark/hook/global_new.hpp' in flat(said) and 'measured' not in said,
               f'{name} without a hook: exit {status}', said)

    status, said = run(leaks)
    told = sorted(re.findall(r"test '([^']*)' leaves memory behind", flat(said)))
    wanted = {'doctest': ['leaks 24 bytes', 'leaks behind an older block', 'leaks in a subcase'],
              'gtest': ['leaks.leaks_24_bytes', 'leaks.leaks_behind_an_older_block'],
              'catch2': ['leaks 24 bytes', 'leaks behind an older block', 'leaks in a section']}[framework]
    expect(0 < status < 128 and told == wanted, f'leaks: exit {status}, told {told}', said)
    expect('1 block and 24 bytes more' in flat(said), 'leaks: no figures', said)
    clean = {'doctest': ['-tc=*clean*'], 'gtest': ['--gtest_filter=*clean*'], 'catch2': ['*clean*']}[framework]
    status, said = run(leaks, *clean)
    expect(status == 0, f'clean tests: exit {status}', said)
    status, said = run(leaks, *abort)
    expect(0 < status < 128 or (framework == 'gtest' and status == -6), f'leaks with {abort[0]}: exit {status}', said)
    leaky = {'doctest': ['-tc=leaks 24 bytes'], 'gtest': ['--gtest_filter=*24*'], 'catch2': ['leaks 24 bytes']}[framework]
    status, said = run(leaks, *leaky)
    expect(0 < status < 128, f'a run with one leaking test: exit {status}', said)

    print('\n'.join(problems) if problems else f'{len(FAILS)} failing tests, {len(PASSES)} passing ones, and leaks: as they should be')
    return 1 if problems else 0


if __name__ == '__main__':
    sys.exit(main())
