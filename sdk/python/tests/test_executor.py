"""The package `sandbox`: executors, and what comes back from the code that they run."""

from __future__ import annotations

import base64
import codecs
import collections
import concurrent.futures
import datetime
import decimal
import fractions
import pickle
import socket
import threading
import uuid
from pathlib import Path

import pytest
from machines import kill_first_process, wait_for
from marks import needs_root

import cove
from cove import _server
from sandbox import (
    VMOperationError,
    VMState,
    _results,
)
from sandbox.agent import AgentVMConfig, AgentVMManager
from sandbox.configs import SandboxVMConfig
from sandbox.errors import CodeError, VMManagerError
from sandbox.executor import SandboxExecutor
from sandbox.python_executer import SandboxPythonExecutor

pytestmark = [needs_root, pytest.mark.usefixtures("at_vm_server")]


@pytest.fixture
def executor(config):
    with SandboxExecutor([], None, config) as made:
        yield made


def test_the_documents_code_gives_its_object(executor):
    code = """
from math import sqrt
x = 9
_result = sqrt(x)
print("RESULT_PICKLE:" + base64.b64encode(pickle.dumps(_result)).decode())
"""
    assert executor.run_code_raise_errors(code) == (3.0, "")
    assert executor.run_code_raise_errors("print(x)") == (None, "9\n"), "variables are kept"


def test_results(executor):
    run = executor.run_code_raise_errors
    assert run("print('before')\nfinal_answer([1, 'a', None])", return_final_answer=True) == (
        [1, "a", None],
        "before\n",
    )
    assert (
        run("final_answer({'d': __import__('datetime').date(2026, 1, 2)})", True)[0]["d"].year
        == 2026
    )
    text, _ = run("final_answer('x' * 200_000)", True)
    assert text == "x" * 200_000
    assert executor("1 + 1") == (None, "", False)
    assert executor("y = 2\nfinal_answer(\n  y * 21\n)") == (42, "", True)
    assert executor("final_answer(answer=5)").output == 5


FINAL_ANSWERS = [
    ("final_answer(1)\nfinal_answer(2)", (1, "", True)),
    ("for n in range(9):\n    print(n)\n    if n == 1:\n        final_answer(n)", (1, "0\n1\n", True)),
    ("def f():\n    try:\n        final_answer([3])\n    except Exception: pass\nf()", ([3], "", True)),
    ("if 0:\n    final_answer(1)\nprint('on')", (None, "on\n", False)),
    ("given = [4]\nfinal_answer(*given)", (4, "", True)),
]  # fmt: skip


def test_a_final_answer_anywhere_in_the_code(executor):
    """As agents write it: in a branch, a loop, a function, more than one. The first that is reached counts."""
    with AgentVMManager(AgentVMConfig(unique_container_name=True)) as manager:
        for run in (executor, SandboxPythonExecutor(manager, [])):
            for code, wanted in FINAL_ANSWERS:
                assert run(code) == wanted, code
                assert run("print('next')") == (None, "next\n", False)


def test_a_final_answer_beside_a_magic(executor):
    result, logs, final = executor("!echo magic\nfinal_answer(3)")
    assert (result, logs.split(), final) == (3, ["magic"], True)
    with pytest.raises(CodeError, match="ZeroDivisionError"):
        executor("if True:\n    final_answer(1/0)")


def test_types_that_are_not_plain_come_as_json(executor):
    code = "import dataclasses\n@dataclasses.dataclass\nclass P:\n  a: int\nfinal_answer([P(1), {2, 3}])"
    assert executor.run_code_raise_errors(code, True)[0] == [{"a": 1}, [2, 3]]


def test_a_result_that_cannot_be_sent(executor):
    with pytest.raises(CodeError, match=r"cannot be sent|pickle"):
        executor.run_code_raise_errors("final_answer(lambda: 1)", True)


def test_a_hostile_pickle_does_nothing(executor, tmp_path):
    victim = tmp_path / "touched"
    evil = base64.b64encode(b"cos\nsystem\n(S'touch " + str(victim).encode() + b"'\ntR.").decode()
    with pytest.raises(CodeError, match=r"os\.system.*allow_pickle"):
        executor.run_code_raise_errors(f"print('RESULT_PICKLE:{evil}')")
    assert not victim.exists()
    executor.allow_pickle = True
    value, _ = executor.run_code_raise_errors("final_answer(Exception('x'))", True)
    assert isinstance(value, Exception)


@pytest.mark.parametrize(
    "value",
    [
        {1, 2}, frozenset("ab"), bytearray(b"x\xff"), collections.deque([1, 2], 5), b"\x00\xff",
        fractions.Fraction(-1, 3), decimal.Decimal("1.5"), collections.OrderedDict(a=1), range(9), 2 + 1j,
        datetime.datetime(2026, 1, 2, tzinfo=datetime.timezone.utc), uuid.UUID(int=5), 10**50,
        collections.Counter("aab"), {"a": [None, True, 1.5, ("b",)]},
    ],
    ids=lambda value: type(value).__name__,
)  # fmt: skip
def test_plain_data_comes_back_in_every_protocol_that_is_in_use(value):
    for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
        found = base64.b64encode(pickle.dumps(value, protocol)).decode()
        assert _results.load({"pickle": found}, False) == value


