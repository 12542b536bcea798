"""Hostile code in a sandbox gets nowhere: every attempt as both users and in both profiles, and for
each the proof that it would have been seen to succeed without the defence."""

import os
import pty
import select
import subprocess
import time

import pytest
import verdicts
from controls import CONTROLS, SEEN, SPECIAL
from world import BUILD, LIMITS, attempts, descendants

NAMES = attempts()
WAIT = "echo ready; read x"
DECLARED = 0xa00005fb                   # the capabilities of src/jail/privilege.c
NEEDS_LIMIT = {name: control.options[0] for name, control in CONTROLS.items() if control.options}
ORDINARY = [name for name in NAMES if name == "descriptors" or
            name not in NEEDS_LIMIT and name not in SPECIAL]
IDENTITIES = {"user": {"user": "user"}, "root": {"user": "root"},
              "strict-user": {"user": "user", "strict": True},
              "strict-root": {"user": "root", "strict": True}}


def test_every_attempt_has_a_control():
    assert sorted(set(CONTROLS) | SPECIAL) == sorted(NAMES)


# --- with every defence ------------------------------------------------------------------------

@pytest.fixture(scope="module")
def outcomes(world):
    """One sandbox for each identity tries everything."""
    known = {}

    def look(identity):
        if identity not in known:
            known[identity] = world.attack(ORDINARY, **IDENTITIES[identity])
        return known[identity]
    return look


@pytest.mark.parametrize("identity", IDENTITIES)
@pytest.mark.parametrize("name", ORDINARY)
def test_held(outcomes, name, identity):
    assert outcomes(identity)[name].startswith("held: ")


def limited(resource):
    value, option = LIMITS[resource]
    return {"options": (option,), "environment": {f"LIMIT_{resource}": str(value)}}


@pytest.mark.parametrize("user", ["user", "root"])
@pytest.mark.parametrize("name", NEEDS_LIMIT)
def test_held_by_its_limit(world, name, user):
    outcome = world.attack([name], user=user, **limited(NEEDS_LIMIT[name]))[name]
    assert outcome.startswith("held: ")


def test_the_errors_are_the_declared_ones(outcomes):
    """A sample of the errors themselves: which wall it was that held."""
    root, user = outcomes("root"), outcomes("user")
    assert root["write-own-sysctl"] == "held: EROFS"
    assert user["write-own-sysctl"] == "held: EACCES"
    assert root["setgroups-unmapped"] == "held: EINVAL"
    assert user["setgroups-unmapped"] == "held: EPERM"
    assert root["setuid-file"].startswith("held: user 0, capabilities a00005fb")
    assert outcomes("strict-root")["declared-sets"] == "held: CapBnd 0 CapPrm 0"
    assert outcomes("strict-user")["declared-sets"] == "held: CapBnd 0 CapPrm 0"
    assert outcomes("strict-root")["setuid-file"] == "held: user 0, capabilities 0"
    assert outcomes("strict-root")["capability-file"] == "held: EPERM"


def test_sudo(world):
    """In the ordinary profile it leads to the sandbox's root, in the strict one nowhere."""
    words = ("sh", "-c", "command -v sudo >/dev/null || exit 77; sudo -n id -u")
    ordinary, strict = world.run(*words), world.run(*words, strict=True)
    if ordinary.returncode == 77:
        pytest.skip("this machine has no sudo for the template to show")
    assert ordinary.stdout == "0\n"
    assert strict.returncode != 0 and strict.stdout == ""


# --- without one -------------------------------------------------------------------------------

@pytest.fixture(scope="module")
def weakened(world):
    """Controls that take out the same defence share a sandbox."""
    known = {}

    def look(name):
        control = CONTROLS[name]
        key = (control.weaken, control.user, control.group)
        if control.options:             # what these fill is full for the next one
            return world.attack([name], weaken=control.weaken, user=control.user,
                                **limited(control.options[0]))[name]
        if key not in known:
            same = [n for n, c in CONTROLS.items()
                    if (c.weaken, c.user, c.group) == key and not c.options]
            known[key] = world.attack(same, weaken=control.weaken, user=control.user)
        return known[key][name]
    return look


@pytest.mark.parametrize("name", CONTROLS)
def test_control(weakened, name):
    assert weakened(name).startswith(CONTROLS[name].sees)


