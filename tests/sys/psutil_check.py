#!/usr/bin/env python3
"""Compares what the library says of the machine and of a live process with psutil, and the machine with free(1): each
figure within 1 % or 16 MiB, whichever is more. The process shares some of its memory with a child, so that its
resident, proportional and unique sets are three different sizes.

usage: psutil_check.py MEMORY_REPORT; 77 and a reason where psutil is missing.
"""
import os
import subprocess
import sys

SYSTEM_PYTHON = '/usr/bin/python3'  # apt's packages belong to it, whichever comes first on PATH
MiB = 1 << 20
WORKER = '''
import mmap, os, signal, sys
block = bytearray(b"x") * (96 << 20)
pages = mmap.mmap(-1, 40 << 20)
pages[:] = b"y" * (40 << 20)
ready, told = os.pipe()
child = os.fork()
if child == 0:
    own = bytearray(b"z") * (8 << 20)
    os.write(told, b".")
    signal.pause()
os.read(ready, 1)
print(child, flush=True)
sys.stdin.read()
os.kill(child, signal.SIGKILL)
'''


def reported(program, pid):
    lines = subprocess.run([program, str(pid)], check=True, text=True, stdout=subprocess.PIPE).stdout.splitlines()
    figures = dict(line.split(' ', 1) for line in lines)
    return {name: int(text) if text.isdigit() else text for name, text in figures.items()}


def of_psutil(psutil, pid):
    host, swap, process = psutil.virtual_memory(), psutil.swap_memory(), psutil.Process(pid).memory_full_info()
    return {
        'host_total': host.total, 'host_available': host.available, 'host_used': host.total - host.available,
        'host_swap_total': swap.total, 'host_swap_free': swap.free, 'host_swap_used': swap.used,
        'resident': process.rss, 'full_resident': process.rss, 'virtual': process.vms, 'shared': process.shared,
        'data': process.data, 'swap': process.swap, 'proportional': process.pss, 'unique': process.uss,
    }


def of_free():
    """Before procps 4.0.1 `used` left out all file cache."""
    try:
        version = subprocess.run(['free', '-V'], check=True, text=True, stdout=subprocess.PIPE).stdout.split()[-1]
        text = subprocess.run(['free', '-b'], check=True, text=True, stdout=subprocess.PIPE,
                              env={**os.environ, 'LC_ALL': 'C'}).stdout
    except (OSError, subprocess.CalledProcessError):
        return {}  # there is none
    total, used, *_, available = map(int, text.split('Mem:')[1].split()[:6])
    swap_total, swap_used, swap_free = map(int, text.split('Swap:')[1].split()[:3])
    figures = {'host_total': total, 'host_available': available, 'host_swap_total': swap_total,
               'host_swap_used': swap_used, 'host_swap_free': swap_free}
    if tuple(int(part) for part in version.split('.')[:3]) >= (4, 0, 1):
        figures['host_used'] = used
    return figures


def agree(own, other):
    return isinstance(own, int) and abs(own - other) <= max(max(own, other) // 100, 16 * MiB)


def compared(ours, theirs, whose):
    """A line for each figure, and how many differ."""
    lines = [f'{name:16} {ours[name]:>15} {value:>15} of {whose}{"" if agree(ours[name], value) else "  <-- differs"}'
             for name, value in theirs.items()]
    return lines, sum(not agree(ours[name], value) for name, value in theirs.items())


def main():
    if os.path.realpath(sys.executable) != os.path.realpath(SYSTEM_PYTHON) and os.access(SYSTEM_PYTHON, os.X_OK):
        os.execv(SYSTEM_PYTHON, [SYSTEM_PYTHON, *sys.argv])
    try:
        import psutil
    except ImportError:
        print(f'left out: {sys.executable} has no psutil (Debian: python3-psutil)')
        return 77
    with subprocess.Popen([sys.executable, '-c', WORKER], text=True, stdin=subprocess.PIPE,
                          stdout=subprocess.PIPE) as worker:
        worker.stdout.readline()
        for _ in range(20):  # other programs use the machine too, between one look and the next
            ours = reported(sys.argv[1], worker.pid)
            theirs = of_psutil(psutil, worker.pid)
            free = of_free()
            lines, wrong = compared(ours, theirs, 'psutil')
            more_lines, more_wrong = compared(ours, free, 'free')
            wrong += more_wrong
            if wrong == 0:
                break
        worker.stdin.close()
    print(*lines, *more_lines, sep='\n')
    if not free:
        print('left out: there is no free(1)')
    # What it was told to hold, or the comparison says nothing.
    sizes = [theirs[name] // MiB for name in ('resident', 'proportional', 'unique')]
    if sizes[0] < 136 or sizes[0] - sizes[1] < 48 or sizes[1] - sizes[2] < 48:
        print(f'the worker holds {sizes} MiB: too little, or too little of it is shared')
        wrong += 1
    return 1 if wrong else 0


if __name__ == '__main__':
    sys.exit(main())
