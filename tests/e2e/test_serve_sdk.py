"""`cove serve` as a platform for the unmodified Python SDK: a sandbox's life from its creation to its
end, what is told about it, and what belongs to whom. What can be done in one is tested by the suites
that run with COVE_VIA=serve."""

import asyncio
import concurrent.futures
import datetime
import os
import signal
import time

import pytest
from e2b import (AsyncSandbox, AuthenticationException, CommandExitException, NotEnoughSpaceException,
                 NotFoundException, Sandbox, SandboxException, SandboxQuery, SandboxState,
                 TimeoutException)

from helpers import proc
from helpers.guest import SLOWER
from helpers.sdk import PREVIOUS, create, sdk       # noqa: F401: the last two are fixtures

pytestmark = pytest.mark.sdk

core = pytest.mark.core
MIB = 1 << 20

# What the SDK says of a sandbox that has ended; the previous line knows but a time-out.
if PREVIOUS:
    GONE = TimeoutException
else:
    from e2b import SandboxNotRunningException as GONE


def seconds_left(info):
    return (info.end_at - datetime.datetime.now(datetime.timezone.utc)).total_seconds()


# --- a life -----------------------------------------------------------------------------------

@core
def test_a_sandbox_is_created_used_and_ended(create):
    sandbox = create()
    assert sandbox.is_running() is True
    assert sandbox.commands.run("echo hello").stdout == "hello\n"
    assert sandbox.kill() is True


@core
def test_a_sandbox_that_was_ended_is_gone_for_every_call(create, sdk):
    sandbox = create()
    id = sandbox.sandbox_id
    assert sandbox.kill() is True
    assert sandbox.kill() is False
    assert Sandbox.kill(id, **sdk) is False
    assert sandbox.is_running() is False
    for use in (lambda: sandbox.commands.run("true"), lambda: sandbox.files.read("/etc/hostname"),
                lambda: sandbox.files.write("/tmp/x", "x"), lambda: sandbox.files.list("/"),
                lambda: sandbox.files.watch_dir("/tmp"), lambda: sandbox.commands.list()):
        with pytest.raises(GONE):
            use()
    for ask in (sandbox.get_info, sandbox.connect, lambda: sandbox.set_timeout(60),
                sandbox.get_metrics, lambda: Sandbox.connect(id, **sdk)):
        with pytest.raises(NotFoundException):
            ask()


def test_a_sandbox_that_never_was_is_not_found(sdk):
    id = "i" + "0" * 20
    assert Sandbox.kill(id, **sdk) is False
    for ask in (Sandbox.connect, Sandbox.get_info, Sandbox.get_metrics):
        with pytest.raises(NotFoundException):
            ask(id, **sdk)
    with pytest.raises(NotFoundException):
        Sandbox.set_timeout(id, 60, **sdk)


@core
def test_with_ends_the_sandbox(sdk):
    with Sandbox.create(timeout=60, **sdk) as sandbox:
        assert sandbox.commands.run("true").exit_code == 0
    assert sandbox.is_running() is False


@core
def test_who_connects_finds_what_is_there(create, sdk):
    first = create(envs={"GLOBAL": "1"})
    first.files.write("/home/user/file", "content")
    handle = first.commands.run("sleep 100", background=True)
    second = Sandbox.connect(first.sandbox_id, **sdk)
    assert second.files.read("/home/user/file") == "content"
    assert second.commands.run("echo $GLOBAL").stdout == "1\n"
    assert handle.pid in {process.pid for process in second.commands.list()}
    assert second.commands.kill(handle.pid) is True


def test_sandboxes_share_nothing(create):
    one, two = create(), create()
    one.files.write("/home/user/mine", "1")
    one.commands.run("sleep 100", background=True)
    assert not two.files.exists("/home/user/mine")
    assert two.commands.list() == []
    assert "sleep" not in two.commands.run("cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' ' '").stdout
    assert one.commands.run("hostname").exit_code == 0


# --- its end ----------------------------------------------------------------------------------

@core
def test_connecting_extends_the_time_and_never_shortens_it(create, sdk):
    sandbox = create(timeout=300)
    Sandbox.connect(sandbox.sandbox_id, timeout=60, **sdk)
    assert 280 < seconds_left(sandbox.get_info()) <= 300
    Sandbox.connect(sandbox.sandbox_id, timeout=900, **sdk)
    assert 880 < seconds_left(sandbox.get_info()) <= 900


