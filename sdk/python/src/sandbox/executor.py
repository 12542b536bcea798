"""SandboxExecutor: code in a kernel of a machine, results as Python objects. It has the interface of
smolagents' executors, and needs that package only for tools."""

from __future__ import annotations

import base64
import logging
import pickle
import re
from typing import Any, Dict, Iterable, List, Mapping, Optional, Tuple

from . import _results
from ._kernel import Kernel, without_colours
from .configs import SandboxVMConfig
from .errors import CodeError, VMOperationError
from .sandbox import SandboxVMManager

__all__ = ["CodeOutput", "SandboxExecutor", "SandboxVMConfig"]

_IMPORTS = "import base64, pickle"  # as the documents' code assumes
_PROLOGUE = _IMPORTS + _results.definitions(
    "BaseException"
)  # which `except Exception` lets through
_VERSION = r" *(===?|~=|!=|[<>]=?) *[A-Za-z0-9.*+!_-]+ *"
_PACKAGE = re.compile(
    rf"[A-Za-z0-9][A-Za-z0-9._-]*(\[[A-Za-z0-9,._-]+\])?({_VERSION}(,{_VERSION})*)?"
)


class CodeOutput(Tuple[Any, ...]):
    """A tuple, as the documents have it, whose parts have the names that smolagents gives them.

    >>> output = CodeOutput((1, "log", True))
    >>> output.output, output.is_final_answer, len(output)
    (1, True, 3)
    """

    @property
    def output(self) -> Any:
        return self[0]

    @property
    def logs(self) -> str:
        return str(self[1])

    @property
    def is_final_answer(self) -> bool:
        return len(self) > 2 and bool(self[2])


def agent_error(text: str, logger: Any) -> Exception:
    """An error that is both ours and smolagents'."""
    from smolagents.utils import AgentError

    kind = type("AgentCodeError", (AgentError, CodeError), {})
    made: Exception = kind(text, logger)
    return made


