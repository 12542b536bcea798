"""What names this start of the machine is each sandbox's own: neither the machine nor two sandboxes can be
told to belong together by it."""

import re
import threading

import pytest

PATH = "/proc/sys/kernel/random/boot_id"
UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")
WAYS = f"""
echo spoilt > {PATH}; rm -f {PATH}; mv {PATH} /tmp/x; chmod 666 {PATH}; truncate -s 0 {PATH}; umount {PATH}
mount --bind /etc/hostname {PATH}; umount -l /proc/sys; umount -l /dev/pts; touch {PATH}
cat {PATH}
"""


def machines():
    with open(PATH, encoding="ascii") as file:
        return file.read().strip()


def test_it_is_another_for_each_sandbox_and_the_same_for_all_in_one(world):
    said = [world.run("sh", "-c", f"cat {PATH}; cat {PATH}; setpriv --reuid=1000 cat {PATH}; "
                      "sysctl -n kernel.random.boot_id 2>/dev/null || true",
                      user="root").stdout.split() for _ in range(2)]
    for ids in said:
        assert len(ids) >= 3 and len(set(ids)) == 1
        assert UUID.fullmatch(ids[0]) and ids[0] != machines()
    assert said[0][0] != said[1][0]


def test_without_the_mask_it_is_the_machines(world):
    """The control."""
    assert world.run("cat", PATH, weaken="masks").stdout.strip() == machines()


@pytest.mark.parametrize("user", ["root", "user"])
def test_nobody_inside_changes_it(world, user):
    with world.running("sh", "-c", f"cat {PATH}; read x; {WAYS}", user=user) as process:
        first = process.stdout.readline().strip()
        timer = threading.Timer(30, process.kill)
        timer.start()
        process.stdin.write("\n")
        process.stdin.flush()
        rest = process.stdout.read().split()
        timer.cancel()
    assert UUID.fullmatch(first) and rest == [first]


def test_it_lies_nowhere_else(world):
    """Where it comes from is covered."""
    done = world.run("sh", "-c", "find / -xdev -name boot_id 2>/dev/null; find /dev -name 'boot*'; true",
                     user="root")
    assert not done.stdout.strip()