class Reduces:
    def __init__(self, kind, *given):
        self.made_by = (kind, given)

    def __reduce__(self):
        return self.made_by


@pytest.mark.parametrize(
    "bomb",
    [
        Reduces(set, range(10**12)), Reduces(frozenset, range(10**12)), Reduces(bytearray, 10**13),
        Reduces(collections.deque, range(10**12)), Reduces(collections.Counter, range(10**12)),
        Reduces(fractions.Fraction, "1e999999999"),
        Reduces(codecs.encode, "x", "rot13"), Reduces(eval, "1"), Reduces(getattr, "x", "join"),
    ],
    ids=lambda bomb: bomb.made_by[0].__name__,
)  # fmt: skip
def test_a_pickle_that_is_larger_than_it_looks_is_refused(bomb):
    found = base64.b64encode(pickle.dumps(bomb)).decode()
    with pytest.raises(VMOperationError, match="may not bring here"):
        _results.load({"pickle": found}, False)


@pytest.mark.parametrize(
    "name", ["uuid UUID", "uuid SafeUUID", "collections Counter", "ipaddress IPv4Address", "builtins set",
             "datetime date", "decimal Decimal", "collections OrderedDict"],
)  # fmt: skip
def test_a_pickle_cannot_change_a_class(name):
    """BUILD with a pair sets attributes of whatever is on the stack, which may be a class of ours."""
    module, kind = name.split()
    evil = f"c{module}\n{kind}\n".encode() + b"(N(dVtouched\nI1\nstb."
    with pytest.raises(VMOperationError):
        _results.load({"pickle": base64.b64encode(evil).decode()}, False)
    assert not hasattr(getattr(__import__(module), kind), "touched")


def test_a_machine_that_ends_under_its_executor(config):
    config.restart_policy = "no"
    with SandboxExecutor([], None, config) as executor:
        ending = threading.Timer(1, executor.vm.container.kill)
        ending.start()
        with pytest.raises(VMOperationError, match="connection to the kernel is lost"):
            executor.run_code_raise_errors("import time; time.sleep(600)")
        ending.join()
        with pytest.raises(VMOperationError):
            executor.run_code_raise_errors("1")
        with pytest.raises(VMOperationError):
            executor.vm.sandbox_client.health()


def test_a_server_that_goes_under_its_executor(config, monkeypatch, tmp_path):
    monkeypatch.delenv("COVE_URL")
    monkeypatch.delenv("COVE_API_KEY")
    with SandboxExecutor([], None, config) as executor:  # on a private server of this directory
        ending = threading.Timer(1, _server.private((str(config.root_dir),)).stop)
        ending.start()
        with pytest.raises(VMOperationError, match="connection to the kernel is lost"):
            executor.run_code_raise_errors("import time; time.sleep(600)")
        ending.join()
        with pytest.raises(VMManagerError):
            executor.vm.sandbox_health()
    assert executor.vm.state is VMState.STOPPED, "cleanup works without a server"
    assert not Path("docker").exists()


def test_errors_have_the_whole_traceback_without_colours(executor):
    with pytest.raises(CodeError) as caught:
        executor.run_code_raise_errors("def f():\n    return 1/0\nprint('x')\nf()")
    text = str(caught.value)
    assert "ZeroDivisionError" in text and "in f" in text and "\x1b" not in text
    with pytest.raises(CodeError, match="SyntaxError"):
        executor.run_code_raise_errors("def", return_final_answer=True)
    with pytest.raises(CodeError, match="no final answer"):
        executor.run_code_raise_errors("1", return_final_answer=True)
    assert executor.run_code_raise_errors("print(1)")[1] == "1\n", "it goes on"


@pytest.mark.network
def test_variables_and_packages(executor):
    executor.send_variables({"sent": {"k": [1, 2]}})
    assert executor("final_answer(sent['k'][1])")[0] == 2
    with pytest.raises(VMOperationError, match="not the name of a package"):
        executor.install_packages(["x; rm -rf /"])
    with pytest.raises(CodeError):
        executor.install_packages(["no-such-package-anywhere"])
    for wanted in (["iniconfig>=1,<3"], ["iniconfig >= 1, != 99"]):
        assert executor.install_packages(wanted) == wanted


