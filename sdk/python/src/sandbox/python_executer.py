"""SandboxPythonExecutor: code by the REST service of an AgentVMManager. Nothing is kept between calls but the
variables and tools that were sent."""

from __future__ import annotations

import base64
import logging
import pickle
import re
from typing import Any, Dict, List, Mapping, Optional

from . import _results
from .agent import AgentVMManager
from .errors import CodeError, VMOperationError
from .executor import CodeOutput, agent_error

__all__ = ["SandboxPythonExecutor"]

_MARK = "FINAL_ANSWER_PICKLE:"
# Many a package has a module of another name: then that it is installed has to do.
_CHECK = """
import importlib, importlib.metadata
try:
    importlib.import_module({module!r})
except ModuleNotFoundError as problem:
    if problem.name != {module!r}:
        raise
    importlib.metadata.distribution({module!r}.replace("_", "-"))
"""
_DEFINITIONS = _results.definitions("SystemExit", _MARK)  # by which a program ends without a word


class SandboxPythonExecutor:
    """An executor for a machine that runs."""

    def __init__(
        self,
        agent_vm: AgentVMManager,
        additional_imports: Optional[List[str]] = None,
        logger: Any = None,
        allow_pickle: bool = False,
    ) -> None:
        self.agent_vm = agent_vm
        self.logger = logger if logger is not None else logging.getLogger("sandbox")
        self.allow_pickle = allow_pickle
        self.installed_packages: List[str] = []
        self._before = ""
        try:
            health = agent_vm.sandbox_health()
        except VMOperationError as problem:
            raise ConnectionError(str(problem)) from problem
        if health.get("status") != "ok":
            raise ConnectionError(f"the machine's service is not well: {health}")
        if additional_imports:
            self.install_packages(list(additional_imports))

    def install_packages(self, additional_imports: List[str]) -> List[str]:
        """Install, and see that each can be imported."""
        answer = self.agent_vm.sandbox_execute_code("", packages=additional_imports)
        if answer.get("stderr"):
            raise self._error(str(answer["stderr"]))
        for package in additional_imports:
            module = re.split(r"\[|==|>|<|~|!", package)[0].strip().replace("-", "_")
            answer = self.agent_vm.sandbox_execute_code(_CHECK.format(module=module))
            if answer.get("stderr"):
                raise self._error(f"{package} was installed, but: {answer['stderr']}")
        self.installed_packages += additional_imports
        return additional_imports

    def run_code_raise_errors(self, code: str, return_final_answer: bool = False) -> CodeOutput:
        """The result and what was printed; anything on standard error is an error."""
        answered = _results.with_result(code, _MARK) if return_final_answer else None
        result, logs, found = self._run(answered or self._with_function(code))
        if return_final_answer and not found:
            raise self._error(
                "the code gave no final answer: call final_answer(...) at its top level"
            )
        return CodeOutput((result, logs))

    def __call__(self, code_action: str) -> CodeOutput:
        answered = _results.with_result(code_action, _MARK)
        result, logs, found = self._run(answered or self._with_function(code_action))
        if answered and not found:
            raise self._error("the code ended before its final answer")
        return CodeOutput((result, logs, found and "final_answer" in code_action))

    @staticmethod
    def _with_function(code: str) -> str:
        """Only where it is called: what comes before the code moves the lines of its tracebacks."""
        return f"{_DEFINITIONS}\n{code}" if "final_answer" in code else code

    def _run(self, code: str) -> Any:
        answer = self.agent_vm.sandbox_execute_code(self._before + code)
        if answer.get("stderr"):
            raise self._error(str(answer["stderr"]))
        found, logs = _results.split(str(answer.get("stdout", "")))
        try:
            return (_results.load(found, self.allow_pickle) if found else None), logs, bool(found)
        except VMOperationError as problem:
            raise self._error(str(problem)) from None

    def _error(self, text: str) -> Exception:
        if hasattr(self.logger, "log_error"):
            return agent_error(text, self.logger)
        return CodeError(text)

    def send_variables(self, variables: Mapping[str, Any]) -> None:
        """Known to every call from now on."""
        packed = base64.b64encode(pickle.dumps(dict(variables))).decode()
        self._before += (
            f"import base64, pickle\nglobals().update(pickle.loads(base64.b64decode({packed!r})))\n"
        )

    def send_tools(self, tools: Mapping[str, Any]) -> None:
        """Tools of smolagents; known to every call from now on."""
        from smolagents.tools import get_tools_definition_code

        tools = {name: tool for name, tool in tools.items() if name != "final_answer"}
        if not tools:
            return
        needed = {p for t in tools.values() for p in t.to_dict().get("requirements", ())}
        needed.add("smolagents")  # a tool is a class of it, so it has to be there
        if not self.agent_vm.sandbox_execute_code("import smolagents").get("stderr"):
            needed.discard("smolagents")
        missing = sorted(needed - set(self.installed_packages))
        if missing:
            self.install_packages(missing)
        self._before += get_tools_definition_code(tools) + "\n"

    def get_installed_packages(self) -> List[str]:
        found: List[Dict[str, Any]] = self.agent_vm.sandbox_list_installed_packages()
        return [str(item.get("name", "")) for item in found]

    def cleanup(self) -> None:
        """The machine is its manager's."""
        self._before = ""