# --- the system call filter, number by number --------------------------------------------------

@pytest.fixture(scope="module")
def declared():
    return subprocess.run([os.path.join(BUILD, "src/jail/seccomp-gen"), "--list"], check=True,
                          capture_output=True, text=True).stdout


@pytest.mark.parametrize("user", ["user", "root"])
def test_every_system_call_is_answered_as_declared(world, declared, user):
    probe = ("/attack/syscall-probe", "native")
    filtered = world.run(*probe, user=user).stdout
    plain = world.run(*probe, user=user, weaken="seccomp").stdout
    assert verdicts.discrepancies(declared, filtered, plain) == []
    # the control: without the filter the same comparison finds a great many
    assert len(verdicts.discrepancies(declared, plain)) > 30


@pytest.mark.parametrize("entry", ["i386", "x32"])
@pytest.mark.parametrize("user", ["user", "root"])
def test_other_entries_to_the_kernel_do_not_exist(world, user, entry):
    if os.uname().machine != "x86_64":
        pytest.skip("only x86-64 has other entries")
    seen = world.run("/attack/syscall-probe", entry, user=user).stdout
    assert len(seen.splitlines()) == 601
    assert verdicts.foreign_discrepancies(seen) == []


# --- descriptors -------------------------------------------------------------------------------

def test_a_descriptor_too_many_is_seen(world):
    """The control of `descriptors`: the shell gives it one more."""
    done = world.run("sh", "-c", "exec /attack/attacker run descriptors 9</")
    assert SEEN in done.stdout


def open_files(pid):
    found = {}
    for name in os.listdir(f"/proc/{pid}/fd"):
        try:
            found[int(name)] = os.readlink(f"/proc/{pid}/fd/{name}")
        except OSError:
            pass
    return found


@pytest.mark.parametrize("weaken", ["", "descriptors"])
def test_the_first_process_holds_nothing_of_the_host(world, weaken):
    """A directory that whoever started `cove run` had open: it must not even reach pid 1."""
    leak = os.open(world.directory, os.O_RDONLY)
    try:
        os.set_inheritable(leak, True)
        with world.running("sh", "-c", WAIT, weaken=weaken, pass_fds=[leak]) as process:
            assert process.stdout.readline() == "ready\n"
            found = open_files(world.first_process(process))
    finally:
        os.close(leak)
    strange = [path for path in found.values() if path != "/" and
               not path.startswith(("socket:", "pipe:", "anon_inode:", "/dev/null", "/proc/"))]
    assert bool(strange) == bool(weaken), found


@pytest.mark.parametrize("directory", ["/proc/self/fd/0", "/proc/self/fd/3", "/proc/self/cwd",
                                       "/proc/1/cwd", "/proc/1/root", "/proc/self/fd/9/../../.."])
def test_a_command_cannot_start_in_a_descriptor(world, directory):
    done = subprocess.run(world.command("pwd", user="root", options=("--workdir", directory)),
                          capture_output=True, text=True, stdin=subprocess.DEVNULL)
    assert done.returncode == 125 and done.stdout == ""


# --- user ids, processes, terminals ------------------------------------------------------------

def status(pid):
    with open(f"/proc/{pid}/status", encoding="utf-8") as file:
        return {name: rest.strip() for name, _, rest in (line.partition(":") for line in file)}


@pytest.mark.parametrize("weaken", ["", "caps,seccomp"])
@pytest.mark.parametrize("strict", [False, True])
def test_the_first_process_has_no_more_rights_than_declared(world, strict, weaken):
    with world.running("sh", "-c", WAIT, strict=strict, weaken=weaken) as process:
        assert process.stdout.readline() == "ready\n"
        first = world.first_process(process)
        seen = status(first)
        with open(f"/proc/{first}/environ", "rb") as file:
            environment = file.read()
    sets = [int(seen[name], 16) for name in ("CapPrm", "CapEff", "CapInh", "CapAmb")]
    within = not any(held & ~DECLARED for held in sets)
    bounded = int(seen["CapBnd"], 16) == (0 if strict else DECLARED)
    expected = (False, False, "0") if weaken else (True, True, "2")
    assert (within, bounded, seen["Seccomp"]) == expected
    assert weaken or environment == b""


