"""The run directory is emptied while sandboxes live, as a tmpfs is that somebody mounts anew. Nothing ends by it: what runs goes
on, what stands still does that, and what is the machine's is given to nobody twice. No clients work meanwhile: with the directory
the way to a running guest is gone until it was paused files-only and resumed, by design (docs/reliability.md)."""

import shutil

import pytest
import tally
from helpers import proc
from residents import Residents
from test_two import first_of, nothing_alike
from world import Usual, World

BOXES, TURNS = 4, 3


def empty(world):
    if world.usual:
        world.empty()
        return
    for path in world.run_dir.iterdir():
        path.unlink() if path.is_symlink() or not path.is_dir() else shutil.rmtree(path)


@pytest.mark.parametrize("kind", [World, Usual], ids=["own", "usual"])
@pytest.mark.parametrize("how", ["kill", "end"])
def test_an_emptied_run_directory_ends_nothing(usual, start, folder, kind, how):
    shared = folder / "shared"
    shared.mkdir()
    world = start("--set", "pool.size=1", "--allow-mount", shared, kind=kind)
    residents, mine = Residents(world, shared), []
    frozen = world.inside(residents.paused.id)
    for turn in range(TURNS):
        mine += [world.box(network="open") for _ in range(BOXES)]
        pids = first_of(world, [box.id for box in mine] + [residents.running.id])
        world.down(how)
        empty(world)
        tally.injected("run directory emptied")
        world.start()
        world.wait_well()
        residents.not_ended()
        for ident in set(world.aside()) - world.set_aside:      # one that the pool had made, and nobody was told of
            assert ident not in {*pids, *residents.ids}
            world.end_aside(ident)
        listed = world.listed()
        assert {ident for ident, one in listed.items() if one["state"] == "running"} == set(pids)
        assert {ident for ident, one in listed.items() if one["state"] == "paused"} == residents.ids - set(pids)
        assert first_of(world, pids) == pids and all(map(proc.alive, frozen))
        nothing_alike([pids[box.id] for box in mine])
    world.ok("POST", f"/v1/sandboxes/{residents.paused.id}/resume", {})
    assert set(world.inside(residents.paused.id)) >= set(frozen), "it was started anew"
    for box in [residents.running, residents.paused, *mine]:
        world.ok("POST", f"/v1/sandboxes/{box.id}/pause", {"memory": False})
        world.ok("POST", f"/v1/sandboxes/{box.id}/resume", {})
        assert box.run("echo here") == "here\n"
    nothing_alike(first_of(world, [box.id for box in mine] + [residents.paused.id]).values())
    residents.pid, residents.older = residents.running.pid(), {}
    residents.check()
