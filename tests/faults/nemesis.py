"""What is done to a server. Each function hurts it, makes it whole again and returns; the history goes on meanwhile."""

import os
import signal
import time

import tally
from helpers import proc

HOUR, YEAR = 3600, 365 * 86400


def kill(*parts):
    def hurt(world, _chance):
        world.kill(*parts)
    hurt.__name__ = "kill " + "+".join(parts)
    return hurt


def stop(part, least, most):
    def hurt(world, chance):
        pid = world.part(part)
        os.kill(pid, signal.SIGSTOP)
        try:
            time.sleep(chance.uniform(least, most))
        finally:
            if proc.alive(pid):
                os.kill(pid, signal.SIGCONT)
        world.wait_well()
    hurt.__name__ = f"stop {part}"
    return hurt


def jump(seconds, *roles):
    """The wall clock, there and, after a restart in between, back."""
    def hurt(world, _chance):
        world.shim.shift(seconds, *roles)
        time.sleep(0.3)
        world.kill("server", "keeper")
        time.sleep(0.3)
        world.shim.shift(0, *roles)
        tally.injected("kill server+keeper")
    hurt.__name__ = f"clock {'+' if seconds > 0 else ''}{seconds} s"
    return hurt


KILLS = [kill("server"), kill("keeper"), kill("server", "keeper"), kill("monitor"),
         kill("monitor", "server", "keeper"), kill("monitor", "keeper")]
HELPERS = [kill("netmaker"), kill("reaper"), kill("zygote"), kill("keeper", "netmaker"), kill("keeper", "zygote")]
STOPS = [stop("server", 0.5, 3), stop("keeper", 0.2, 1.5)]
JUMPS = [jump(sign * by, "server", "keeper", "monitor") for by in (HOUR, YEAR) for sign in (1, -1)]


def torment(world, chance, faults, until=None):
    """Does those to it one after the other, at moments that the seed decides."""
    done = 0
    for hurt in faults:
        if until is not None and time.monotonic() > until:
            break
        time.sleep(chance.choice([0, 0.01, 0.05, 0.2, 0.5]))
        hurt(world, chance)
        tally.injected(hurt.__name__)
        done += 1
    return done