@core
def test_a_new_time_out_counts_from_now_both_ways(create, sdk):
    sandbox = create(timeout=300)
    sandbox.set_timeout(50)
    assert 40 < seconds_left(sandbox.get_info()) <= 50
    Sandbox.set_timeout(sandbox.sandbox_id, 1000, **sdk)
    assert 990 < seconds_left(sandbox.get_info()) <= 1000


@core
def test_without_a_time_out_it_is_five_minutes(sdk):
    sandbox = Sandbox.create(**sdk)
    assert 290 < seconds_left(sandbox.get_info()) <= 300
    assert sandbox.kill()


def wait_for_the_end(sandbox, limit):
    """Seconds until it does not run any more."""
    begun = time.monotonic()
    proc.wait_until(lambda: not sandbox.is_running(), "the end of the sandbox", limit)
    return time.monotonic() - begun


@core
def test_a_sandbox_ends_when_its_time_is_over(create, server, sdk):
    sandbox = create(timeout=3)
    handle = sandbox.commands.run("echo begun; sleep 100", background=True)
    assert 2.5 < wait_for_the_end(sandbox, 3 + 3 * SLOWER) < 3 + 1.5 * SLOWER
    with pytest.raises(SandboxException):
        handle.wait()
    with pytest.raises(NotFoundException):
        sandbox.get_info()
    listed = Sandbox.list(**sdk)
    assert sandbox.sandbox_id not in {info.sandbox_id for info in listed.next_items()}
    end, = [event for event in server.ok("GET", f"/v1/sandboxes/{sandbox.sandbox_id}/events")["events"]
            if event["kind"] == "ended"]
    assert end["actor"] == "system" and "time" in end["text"]


def test_a_time_out_that_is_shortened_ends_it_earlier(create):
    sandbox = create(timeout=300)
    sandbox.set_timeout(2)
    assert 1.5 < wait_for_the_end(sandbox, 2 + 3 * SLOWER) < 2 + 1.5 * SLOWER


def test_a_time_out_that_is_extended_in_time_keeps_it(create):
    sandbox = create(timeout=4)
    sandbox.set_timeout(60)
    time.sleep(4.5)
    assert sandbox.is_running()
    assert sandbox.commands.run("echo here").stdout == "here\n"


@core
def test_who_waits_for_a_command_is_told_when_its_sandbox_is_ended(create, sdk):
    sandbox = create()
    handle = sandbox.commands.run("echo begun; sleep 100", background=True)
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(handle.wait)
        time.sleep(0.3)
        assert not waiting.done()
        assert Sandbox.kill(sandbox.sandbox_id, **sdk)
        with pytest.raises(SandboxException):
            waiting.result(10 * SLOWER)


def end_in_the_events(server, sandbox):
    """The event, once it is there: who asks the sandbox itself may find it gone before the server has heard of it."""
    return proc.wait_until(lambda: [
        event for event in server.ok("GET", f"/v1/sandboxes/{sandbox.sandbox_id}/events")["events"]
        if event["kind"] == "ended"], "its end in the events", 5 * SLOWER)[0]


@core
def test_a_sandbox_that_dies_is_reported(create, server):
    """As if its first process had failed: the host can kill it, nothing inside can."""
    sandbox = create()
    mark = f"mark-{sandbox.sandbox_id}"
    sandbox.commands.run(f"exec -a {mark} sleep 100", background=True)
    child, = proc.wait_until(lambda: proc.with_argument(mark), "the command, seen from the host")
    os.kill(proc.parent(child), signal.SIGKILL)
    told = end_in_the_events(server, sandbox)
    assert told["actor"] != "admin" and told["text"]
    assert not sandbox.is_running()
    with pytest.raises(GONE):
        sandbox.commands.run("true")
    with pytest.raises(NotFoundException):
        sandbox.get_info()
    assert sandbox.kill() is False


@core
def test_a_sandbox_can_shut_itself_down(create, server):
    sandbox = create()
    with pytest.raises(SandboxException):       # killed, or the connection was lost before that
        sandbox.commands.run("kill -TERM 1; sleep 10", user="root")
    told = end_in_the_events(server, sandbox)
    assert told["actor"] == "system" and "itself" in told["text"]
    assert not sandbox.is_running()


