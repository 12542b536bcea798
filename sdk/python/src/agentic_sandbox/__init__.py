"""Agentic sandboxes: one context manager is one sandbox.

>>> from agentic_sandbox import SandboxClient
>>> with SandboxClient(template_name="python-sandbox-template") as sandbox:
...     result = sandbox.run("echo 'Hello, World!'")
...     print(result.stdout, end="")
Hello, World!

Against a Kubernetes cluster with the agent-sandbox controller this makes a SandboxClaim and goes through
its gateway. On one machine with Cove (COVE_URL is set, or there is no cluster) the same calls use a sandbox
of Cove.
"""

from .client import ExecutionResult, SandboxClient, SandboxError, SandboxTimeoutError

__all__ = ["ExecutionResult", "SandboxClient", "SandboxError", "SandboxTimeoutError"]