def test_a_dead_kernel_and_a_slow_code(executor):
    with pytest.raises(VMOperationError, match="kernel died"):
        executor.run_code_raise_errors("import os; os._exit(3)")
    wait_for(lambda: answers(executor))
    executor.send_variables({"sent": [1]})
    executor.code_timeout = 1
    with pytest.raises(CodeError, match="longer than 1 s"):
        executor.run_code_raise_errors("import time; time.sleep(600)")
    executor.code_timeout = None
    assert executor("final_answer(sent + [2])")[0] == [1, 2], "it goes on, with its variables"


def test_a_kernel_that_was_started_again_has_the_documents_imports(executor):
    with pytest.raises(VMOperationError, match="kernel died"):
        executor.run_code_raise_errors("import os; os._exit(3)")
    wait_for(lambda: answers(executor))
    code = "print('RESULT_PICKLE:' + base64.b64encode(pickle.dumps(7)).decode())"
    assert executor.run_code_raise_errors(code)[0] == 7


def test_an_executor_that_nobody_used_for_a_while_goes_on(executor, monkeypatch):
    """The guest closes a connection whose peer answers no pings: not an error of the next code."""
    executor("x = 5")
    monkeypatch.setattr("sandbox._kernel._QUIET_S", 0.0)
    executor._kernel._socket.sock.shutdown(socket.SHUT_RDWR)
    assert executor("final_answer(x)")[0] == 5, "variables are kept"


def test_threads_share_an_executor(executor):
    def one(number):
        code = f"import time; time.sleep(0.2)\nfinal_answer({number})"
        return executor.run_code_raise_errors(code, True)[0]

    pool = concurrent.futures.ThreadPoolExecutor(4)
    try:
        found = [pool.submit(one, number) for number in range(4)]
        assert [f.result(60) for f in found] == [0, 1, 2, 3]
    finally:
        executor.cleanup()  # ends what would wait for ever
        pool.shutdown()


def test_an_executor_goes_on_after_its_machine_was_started_again(executor):
    kill_first_process(executor.vm.container)
    wait_for(lambda: "restarted" in [event.kind for event in executor.vm.container.events()])
    with pytest.raises(VMOperationError, match=r"lost|is gone"):
        executor("x = 1")
    wait_for(lambda: answers(executor))


def answers(executor):
    try:
        return executor("final_answer(1)")[0] == 1
    except VMOperationError:
        return False


def test_cleanup_is_idempotent_and_final(config):
    executor = SandboxExecutor([], None, config)
    assert "serving" in executor.tail_server_logs()
    threads = threading.active_count()
    executor.cleanup()
    executor.cleanup()
    executor.delete()
    assert threading.active_count() <= threads
    with pytest.raises(VMOperationError, match="cleaned up"):
        executor.run_code_raise_errors("1")


def test_a_constructor_that_fails_leaves_nothing(config):
    with pytest.raises(CodeError):
        SandboxExecutor(["no-such-package-anywhere"], None, config)
    assert cove.Sandbox.list() == []


def test_a_kernel_of_an_unknown_kind_is_the_default_one(config):
    config.sandbox_jupyter_kernel_name = "sandbox-kernel"
    with SandboxExecutor([], None, config) as executor:
        assert executor("final_answer(1)")[0] == 1


@pytest.mark.network
def test_an_agent_of_smolagents(config):
    smolagents = pytest.importorskip("smolagents")

    class Model(smolagents.Model):
        said = iter(
            ["<code>\nx = double(4)\nprint(x)\n</code>", "<code>\nfinal_answer(x + 1)\n</code>"]
        )

        def generate(self, messages, **_):
            return smolagents.ChatMessage(
                role="assistant", content="Thought: go\n" + next(self.said)
            )

    from smolagents import tool

    @tool
    def double(n: int) -> int:
        """Twice the number.

        Args:
            n: the number
        """
        return n * 2

    from smolagents.monitoring import AgentLogger, LogLevel

    with SandboxExecutor([], AgentLogger(LogLevel.OFF), config) as executor:
        agent = smolagents.CodeAgent(
            tools=[double], model=Model(), executor=executor, verbosity_level=0
        )
        assert agent.run("double it") == 9


def test_twenty_machines_at_once():
    together = threading.Barrier(20)

    def one(number):
        config = SandboxVMConfig(container_name=f"m{number}", vm_ram="256M", vm_cpu_cores=1)
        with SandboxExecutor([], None, config) as executor:
            together.wait(120)  # all of them run now, so no port can have been used twice
            executor.send_variables({"n": number})
            executor.vm.container.commands.run(f"echo {number} > /shared/who", check=True)
            ports = (config.host_sandbox_server_port, config.host_sandbox_jupyter_kernel_port)
            return (
                executor("final_answer(n)")[0],
                (config.container_shared_dir / "who").read_text(),
                ports,
            )

    with concurrent.futures.ThreadPoolExecutor(20) as pool:
        found = list(pool.map(one, range(20)))
    assert [(n, text) for n, text, _ in found] == [(n, f"{n}\n") for n in range(20)]
    assert len({p for _, _, ports in found for p in ports}) == 40
