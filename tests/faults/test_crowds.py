"""Many at once: creates, commands with much output, kernels. Whoever is refused is told so and may try again; nobody else
loses anything by it."""

import threading
import time

import pytest
import tally
from crowd import PATIENCE_S, at_once, made, much_output
from helpers import python_layer
from kernels import context, said
from nemesis import send
from world import wait_for

CREATES, COMMANDS, OUTPUT, KERNELS = 1000, 200, 10_000_000, 100

pytestmark = pytest.mark.timeout(1200)


def test_1000_creates_at_once(start):
    """And the keeper dies in the middle of it."""
    world = start("--set", "pool.size=2", "--log-level", "warn")

    def kill():
        time.sleep(2)
        send(9, [world.part("keeper")])
        tally.injected("kill keeper")

    killer = threading.Thread(target=kill)
    killer.start()
    begun = time.monotonic()
    found = at_once(CREATES, lambda _: made(world))
    took = time.monotonic() - begun
    killer.join()
    tally.injected(f"{CREATES} creates at once")
    ids = {box.id for box, _ in found}
    assert len(ids) == CREATES, "an id was given twice"
    world.wait_well()
    listed = world.listed()
    assert ids <= set(listed), f"{len(ids - set(listed))} are gone"
    world.kill("server", "keeper")
    tally.injected("kill server+keeper")
    assert ids <= set(world.listed())
    chosen = tally.chance("creates").sample([box for box, _ in found], 50)
    for number, box in enumerate(chosen):
        wait_for(lambda box=box: box.wire().get("/health").status == 204, f"{box.id} does not answer", 60, 0.1)
        box.write("file", b"value %d" % number)
        assert box.read("file") == b"value %d" % number
    print(f"{CREATES} creates in {took:.0f} s, {sum(len(refused) for _, refused in found)} refusals, "
          f"{len(set(listed) - ids)} nobody heard of")
    world.ok("DELETE", "/v1/sandboxes?all=true")
    wait_for(lambda: not world.listed(), "they do not end", 60, 0.2)
    for box in chosen:
        world.nothing_left_of(box.id)


def test_200_commands_of_10_mb_at_once(start):
    """Each byte of each arrives, though one client reads them all."""
    world = start("--set", "pool.size=0")
    boxes = [world.box() for _ in range(10)]
    tally.injected(f"{COMMANDS} commands of 10 MB at once")

    begun = time.monotonic()
    at_once(COMMANDS, lambda number: much_output(boxes[number % len(boxes)], f"{number:08}", OUTPUT, PATIENCE_S))
    print(f"{COMMANDS * OUTPUT >> 20} MiB in {time.monotonic() - begun:.0f} s")


def test_100_kernels_at_once(start, folder):
    """Those that are there already keep what they know, and each new one knows what it was told."""
    assert python_layer.why_not() is None, python_layer.why_not()
    python_layer.put(folder / "data")
    world = start("--set", "pool.size=0")
    box = world.box(limits={"memory_bytes": 12 << 30, "pids": 8192})

    elders = [context(box) for _ in range(2)]
    for number, ident in enumerate(elders):
        said(box, ident, f"x = 'elder {number}'")

    def one(number):
        ident = context(box)
        said(box, ident, f"x = {number}")
        return ident

    tally.injected(f"{KERNELS} kernels at once")
    begun = time.monotonic()
    found = at_once(KERNELS, one)
    took = time.monotonic() - begun
    assert len(set(found)) == KERNELS
    for number, ident in enumerate(elders):
        assert said(box, ident, "print(x)") == f"elder {number}\n"
    for number, ident in enumerate(found):
        assert said(box, ident, "print(x)") == f"{number}\n"
    print(f"{KERNELS} kernels in {took:.0f} s")
