"""What was injected, counted by kind, and the seed that a run can be repeated with."""

import collections
import os
import random

SEED = int(os.environ.get("COVE_FAULTS_SEED") or random.SystemRandom().randrange(1, 1 << 31))
SECONDS = float(os.environ.get("COVE_FAULTS_SECONDS") or 0)     # of a slice; 0: everything
counts = collections.Counter()


def injected(kind, times=1):
    counts[kind] += times


def chance(*names):
    """Random numbers that depend on the seed and on what they are for, and on nothing else."""
    return random.Random("-".join(map(str, (SEED, *names))))
