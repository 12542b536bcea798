"""result.py - one line of the benchmark's table, and the ways figures for it are taken."""
import os
import statistics
import subprocess
from dataclasses import dataclass, field

from harness import CannotMeasure


@dataclass
class Result:
    what: str
    unit: str
    ours: list                          # one figure per round
    peer: list = field(default_factory=list)
    peer_name: str = ""
    bar: tuple = None                   # (sign, figure) of the ratio, or of ours where absolute; None: reported
    absolute: bool = False
    note: str = ""

    @property
    def ratios(self):
        return [a / b for a, b in zip(self.ours, self.peer)]

    @property
    def judged(self):
        return statistics.median(self.ours if self.absolute else self.ratios)

    @property
    def ok(self):
        if not self.bar:
            return True
        sign, figure = self.bar
        return self.judged <= figure if sign == "<=" else self.judged >= figure


def alternate(rounds, *sides):
    """Calls all in turns, every other round backwards; returns the lists of what they gave."""
    gave = [[] for _ in sides]
    for i in range(rounds):
        for side, into in list(zip(sides, gave))[::1 if i % 2 == 0 else -1]:
            into.append(side())
    return gave


def percentile(values, p):
    return sorted(values)[min(len(values) - 1, int(len(values) * p / 100))]


def samples(argv, cores=None):
    """Runs a measuring program of ours: its samples by name, in nanoseconds."""
    out = subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False,
                         preexec_fn=lambda: cores and os.sched_setaffinity(0, cores))
    if out.returncode:
        raise CannotMeasure(out.stderr.strip()[-300:] or f"{argv[0]} failed")
    by_name = {}
    for line in out.stdout.splitlines():
        name, ns = line.split()
        by_name.setdefault(name, []).append(int(ns))
    return by_name