def test_nobody_inside_has_a_user_id_of_the_host(world):
    with world.running("sh", "-c", WAIT, user="root") as process:
        assert process.stdout.readline() == "ready\n"
        first = world.first_process(process)
        for pid in [first] + descendants(first):
            seen = status(pid)
            assert min(map(int, seen["Uid"].split() + seen["Gid"].split())) > 1 << 20


LINGER = """
(setsid sh -c 'trap "" TERM HUP INT; sleep 300; sleep 300' >/dev/null 2>&1 &)
(setsid sh -c 'kill -STOP $$; sleep 300' >/dev/null 2>&1 &)
setsid sleep 300 >/dev/null 2>&1 &
echo ready; read x; exit 0
"""


@pytest.mark.parametrize("user", ["user", "root"])
def test_whatever_a_command_leaves_behind_ends_with_the_sandbox(world, user):
    with world.running("sh", "-c", LINGER, user=user) as process:
        assert process.stdout.readline() == "ready\n"
        time.sleep(0.1)
        first = world.first_process(process)
        inside = [first] + descendants(first)
        assert len(inside) >= 5         # the control: they are there, and we see them
        process.stdin.close()
        started = time.monotonic()
        process.wait(10)
        assert time.monotonic() - started < 1
    assert not [pid for pid in inside if os.path.exists(f"/proc/{pid}")]


@pytest.mark.parametrize("weaken", ["", "seccomp"])
def test_nothing_is_typed_into_the_callers_terminal(world, weaken):
    """TIOCSTI: what the command types it types to itself, never to whoever started it."""
    ours, theirs = pty.openpty()
    words = world.command("/attack/attacker", "run", "caller-terminal", weakened=bool(weaken))
    with subprocess.Popen(words, env={**os.environ, "COVE_WEAKEN": weaken}, stdin=theirs,
                          stdout=theirs, stderr=theirs, start_new_session=True) as process:
        text = read_terminal(ours, process)
    typed = select.select([theirs], [], [], 0)[0]
    os.close(ours)
    os.close(theirs)
    assert "caller-terminal" in text
    assert (SEEN + "typed into it" in text) == (weaken == "seccomp" and has_tiocsti())
    assert not typed                    # even then it was the sandbox's own terminal


def read_terminal(ours, process):
    text = b""
    while process.poll() is None or select.select([ours], [], [], 0.1)[0]:
        if select.select([ours], [], [], 0.1)[0]:
            text += os.read(ours, 65536)
    return text.decode(errors="replace")


def has_tiocsti():
    try:
        with open("/proc/sys/dev/tty/legacy_tiocsti", encoding="ascii") as file:
            return file.read().strip() != "0"
    except FileNotFoundError:
        return True                     # before Linux 6.2 there was no switch


# --- the layer ---------------------------------------------------------------------------------

def raw_attributes(layers):
    found = set()
    for layer in layers:
        for root, directories, files in os.walk(layer):
            for name in files + directories:
                path = os.path.join(root, name)
                found |= {(name, a) for a in os.listxattr(path, follow_symlinks=False)}
    return found


@pytest.mark.parametrize("user", ["user", "root"])
def test_forged_marks_of_the_overlay_do_not_reach_the_layer(world, user):
    with world.running("/attack/attacker", "hold", "overlay-forge", user=user) as process:
        assert process.stdout.readline() == "took 4\n"
        found = {attribute for name, attribute in raw_attributes(world.layers())
                 if name == "marked"}
    # the control: they did arrive, under names that overlayfs does not read
    assert "user.overlay.overlay.redirect" in found
    assert not found & {"user.overlay.redirect", "user.overlay.metacopy", "user.overlay.opaque"}


# --- what everybody shares ---------------------------------------------------------------------

@pytest.mark.parametrize("what", ["take-watchers", "take-queues", "take-timers"])
def test_one_sandbox_cannot_starve_the_others(world, what):
    with world.running("/attack/attacker", "hold", what) as process:
        assert int(process.stdout.readline().split()[1]) > 0
        assert world.attack(["neighbour"])["neighbour"].startswith("held: ")