class SandboxExecutor:
    """Started when made. `cleanup()` ends kernel and machine; as a context manager it does so by itself.

    `allow_pickle` lets results of any type come here. It means that code inside can run code here: see
    docs/python.md before.
    """

    def __init__(
        self,
        additional_imports: Iterable[str] = (),
        logger: Any = None,
        config: Optional[SandboxVMConfig] = None,
        preserve_on_exit: bool = False,
        allow_pickle: bool = False,
        code_timeout: Optional[float] = None,
        **kwargs: Any,
    ) -> None:
        self.logger = logger if logger is not None else logging.getLogger("sandbox")
        self.allow_pickle = allow_pickle
        self.code_timeout = code_timeout
        self.installed_packages: List[str] = []
        self._kernel: Optional[Kernel] = None
        self._closed = False
        self.preserve_on_exit = preserve_on_exit
        self.vm = SandboxVMManager(
            config if config is not None else SandboxVMConfig(),
            logger=self.logger,
            preserve_on_exit=preserve_on_exit,
            **kwargs,
        )
        try:
            self.vm.connect_or_start()
            self._kernel = Kernel(
                self.vm.kernel_url,
                self.vm.cfg.sandbox_jupyter_kernel_name,
                prologue=_PROLOGUE,
            )
            self.installed_packages = self.install_packages(list(additional_imports))
        except BaseException:
            self.cleanup()
            raise

    # --- running -----------------------------------------------------------------------------

    def run_code_raise_errors(self, code: str, return_final_answer: bool = False) -> CodeOutput:
        """The result and what was printed. The result is that of `final_answer(...)`, where asked for, or what
        the code printed after RESULT_PICKLE itself; else None. An exception in it is raised here, with its
        traceback."""
        answered = _results.with_result(code) if return_final_answer else None
        result, logs, found, _ = self._run(answered or code)
        if return_final_answer and not found:
            raise self._error(
                "the code gave no final answer: call final_answer(...) at its top level"
            )
        return CodeOutput((result, logs))

    def __call__(self, code_action: str) -> CodeOutput:
        """Result, logs, and whether it is the final answer."""
        answered = _results.with_result(code_action)
        result, logs, found, final = self._run(answered or code_action)
        if answered and not found:
            raise self._error("the code ended before its final answer")
        return CodeOutput((result, logs, final or answered is not None))

    def _run(self, code: str) -> Tuple[Any, str, bool, bool]:
        """Result, output, whether there is a result, and whether final_answer() ended the code."""
        if self._kernel is None:
            raise VMOperationError("the executor was cleaned up")
        ran = self._kernel.run(code, self.code_timeout)
        found, _ = _results.split("".join(ran.stdout))
        final = ran.exception == _results.FINAL and bool(found)
        if ran.error is not None and not final:
            raise self._error(ran.error)
        _, logs = _results.split("".join(ran.logs))
        try:
            result = _results.load(found, self.allow_pickle) if found else None
        except VMOperationError as problem:
            raise self._error(str(problem)) from None
        return result, logs, bool(found), final

    def _error(self, text: str) -> Exception:
        """smolagents' own error where it is used with it: its agents show that one to the model."""
        if hasattr(self.logger, "log_error"):
            return agent_error(text, self.logger)
        return CodeError(text)

    # --- packages, tools, variables ----------------------------------------------------------

    def install_packages(self, additional_imports: List[str]) -> List[str]:
        """With uv, into the kernel's environment. Returns what was asked for."""
        if not additional_imports:
            return []
        for name in additional_imports:
            if not _PACKAGE.fullmatch(name):
                raise VMOperationError(f"{name!r} is not the name of a package")
        words = ["uv", "pip", "install", "--python", "__PYTHON__", *additional_imports]
        code = (
            "import os as _o, subprocess as _s, sys as _y\n"
            f"_d = _s.run([_y.executable if w == '__PYTHON__' else w for w in {words!r}],"
            " env={'UV_NATIVE_TLS': '1', **_o.environ},"  # the machine's authorities, not uv's own
            " stdout=_s.PIPE, stderr=_s.STDOUT, text=True)\n"
            "print(_d.stdout)\nprint('uv-status', _d.returncode)\n"
            "import importlib as _i; _i.invalidate_caches()"
        )
        _, logs, _, _ = self._run(code)
        if "uv-status 0" not in logs:
            names = ", ".join(additional_imports)
            raise self._error(
                f"packages {names} could not be installed: {without_colours(logs).strip()}"
            )
        return list(additional_imports)

    def send_tools(self, tools: Mapping[str, Any]) -> None:
        """Tools of smolagents, with what they need, itself included: installed unless the machine has it."""
        from smolagents.tools import get_tools_definition_code

        tools = {name: tool for name, tool in tools.items() if name != "final_answer"}
        if not tools:
            return
        needed = {p for t in tools.values() for p in t.to_dict().get("requirements", ())}
        if self._has_module("smolagents"):  # a tool is a class of it, so it has to be there
            needed.discard("smolagents")
        else:
            needed.add("smolagents")
        self.installed_packages += self.install_packages(
            sorted(needed - set(self.installed_packages))
        )
        self._run(get_tools_definition_code(tools))

    def _has_module(self, name: str) -> bool:
        _, logs, _, _ = self._run(
            f"import importlib.util as _u; print(_u.find_spec({name!r}) is not None)"
        )
        return logs.strip().endswith("True")

    def send_variables(self, variables: Mapping[str, Any]) -> None:
        """Make them known to the kernel. They go from here to the sandbox, so any pickle will do."""
        if not variables:
            return
        packed = base64.b64encode(pickle.dumps(dict(variables))).decode()
        self._run(f"{_IMPORTS}\nglobals().update(pickle.loads(base64.b64decode({packed!r})))")

    @property
    def state(self) -> Dict[str, Any]:
        """For agents that look here for what was printed; it is in the output."""
        return {}

    # --- ending ------------------------------------------------------------------------------

    def tail_server_logs(self, lines: int = 100) -> str:
        return self.vm.tail_server_logs(lines)

    def cleanup(self) -> None:
        """End the kernel and, unless it is preserved, the machine. Twice is once; errors are logged."""
        if self._closed:
            return
        self._closed = True
        try:
            if self._kernel is not None:
                self._kernel.close(shut_down=True)
                self._kernel = None
            self.vm.__exit__(None, None, None)
        except Exception as problem:
            self.vm._log(f"cleanup: {problem}")

    delete = cleanup

    def __enter__(self) -> SandboxExecutor:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.cleanup()