def test_root_inside_cannot_kill_its_first_process(create):
    sandbox = create()
    assert sandbox.commands.run("kill -9 1; echo $?", user="root").stdout == "0\n"
    with pytest.raises(CommandExitException):
        sandbox.commands.run("sh -c 'kill -9 -1'; sleep 10", user="root")
    assert sandbox.is_running()
    assert sandbox.commands.run("echo here").stdout == "here\n"


# --- lists ------------------------------------------------------------------------------------

def items(paginator):
    """All pages; each page's length."""
    found, lengths = [], []
    while paginator.has_next:
        page = paginator.next_items()
        found += page
        lengths.append(len(page))
    return found, lengths


STRANGE = {"a&b=c%d": "&=%+ #?/\\\"'", "žluťoučký 🐎": "日本語 \u202e", "plain": "x", "empty": "",
           "with space": " both sides "}


@pytest.fixture(scope="module")
def lister(server):
    """A user with seven sandboxes of its own, in the order in which they were made."""
    sdk = server.sdk(key=server.user("lister"), debug=False)
    made = [Sandbox.create(timeout=300, metadata={"n": str(i), "odd": str(i % 2)} | (
        STRANGE if i == 3 else {}), **sdk).sandbox_id for i in range(7)]
    yield sdk, made
    for id in made:
        Sandbox.kill(id, **sdk)


@core
@pytest.mark.parametrize("limit, lengths", [(1, [1] * 7), (3, [3, 3, 1]), (7, [7]), (100, [7])])
def test_a_list_comes_in_pages(lister, limit, lengths):
    sdk, made = lister
    found, pages = items(Sandbox.list(limit=limit, **sdk))
    assert pages == lengths
    assert [info.sandbox_id for info in found] == made[::-1]        # the newest first


def test_a_list_can_begin_with_the_oldest(lister):
    sdk, made = lister
    found, _ = items(Sandbox.list(limit=2, order="asc", **sdk))
    assert [info.sandbox_id for info in found] == made


@core
def test_a_list_can_be_of_some_states_only(lister):
    sdk, made = lister

    def ids(*states):
        return {info.sandbox_id for info in
                items(Sandbox.list(SandboxQuery(state=list(states)), **sdk))[0]}

    assert ids(SandboxState.RUNNING) == ids(SandboxState.RUNNING, SandboxState.PAUSED) == set(made)
    assert ids(SandboxState.PAUSED) == set()


@core
@pytest.mark.parametrize("wanted, which", [
    ({"odd": "1"}, [1, 3, 5]), ({"n": "3", "odd": "1"}, [3]), ({"n": "3", "odd": "0"}, []),
    ({"no such": "x"}, []), *(({key: value}, [3]) for key, value in STRANGE.items()), (STRANGE, [3])],
    ids=lambda value: None)
def test_a_list_can_be_of_some_metadata_only(lister, wanted, which):
    sdk, made = lister
    found, _ = items(Sandbox.list(SandboxQuery(metadata=wanted), limit=2, order="asc", **sdk))
    assert [info.sandbox_id for info in found] == [made[i] for i in which]
    assert all(wanted.items() <= info.metadata.items() for info in found)


def test_a_list_can_be_of_one_template_or_of_what_is_new(lister):
    sdk, made = lister
    found, _ = items(Sandbox.list(SandboxQuery(template="base"), **sdk))
    assert len(found) == 7
    assert items(Sandbox.list(SandboxQuery(template="no-such"), **sdk))[0] == []
    middle = Sandbox.get_info(made[3], **sdk).started_at
    found, _ = items(Sandbox.list(SandboxQuery(started_after=middle), order="asc", **sdk))
    assert [info.sandbox_id for info in found][-3:] == made[4:] and len(found) in (3, 4)


def test_one_that_begins_or_ends_while_the_list_is_read_disturbs_no_other(lister):
    sdk, made = lister
    paginator = Sandbox.list(limit=3, order="asc", **sdk)
    first = paginator.next_items()
    with Sandbox.create(timeout=60, metadata={"n": "late"}, **sdk) as late:
        rest, _ = items(paginator)
    assert [info.sandbox_id for info in first + rest] == [*made, late.sandbox_id]


