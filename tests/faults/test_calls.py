"""One call of libc fails, at each place in turn from which the server and the keeper call it while a sandbox is
made, used and ended. Whatever the client hears, nothing is left of it and the next one works."""

import collections
import contextlib
import time

import pytest
import tally
from shim import LIBRARY, Shim
from world import TROUBLE, Box, wait_for

ROLES = ("server", "keeper", "netmaker")
OCCURRENCES = 12                        # of one place in one round: the first so many fail in turn
PATIENCE_S = 15                         # a client that waits longer was forgotten; SQLite tries a lock for 10
# Failing here is what those processes are told by while nothing happens, not a part of the path.
IDLE = {("server", "recv"), ("server", "accept4")}

pytestmark = pytest.mark.skipif(not LIBRARY.exists(), reason=f"{LIBRARY} is not built (sanitizers)")


@pytest.fixture
def shim(folder):
    return Shim(folder / "block")


@pytest.fixture
def world(start, shim):
    # no pool and no stock: each sandbox is made from the first call to the last
    return start("--set", "pool.size=0", "--set", "keep.stock=0", env=shim.variables)


def life(world, words):
    """The whole path once. What was heard of it: the sandbox, or the error."""
    made = world.call("POST", "/v1/sandboxes", {"timeout": 600, "network": words})
    if made.status != 201:
        assert made.status >= 400 and made.message, made
        return None, made.message
    ident = made.json["id"]
    assert world.call("GET", f"/v1/sandboxes/{ident}").status == 200
    ended = world.call("DELETE", f"/v1/sandboxes/{ident}")
    assert ended.status in (204, 404) or (ended.status >= 500 and ended.message), ended
    return ident, None


def places(world, shim):
    """Every place on the way, and how often it is passed in one round."""
    rounds, most = 3, collections.Counter()
    for network in ("open", "none"):
        life(world, network)            # what is done once is not a part of the path
        for _ in range(rounds):
            shim.record()
            assert life(world, network)[0]
            time.sleep(0.05)            # what goes on behind the answer
            shim.off()
            for site, count in shim.sites().items():
                most[site] = max(most[site], count)
    return {site: count for site, count in most.items()
            if site.role in ROLES and (site.role, site.function) not in IDLE}


def runs_of(found):
    """One run for each occurrence of each place; in a fixed order, which a seed then mixes."""
    return [(site, n, network) for site, count in sorted(found.items())
            for n in range(1, min(count, OCCURRENCES) + 1) for network in ("open", "none")]


def one_run(world, shim, site, occurrence, network):
    """Whether it was met."""
    before, begun = set(world.listed()), time.monotonic()
    shim.fail(site, occurrence)
    heard = None
    try:
        heard, _ = life(world, network)
    except TROUBLE:
        pass                            # that process died of it: allowed, if nothing is lost
    took = time.monotonic() - begun
    failed = shim.failed()
    if not failed:
        time.sleep(0.02)
        failed = shim.failed()
    shim.off()
    world.wait_well()
    left = set(world.listed()) - before
    for ident in left:                  # its client did not hear of it, or not of its end
        with contextlib.suppress(TROUBLE):
            world.call("DELETE", f"/v1/sandboxes/{ident}")
    for ident in left | ({heard} - {None}):
        wait_for(lambda ident=ident: ident not in world.listed(), f"{ident} does not end after {site}", 20)
        world.nothing_left_of(ident)
    assert took < PATIENCE_S, f"the client waited {took:.1f} s"
    return bool(failed)


def check_after(world, keeper):
    """What was there before works, and a new one too. Who comes while the keeper starts anew is told to try again."""
    wait_for(lambda: keeper.wire().get("/health").status != 503, "a keeper", PATIENCE_S)
    assert keeper.run("echo here") == "here\n"
    def create():
        return world.call("POST", "/v1/sandboxes", {"timeout": 3600, "network": "open"})

    reply, until = create(), time.monotonic() + PATIENCE_S
    while reply.headers.get("should-retry") == "true" and time.monotonic() < until:
        time.sleep(0.1)                 # the failure may have ended the keeper after it had answered
        reply = create()
    assert reply.status == 201, reply.message
    box = Box(world, reply.json)
    assert box.run("echo $((6 * 7))") == "42\n"
    assert box.end() == 204
    world.nothing_left_of(box.id)
    assert set(world.listed()) == {keeper.id}


def walk(world, shim, budget_s=0):
    keeper = world.box()
    found = places(world, shim)
    runs = runs_of(found)
    if budget_s:
        tally.chance("calls").shuffle(runs)
    until, met, failures = time.monotonic() + budget_s, 0, []
    for number, (site, occurrence, network) in enumerate(runs):
        if budget_s and time.monotonic() > until:
            break
        try:
            met += (hit := one_run(world, shim, site, occurrence, network))
            tally.injected(f"{site.role} call", hit)
        except AssertionError as error:     # the others are worth knowing too
            shim.off()
            failures.append(f"{site}, call {occurrence}: {error}")
            print(failures[-1], flush=True)
            assert len(failures) < 20, failures
        if number % 5 == 0:
            try:
                check_after(world, keeper)
            except AssertionError as error:
                raise AssertionError(f"after {site}, call {occurrence}: {error}") from error
    check_after(world, keeper)
    print(f"{len(found)} places, {len(runs)} runs, {met} met their failure")
    assert not failures, "\n".join(failures)
    return len(runs), met


def test_each_call_on_the_way_fails_once(world, shim):
    if tally.SECONDS:
        pytest.skip("a slice has its own")
    runs, met = walk(world, shim)
    assert met >= runs / 3              # some lie on one of the two ways, or behind the answer


@pytest.mark.slice
def test_some_calls_on_the_way_fail(world, shim):
    if not tally.SECONDS:
        pytest.skip("all of them do, in the test before")
    walk(world, shim, tally.SECONDS * 0.35)
