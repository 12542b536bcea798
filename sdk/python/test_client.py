#!/usr/bin/env python3
"""Tries a SandboxClient: command execution and file operations.

python test_client.py --gateway-name="external-http-gateway"

With Cove on one machine no argument is needed.
"""

from __future__ import annotations

import argparse
import sys

from agentic_sandbox import SandboxClient


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--template-name", default="python-sandbox-template")
    parser.add_argument("--gateway-name", default=None)
    parser.add_argument("--api-url", default=None)
    parser.add_argument("--namespace", default="default")
    parser.add_argument("--server-port", type=int, default=8888)
    options = parser.parse_args()

    print(f"--- a sandbox of {options.template_name} in {options.namespace}")
    with SandboxClient(
        template_name=options.template_name,
        namespace=options.namespace,
        gateway_name=options.gateway_name,
        api_url=options.api_url,
        server_port=options.server_port,
    ) as sandbox:
        print("--- command execution")
        result = sandbox.run("echo 'Hello from the sandbox!'")
        print(result)
        assert result.exit_code == 0 and result.stdout == "Hello from the sandbox!\n", result
        print("--- command execution passed")

        print("--- file operations")
        sandbox.write("test.txt", "This is a test file.")
        assert sandbox.read("test.txt") == b"This is a test file."
        print("--- file operations passed")

        print(sandbox.run("ls -la /app").stdout)
        print(sandbox.run("env").stdout)
    print("--- all passed")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Exception as problem:
        print(f"FAILED: {problem}", file=sys.stderr)
        sys.exit(1)