# --- what is told -----------------------------------------------------------------------------

@core
def test_info_tells_all_about_a_sandbox(create):
    before = datetime.datetime.now(datetime.timezone.utc)
    sandbox = create(timeout=200, metadata=STRANGE)
    info = sandbox.get_info()
    assert info.sandbox_id == sandbox.sandbox_id and info.state == SandboxState.RUNNING
    assert info.template_id == "base" and info.name == "base" and info.metadata == STRANGE
    assert info.sandbox_domain == sandbox.sandbox_domain
    assert abs((info.started_at - before).total_seconds()) < 5
    assert abs((info.end_at - info.started_at).total_seconds() - 200) < 5
    assert info.cpu_count >= 1 and info.memory_mb >= 16
    assert info.lifecycle == {"on_timeout": "kill", "auto_resume": False}
    assert tuple(map(int, info.envd_version.split("."))) >= (0, 6, 4)


def test_metadata_of_none_is_empty(create):
    assert create().get_info().metadata == {}


@pytest.mark.timeout(90)
def test_metrics_show_what_a_sandbox_does(create):
    sandbox = create(timeout=300)
    idle = sandbox.get_metrics()[-1]
    assert idle.mem_used < 100 * MIB and idle.disk_used < 20 * MIB
    sandbox.files.write("load.py", "import os\nx = os.urandom(1 << 20) * 200\n"
                        "open('big', 'wb').write(x[:50 << 20])\nos.sync()\n"
                        "print('ready', flush=True)\nwhile True: pass\n")
    handle = sandbox.commands.run("python3 load.py", background=True)
    assert next(iter(handle))[0] == "ready\n"

    def used():
        """Seconds of a processor that the load has had: its due is one, others have theirs."""
        return int(sandbox.commands.run(f"cat /proc/{handle.pid}/schedstat").stdout.split()[0]) / 1e9

    time.sleep(1.1)                     # no sample is taken within a second of the last
    sandbox.get_metrics()
    first, begun = used(), time.monotonic()
    time.sleep(3)
    busy = sandbox.get_metrics()[-1]
    true = 100 * (used() - first) / (time.monotonic() - begun) / busy.cpu_count
    assert true > 2 and abs(busy.cpu_used_pct - true) < 10
    assert 200 * MIB < busy.mem_used - idle.mem_used < 330 * MIB
    assert busy.mem_used < busy.mem_total and busy.cpu_count == sandbox.get_info().cpu_count
    assert 50 * MIB <= busy.disk_used < 80 * MIB < busy.disk_total
    times = [metrics.timestamp for metrics in sandbox.get_metrics()]
    assert times == sorted(times) and len(set(times)) == len(times)
    assert sandbox.get_metrics(start=times[0] - datetime.timedelta(hours=2),
                               end=times[0] - datetime.timedelta(hours=1)) == []


@core
def test_the_memory_limit_ends_the_command_and_is_told(server, sdk):
    made = server.create(limits={"memory_bytes": 64 * MIB})
    sandbox = Sandbox.connect(made["id"], **sdk)
    with pytest.raises(CommandExitException) as caught:
        sandbox.commands.run("python3 -c 'x = b\"x\" * (200 << 20)'")
    assert caught.value.error == "signal: killed"
    assert sandbox.commands.run("echo here").stdout == "here\n"
    met = proc.wait_until(lambda: [
        event for event in server.ok("GET", f"/v1/sandboxes/{made['id']}/events")["events"]
        if event["kind"] == "limit"], "the limit in the events", 5 * SLOWER)
    assert met[0]["detail"]["limit"] == "memory" and "64 MiB" in met[0]["text"]
    assert sandbox.kill()


def test_the_disk_limit_is_the_sdks_own_exception(server, sdk):
    made = server.create(limits={"disk_bytes": 32 * MIB})
    sandbox = Sandbox.connect(made["id"], **sdk)
    sandbox.files.write("/home/user/small", "x")
    with pytest.raises(NotEnoughSpaceException):
        sandbox.files.write("/home/user/big", os.urandom(48 * MIB))
    assert sandbox.files.read("/home/user/small") == "x"
    assert sandbox.kill()


# --- what it is given -------------------------------------------------------------------------

