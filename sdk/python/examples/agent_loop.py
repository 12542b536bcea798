"""The loop of an agent: a model says what to do, a sandbox does it, the model sees what happened.

The model here is a list of answers, so that this runs anywhere; put a real one into `think()`.
"""

from typing import Dict, List

from cove import CommandResult, Sandbox

ANSWERS = [
    "python3 -c 'print(sum(int(d) for d in str(2**1000)))'",
    "echo 'the sum of the digits of 2**1000' > answer.txt && "
    "python3 -c 'print(sum(int(d) for d in str(2**1000)))' >> answer.txt",
    "DONE",
]


def think(history: List[Dict[str, str]]) -> str:
    """What the model says next."""
    return ANSWERS[len([entry for entry in history if entry["role"] == "assistant"])]


def seen(result: CommandResult) -> str:
    text = result.stdout + result.stderr
    return f"exit status {result.exit_code}\n{text[-4000:]}"


def main() -> None:
    history = [{"role": "user", "content": "What is the sum of the digits of 2**1000?"}]
    with Sandbox.create(network="none", timeout=600) as sandbox:
        while True:
            command = think(history)
            history.append({"role": "assistant", "content": command})
            if command == "DONE":
                break
            result = sandbox.commands.run(command, timeout=60)
            history.append({"role": "tool", "content": seen(result)})
            print(f"$ {command}\n{history[-1]['content']}")
        print(sandbox.files.read("answer.txt"))


if __name__ == "__main__":
    main()