def test_starving_is_seen_without_an_owner_for_each(world):
    """Only queues, which hardly anybody on the host will miss for that moment."""
    with world.running("/attack/attacker", "hold", "take-queues", weaken="owner") as process:
        assert int(process.stdout.readline().split()[1]) > 0
        outcome = world.attack(["neighbour"], weaken="owner")["neighbour"]
    assert outcome == SEEN + "no message queue left"


@pytest.mark.parametrize("weaken", ["", "mount-owner"])
def test_a_setuid_program_left_on_a_mount_is_not_roots_outside(world, weaken):
    directory = os.path.join(world.directory, f"writable-{weaken or 'held'}")
    os.mkdir(directory)
    os.chown(directory, 1000, 1000)
    world.run("sh", "-c", "cp /bin/true /m/planted && chmod 4755 /m/planted", user="root", weaken=weaken,
              options=["--mount", f"{directory}:/m"])
    planted = os.stat(os.path.join(directory, "planted"))
    assert planted.st_mode & 0o4000
    assert (planted.st_uid == 0) == bool(weaken)


@pytest.mark.parametrize("weaken", ["", "mount-owner"])
def test_nothing_is_written_into_a_directory_of_roots(world, weaken):
    directory = os.path.join(world.directory, f"roots-{weaken or 'held'}")
    os.mkdir(directory)
    os.chmod(directory, 0o777)
    done = world.run("sh", "-c", "echo x > /m/new", user="root", weaken=weaken,
                     options=["--mount", f"{directory}:/m"])
    assert (done.returncode == 0) == bool(weaken)
    assert os.listdir(directory) == (["new"] if weaken else [])


def test_two_sandboxes_share_no_device_node(world):
    """Watches and locks are the inode's: on a shared one neighbours would see and block each other."""
    seen = set()
    with world.running("sh", "-c", "stat -c '%d:%i' /dev/null; cat") as one, \
            world.running("sh", "-c", "stat -c '%d:%i' /dev/null; cat") as two:
        for process in one, two:
            seen.add(process.stdout.readline())
    assert len(seen) == 2


def test_memory_that_runs_out_is_reported(world):
    done = world.run("/attack/attacker", "run", "memory-anonymous", **limited("MEMORY"))
    assert "limit 'memory' of 64 MiB was reached" in done.stderr


def test_a_fork_bomb_is_gone_within_a_second(world):
    bomb = "sleep 300 & while :; do (sleep 300 &) 2>/dev/null; done"
    started = time.monotonic()
    with world.running("sh", "-c", f"({bomb}) 2>/dev/null & echo ready; read x; exit 0",
                       **limited("PIDS")) as process:
        assert process.stdout.readline() == "ready\n"
        time.sleep(0.5)
        inside = descendants(world.first_process(process))
        assert len(inside) <= 64
        process.stdin.close()
        started = time.monotonic()
        process.wait(10)
        assert time.monotonic() - started < 1
    assert not [pid for pid in inside if os.path.exists(f"/proc/{pid}")]


def test_a_full_disk_inside_takes_nothing_of_the_host(world):
    image = os.path.join(world.data, "volume.img")
    before = os.stat(image).st_blocks
    assert world.attack(["disk-write"], **limited("DISK"))["disk-write"].startswith("held: ")
    assert os.stat(image).st_blocks == before


# --- the network -------------------------------------------------------------------------------

@pytest.mark.parametrize("weaken, sees", [("", "held: "), ("net-refuse", SEEN)])
def test_an_open_network_does_not_lead_to_this_machine(world, weaken, sees):
    """In a network namespace that plays the host: metadata, the gateway, all its own addresses."""
    script = os.path.join(os.path.dirname(__file__), "network_lab.py")
    words = world.command("/attack/attacker", "run", "network-denied", "host-tcp",
                          weakened=bool(weaken), options=("--network", "open"),
                          environment={"NETWORK_DENIED": "@DENIED@", "CANARY_TCP": "@REACHABLE@"})
    done = subprocess.run(["unshare", "--net", "--mount", "python3", script, *words],
                          env={**os.environ, "COVE_WEAKEN": weaken}, stdin=subprocess.DEVNULL,
                          capture_output=True, text=True)
    assert f"network-denied\t{sees}" in done.stdout, done.stderr
    assert f"host-tcp\t{SEEN}" in done.stdout       # the internet, which it may reach, answers