@core
def test_variables_are_global_and_a_commands_own_win(create):
    sandbox = create(envs={"A": "global", "B": "žluť 🐎 &=\n'\"$HOME"})
    assert sandbox.commands.run("printf %s \"$A|$B\"").stdout == "global|žluť 🐎 &=\n'\"$HOME"
    assert sandbox.commands.run("echo $A $C", envs={"A": "mine", "C": "c"}).stdout == "mine c\n"
    assert sandbox.commands.run("echo $A", user="root").stdout == "global\n"
    terminal = sandbox.commands.run("echo $A-$USER-$HOME", user="daemon", cwd="/")
    assert terminal.stdout == "global-daemon-/usr/sbin\n"


@core
def test_its_user_is_user_and_root_can_be_had(create):
    sandbox = create()
    assert sandbox.commands.run("id -un; pwd; echo $HOME").stdout == "user\n/home/user\n/home/user\n"
    assert sandbox.commands.run("id -un; echo $HOME", user="root").stdout == "root\n/root\n"
    assert sandbox.commands.run("sudo id -un").stdout == "root\n"
    sandbox.files.write("file", "x")
    assert sandbox.files.get_info("file").path == "/home/user/file"
    assert sandbox.files.get_info("file").owner == "user"


@core
@pytest.mark.parametrize("name", ["base", "code-interpreter-v1", "desktop", "mcp-gateway"])
def test_templates_are_known_by_e2bs_names(create, name):
    sandbox = create(name)
    assert sandbox.get_info().template_id == name
    assert sandbox.commands.run("echo here").stdout == "here\n"


@pytest.mark.parametrize("name", ["no-such-template", "base:v2"])
def test_a_template_that_does_not_exist_is_named(create, name):
    with pytest.raises(SandboxException, match=f"404: .*{name}"):
        create(name)


def test_a_template_may_be_named_with_the_default_tag(create):
    assert create("base:default").get_info().template_id == "base"


@core
def test_without_the_internet_there_is_no_way_out(create):
    sandbox = create(allow_internet_access=False)
    links = sandbox.commands.run("tail -n +3 /proc/net/dev").stdout.splitlines()
    assert [line.split(":")[0].strip() for line in links] == ["lo"]
    assert sandbox.commands.run("tail -n +2 /proc/net/route").stdout == ""
    for address in ("1.1.1.1", "10.0.0.1", "127.1.1.1"):
        with pytest.raises(CommandExitException, match="unreachable|refused"):
            sandbox.commands.run(f"bash -c 'echo >/dev/tcp/{address}/80'")
    assert sandbox.get_info().allow_internet_access is False


def test_with_the_internet_there_is_a_way_out(create):
    sandbox = create()
    links = sandbox.commands.run("tail -n +3 /proc/net/dev").stdout.splitlines()
    assert len(links) == 2
    routes = sandbox.commands.run("tail -n +2 /proc/net/route").stdout.splitlines()
    assert any(line.split()[1] == "00000000" for line in routes)
    assert sandbox.get_info().allow_internet_access is not False


@pytest.mark.current_sdk("idempotency key")
def test_a_creation_that_is_repeated_makes_one_sandbox(create):
    key = f"again-{os.getpid()}-{time.time_ns()}"
    first, second = create(idempotency_key=key), create(idempotency_key=key)
    assert first.sandbox_id == second.sandbox_id
    assert second.commands.run("echo here").stdout == "here\n"


# --- who may ----------------------------------------------------------------------------------

@core
@pytest.mark.parametrize("key", ["e2b_" + "0" * 40, "e2b_" + "f" * 40])
def test_a_key_that_is_not_known_is_an_authentication_error(server, create, key):
    other = server.sdk(key=key, debug=False)
    for call in (lambda: Sandbox.create(**other), lambda: Sandbox.list(**other).next_items(),
                 lambda: Sandbox.kill(create().sandbox_id, **other)):
        with pytest.raises(AuthenticationException):
            call()


@core
def test_what_is_anothers_does_not_exist(server, create):
    mine = create(metadata={"secret": "yes"})
    other = server.sdk(key=server.user("other"), debug=False)
    id = mine.sandbox_id
    assert Sandbox.kill(id, **other) is False
    for call in (lambda: Sandbox.connect(id, **other), lambda: Sandbox.get_info(id, **other),
                 lambda: Sandbox.set_timeout(id, 1, **other), lambda: Sandbox.get_metrics(id, **other)):
        with pytest.raises(NotFoundException):
            call()
    assert Sandbox.list(**other).next_items() == []
    assert Sandbox.list(SandboxQuery(metadata={"secret": "yes"}), **other).next_items() == []
    theirs = Sandbox.create(timeout=60, **other)
    assert theirs.commands.run("echo theirs").stdout == "theirs\n"
    assert [info.sandbox_id for info in Sandbox.list(**other).next_items()] == [theirs.sandbox_id]
    assert theirs.kill() and mine.is_running()


def with_token(sandbox, sdk, token):
    """The same sandbox for one who knows this token, made as connect() does it."""
    headers = {"E2b-Sandbox-Id": sandbox.sandbox_id, "E2b-Sandbox-Port": "49983"}
    headers |= {"X-Access-Token": token} if token else {}
    config = type(sandbox.connection_config)(extra_sandbox_headers=headers, **sdk)
    return Sandbox(sandbox_id=sandbox.sandbox_id, sandbox_domain=sandbox.sandbox_domain,
                   envd_version=sandbox._envd_version, envd_access_token=token,
                   connection_config=config)


@core
def test_the_api_key_without_the_token_opens_no_sandbox(create, sdk):
    sandbox = create()
    assert sandbox.commands.run("true").exit_code == 0
    for token in (None, "wrong", sandbox._envd_access_token[:-1]):
        other = with_token(sandbox, sdk, token)
        for call in (lambda: other.commands.run("true"), lambda: other.files.read("/etc/hostname"),
                     lambda: other.files.list("/"), lambda: other.files.write("/tmp/x", "x")):
            with pytest.raises(AuthenticationException):
                call()
        assert other.is_running()
    assert with_token(sandbox, sdk, sandbox._envd_access_token).commands.run("true").exit_code == 0


# --- the async client -------------------------------------------------------------------------

@core
async def test_the_async_client_leads_a_whole_life(sdk, server):
    sandbox = await AsyncSandbox.create(timeout=100, metadata={"who": "async"}, envs={"A": "1"}, **sdk)
    try:
        assert await sandbox.is_running()
        assert (await sandbox.commands.run("echo $A")).stdout == "1\n"
        await sandbox.files.write("/tmp/file", "x")
        again = await AsyncSandbox.connect(sandbox.sandbox_id, **sdk)
        assert await again.files.read("/tmp/file") == "x"
        await sandbox.set_timeout(500)
        info = await sandbox.get_info()
        assert 480 < seconds_left(info) <= 500 and info.metadata == {"who": "async"}
        found = []
        paginator = AsyncSandbox.list(SandboxQuery(metadata={"who": "async"}), limit=1, **sdk)
        while paginator.has_next:
            found += await paginator.next_items()
        assert [one.sandbox_id for one in found] == [sandbox.sandbox_id]
        assert (await sandbox.get_metrics())[-1].mem_used > 0
    finally:
        assert await sandbox.kill() is True
    assert await sandbox.kill() is False
    assert await sandbox.is_running() is False
    with pytest.raises(GONE):
        await sandbox.commands.run("true")
    with pytest.raises(NotFoundException):
        await AsyncSandbox.connect(sandbox.sandbox_id, **sdk)


# --- many -------------------------------------------------------------------------------------

@core
@pytest.mark.timeout(180)
async def test_50_sandboxes_at_once_each_do_their_own(sdk, record_property, capsys):
    async def one(i):
        sandbox = await AsyncSandbox.create(timeout=120, envs={"N": str(i)}, **sdk)
        try:
            result = await sandbox.commands.run("echo $N; hostname; sleep 1; echo end")
            return sandbox.sandbox_id, result.stdout.split()
        finally:
            assert await sandbox.kill()

    begun = time.monotonic()
    results = await asyncio.gather(*(one(i) for i in range(50)))
    took = time.monotonic() - begun
    assert [words[0] for _, words in results] == [str(i) for i in range(50)]
    assert all(words[-1] == "end" for _, words in results)
    assert len({id for id, _ in results}) == 50
    record_property("seconds", took)
    with capsys.disabled():
        print(f" [50 sandboxes: {took:.2f} s, each command 1 s of it]", end="")
    assert took < 30 * SLOWER
